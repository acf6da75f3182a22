//! A hundred random models: the trainer's forward pass against tract, its gradients against central differences in `f64`. A
//! failure names the seed, from which [`zoo::random`] builds the model again.
#![expect(clippy::unwrap_used, reason = "a panic is a failed test")]

extern crate fairtier_models as models;

use common::{
    WidthMask,
    rng::{Rng, derive},
};
use models::{
    Graph,
    plan::{CompiledPlan, PlanOptions, compile},
    zoo,
};
use trainer::train::{GradTarget, PassMode, Portable, TargetLabels, backward, forward, loss_and_gradient};

mod support;
use support::Case;

const MODELS: u64 = 100;
const BATCH: u16 = 3;
/// Of each tier of each model.
const CHECKED: usize = 24;
/// Steps of the differences; a kink of an activation is rarely within the first and never within all.
const STEPS: [f64; 3] = [1e-5, 1e-6, 1e-7];

/// The whole model and a random tier.
fn cases(seed: u64) -> Vec<Case> {
    let (graph, parameters) = zoo::random(seed);
    let tier = tier(&graph, seed);
    let masks = [Some(graph.full().clone()), tier];
    let case = |mask| Case::new(graph.clone(), &parameters, mask, BATCH.into(), derive(seed, 1));
    masks.into_iter().flatten().map(case).collect()
}

/// Widths that the model can be cut to; `None` if it cannot be cut.
fn tier(graph: &Graph, seed: u64) -> Option<WidthMask> {
    let mut rng = Rng::new(derive(seed, 2));
    let mut draw = || {
        let widths: Vec<u32> =
            graph.full().widths().iter().map(|&width| 1 + rng.below(width.into()) as u32).collect();
        graph.full().at_widths(&widths).ok()
    };
    let fits = |mask: &WidthMask| graph.check_mask(mask).is_ok() && mask != graph.full();
    (0..20).filter_map(|_| draw()).find(fits)
}

#[cfg(feature = "tract")]
#[test]
fn forward_agrees_with_tract() {
    use common::plan::Activation;
    use models::{
        graph::{Node, Op},
        infer::TractModel,
        onnx::{ExportOptions, export},
    };
    use support::worst;
    use trainer::train::Fast;

    let (mut largest, mut agreed, mut tiers, mut refused) = (0.0f64, 0, 0, 0);
    for seed in 0.. {
        let mut ran = true;
        for case in cases(seed) {
            let slice = case.graph.slice(&case.mask).unwrap();
            let file = export(&slice, case.parameters(), &ExportOptions::default()).unwrap();
            let model = TractModel::load(&file).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            // tract 0.23 leaves out the factor `alpha` of Celu.
            let celu = |node: &Node| matches!(node.op, Op::Activate(Activation::Celu { .. }));
            let wrong = slice.nodes().iter().any(celu);
            let expected = match model.logits(&case.features) {
                Ok(logits) if !wrong => logits,
                Err(error) if !format!("{error:#}").contains("xw not contiguous") => {
                    panic!("seed {seed}: {error}")
                }
                // It cannot run some small recurrent layers. These are compared with the reference forward pass.
                _ => {
                    ran = false;
                    let logits = support::forward(&slice, case.parameters(), &case.features);
                    logits.into_iter().map(|x| x as f32).collect()
                }
            };
            let options = [
                PlanOptions::infer(BATCH),
                PlanOptions::train(BATCH),
                PlanOptions { recompute: true, ..PlanOptions::train(BATCH) },
            ];
            for options in options {
                let plan = compile(&case.graph, &case.mask, &options).unwrap();
                let difference = worst(&case.logits(&plan, &mut Fast::new()), &expected)
                    .max(worst(&case.logits(&plan, &mut Portable::plain()), &expected))
                    .max(worst(&case.logits(&plan, &mut Portable::fused()), &expected));
                assert!(difference < 1e-4, "seed {seed}, {:?}: {difference}", case.mask);
                largest = largest.max(difference);
            }
            tiers += usize::from(case.mask != *case.graph.full());
        }
        agreed += u64::from(ran);
        refused += u64::from(!ran);
        if agreed == MODELS {
            break;
        }
        assert!(refused < MODELS / 2, "tract refuses too many");
    }
    assert!(tiers > 60, "only {tiers} models were cut");
    println!("largest difference: {largest}, {tiers} tiers, {refused} models that tract refused");
}

