//! The device: holds a Shard, trains a Plan in one arena, sends back an Update.
//!
//! Without features this is `no_std` and needs no heap: [`session`] is the device's side of the protocol, [`serial`] carries
//! it over a serial line, and the crate `trainer`, re-exported as [`train`] and [`data`], does the computing.
//! Feature `host` adds the QUIC client and its command line; feature `digits` a built-in data set.
#![cfg_attr(not(any(feature = "host", test)), no_std)]
#![forbid(unsafe_code)]

#[cfg(feature = "host")]
pub mod cli;
#[cfg(feature = "host")]
pub mod host;
pub mod serial;
pub mod session;

pub use session::{Event, Profile, Session};
pub use trainer::{data, train};
