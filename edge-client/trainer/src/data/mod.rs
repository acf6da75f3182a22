//! A device's own samples, which never leave it.
//!
//! | source | needs | file |
//! |---|---|---|
//! | [`Shard`] | nothing: the interface the trainer reads from | `shard` |
//! | [`BytesShard`] | nothing: bytes in flash | `bytes` |
//! | `digits` | feature `digits`: 5,620 handwritten digits | `digits` |
//! | `VecShard`, `Samples` | `host`: samples in memory | `samples` |
//! | `load` | `host`: IDX and CSV files | `load` |
//! | `schema` | `host`: what the columns of a file mean | `schema` |
//! | `partition` | `host`: one data set divided among many devices | `partition` |

mod bytes;
#[cfg(feature = "digits")]
pub mod digits;
#[cfg(feature = "host")]
pub mod load;
#[cfg(feature = "host")]
pub mod partition;
#[cfg(feature = "host")]
mod samples;
#[cfg(feature = "host")]
pub mod schema;
mod shard;

#[cfg(feature = "quantised")]
pub use bytes::Quantised;
pub use bytes::{BytesShard, Images};
#[cfg(feature = "host")]
pub use samples::{Samples, VecShard};
pub use shard::{DataError, DataSplit, Shard};
