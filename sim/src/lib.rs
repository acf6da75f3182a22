//! Whole fleets in one process.
//!
//! [`data`] holds data sets, and [`partition`] divides them among devices. [`engine`] simulates fleets in virtual
//! time, and [`experiment`] runs the papers' experiments on it. [`results`] is their output, and [`keep`] makes a
//! small copy of it for the repository. [`claims`] compares results with the papers. [`report`] writes results as
//! tables, self-contained pages and pictures.
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
