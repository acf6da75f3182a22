//! The device: holds a Shard, trains a Plan in one arena, sends back an Update.
//!
//! Without features this is `no_std` and needs no heap: [`session`] is the device's side of the protocol, [`serial`] carries
//! it over a serial line, and the crate `trainer`, re-exported as [`train`] and [`data`], does the computing.
//! Feature `host` adds the QUIC client and its command line; feature `digits` a built-in data set.
//!
//! A board moves frames between its link and a [`Session`]:
//!
//! ```
//! use common::{Budget, Code, Instant, Versions, message::ToDevice, privacy::Privacy, transfer::LinkLimits, wire};
//! use fairtier_client::{Event, Profile, Session, data::{BytesShard, Images, Shard}, train::Portable};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (train, test) = (Images::new(&[10, 200, 220, 30], &[0, 1], 2)?, Images::new(&[0, 190], &[0], 2)?);
//! let shard = BytesShard::new(train, test, 1.0 / 255.0)?;
//! let budget = Budget { ram: 4096, ..Budget::UNLIMITED };
//! let (device, data, privacy) = ("board-1".parse()?, shard.summary(), Privacy::default());
//! let mut arena = [0.0; 1024];
//! let mut session: Session<_> = Session::new(Profile { device, budget, data, privacy }, &mut arena[..]);
//!
//! // The link is up. After each event: send what is due, and compute one batch if there is work.
//! let (now, mut frame, mut sent) = (Instant::ZERO, [0; wire::MAX_CONTROL], 0);
//! session.handle_connected(LinkLimits::QUIC, Versions::OURS, now);
//! while let Some((_lane, len)) = session.poll_transmit(&mut frame) {
//!     sent += len; // uart.write(&frame[..len])
//! }
//! if session.has_work() {
//!     session.work(&shard, &mut Portable::plain(), now)?;
//! }
//! assert!(sent > 0, "the device says Hello");
//!
//! // A frame arrives: this gateway does not know the device.
//! let len = wire::encode_control(&ToDevice::Refusal(Code::UnknownDevice.into()), &mut frame)?;
//! session.handle_frame(&frame[..len], now)?;
//! assert_eq!(session.poll_event(), Some(Event::Refused(Code::UnknownDevice.into())));
//! # Ok(())
//! # }
//! ```
#![cfg_attr(not(any(feature = "host", test)), no_std)]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(feature = "host")]
pub mod cli;
#[cfg(feature = "host")]
pub mod host;
#[cfg(feature = "keep")]
pub mod keep;
pub mod serial;
pub mod session;

pub use session::{Event, Profile, Session};
pub use trainer::{data, train};
