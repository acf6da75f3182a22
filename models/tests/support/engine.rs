//! Compiled Plans on the trainer: a model with samples, and a whole Assignment in an arena of exactly the
//! Plan's size between two guards.

use common::{
    WidthMask,
    brief::Brief,
    message::{Scalars, Task},
    plan::PlanInfo,
    rng::Rng,
};
use models::{Graph, plan::CompiledPlan};
use trainer::{
    data::{Samples, VecShard},
    train::{Backend, Float, PassMode, Work, WorkProgress, finish_update, forward},
};

/// Numbers before and after the arena that must not be touched.
pub const GUARD: usize = 64;
/// A NaN that no computation gives by itself.
const CANARY: u32 = 0x7fc0_ca4a;

/// One tier of a model, with something to learn.
#[derive(Clone, Debug)]
pub struct Case {
    pub graph: Graph,
    pub mask: WidthMask,
    /// Constants and parameters.
    pub weights: Vec<f32>,
    pub features: Vec<f32>,
    pub labels: Vec<u32>,
}

impl Case {
    pub fn new(graph: Graph, parameters: &[f32], mask: WidthMask, count: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let len = count * graph.inputs();
        let features = match graph.tokens() {
            Some(entries) => (0..len).map(|_| rng.below(entries as u64) as f32).collect(),
            None => (0..len).map(|_| rng.normal() as f32).collect(),
        };
        let classes = graph.shape(graph.output().value).dims.last().map_or(1, |dim| dim.size(graph.full()));
        let targets = count * graph.outputs() / classes;
        // One output is one of two classes.
        let labels = (0..targets).map(|_| rng.below(classes.max(2) as u64) as u32).collect();
        let weights = graph.weights(&mask, parameters).unwrap();
        Self { graph, mask, weights, features, labels }
    }

    /// How many of the weights are constants.
    pub fn constants(&self) -> usize {
        self.graph.gather_constants(&self.mask).len()
    }

    pub fn parameters(&self) -> &[f32] {
        &self.weights[self.constants()..]
    }

    pub fn count(&self) -> usize {
        self.features.len() / self.graph.inputs()
    }

    pub fn shard(&self) -> VecShard {
        let (inputs, targets) = (self.graph.inputs(), self.labels.len() / self.count());
        let samples =
            Samples::with_labels(self.features.clone(), self.labels.clone(), inputs, targets).unwrap();
        VecShard::new(samples, Samples::default()).unwrap()
    }

    /// An arena with weights, statistics and as many samples as the Plan has room for.
    pub fn arena<T: Float>(&self, info: &PlanInfo) -> Vec<T> {
        let mut arena = vec![T::ZERO; info.arena as usize];
        let mut put = |at: u32, values: &[f32]| {
            for (to, &value) in arena[at as usize..].iter_mut().zip(values) {
                *to = T::from_f32(value);
            }
        };
        put(0, &self.weights);
        if let Some(at) = info.segments.stats {
            put(at, &self.graph.gather_stats(&self.mask));
        }
        put(info.input, &self.features[..usize::from(info.batch) * info.inputs as usize]);
        arena
    }

    /// Logits in evaluation mode of the first samples, as many as the Plan has room for.
    pub fn logits(&self, compiled: &CompiledPlan, backend: &mut dyn Backend<f32>) -> Vec<f32> {
        let (info, rows) = (&compiled.info, usize::from(compiled.info.batch));
        let mut arena = self.arena(info);
        forward(compiled.plan().unwrap(), &mut arena, rows, PassMode::Evaluate, backend).unwrap();
        arena[info.logits as usize..][..rows * info.outputs as usize].to_vec()
    }
}

/// The results of an Assignment.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    pub scalars: Scalars,
    pub weights: Vec<f32>,
    /// The update that would be sent.
    pub update: Vec<f32>,
    /// Numbers of the arena that were changed.
    pub touched: Vec<bool>,
}

/// Works on one Assignment in an arena that was full of `fill`, or of canaries.
pub fn run(
    compiled: &CompiledPlan,
    case: &Case,
    brief: Option<&Brief>,
    fill: Option<f32>,
    backend: &mut dyn Backend<f32>,
) -> Run {
    let (info, plan, shard) = (&compiled.info, compiled.plan().unwrap(), case.shard());
    let canary = f32::from_bits(CANARY);
    let (len, params) = (info.arena as usize, info.params as usize);
    let mut memory = vec![canary; GUARD + len + GUARD];
    let arena = &mut memory[GUARD..][..len];
    arena.fill(fill.unwrap_or(canary));
    // What a session puts into the arena before any work.
    arena[..params].copy_from_slice(&case.weights);
    for received in [info.segments.residual, info.segments.guide].into_iter().flatten() {
        arena[received as usize..][..plan.trained()].fill(0.01);
    }
    let task = brief.map_or(Task::Evaluate(None), |brief| Task::Train(brief.clone()));
    let mut work = Work::begin(&task, plan, arena, &shard).unwrap();
    let scalars = loop {
        if let WorkProgress::Done(scalars) = work.step(plan, arena, &shard, backend).unwrap() {
            break scalars;
        }
    };
    if let Some(brief) = brief {
        finish_update(plan, arena, brief.product).unwrap();
    }
    let update = info.segments.anchor.map_or(vec![], |at| arena[at as usize..][..plan.trained()].to_vec());
    let (weights, touched) =
        (arena[..params].to_vec(), arena.iter().map(|x| x.to_bits() != CANARY).collect());
    let guards = memory[..GUARD].iter().chain(&memory[GUARD + len..]);
    assert!(guards.clone().all(|x| x.to_bits() == CANARY), "something was written outside the arena");
    Run { scalars, weights, update, touched }
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The largest difference, relative where numbers are above 1.
pub fn worst(got: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let pairs = got.iter().zip(expected).map(|(&a, &b)| (f64::from(a), f64::from(b)));
    pairs.fold(0.0, |worst, (a, b)| {
        let difference = (a - b).abs() / b.abs().max(1.0);
        if difference.is_nan() { f64::INFINITY } else { worst.max(difference) }
    })
}
