//! The plots of reports. Each is one SVG element with the colours of the page's style sheet.
//!
//! | plot | shows | file |
//! |---|---|---|
//! | shares | samples of each client | `shares` |
//! | lines | a quantity by round, with a band over seeds | `lines` |
//! | spread | every device of every setting over a box of quartiles | `spread` |
//! | pareto | fairness against accuracy | `pareto` |
//! | lorenz | how evenly a quantity is distributed | `lorenz` |
//! | columns | a quantity by tier | `columns` |
//!
//! The plots of experiments take any number of series, with the styles of `series`.

pub(crate) mod columns;
pub mod frame;
pub(crate) mod lines;
pub(crate) mod lorenz;
pub(crate) mod pareto;
pub(crate) mod series;
mod shares;
pub(crate) mod spread;

pub(crate) use shares::{StackedColumns, shares, shares_parts};
