//! Whole fleets in one process.
//!
//! [`data`] holds data sets and [`partition`] divides them among devices.
//! [`attack`] shows what hostile devices can do.
//! [`engine`] simulates whole fleets in virtual time. [`demo`] runs a real aggregator and real clients over loopback QUIC and compares strategies on
//! them; [`report`] turns what came out into a table, a self-contained page or a picture.
#![forbid(unsafe_code)]

pub mod attack;
pub mod data;
pub mod demo;
pub mod engine;
pub mod partition;
pub mod report;
