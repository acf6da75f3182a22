//! Every strategy that comes with FairTier, one file each.

use crate::registry::Registry;

mod aaggff;
mod afl;
mod ditto;
mod eagle;
mod entropy;
mod fairfed;
mod fairheterofl;
mod fedavg;
mod fedeba;
mod fedeba_plus;
pub mod fedfb;
mod fedfv;
mod fedlf;
mod fedmdfg;
mod fedmgda_plus;
mod fedprox;
mod fedrolex;
mod fedsgd;
mod heterofl;
mod minnorm;
mod prac_fedeba;
mod propfair;
mod qffl;
mod simplex;
pub(crate) mod softmax;
mod term;

pub use aaggff::{Aaggff, AaggffForm, AaggffParams, ResponseCdf};
pub use afl::{Afl, AflParams};
pub use ditto::{Ditto, DittoParams};
pub use eagle::{Eagle, EagleNorm, EagleParams};
pub(crate) use entropy::PUBLISHED_LRS;
pub use entropy::{Anneal, EbaParams, Prior};
pub use fairfed::{FairFed, FairFedParams, GroupGap};
pub use fairheterofl::{FairHeteroFl, FairHeteroFlParams, GroupWeight, Hessian, NormScope, StepRule};
pub use fedavg::{AverageParams, FedAvg};
pub use fedeba::FedEba;
pub use fedeba_plus::{Align, FedEbaPlus, FedEbaPlusParams};
pub use fedfb::{FedFb, FedFbParams};
pub use fedfv::{FedFv, FedFvParams};
pub use fedlf::{FedLf, FedLfParams};
pub use fedmdfg::{FedMdfg, FedMdfgParams};
pub use fedmgda_plus::{FedMgdaPlus, FedMgdaPlusParams, Lambda0};
pub use fedprox::{FedProx, FedProxParams};
pub use fedrolex::FedRolex;
pub use fedsgd::{FedSgd, FedSgdParams};
pub use heterofl::HeteroFl;
pub use minnorm::{min_norm, min_norm_in_box, project, residual};
pub use prac_fedeba::{PracFedEba, PracFedEbaParams};
pub use propfair::{PropFair, PropFairParams};
pub use qffl::{Qffl, QfflParams, QfflStep, Weighting};
pub use term::{Term, TermParams};

impl Registry {
    /// The strategies that come with FairTier.
    pub fn standard() -> Self {
        Self::empty()
            .with::<FedAvg>()
            .with::<HeteroFl>()
            .with::<FedRolex>()
            .with::<FedSgd>()
            .with::<FedProx>()
            .with::<Qffl>()
            .with::<FairHeteroFl>()
            .with::<Afl>()
            .with::<Aaggff>()
            .with::<Term>()
            .with::<PropFair>()
            .with::<Ditto>()
            .with::<FedEba>()
            .with::<PracFedEba>()
            .with::<FedEbaPlus>()
            .with::<Eagle>()
            .with::<FedFb>()
            .with::<FairFed>()
            .with::<FedFv>()
            .with::<FedMgdaPlus>()
            .with::<FedMdfg>()
            .with::<FedLf>()
    }
}

#[cfg(test)]
mod averaging;
#[cfg(test)]
mod contract;
#[cfg(test)]
pub(crate) mod fleet;
