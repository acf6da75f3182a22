//! What a keeper stores of a Session, and how a Session goes on from it.

use common::{
    Code, RunId, Tier,
    plan::{BackwardStep, Node, PlanInfo, PlanStore},
};
use serde::{Deserialize, Serialize};

use super::{Arena, Job, ModelPlace, Session, download::Content};

/// Names a model that a device has received: with these, a Session goes on as if it had just received it.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct ModelName {
    pub run: RunId,
    pub tier: Tier,
    pub round: u32,
    /// Bytes and checksum, by which the model is not fetched again.
    pub content: Content,
    pub info: PlanInfo,
}

/// A model as it was received, with its Plan.
pub(crate) struct ModelAtHand<'a> {
    pub name: ModelName,
    pub nodes: &'a [Node],
    pub steps: &'a [BackwardStep],
    pub weights: &'a [f32],
}

impl<A: Arena, const NODES: usize> Session<A, NODES> {
    /// The model in the weights, if it is as it was received.
    pub(crate) fn model_at_hand(&mut self) -> Option<ModelAtHand<'_>> {
        if self.model_place() != ModelPlace::Weights {
            return None;
        }
        let (Some(store), Some(run), Some(tier)) = (&self.plan, self.run, self.tier) else { return None };
        let plan = store.plan().ok()?;
        let (round, content) = (self.model_round?, self.held.model()?);
        let name = ModelName { run, tier, round, content, info: *plan.info() };
        let weights = self.arena.floats().get(..name.info.params as usize)?;
        Some(ModelAtHand { name, nodes: plan.nodes(), steps: plan.schedule(), weights })
    }

    /// Whether a prediction needs the kept model, and this is the one.
    pub(crate) fn lacks(&self, name: &ModelName) -> bool {
        let same = (self.run, self.tier) == (Some(name.run), Some(name.tier))
            && self.plan.as_ref().is_some_and(|plan| *plan.info() == name.info);
        same && self.placed && matches!(self.model_place(), ModelPlace::Nowhere | ModelPlace::Trained)
    }

    /// After a start: takes over Plan and model. `fill` writes the weights; if it fails, the Session is as before.
    pub(crate) fn go_on(
        &mut self,
        name: ModelName,
        plan: PlanStore<NODES>,
        fill: impl FnOnce(&mut [f32]) -> Option<()>,
    ) -> Result<(), Code> {
        plan.plan().map_err(|error| error.code())?;
        self.arena.reserve(name.info.arena as usize).map_err(|_| Code::DoesNotFit)?;
        let weights = self.arena.floats().get_mut(..name.info.params as usize).ok_or(Code::BadPlan)?;
        fill(weights).ok_or(Code::WrongData)?;
        (self.run, self.tier, self.plan, self.placed) = (Some(name.run), Some(name.tier), Some(plan), true);
        self.note_kept(&name);
        Ok(())
    }

    /// Puts the kept model back into the weights, between two trainings. A download that is under way begins again.
    pub(crate) fn take_back(&mut self, name: &ModelName, fill: impl FnOnce(&mut [f32]) -> Option<()>) {
        if let Job::Downloading(download) = &mut self.job {
            download.restart();
        }
        let Some(weights) = self.arena.floats().get_mut(..name.info.params as usize) else { return };
        if fill(weights).is_some() {
            self.note_kept(name);
        } else {
            self.note_model(None);
        }
    }

    fn note_kept(&mut self, name: &ModelName) {
        self.held.set_model(Some(name.content));
        self.note_model(Some(name.round));
    }
}
