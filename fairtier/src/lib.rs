//! Fair federated learning on unequal devices.
//!
//! A gateway trains one global model on devices of unequal hardware. Each device trains the widest slice of the model that it
//! can hold, and a fair strategy combines what they send.
//!
//! This crate is what a user needs of FairTier: the [`Strategy`] trait with its [`Registry`], and [`run`], the whole program
//! `fairtier` with any registry. A program that adds a strategy of its own is short:
//!
//! ```no_run
//! use fairtier::Registry;
//!
//! fn main() -> std::process::ExitCode {
//!     // Registry::standard().with::<MyStrategy>()
//!     fairtier::run(&Registry::standard())
//! }
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)]

mod cli;
pub mod demo;

pub use cli::{command, run};
pub use common;
pub use coordinator::report::RoundReport;
pub use strategies::{
    self, Build, Cohort, Needs, Participant, Registry, Strategy, StrategyError, Weights, algebra, strategy,
};

/// A gateway inside another program; `examples/gateway.rs` is one.
pub mod gateway {
    pub use aggregator::{
        ca::Authority,
        config::Config,
        server::{RunEnd, Server, ServerError},
    };
}

/// A device inside another program; `examples/device.rs` is one.
pub mod device {
    pub use client::{
        Event, Profile, data,
        host::{Client, ClientError, Conclusion, Identity, SaveModel},
        train,
    };
    pub use common::{Budget, DeviceId, privacy::Privacy};
}

/// Experiments on simulated fleets; `examples/experiment.rs` runs one.
pub mod experiment {
    pub use sim::{
        experiment::{ExperimentError, LoadedExperiment, RunEvent, RunOptions, RunOutcome, run},
        results::UnitResult,
    };
}

/// Recorded rounds; `examples/round_file.rs` reads one.
pub mod round {
    pub use strategies::roundfile::{ReplayResult, RoundFile, RoundFileError, replay};
}
