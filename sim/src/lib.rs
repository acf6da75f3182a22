//! Whole fleets in one process.
//!
//! [`data`] holds data sets, and [`partition`] divides them among devices. [`engine`] simulates fleets in virtual
//! time, and [`experiment`] runs the papers' experiments on it. [`results`] is their output, and `keep` makes a
//! small copy of it for the repository. `claims` compares results with the papers. [`report`] writes results as
//! tables, self-contained pages and pictures.
//!
//! Twelve devices in two tiers, trained by FedAvg and by FairHeteroFL:
//!
//! ```
//! use fairtier_sim::experiment::{LoadedExperiment, RunOptions, run};
//! use strategies::Registry;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let experiment = LoadedExperiment::parse("tiers", r#"
//!     title = "Fairness between tiers"
//!     model = "digits-mlp"
//!     rounds = 5
//!     seeds = [1]
//!     data = { set = "digits", partition = "dominant:0.8", clients = 12, testing = 0.25 }
//!     fleet = { tiers = [1, 0.25] }
//!     training = { epochs = 1, batch = 16, lr = 0.1 }
//!     strategies = [
//!         { id = "plain", label = "FedAvg", name = "fedavg" },
//!         { id = "fair", label = "FairHeteroFL", name = "fairheterofl", params = { q = 10 } },
//!     ]
//! "#, "full", &[])?;
//! # let temporary = tempfile::tempdir()?;
//! # let out = temporary.path().to_owned();
//! let options = RunOptions { out, data: None, threads: 2, registry: Registry::standard(), twin: false, runs: None };
//! let [plain, fair] = &run(&experiment, &options, &mut |_| {})?.units[..] else { return Err("two runs".into()) };
//! println!("variance between tiers: {:.3} and {:.3}", plain.last.inter, fair.last.inter);
//! assert!(fair.last.inter < plain.last.inter);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![deny(clippy::print_stdout)]

mod claims;
pub mod cli;
pub mod data;
pub mod engine;
pub mod experiment;
mod keep;
mod leaderboard;
pub mod partition;
mod progress;
pub mod report;
pub mod results;
mod statistics;
