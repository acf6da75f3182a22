//! The gateway of a fleet: sockets, admission, identity, the store and the service around a
//! [`Coordinator`](coordinator::Coordinator).
//!
//! | module | what it knows | what it does not know |
//! |---|---|---|
//! | [`store`] | disks | what an update means |
//! | [`quic`], [`admission`], [`ca`] | sockets, their limits, certificates | rounds |
//! | [`config`] | `fairtier.toml` | |
//! | [`runs`] | the runs in a directory, and which is active | |
//! | [`backup`], [`check`], [`reload`] | what an operator does beside a run | rounds |
//! | [`live`] | the present state of a run, for pages and metrics | how it is shown |
//! | `http` (feature `dashboard`) | the dashboard, metrics, and their HTTP listener | rounds |
//! | [`run`], [`driver`], [`worker`], [`server`] | how these meet | |
//!
//! A gateway inside another program, with one enrolled device:
//!
//! ```
//! use common::files::{Secrecy, write_file};
//! use fairtier_aggregator::{ca::Authority, config::Config, server::Server};
//! use strategies::Registry;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let temporary = tempfile::tempdir()?;
//! # let dir = temporary.path();
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! // `dir` holds everything of the gateway. Keys that are absent have their defaults; port 0 is any free port.
//! let config = Config::parse(r#"
//!     model = { source = "mlp:4-16-3", tiers = [1.0, 0.5] }
//!     run = { rounds = 10 }
//!     server = { listen = "127.0.0.1:0" }
//! "#)?;
//! let identity = Authority::create(dir)?.enroll(&"cam-1".parse()?)?;
//! write_file(&dir.join("cam-1.pem"), identity.as_bytes(), Secrecy::Secret)?;
//!
//! let server = Server::start(&Registry::standard(), &config, dir, None)?;
//! println!("fairtier device run --server {} --identity cam-1.pem", server.address());
//! // `server.finished().await` returns after ten rounds. The model is on disk from the start.
//! assert!(dir.join("model.onnx").exists());
//! server.stop().await?;
//! # Ok(())
//! # })
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]
// `println!` panics when the reader has gone; see `cli/output.rs`.
#![deny(clippy::print_stdout)]

pub mod admission;
pub mod backup;
pub mod ca;
pub mod check;
pub mod cli;
mod clock;
pub mod computed;
pub mod config;
mod control;
pub mod driver;
mod export;
#[cfg(feature = "dashboard")]
pub mod http;
pub mod live;
#[cfg(feature = "dashboard")]
pub mod metrics;
mod notify;
pub mod phases;
pub mod quic;
pub mod reload;
mod remedies;
pub mod run;
pub mod runs;
pub mod scales;
pub mod server;
mod status;
pub mod store;
pub mod worker;
