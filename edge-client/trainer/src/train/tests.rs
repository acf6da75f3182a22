//! Gradients of whole Plans against finite differences, and backends against each other, bit by bit.

mod agree;
mod bits;
mod gradients;
mod optimizers;
mod plans;
mod refusals;
