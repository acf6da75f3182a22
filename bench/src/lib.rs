//! Measures FairTier: [`load`] puts a real gateway under the load of many connections, beside bare QUIC streams;
//! [`attack`] shows what the guard costs honest devices and what it saves from hostile ones.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)]

pub mod attack;
pub mod cli;
pub mod load;
