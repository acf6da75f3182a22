//! FairTier end to end.
//!
//! | module | what it holds |
//! |---|---|
//! | `simulation` | whole runs over bad links in memory, and every strategy |
#![expect(clippy::unwrap_used, reason = "a panic is a failed test")]

mod simulation;
