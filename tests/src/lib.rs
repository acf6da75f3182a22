//! Building blocks of the end-to-end tests.
//!
//! | module | what it starts |
//! |---|---|
//! | [`gateway`], [`process`] | the real programs, in a temporary directory |
//! | [`relay`] | UDP between the real programs that loses, repeats, delays, reorders, cuts off, changes ports |
//! | [`forge`] | packets that an attacker on the path can forge |
//! | [`postgres`] | a PostgreSQL server of its own |
//! | [`raw`] | a QUIC client that sends arbitrary frames, for hostile devices |
//! | [`browser`] | a real browser, driven through its debugging protocol |
//! | [`board`] | the same for boards, through a real bridge |
//! | [`memory`], [`link`] | Coordinator, RoundWorker and Sessions in one thread, over a link that loses, repeats, reorders, garbles and breaks, in virtual time |
//! | [`hil`] | boards, emulated or real, in a fleet with Linux clients |
//! | [`older`] | a gateway's directory as an older program left it |
//! | [`openmetrics`] | a strict reader of what a monitor reads |
//! | [`seeds`] | many runs on all processors |
//! | [`tools`] | browser, emulator and tracer, or the reason why a test is skipped |
//!
//! Everything here may panic: it is part of tests only, and a panic with a reason is a failed test.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "helpers of tests: a panic is a failed test")]

pub mod board;
pub mod browser;
pub mod forge;
pub mod gateway;
pub mod hil;
pub mod link;
pub mod memory;
pub mod older;
pub mod openmetrics;
pub mod postgres;
pub mod process;
pub mod raw;
pub mod relay;
pub mod seeds;
pub mod tools;
