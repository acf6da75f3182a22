//! How a device gets the fleet's schema: one question and one answer on a QUIC connection with its own ALPN.
//!
//! ```text
//! device  -> SchemaQuestion (postcard), end of stream
//! device <-  SchemaAnswer (postcard), end of stream. Or the connection is closed with a Code.
//! ```
//! The schema itself is opaque here: its compact form belongs to the crate that reads files.

use serde::{Deserialize, Serialize};

/// The ALPN of the schema protocol.
pub const ALPN: &[u8] = b"fairtier-schema/1";

/// Longest question or answer in bytes.
pub const MAX_BYTES: usize = 2 << 20;

/// Asks for the schema.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SchemaQuestion {
    /// What this device's file holds in each column whose scale the fleet agrees on; empty as long as the schema is not known.
    pub summaries: Vec<ColumnScale>,
}

/// The fleet's schema.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SchemaAnswer {
    /// The compact form; empty if the run has no schema.
    pub schema: Vec<u8>,
    /// The scale of each column that the fleet agrees on; empty until enough devices have told theirs.
    pub scales: Vec<ColumnScale>,
}

/// Mean and standard deviation of a column.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ColumnScale {
    /// The mean of its values.
    pub mean: f32,
    /// Their standard deviation.
    pub deviation: f32,
}
