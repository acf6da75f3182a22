//! The aggregator's side of the protocol and the conduct of a round, sans-io: time, frames and what became of a write are
//! arguments.
//!
//! | module | what it knows |
//! |---|---|
//! | [`coordinator`](Coordinator) | connections, frames, transfers, and which round is open |
//! | [`conductor`] | which exchange comes next, when a round is combined, and what is committed |
//! | [`exchange`] | who is asked in the open exchange, and what has arrived |
//! | [`fleet`] | the devices that the run knows |
//! | [`patience`] | how long a round waits, and for whom |
//! | [`published`] | what devices fetch, cut into frames once |
//! | [`report`] | what is told of a round |
#![forbid(unsafe_code)]

pub mod announcement;
pub mod conductor;
mod coordinator;
pub mod exchange;
pub mod fleet;
pub mod patience;
pub mod published;
pub mod record;
pub mod report;

pub use coordinator::*;
