//! What a device computes: [`train`] executes Plans in one arena, [`data`] reads samples.
//!
//! Without features this is `no_std`, needs no heap, and gives the same bits on a microcontroller and on a host. Feature `host`
//! adds the fast backend, data files and partitions; feature `digits` a built-in data set. It is a separate crate, so that
//! tools for models can train without the device's protocol.
//!
//! A board learns from two sensors whether a machine is faulty. The crate `fairtier-models` makes Plans from ONNX files; this
//! one is a single dense layer:
//!
//! ```
//! use common::{brief::Brief, message::Task, plan::{Loss, Node, Op, Operand, Plan, PlanInfo, Segments}};
//! use fairtier_trainer::{data::{BytesShard, Images}, train::{Portable, Work, WorkProgress}};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let op = Op::Dense { rows: 1, inputs: 2, outputs: 2, weight: 0, bias: Some(4) };
//! # let (input, second) = (Operand { at: 12, grad: None }, None);
//! # let node = Node { op, input, second, output: 16, output_grad: Some(16), keep: None, scratch: None };
//! # let segments = Segments { anchor: Some(6), ..Segments::default() };
//! # let (loss, batch) = (Loss::Softmax { classes: 2 }, 2);
//! # let info = PlanInfo {
//! #     digest: 0, inputs: 2, outputs: 2, loss, batch, params: 6, stats: 0, segments,
//! #     input: 12, logits: 16, arena: 20, nodes: 1, forward: 1, schedule: 0,
//! # };
//! # let nodes = [node];
//! let plan = Plan::check(&info, &nodes, &[])?;
//! let mut arena = [0.0; 20];
//!
//! // Samples as bytes in flash: two features and a label each.
//! let train = Images::new(&[10, 200, 220, 30, 20, 180, 240, 10], &[0, 1, 0, 1], 2)?;
//! let test = Images::new(&[0, 190, 200, 20], &[0, 1], 2)?;
//! let shard = BytesShard::new(train, test, 1.0 / 255.0)?;
//!
//! // Each step computes one batch, so that the caller can serve its link in between.
//! let brief = Brief { loss_after: true, ..Brief::sgd(20, 2, 0.5, 1) };
//! let mut work = Work::begin(&Task::Train(brief), plan, &mut arena, &shard)?;
//! let scalars = loop {
//!     match work.step(plan, &mut arena, &shard, &mut Portable::plain())? {
//!         WorkProgress::Busy { .. } => {}
//!         WorkProgress::Done(scalars) => break scalars,
//!     }
//! };
//! assert!(scalars.loss_after.ok_or("no loss")? < 0.5 * scalars.loss_before);
//! # Ok(())
//! # }
//! ```
#![cfg_attr(not(any(feature = "host", test)), no_std)]
#![cfg_attr(not(feature = "host"), forbid(unsafe_code))]
#![cfg_attr(feature = "host", deny(unsafe_code))]
#![warn(missing_docs)]

pub mod data;
pub mod train;
