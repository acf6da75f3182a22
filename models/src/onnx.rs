//! ONNX in and out.
//!
//! Import reads models as PyTorch (both exporters), Keras (tf2onnx) and scikit-learn write them;
//! anything else is an error that names the node and the operation.

pub mod proto;

mod advice;
mod constants;
mod export;
mod files;
mod import;
mod labels;
mod lower;
mod tensor;
mod view;

pub use export::{ExportError, ExportOptions, export};
pub use files::{ReadError, WeightsError, read};
pub use import::{Import, ImportError, import};
pub use tensor::TensorError;

use crate::Graph;

/// Operator sets of the default domain that are understood.
pub const OPSETS: std::ops::RangeInclusive<i64> = 11..=28;

impl Graph {
    /// Structure and parameters of an ONNX model, as [`read()`] takes it from a file. [`import()`] also returns notes about what
    /// was left out.
    pub fn from_onnx(bytes: &[u8]) -> Result<(Self, Vec<f32>), ImportError> {
        import(bytes).map(|import| (import.graph, import.parameters))
    }
}

#[cfg(test)]
mod tests;
