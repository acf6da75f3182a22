//! Whole fleets in one process.
//!
//! [`data`] holds data sets and [`partition`] divides them among devices.
//! [`engine`] simulates whole fleets in virtual time; [`experiment`] runs the papers' experiments on it, and
//! [`results`] is what they leave behind, of which [`keep`] makes a small copy to be committed.
//! [`claims`] is what the papers say and whether results show it; [`report`] turns what came out into a table,
//! a self-contained page or a picture.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)]

pub mod claims;
pub mod cli;
pub mod data;
pub mod engine;
pub mod experiment;
pub mod keep;
pub mod number;
pub mod partition;
mod progress;
pub mod report;
pub mod results;
