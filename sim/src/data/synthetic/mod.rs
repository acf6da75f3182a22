//! Data sets that are drawn, not loaded. Deterministic in their seed.
//!
//! | generator | of | file |
//! |---|---|---|
//! | [`Eagle`] | three clients with separators of different difficulty | `eagle` |
//! | [`FedFb`] | two classes whose positions say much about the group | `fedfb` |
//! | [`Population`] | FedFB's studies with one feature | `population` |
//! | [`Mixture`] | a stand-in for images: classes of several clusters | `mixture` |

mod eagle;
mod fedfb;
mod mixture;
mod population;

pub use eagle::{Eagle, Rotate};
pub use fedfb::FedFb;
pub use mixture::Mixture;
pub use population::{Population, PopulationClient};
