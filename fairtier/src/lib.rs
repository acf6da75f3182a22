//! Fair federated learning on unequal devices.
//!
//! A gateway trains one global model on devices of unequal hardware. Each device trains the widest slice of the model that it
//! can hold, and a fair strategy combines what they send.
//!
//! This crate is the API for users of FairTier: the [`Strategy`] trait with its [`Registry`], and [`run`], the whole
//! program `fairtier` with any registry. A program that adds a strategy is short:
//!
//! ```
//! use fairtier::{Build, Cohort, NoParams, Registry, Strategy, Weights};
//!
//! /// Every device counts the same, however many samples it has.
//! #[derive(Debug)]
//! struct OneVote;
//!
//! impl Build for OneVote {
//!     const NAME: &'static str = "one_vote";
//!     const ABOUT: &'static str = "every device counts the same";
//!     type Params = NoParams;
//!
//!     fn build(_: NoParams) -> Result<Self, String> {
//!         Ok(Self)
//!     }
//! }
//!
//! impl Strategy for OneVote {
//!     fn name(&self) -> &'static str {
//!         Self::NAME
//!     }
//!
//!     fn weigh(&self, cohort: &Cohort) -> Weights {
//!         Weights::per_device(vec![1.0; cohort.participants().len()])
//!     }
//! }
//!
//! // fn main() -> std::process::ExitCode { fairtier::run(&registry()) }
//! fn registry() -> Registry {
//!     Registry::standard().with::<OneVote>()
//! }
//! assert!(registry().names().any(|name| name == "one_vote"));
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)]
#![warn(missing_docs)]

mod cli;
pub mod demo;

pub use cli::{command, run};
pub use common;
pub use coordinator::report::RoundReport;
pub use strategies::{
    self, Build, Cohort, Knob, Needs, NoParams, Participant, Registry, Strategy, StrategyError, Weights,
    algebra, strategy,
};

/// Runs a gateway inside another program; see `examples/gateway.rs`.
pub mod gateway {
    pub use aggregator::{
        ca::Authority,
        config::Config,
        server::{RunEnd, Server, ServerError},
    };
}

/// Runs a device inside another program; see `examples/device.rs`.
pub mod device {
    pub use client::{
        Event, Profile, data,
        host::{Client, ClientError, Conclusion, GatewayAddresses, Identity, SaveModel},
        train,
    };
    pub use common::{Budget, DeviceId, privacy::Privacy};
}

/// Runs experiments on simulated fleets; see `examples/experiment.rs`.
pub mod experiment {
    pub use sim::{
        experiment::{ExperimentError, LoadedExperiment, RunEvent, RunOptions, RunOutcome, run},
        results::UnitResult,
    };
}

/// Reads recorded rounds; see `examples/round_file.rs`.
pub mod round {
    pub use strategies::roundfile::{ReplayResult, RoundFile, RoundFileError, replay};
}
