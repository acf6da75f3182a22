//! Trains a Plan: forward, loss, backward, step.
//!
//! | part | does | file |
//! |---|---|---|
//! | Work | one Assignment, batch by batch, so that the caller can serve its link in between | `trainer` |
//! | executor | walks the nodes of a Plan over the arena | `executor` |
//! | ops | formula of one node, forward and backward | `dense`, `relu` |
//! | loss | softmax cross-entropy and its gradient | `loss` |
//! | optimiser | what a gradient does to the weights | `sgd` |
//! | Backend | the three matrix products; `Portable` or, on a host, `Fast` | `backend`, `fast` |
//!
//! Everything is generic over [`Float`] so that gradients can be checked in `f64`; devices use `f32`.

mod backend;
mod dense;
mod error;
mod executor;
#[cfg(feature = "host")]
mod fast;
mod float;
mod loss;
mod portable;
mod relu;
mod sgd;
#[cfg(test)]
#[cfg(feature = "host")]
#[path = "../../tests/support/plan.rs"]
mod test_plan;
#[cfg(test)]
#[cfg(feature = "host")]
mod tests;
mod trainer;

pub use backend::{Backend, Sizes};
pub use error::TrainError;
pub use executor::{Target, backward, forward, loss_and_gradient, score};
#[cfg(feature = "host")]
pub use fast::Fast;
pub use float::Float;
pub use loss::{LOSS_CAP, Tally};
pub use portable::Portable;
pub use sgd::descend;
pub use trainer::{Progress, Work, finish_update};
