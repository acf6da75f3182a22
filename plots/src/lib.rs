//! Pages and plots without scripts: elements that are escaped by construction, plots as SVG, and numbers as people
//! read them. Reports, the demo and the gateway's dashboard use the same ones.
//!
//! | module | shows |
//! |---|---|
//! | [`markup`] | elements of HTML and SVG |
//! | [`number`] | numbers, sizes and times as text |
//! | [`scale`], [`frame`], [`series`] | axes, ticks, the styles of series |
//! | [`lines`] | a quantity by round, with a band over seeds |
//! | [`columns`] | a quantity by tier |
//! | [`spread`] | every device of every setting over a box of quartiles |
//! | [`pareto`] | fairness against accuracy |
//! | [`lorenz`] | how evenly a quantity is distributed |
//! | [`shares`] | stacked columns, such as the samples of each client |
//!
//! ```
//! use fairtier_plots::{lines::{LineSeries, Lines, Point}, markup::el};
//!
//! let points = [(1.0, 2.3), (2.0, 1.1)].map(|(x, mean)| Point { x, mean, std: 0.0 }).to_vec();
//! let lines = vec![LineSeries { index: 0, name: "cam <1>", scales: true, points }];
//! let plot = Lines { title: "Loss".into(), what: "mean loss", log: false, lines, levels: vec![] };
//! let page = el("main").with(plot.draw(None)).to_string();
//! assert!(page.starts_with("<main><svg") && page.contains("cam &lt;1&gt;"));
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![deny(clippy::print_stdout)]

pub mod columns;
pub mod frame;
pub mod lines;
pub mod lorenz;
pub mod markup;
pub mod number;
pub mod pareto;
pub mod scale;
pub mod series;
pub mod shares;
pub mod spread;

/// Colours and strokes of plots, shared by pages and pictures.
pub const PLOT_STYLE: &str = include_str!("plot.css");
/// Additional styles of standalone pictures.
pub const PICTURE_STYLE: &str = "svg .head { font-size: 19px; font-weight: 700; } svg .back { fill: #ffffff; } @media (prefers-color-scheme: dark) { svg .back { fill: #0d1117; } }";
/// All other styles of pages.
pub const STYLE: &str = include_str!("style.css");
