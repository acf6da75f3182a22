//! What a device and the aggregator must agree on. `no_std`, no heap.
//!
//! | word | meaning | module |
//! |---|---|---|
//! | Tier | a class of hardware: one set of widths of the global model | [`tier`] |
//! | Budget | what a device's hardware has | [`tier`] |
//! | Layout | the tensors of a model and the hidden axes along which they can be cut | [`layout`] |
//! | WidthMask | how many units of each hidden axis a tier keeps (always a prefix) | [`mask`] |
//! | Slice | the packed parameters that a WidthMask selects | [`mod@slice`] |
//! | Region | the parameters held by exactly the same set of tiers | [`region`] |
//! | Plan | a sliced model compiled to an op list over one arena | [`plan`] |
//! | Brief | how a device is told to train | [`brief`] |
//! | Privacy | what a device's owner allows, and what noise is drawn from | [`privacy`] |
//! | Message, Frame | what peers tell each other, and its encoding | [`message`], [`wire`] |
//! | Versions | which protocols a peer speaks | [`version`] |
//! | sealed frame | a frame that a bridge cannot read or forge (feature `sealed`) | `sealed` |
//! | Transfer | a tensor that is sent in acknowledged chunks | [`transfer`] |
//! | EnrolRequest | how a device asks for a certificate | [`enrol`] |
//! | SchemaQuestion | how a device asks what the columns of its file mean (feature `std`) | `schema` |
//! | Grant | what a certificate grants its device: until when, which tiers (feature `x509`) | `certificate` |
//! | Codec | how numbers become bytes | [`codec`] |
//! | Code | an error code that both ends share | [`error`] |
//! | AtomicFile, Secrecy | files on a shared machine (feature `std`) | `files` |
//! | Array | an array of numbers in a file of NumPy (feature `std`) | `npy` |
//! | printable text | text of a peer, escaped for a log (feature `std`) | `printable` |
//!
//! Time and randomness are arguments everywhere ([`time`], [`rng`]).
//! A tier of half the width holds the first half of a layer's units. Both tiers hold these parameters, so updates of both are
//! averaged there:
//!
//! ```
//! use fairtier_common::{AxisId, Dim, Layout, Tier, TensorShape, WidthMask, region::RegionSpans, slice};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A dense layer with 4 units and 2 inputs: its weights, then its biases.
//! let units = Dim::units(AxisId(0));
//! let tensors = [&[units, Dim::fixed(2)][..], &[units]].map(TensorShape::new);
//! let tensors = tensors.into_iter().collect::<Option<Vec<_>>>().ok_or("too many dimensions")?;
//! let full = WidthMask::full(&[4])?;
//! let layout = Layout { full: &full, tensors: &tensors };
//!
//! // What a device in a tier of half the width is sent.
//! let half = full.at_rate(0.5)?;
//! let model: Vec<f32> = (0..12u8).map(f32::from).collect();
//! let mut sent = vec![0.0; layout.slice_len(&half)];
//! slice::gather(layout, &half, &model, &mut sent)?;
//! assert_eq!(sent, [0.0, 1.0, 2.0, 3.0, 8.0, 9.0]);
//!
//! // Which of the two tiers hold which parameters: both, or only the wide one.
//! let masks = [full.clone(), half];
//! let spans: Vec<_> = RegionSpans::new(layout, &masks).map(|span| (span.start, span.tiers.len())).collect();
//! assert_eq!(spans, [(0, 2), (4, 1), (8, 2), (10, 1)]);
//! # Ok(())
//! # }
//! ```
#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod brief;
#[cfg(feature = "x509")]
pub mod certificate;
pub mod codec;
pub mod enrol;
pub mod error;
#[cfg(feature = "std")]
pub mod files;
pub mod id;
pub mod layout;
pub mod mask;
pub mod message;
pub mod metrics;
#[cfg(feature = "std")]
pub mod npy;
#[cfg(feature = "std")]
pub mod output;
pub mod plan;
#[cfg(feature = "std")]
pub mod printable;
pub mod privacy;
pub mod region;
pub mod rng;
#[cfg(feature = "std")]
pub mod schema;
#[cfg(feature = "sealed")]
pub mod sealed;
pub mod slice;
mod small;
pub mod tier;
pub mod time;
pub mod transfer;
pub mod version;
pub mod wire;

pub use codec::Codec;
pub use error::Code;
pub use id::{DeviceId, ExchangeId, RunId, TransferId};
pub use layout::{Dim, Layout, Part, TensorShape};
pub use mask::{AxisId, WidthMask};
pub use region::{RegionId, RegionSpan};
pub use tier::{Budget, Tier, TierSet};
pub use time::{Duration, Instant};
pub use version::Versions;
