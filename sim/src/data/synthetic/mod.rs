//! Generated data sets. The result depends only on the parameters and the seed.
//!
//! | generator | of | file |
//! |---|---|---|
//! | [`Eagle`] | three clients with separators of different difficulty | `eagle` |
//! | [`FedFb`] | two classes whose positions depend strongly on the group | `fedfb` |
//! | [`Population`] | FedFB's studies with one feature | `population` |
//! | [`Mixture`] | a substitute for images: classes of several clusters | `mixture` |

mod eagle;
mod fedfb;
mod mixture;
mod population;

pub use eagle::{Eagle, Rotate};
pub use fedfb::FedFb;
pub use mixture::Mixture;
pub use population::Population;
