//! The aggregator's side of the protocol and the conduct of a round, sans-io: time, frames and the results of writes are
//! arguments.
//!
//! | module | contents |
//! |---|---|
//! | [`coordinator`](Coordinator) | connections, frames, transfers, and which exchange is open |
//! | [`conductor`] | which exchange comes next, when a round is combined, and what is committed |
//! | [`exchange`] | the devices of the open exchange and their answers |
//! | [`best`] | the best model so far, and when training ends early |
//! | [`announcement`] | an exchange before it is opened |
//! | [`fleet`] | the devices of the run |
//! | [`pacing`] | how long an exchange waits for its devices |
//! | [`published`] | bytes that devices fetch, cut into frames once |
//! | [`record`] | what the store keeps of an open round |
//! | [`report`] | the figures of a round |
//! | [`settings`] | how a run is conducted |
//! | [`wall`] | times of day, as drivers tell them |
//!
//! A device joins a run:
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use common::{
//!     Budget, Codec, Instant, RunId,
//!     brief::Brief,
//!     message::{DataSummary, Hello, ToAggregator, ToDevice},
//!     transfer::LinkLimits,
//!     wire::{self, Frame},
//! };
//! use fairtier_coordinator::{
//!     Coordinator, Settings, Start, best::BestSettings, fleet::ConnId, pacing::Deadlines,
//! };
//! use models::{plan::PlanOptions, tiers::TierSpec, zoo};
//! use strategies::{strategy::Needs, tiered::TieredModel};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A model in two tiers: the whole one, and one of half the width.
//! let (graph, parameters) = zoo::by_name("digits-mlp").ok_or("not in the zoo")?.build(0);
//! let masks = [1.0, 0.5].map(|rate| TierSpec::rate(rate, false).mask(&graph));
//! let masks = masks.into_iter().collect::<Result<_, _>>()?;
//! let model = TieredModel::new(graph, masks, &PlanOptions::train(16))?;
//!
//! let settings = Settings {
//!     rounds: 3,
//!     min_devices: 1,
//!     participation: 1.0,
//!     deadlines: Deadlines { deadline_s: 60.0.into(), quorum: 0.5.into(), give_up_s: 0.0 },
//!     over_selection: 1.0,
//!     arrivals_per_s: 100.0,
//!     brief: Brief::sgd(1, 16, 0.1, 1),
//!     lr: 0.1,
//!     lr_decay: 1.0,
//!     seed: 1,
//!     down: Codec::F32.into(),
//!     up: Codec::F32.into(),
//!     max_uploads: 8,
//!     limits: LinkLimits::QUIC,
//!     needs: Needs::default(),
//!     validate: false,
//!     best: BestSettings::default(),
//!     divergence: 10.0,
//! };
//! let start = Start {
//!     run: RunId(1),
//!     committed: 0,
//!     attempt: 0,
//!     devices: vec![],
//!     fixed: BTreeMap::new(),
//!     reopened: None,
//! };
//! let now = Instant::ZERO;
//! let mut coordinator = Coordinator::new(settings, model, &parameters, start, now);
//!
//! // A driver has authenticated `cam-1` and passes on its first frame.
//! let (conn, device) = (ConnId(1), "cam-1".parse::<common::DeviceId>()?);
//! coordinator.handle_connected(conn, device.clone());
//! let data = DataSummary { train_samples: 10, inputs: 64, classes: 10, ..DataSummary::default() };
//! let hello = Hello { device, budget: Budget::UNLIMITED, data, max_chunk: 1 << 16, max_nodes: 64 };
//! let mut frame = [0; wire::MAX_CONTROL];
//! let len = wire::encode_control(&ToAggregator::Hello(hello), &mut frame)?;
//! coordinator.handle_frame(conn, &frame[..len], now)?;
//!
//! // The answer assigns the widest tier that fits.
//! let mut answer = vec![];
//! coordinator.poll_transmit(conn, &mut answer).ok_or("no answer")?;
//! let Frame::Control(body) = Frame::decode(&answer)? else { return Err("no message".into()) };
//! let (message, _tail) = wire::control::<ToDevice>(body)?;
//! assert!(matches!(message, ToDevice::Welcome(welcome) if welcome.tier.index() == 0));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod announcement;
pub mod best;
pub mod conductor;
mod coordinator;
pub mod exchange;
pub mod fleet;
pub mod pacing;
mod per_tier;
pub mod published;
pub mod record;
pub mod report;
pub mod settings;
pub mod wall;

pub use coordinator::*;
pub use settings::{Conduct, Settings};
