//! The gateway of a fleet: turns the updates of a round into the next global model and keeps both.
//!
//! | module | what it knows | what it does not know |
//! |---|---|---|
//! | [`combine`] | updates, weights, regions, the fold in `f64` | which strategy, where updates lie |
//! | [`strategy`] | how much every update counts in every region | sockets, selection, disks |
//! | [`store`] | disks | what an update means |
#![forbid(unsafe_code)]

pub mod combine;
pub mod store;
pub mod strategy;
