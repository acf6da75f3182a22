//! What a run leaves behind for people: a table, a page, a picture.
//!
//! | part | is | file |
//! |---|---|---|
//! | [`table`] | the comparison as plain text | `table` |
//! | [`html`] | one self-contained page: no network, no script, light and dark | `html`, `style.css` |
//! | [`picture`] | the main comparison as one SVG file | `picture` |
//! | [`partition_table`], [`partition_html`], [`partition_picture`] | who has which samples | `partition` |
//! | [`set_table`], [`sets_table`] | what is in a data set, and which there are | `sets` |
//! | [`Digest`], [`experiments_html`], [`experiments_markdown`] | saved results of experiments | `experiment` |
//! | [`bench_html`], [`bench_markdown`] | the comparison on boards, with what they used | `bench` |
//! | rows | which figures are compared, for table and page alike | `rows` |
//! | plots | one file each | `plot` |
//! | tools | elements, numbers, axes | `markup`, `number`, `scale` |

mod bench;
mod experiment;
mod html;
mod markup;
pub(crate) mod number;
mod partition;
mod picture;
mod plot;
mod rows;
mod scale;
mod sets;
mod table;

pub use bench::{BoardLine, bench_html, bench_markdown};
pub use experiment::{
    CurvePoint, Digest, ExperimentDigest, SettingDigest, SourceDigest, TierDigest, experiments_html,
    experiments_markdown,
};
pub use html::html;
pub use partition::{partition_html, partition_picture, partition_table};
pub use picture::picture;
pub use sets::{set_table, sets_table};
pub use table::table;

/// Colours and strokes of plots, shared by pages and pictures.
const PLOT_STYLE: &str = include_str!("plot.css");
/// What pictures need in addition, since no page is around them.
const PICTURE_STYLE: &str = "svg .head { font-size: 19px; font-weight: 700; } svg .back { fill: #ffffff; } @media (prefers-color-scheme: dark) { svg .back { fill: #0d1117; } }";
/// Everything else of pages.
const STYLE: &str = include_str!("style.css");

#[cfg(test)]
mod tests;
