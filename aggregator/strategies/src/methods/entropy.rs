//! Weights of maximum entropy, which all of the FedEBA family use.
//!
//! ```text
//! p_i     = pi_i exp(F_i / tau_eff) / sum        pi = 1/m, or n_i/n with `prior = data`
//! tau_t   = tau / (1 + kappa (t-1))^k            k = 0 constant, 1 linear, 1/2 concave, 3 convex; t from 1
//! tau_eff = max(tau_t, (F_max - F_min) / ln(min pi / eps_p))          keeps every weight >= eps_p
//! ```
//! If the logarithm is not above 0, no temperature keeps every weight at `eps_p`, and p = pi. The clamp depends on all
//! participants; on tiers the weights of a region are those over C(j) alone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    cohort::{Cohort, Participant},
    methods::softmax::{greatest, of_members, softmax},
    parameter::{not_negative, positive},
    strategy::{Knob, Scale},
};

/// Learning rates of devices in the paper, by data set. Smaller ones are our choice: steps along one fair gradient overshoot.
pub const PUBLISHED_LRS: [f64; 3] = [0.1, 0.05, 0.01];

/// Parameters of `fedeba`; its variants have the same and more.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EbaParams {
    /// Large: all count the same. Small: only the highest loss counts.
    pub tau: f64,
    /// Least weight of a device; 0: no limit.
    pub eps_p: f64,
    /// How the temperature falls from round to round.
    pub anneal: Anneal,
    /// How fast annealing goes.
    pub kappa: f64,
    /// Weights at an infinite temperature.
    pub prior: Prior,
    /// False: the last average is by samples.
    pub reweight: bool,
}

/// How the temperature falls from round to round.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Anneal {
    /// It stays at tau.
    #[default]
    Constant,
    /// By the pace of annealing.
    Linear,
    /// By its square root.
    Concave,
    /// By its third power.
    Convex,
}

/// Weights at an infinite temperature.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Prior {
    /// The same for all.
    #[default]
    None,
    /// By samples.
    Data,
}

impl Default for EbaParams {
    fn default() -> Self {
        Self {
            tau: 0.1,
            eps_p: 1e-6,
            anneal: Anneal::default(),
            kappa: 0.1,
            prior: Prior::default(),
            reweight: true,
        }
    }
}

impl EbaParams {
    pub(super) fn checked(self) -> Result<Self, String> {
        positive("tau", self.tau)?;
        not_negative("kappa", self.kappa)?;
        if !(0.0..1.0).contains(&self.eps_p) {
            return Err(format!("`eps_p` must lie in [0, 1), not {}", self.eps_p));
        }
        Ok(self)
    }

    /// The temperature, which a fairness target lowers.
    pub(super) fn knobs(&self) -> Vec<Knob> {
        vec![Knob::new("tau", 20.0, 0.5, Scale::Log)]
    }

    /// Sets the temperature.
    pub(super) fn turn(&mut self, parameter: &str, value: f64) {
        if parameter == "tau" {
            self.tau = value;
        }
    }

    /// Weights of equal losses.
    pub(super) fn base_weights(&self, cohort: &Cohort) -> Vec<f64> {
        let count = cohort.participants().len();
        match self.prior {
            Prior::None if self.reweight => vec![1.0 / count as f64; count],
            Prior::None | Prior::Data => cohort.data_shares(),
        }
    }

    /// `weights(F)`
    pub(super) fn before(&self, cohort: &Cohort) -> Entropy {
        self.of(cohort, Participant::loss)
    }

    /// `weights(FK)`, or by samples without `reweight`.
    pub(super) fn after(&self, cohort: &Cohort) -> Entropy {
        let weights = self.of(cohort, Participant::loss_after);
        if self.reweight {
            weights
        } else {
            Entropy { tau: f64::INFINITY, prior: cohort.data_shares(), ..weights }
        }
    }

    fn of(&self, cohort: &Cohort, loss: impl Fn(&Participant) -> f64) -> Entropy {
        let losses: Vec<f64> = cohort.participants().iter().map(loss).collect();
        let prior = match self.prior {
            Prior::None => vec![1.0 / losses.len() as f64; losses.len()],
            Prior::Data => cohort.data_shares(),
        };
        let tau = self.clamped(self.annealed(cohort.round), &losses, &prior);
        Entropy { losses, tau, prior }
    }

    /// The temperature of a round, from 1.
    fn annealed(&self, round: u32) -> f64 {
        let pace = 1.0 + self.kappa * f64::from(round.saturating_sub(1));
        match self.anneal {
            Anneal::Constant => self.tau,
            Anneal::Linear => self.tau / pace,
            Anneal::Concave => self.tau / pace.sqrt(),
            Anneal::Convex => self.tau / pace.powi(3),
        }
    }

    fn clamped(&self, tau: f64, losses: &[f64], prior: &[f64]) -> f64 {
        let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
        let room = (least(prior) / self.eps_p).ln();
        let range = greatest(losses.iter().copied()) - least(losses);
        if room > 0.0 { tau.max(range / room) } else { f64::INFINITY }
    }
}

/// Weights of the participants of a round, before they are restricted to some of them.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Entropy {
    losses: Vec<f64>,
    tau: f64,
    prior: Vec<f64>,
}

impl Entropy {
    /// Weights over these participants alone; they sum to 1.
    pub fn over(&self, members: &[usize]) -> Vec<f64> {
        softmax(&of_members(&self.losses, members), self.tau, &of_members(&self.prior, members))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fleet::assert_close, *};

    fn params() -> EbaParams {
        EbaParams { tau: 1.0, ..EbaParams::default() }
    }

    #[test]
    fn annealing_by_the_round() {
        let tau = |anneal, round| EbaParams { anneal, ..params() }.annealed(round);
        let kinds = [Anneal::Constant, Anneal::Linear, Anneal::Concave, Anneal::Convex];
        assert_close(&kinds.map(|kind| tau(kind, 11)), &[1.0, 0.5, 0.5f64.sqrt(), 0.125], 1e-12);
        assert_eq!(kinds.map(|kind| tau(kind, 1)), [1.0; 4]);
        assert_eq!(kinds.map(|kind| tau(kind, 0)), [1.0; 4]);
    }

    #[test]
    fn the_clamp() {
        let losses = [0.5, 1.0, 2.0];
        let third = [1.0 / 3.0; 3];
        assert_close(&[params().clamped(0.05, &losses, &third)], &[0.1179532908], 1e-10);
        assert_eq!(params().clamped(0.2, &losses, &third), 0.2);
        let prior = [0.5, 0.3, 0.2];
        assert_close(&[params().clamped(0.05, &losses, &prior)], &[1.5 / (0.2f64 / 1e-6).ln()], 1e-12);
        // m eps_p = 1: only equal weights keep the limit.
        let tight = EbaParams { eps_p: 1.0 / 3.0, ..params() };
        assert_eq!(tight.clamped(1.0, &losses, &third), f64::INFINITY);
        let off = EbaParams { eps_p: 0.0, ..params() };
        assert_eq!(off.clamped(1e-9, &losses, &third), 1e-9);
    }
}
