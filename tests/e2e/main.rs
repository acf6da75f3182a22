//! FairTier end to end.
//!
//! | module | what it holds |
//! |---|---|
//! | `rounds` | runs of the real programs over QUIC: learning, slices, restarts |
//! | `simulation` | whole runs over bad links in memory, and every strategy |
#![expect(clippy::unwrap_used, reason = "a panic is a failed test")]

mod rounds;
mod simulation;
