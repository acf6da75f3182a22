//! The plots of reports. Each is one SVG element that takes its colours from the page's style sheet.
//!
//! | plot | shows | file |
//! |---|---|---|
//! | shares | who has which samples | `shares` |
//! | lines | anything by round, with a band over seeds | `lines` |
//! | spread | every device of every arm over a box of quartiles | `spread` |
//! | pareto | fairness against accuracy | `pareto` |
//! | lorenz | who has how much of the whole | `lorenz` |
//! | columns | anything by tier | `columns` |
//!
//! Those of experiments take any number of series, with the styles of `series`.

pub mod columns;
pub mod frame;
pub mod lines;
pub mod lorenz;
pub mod pareto;
pub mod series;
mod shares;
pub mod spread;

pub use shares::{StackedColumns, shares, shares_parts};
