//! The device on a machine with an operating system: QUIC link, reconnecting driver, files.

mod advice;
pub mod args;
mod backoff;
pub mod board;
pub mod bridge;
mod client;
pub mod enrol;
pub mod footprint;
mod freshness;
mod gateways;
mod identity;
pub mod privacy;
mod private_file;
pub mod provision;
mod pull;
mod quic;
pub mod refusals;
mod renewal;
pub mod schema;
mod verify;
mod watch;

pub use backoff::ReconnectBackoff;
pub use client::{Client, ClientError, Conclusion, SILENCE, SaveModel};
pub use gateways::{AddressError, GatewayAddresses};
pub use identity::{Identity, IdentityError};
pub use private_file::PrivateFile;
pub use quic::client_config;
pub use watch::{ReadBy, SampleSource, WatchedFiles};
