//! Trains a Plan: forward, loss, backward, step.
//!
//! | part | does | file |
//! |---|---|---|
//! | Work | one Assignment, batch by batch, so that the caller can serve its link in between | `trainer` |
//! | executor | executes the nodes of a Plan in the arena | `executor` |
//! | ops | formula of one node, forward and backward | `op/` |
//! | loss | outputs and targets to a loss and its gradient | `loss/` |
//! | optimiser | applies a gradient to the weights | `optimizer` |
//! | prediction | what a model says of a sample | `prediction` |
//! | Backend | matrix products and convolutions; `Portable` or, on a host, `Fast` | `backend` |
//! | tiles | convolutions for backends that compute tiles of sums, as boards with an FPU do | `tiles` |
//!
//! Everything is generic over [`Float`] so that gradients can be checked in `f64`; devices use `f32`.

mod backend;
mod error;
mod executor;
#[cfg(feature = "host")]
mod fast;
mod float;
mod loss;
mod op;
mod optimizer;
mod part;
mod portable;
mod prediction;
#[cfg(test)]
#[cfg(feature = "host")]
#[path = "../../tests/support/plan.rs"]
mod test_plan;
#[cfg(test)]
#[cfg(feature = "host")]
mod tests;
pub mod tiles;
mod trainer;

pub use backend::{Backend, GemmWrite, MatrixView, MatrixViewMut};
pub use error::TrainError;
pub use executor::{
    FULL, GradTarget, PassMode, backward, forward, loss_and_gradient, robust_gradient, robust_score, score,
};
#[cfg(feature = "host")]
pub use fast::{Fast, MatrixProduct};
pub use float::Float;
pub use loss::{LOSS_CAP, LossTally, TargetLabels, TargetValues, Truth};
pub use optimizer::{Descent, apply};
pub use portable::{Arithmetic, Fused, Plain, Portable};
pub use prediction::{Prediction, predict};
pub use trainer::{Charge, Plateau, PrivateState, VALIDATION_EVERY, Work, WorkProgress, finish_update};
