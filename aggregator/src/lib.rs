//! The gateway of a fleet: sockets, admission, identity, the store and the service around a
//! [`Coordinator`](coordinator::Coordinator).
//!
//! | module | what it knows | what it does not know |
//! |---|---|---|
//! | [`store`] | disks | what an update means |
//! | [`quic`], [`admission`], [`ca`] | sockets, their limits, certificates | rounds |
//! | [`config`] | `fairtier.toml` | |
//! | [`run`], [`driver`], [`worker`], [`server`] | how these meet | |
#![forbid(unsafe_code)]
// `println!` panics when the reader has gone; see `cli/output.rs`.
#![deny(clippy::print_stdout)]

pub mod admission;
pub mod ca;
pub mod cli;
mod clock;
pub mod config;
pub mod driver;
pub mod quic;
pub mod run;
pub mod scales;
pub mod server;
pub mod status;
pub mod store;
pub mod worker;
