//! The device on a machine with an operating system: QUIC link, reconnecting driver, files.

pub mod args;
pub mod board;
pub mod bridge;
mod client;
mod draft;
pub mod enrol;
mod identity;
mod newest;
mod pace;
pub mod privacy;
pub mod provision;
mod pull;
mod quic;
pub mod refusals;
mod renewal;
mod verify;

pub use client::{Client, ClientError, Conclusion, SILENCE};
pub use draft::Draft;
pub use identity::{Identity, IdentityError};
pub use pace::Pace;
pub use quic::client_config;
