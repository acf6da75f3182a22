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

pub mod columns;
pub mod frame;
pub mod lines;
pub mod lorenz;
pub mod pareto;
pub mod series;
mod shares;
pub mod spread;

pub use shares::{StackedColumns, shares, shares_parts};
