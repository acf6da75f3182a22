//! Measures FairTier: [`load`] loads a real gateway with many connections and compares it with bare QUIC streams;
//! [`attack`] measures what the guard costs honest devices and how much damage it prevents.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)]

pub mod attack;
pub mod cli;
pub mod load;
