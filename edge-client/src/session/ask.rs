//! Predictions with the model of the last round, between two batches of any job.
//!
//! While the device trains, the received model is in the anchor segment. It changes places with the weights for the time of
//! the prediction, so neither changes.

use common::{Code, message::Task, plan::Plan};

use super::{Arena, Job, Session};
use crate::train::{self, Backend, Prediction};

/// Where the model of the last round is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ModelPlace {
    /// In the weights, as it was received.
    Weights,
    /// In the anchor segment, as it was received; the weights are being trained.
    Anchor,
    /// The weights hold it as this device has trained it; as it was received, it is nowhere in RAM.
    Trained,
    /// There is none: none has arrived yet, or another one is arriving.
    Nowhere,
}

/// An answer of the model.
#[derive(Clone, PartialEq, Debug)]
pub struct Answered<'a> {
    /// Class and score.
    pub prediction: Prediction,
    /// Logits, or predicted numbers.
    pub outputs: &'a [f32],
    /// The round whose model it is.
    pub round: u32,
    /// This device has trained the model further since.
    pub trained: bool,
}

impl<A: Arena, const NODES: usize> Session<A, NODES> {
    /// Where the model of the last round is.
    pub fn model_place(&self) -> ModelPlace {
        match &self.job {
            _ if self.model_round.is_none() || !self.placed => ModelPlace::Nowhere,
            Job::Working { assignment, work: Some(_) } => match assignment.task {
                Task::Evaluate(_) => ModelPlace::Weights,
                Task::Train(_) | Task::Alone(_) | Task::Try(_) => ModelPlace::Anchor,
            },
            Job::Working { work: None, .. } => ModelPlace::Weights,
            _ if self.held.model().is_some() => ModelPlace::Weights,
            _ => ModelPlace::Trained,
        }
    }

    /// Room for the sample that [`Session::predict`] is asked about; empty before the device has its Plan. The next batch
    /// overwrites it.
    pub fn input(&mut self) -> &mut [f32] {
        let Some(info) = self.plan.as_ref().map(|plan| *plan.info()).filter(|_| self.placed) else {
            return &mut [];
        };
        let at = info.input as usize;
        self.arena.floats().get_mut(at..at + info.inputs as usize).unwrap_or_default()
    }

    /// The outputs that [`Session::predict`] has computed; the next batch overwrites them.
    pub(crate) fn outputs(&mut self) -> &[f32] {
        let Some(info) = self.plan.as_ref().map(|plan| *plan.info()).filter(|_| self.placed) else {
            return &[];
        };
        let at = info.logits as usize;
        self.arena.floats().get(at..at + info.outputs as usize).unwrap_or_default()
    }

    /// What the model of the last round says of the sample in [`Session::input`]. May be called between any two batches, and
    /// changes no result of the training.
    #[inline(never)]
    pub fn predict(&mut self, backend: &mut (impl Backend<f32> + ?Sized)) -> Result<Answered<'_>, Code> {
        let place = self.model_place();
        let (Some(store), Some(round)) = (&self.plan, self.model_round) else { return Err(Code::NotReady) };
        if place == ModelPlace::Nowhere {
            return Err(Code::NotReady);
        }
        let plan = store.plan().map_err(|error| error.code())?;
        let (arena, info) = (self.arena.floats(), *plan.info());
        let input = info.input as usize..(info.input + info.inputs) as usize;
        if !arena.get(input).is_some_and(|sample| sample.iter().all(|value| value.is_finite())) {
            return Err(Code::WrongData);
        }
        if place == ModelPlace::Anchor {
            swap(plan, arena);
        }
        let outcome = train::predict(plan, arena, backend).map(|_| ()).map_err(|error| error.code());
        if place == ModelPlace::Anchor {
            swap(plan, arena);
        }
        outcome?;
        let at = info.logits as usize;
        let outputs = arena.get(at..at + info.outputs as usize).unwrap_or_default();
        let prediction = Prediction::of(info.loss, outputs).ok_or(Code::BadPlan)?;
        Ok(Answered { prediction, outputs, round, trained: place == ModelPlace::Trained })
    }
}

/// Exchanges the trained weights and the anchor.
fn swap(plan: Plan<'_>, arena: &mut [f32]) {
    let Some(anchor) = plan.info().segments.anchor else { return };
    let of = |at: u32| at as usize..at as usize + plan.trained();
    if let Ok([weights, anchor]) = arena.get_disjoint_mut([of(plan.frozen()), of(anchor)]) {
        weights.swap_with_slice(anchor);
    }
}
