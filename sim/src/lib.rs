//! Whole fleets in one process.
//!
//! [`demo`] runs a real aggregator and real clients over loopback QUIC and compares strategies on
//! them; [`report`] turns what came out into a table, a self-contained page or a picture.
#![forbid(unsafe_code)]

pub mod demo;
pub mod report;
