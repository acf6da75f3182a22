//! The device: holds a Shard, trains a Plan in one arena, sends back an Update.
//!
//! Without features this is `no_std` and needs no heap: [`train`] executes Plans and [`data`] reads
//! samples, on a microcontroller and on a host with the same bits. Feature `host` adds the fast
//! backend, data files and partitions; feature `digits` adds a built-in data set.
#![cfg_attr(not(any(feature = "host", test)), no_std)]
#![cfg_attr(not(feature = "host"), forbid(unsafe_code))]
#![cfg_attr(feature = "host", deny(unsafe_code))]

pub mod data;
#[cfg(feature = "host")]
pub mod host;
pub mod session;
pub mod train;

pub use session::{Event, Profile, Session};