#[test]
fn backward_agrees_with_finite_differences() {
    let (mut largest, mut moved, mut count) = (0.0f64, 0, 0);
    for seed in 0..MODELS {
        for case in cases(seed) {
            for recompute in [false, true] {
                let options = PlanOptions { recompute, ..PlanOptions::train(BATCH) };
                let plan = compile(&case.graph, &case.mask, &options).unwrap();
                if recompute && plan.schedule.is_empty() {
                    continue;
                }
                let mut check = Check::new(&case, &plan, seed);
                for at in chosen(case.parameters().len(), seed) {
                    let (error, gradient) = check.error(at);
                    let (mask, recompute) = (&case.mask, plan.schedule.len());
                    assert!(
                        error < 1e-5,
                        "seed {seed}, {mask:?}, schedule {recompute}, parameter {at}: {error} of {gradient}"
                    );
                    largest = largest.max(error);
                    moved += usize::from(gradient != 0.0);
                    count += 1;
                }
            }
        }
    }
    assert!(moved * 3 > count, "most of {count} gradients are 0");
    println!("largest error: {largest}; {moved} of {count} gradients are not 0");
}

fn chosen(params: usize, seed: u64) -> Vec<usize> {
    let mut all: Vec<usize> = (0..params).collect();
    Rng::new(derive(seed, 3)).shuffle(&mut all);
    all.truncate(CHECKED);
    all
}

struct Check<'a> {
    case: &'a Case,
    plan: &'a CompiledPlan,
    mode: PassMode,
    gradients: Vec<f64>,
}

impl<'a> Check<'a> {
    fn new(case: &'a Case, plan: &'a CompiledPlan, seed: u64) -> Self {
        let mut check = Self { case, plan, mode: PassMode::Train { seed, step: 1 }, gradients: vec![] };
        let mut arena = case.arena::<f64>(&plan.info);
        check.loss(&mut arena);
        let (checked, rows) = (plan.plan().unwrap(), BATCH.into());
        backward(checked, &mut arena, rows, check.mode, GradTarget::Grads, &mut Portable::plain())
            .unwrap_or_else(|error| panic!("seed {seed}: {error}: {:#?}", plan.nodes));
        let grads = plan.info.segments.grads.unwrap() as usize;
        check.gradients = arena[grads..][..checked.trained()].to_vec();
        check
    }

    fn loss(&self, arena: &mut [f64]) -> f64 {
        let (plan, rows) = (self.plan.plan().unwrap(), usize::from(BATCH));
        let per_row = plan.info().targets();
        let truth = TargetLabels { labels: &self.case.labels, per_row: per_row as usize };
        forward(plan, arena, rows, self.mode, &mut Portable::plain()).unwrap();
        let targets = per_row * rows as u32;
        loss_and_gradient(plan, arena, rows, targets, &truth).unwrap().loss / f64::from(targets)
    }

    /// Relative error of a gradient (absolute below a thousandth), and the gradient.
    fn error(&mut self, at: usize) -> (f64, f64) {
        let gradient = self.gradients[at];
        let loss_at = |by: f64| {
            // The backward pass has overwritten samples, perhaps.
            let mut arena = self.case.arena::<f64>(&self.plan.info);
            arena[self.case.constants() + at] += by;
            self.loss(&mut arena)
        };
        let slope = |h: f64| (loss_at(h) - loss_at(-h)) / (2.0 * h);
        let error = |h: f64| {
            let slope = slope(h);
            (slope - gradient).abs() / slope.abs().max(gradient.abs()).max(1e-3)
        };
        let errors = STEPS.iter().map(|&h| error(h));
        // The next step is tried only where there is a kink.
        let mut best = f64::INFINITY;
        for error in errors {
            best = best.min(error);
            if best < 1e-5 {
                break;
            }
        }
        (best, gradient)
    }
}

#[test]
fn the_models_have_every_operation() {
    let mut kinds: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    for seed in 0..MODELS {
        for node in zoo::random(seed).0.nodes() {
            let text = format!("{:?}", node.op);
            let kind = text.split([' ', '(']).next().unwrap_or_default().to_owned();
            *kinds.entry(kind).or_default() += 1;
            if let models::graph::Op::Activate(_) = node.op {
                *kinds.entry(node.op.name().to_owned()).or_default() += 1;
            }
        }
    }
    for kind in [
        "Dense",
        "Conv",
        "Activate",
        "Pool",
        "GlobalPool",
        "Add",
        "Flatten",
        "GroupNorm",
        "LayerNorm",
        "Gru",
        "Recurrent",
        "Last",
        "Embed",
        "BatchNorm",
        "Dropout",
        "Concat",
        "Part",
        "Pad",
        "Transpose",
        "GlobalMaxPool",
        "StepPool",
        "Mul",
        "PRelu",
        "Arithmetic",
        "Relu",
        "LeakyRelu",
        "Sigmoid",
        "Tanh",
        "Gelu",
        "Gelu (tanh)",
        "Silu",
        "Mish",
        "HardSwish",
        "HardSigmoid",
        "Clip",
        "Elu",
        "Selu",
        "Celu",
        "Softplus",
        "Softsign",
    ] {
        assert!(kinds.get(kind).is_some_and(|&count| count >= 5), "{kind}: {kinds:?}");
    }
}
