//! Experiments, partitions and data sets as tables, pages and pictures. A page is one file: no network, no script.
//!
//! | part | is | file |
//! |---|---|---|
//! | `Digest`, `experiments_html`, `experiments_markdown` | saved results of experiments | `experiment` |
//! | `partition_table`, `partition_html`, `partition_picture` | samples of each client | `partition` |
//! | `set_table`, `sets_table` | content of a data set, and a list of all | `sets` |
//! | [`plot`] | one file for each plot | `plot` |
//! | [`markup`], [`scale`] | elements, axes; also for pages of other crates | |

mod experiment;
pub mod markup;
mod partition;
pub mod plot;
pub mod scale;
mod sets;

pub(crate) use experiment::{Digest, SourceDigest, experiments_html, experiments_markdown};
pub(crate) use partition::{partition_html, partition_picture, partition_table};
pub(crate) use sets::{set_table, sets_table};

/// Colours and strokes of plots, shared by pages and pictures.
pub const PLOT_STYLE: &str = include_str!("plot.css");
/// Additional styles of standalone pictures.
pub const PICTURE_STYLE: &str = "svg .head { font-size: 19px; font-weight: 700; } svg .back { fill: #ffffff; } @media (prefers-color-scheme: dark) { svg .back { fill: #0d1117; } }";
/// All other styles of pages.
pub const STYLE: &str = include_str!("style.css");
