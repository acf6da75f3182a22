//! Experiments, partitions and data sets for people: tables, pages, pictures. A page is one file: no network, no script.
//!
//! | part | is | file |
//! |---|---|---|
//! | [`Digest`], [`experiments_html`], [`experiments_markdown`] | saved results of experiments | `experiment` |
//! | [`partition_table`], [`partition_html`], [`partition_picture`] | which client has which samples | `partition` |
//! | [`set_table`], [`sets_table`] | what is in a data set, and which there are | `sets` |
//! | [`plot`] | one file for each plot | `plot` |
//! | [`markup`], [`scale`] | elements, axes; also for pages of other crates | |

mod experiment;
pub mod markup;
mod partition;
pub mod plot;
pub mod scale;
mod sets;

pub use experiment::{
    CurvePoint, Digest, ExperimentDigest, SettingDigest, SourceDigest, TierDigest, experiments_html,
    experiments_markdown,
};
pub use partition::{partition_html, partition_picture, partition_table};
pub use sets::{set_table, sets_table};

/// Colours and strokes of plots, shared by pages and pictures.
pub const PLOT_STYLE: &str = include_str!("plot.css");
/// What pictures need in addition, since no page is around them.
pub const PICTURE_STYLE: &str = "svg .head { font-size: 19px; font-weight: 700; } svg .back { fill: #ffffff; } @media (prefers-color-scheme: dark) { svg .back { fill: #0d1117; } }";
/// Everything else of pages.
pub const STYLE: &str = include_str!("style.css");
