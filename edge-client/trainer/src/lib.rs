//! What a device computes: [`train`] executes Plans in one arena, [`data`] reads samples.
//!
//! Without features this is `no_std`, needs no heap, and gives the same bits on a microcontroller and on a host. Feature `host`
//! adds the fast backend, data files and partitions; feature `digits` a built-in data set. It is a separate crate, so that
//! tools for models can train without the device's protocol.
#![cfg_attr(not(any(feature = "host", test)), no_std)]
#![cfg_attr(not(feature = "host"), forbid(unsafe_code))]
#![cfg_attr(feature = "host", deny(unsafe_code))]

pub mod data;
pub mod train;
