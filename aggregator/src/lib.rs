//! The gateway of a fleet: conducts rounds, turns their updates into the next global model, keeps both.
//!
//! | module | what it knows | what it does not know |
//! |---|---|---|
//! | [`coordinator`], [`round`], [`stage`], [`fleet`] | the protocol, sans-io | sockets, disks, clocks |
//! | [`combine`] | updates, weights, regions, the fold in `f64` | which strategy, where updates lie |
//! | [`strategy`] | how much every update counts in every region | sockets, selection, disks |
//! | [`roundfile`] | one round as an open file, to check or to compute again | live rounds |
//! | [`store`] | disks | what an update means |
//! | [`quic`], [`gate`], [`ca`], [`enrol`] | sockets, their limits, certificates | rounds |
//! | [`run`], [`hub`], [`keeper`], [`server`] | how these meet | |
#![forbid(unsafe_code)]

pub mod ca;
pub mod combine;
pub mod config;
pub mod coordinator;
pub mod enrol;
pub mod fleet;
pub mod gate;
pub mod hub;
pub mod keeper;
pub mod model;
pub mod patience;
pub mod quic;
pub mod report;
pub mod round;
pub mod roundfile;
pub mod run;
pub mod server;
pub mod stage;
pub mod status;
pub mod store;
pub mod strategy;
