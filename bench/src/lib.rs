//! Measures FairTier. `fairtier bench load` loads a real gateway with many connections and compares it with bare QUIC streams.
//! [`attack`] measures what the guard costs honest devices and how much damage it prevents.
//!
//! A fifth of the devices reports a million times its losses, without the guard and with it:
//!
//! ```
//! use fairtier_bench::attack::{AttackOptions, run};
//! use strategies::Registry;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut options = AttackOptions { devices: 10, rounds: 10, seeds: 1, ..AttackOptions::default() };
//! options.rows = vec!["loss-x1e6:20".parse()?];
//! options.guards.truncate(2); // "off" and "default"
//!
//! let result = run(&Registry::standard(), &options, |_done, _all| {})?;
//! let [off, default] = &result.rows[0].cells[..] else { return Err("two guards".into()) };
//! println!("mean loss of honest devices: {:+.0} % and {:+.0} %", off.loss.mean, default.loss.mean);
//! assert!(default.loss.mean < off.loss.mean);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![deny(clippy::print_stdout)]

pub mod attack;
pub mod cli;
mod load;
