//! FedEBA+: entropy weights, and devices that train towards a fair gradient.
//!
//! `align = gradient`, two exchanges (Theta > 0: two or three):
//!
//! ```text
//! Theta > 0:  losses F up; only if angle(F) > Theta what follows, else plain training
//! gradients   g_i at theta and F_i up;  gfair^(j) = sum_{C(j)} ptilde_i g_i^(j),  ptilde = weights(F)
//! training    gfair down;  K steps x -= lr * ((1-alpha) grad F_i(x) + alpha gfair);  D_i and FK_i up
//!             theta^(j) += sum_{C(j)} p_i D_i^(j),  p = weights(FK)
//! angle(F) = arccos( sum F_i / (sqrt(m) ||F||) ): how far the losses are from being equal
//! ```
//! `align = model`, one exchange; devices also send the update D1_i of their first step:
//!
//! ```text
//! theta^(j) += (1-alpha) sum_{C(j)} p_i D_i^(j) + alpha sum_{C(j)} n_i D1_i^(j) / sum_{C(j)} n_i
//! ```

use common::{
    DeviceId,
    brief::{Brief, Product},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    cohort::{Cohort, Participant},
    kernel::sum,
    methods::{Anneal, EbaParams, PUBLISHED_LRS, Prior, softmax::greatest},
    parameter::share,
    registry::Build,
    strategy::{Ask, Exchange, Kind, Mix, Needs, Strategy, TierSums, Weights},
};

/// Larger than any angle between losses: devices are never guided.
const NEVER: f64 = 90.0;

/// Parameters of `fedeba_plus`: those of `fedeba`, and more.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FedEbaPlusParams {
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
    /// How much devices are guided.
    pub alpha: f64,
    /// Devices are guided if losses differ by more than this angle, in degrees.
    #[serde(rename = "Theta")]
    pub theta: f64,
    /// What is aligned with the fair gradient.
    pub align: Align,
    /// As its paper prints it: sets `align` = gradient and `Theta` = 0. The paper's devices train with `training.lr` = 0.1.
    pub published: bool,
}

/// What is aligned with the fair gradient.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Align {
    /// Every local step.
    #[default]
    Gradient,
    /// The new model.
    Model,
}

impl Default for FedEbaPlusParams {
    fn default() -> Self {
        let EbaParams { tau, eps_p, anneal, kappa, prior, reweight } = EbaParams::default();
        let align = Align::default();
        Self { tau, eps_p, anneal, kappa, prior, reweight, alpha: 0.9, theta: 0.0, align, published: false }
    }
}

/// Maximum-entropy weights, and steps aligned with a fair gradient; two or three exchanges a round, one with `align = "model"`.
#[derive(Clone, PartialEq, Debug)]
pub struct FedEbaPlus {
    weights: EbaParams,
    alpha: f64,
    theta: f64,
    align: Align,
}

impl Build for FedEbaPlus {
    const NAME: &'static str = "fedeba_plus";
    const ABOUT: &'static str = "maximum-entropy weights, and steps aligned with a fair gradient; two or three exchanges a round, one with `align = \"model\"`";

    type Params = FedEbaPlusParams;

    fn build(params: FedEbaPlusParams) -> Result<Self, String> {
        let FedEbaPlusParams { tau, eps_p, anneal, kappa, prior, reweight, alpha, theta, align, published } =
            params;
        let (theta, align) = if published { (0.0, Align::Gradient) } else { (theta, align) };
        let weights = EbaParams { tau, eps_p, anneal, kappa, prior, reweight }.checked()?;
        if !(0.0..=NEVER).contains(&theta) {
            return Err(format!("`Theta` must lie in [0, {NEVER}] degrees, not {theta}"));
        }
        Ok(Self { weights, alpha: share("alpha", alpha)?, theta, align })
    }
}

impl Strategy for FedEbaPlus {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn as_published(&self, lr: f64) -> Option<bool> {
        Some(PUBLISHED_LRS.contains(&lr) && self.align == Align::Gradient)
    }

    fn uses_loss(&self, trained: bool) -> bool {
        !trained
    }

    fn needs(&self) -> Needs {
        let common = Needs { loss_after: self.weights.reweight, sgd: true, ..Needs::default() };
        match self.align {
            Align::Model => Needs { product: Product::Both, guide: true, ..common },
            Align::Gradient => Needs { guide: self.guides(), gradients: self.guides(), ..common },
        }
    }

    fn next(&self, made: &[Exchange], _: &[DeviceId]) -> Option<Ask> {
        let Some(last) = made.last() else {
            return Some(match self.guides() {
                false => Ask::train(),
                true if self.theta > 0.0 => Ask::Losses,
                true => Ask::Gradients,
            });
        };
        match last.kind {
            Kind::Losses if angle(&last.cohort) > self.theta => Some(Ask::Gradients),
            Kind::Losses => Some(Ask::train()),
            Kind::Gradients => Some(Ask::Train { guide: self.guide(&last.cohort) }),
            _ => None,
        }
    }

    fn brief(&self, _: &DeviceId, made: &[Exchange], brief: &mut Brief) {
        let gradients = made.iter().find(|exchange| exchange.kind == Kind::Gradients);
        if gradients.is_some_and(|exchange| !exchange.cohort.participants().is_empty()) {
            brief.objective.align = self.alpha as f32;
        }
    }

    fn weigh(&self, cohort: &Cohort) -> Weights {
        let after = self.weights.after(cohort);
        Weights::by_region(cohort, |members| after.over(members))
    }

    fn base_weights(&self, cohort: &Cohort) -> Vec<f64> {
        self.weights.base_weights(cohort)
    }

    fn mix(&self, cohort: &Cohort, sums: &TierSums) -> Mix {
        let mut mix = Mix::mean(cohort.regions(), sums);
        if self.align == Align::Model {
            mix.scale(1.0 - self.alpha);
        }
        mix
    }

    fn first_step(&self, cohort: &Cohort) -> Option<(Weights, f64)> {
        let data = || Weights::per_device(cohort.data_shares());
        (self.align == Align::Model).then(|| (data(), self.alpha))
    }
}

impl FedEbaPlus {
    /// Whether devices may be sent a guide.
    fn guides(&self) -> bool {
        self.align == Align::Gradient && self.theta < NEVER
    }

    /// Weights of the fair gradient; `None` if the cohort is empty.
    fn guide(&self, cohort: &Cohort) -> Option<Weights> {
        let before = self.weights.before(cohort);
        (!cohort.participants().is_empty())
            .then(|| Weights::by_region(cohort, |members| before.over(members)))
    }
}

/// The angle between the losses and a vector of equal losses, in degrees.
fn angle(cohort: &Cohort) -> f64 {
    let losses = || cohort.participants().iter().map(Participant::loss);
    let top = greatest(losses());
    // No participants, or all losses are 0.
    if top <= 0.0 {
        return 0.0;
    }
    let squares = sum(losses().map(|loss| (loss / top).powi(2)));
    let cosine = sum(losses().map(|loss| loss / top)) / (cohort.participants().len() as f64 * squares).sqrt();
    cosine.clamp(-1.0, 1.0).acos().to_degrees()
}

#[cfg(test)]
mod tests;
