//! Gradients of whole Plans against finite differences, backends against each other and against bits.

mod agree;
mod bits;
mod gradients;
mod optimizers;
mod plans;
mod refusals;
