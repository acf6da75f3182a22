//! Every model of the zoo in an arena of exactly the Plan's size. Nothing outside is touched, all of it is used, and neither its
//! initial content nor the way in which memory is saved changes the result.
#![expect(clippy::unwrap_used, reason = "a panic is a failed test")]

extern crate fairtier_models as models;

use common::{
    WidthMask,
    brief::{Brief, Optimizer, Product},
    plan::Op,
};
use models::{
    Graph,
    plan::{
        CompiledPlan, PlanOptions, compile,
        fit::{FitError, fit},
    },
    zoo,
};
use trainer::train::Portable;

mod support;
use support::{Case, Run, bits, run};

const BATCH: u16 = 4;
/// Largest tested tiers, because wider ones only take longer: parameters, and multiply-accumulates per sample.
const MOST: (usize, u64) = (100_000, 2_000_000);

/// The widest tier of every zoo model that is not too large, or else one that is narrower than usual.
fn cases() -> Vec<(String, Case)> {
    let of = |entry: &zoo::Entry| {
        let (graph, parameters) = entry.build(3);
        let small = |mask: &WidthMask| {
            let plan = compile(&graph, mask, &PlanOptions::infer(1)).unwrap();
            plan.info.params as usize <= MOST.0 && plan.plan().unwrap().macs() <= MOST.1
        };
        let mut masks = entry
            .rates
            .iter()
            .chain(&[1.0 / 16.0, 1.0 / 32.0])
            .filter_map(|&rate| graph.full().at_rate(rate).ok());
        let mask = masks.find(|mask| graph.check_mask(mask).is_ok() && small(mask)).unwrap();
        (entry.name.to_owned(), Case::new(graph, &parameters, mask, BATCH.into(), 8))
    };
    zoo::ALL.iter().map(of).collect()
}

fn random_cases() -> impl Iterator<Item = (String, Case)> {
    (0..60).map(|seed| {
        let (graph, parameters) = zoo::random(seed);
        let mask = graph.full().clone();
        (format!("random {seed}"), Case::new(graph, &parameters, mask, BATCH.into(), seed))
    })
}

fn sgd() -> Brief {
    Brief::sgd(1, BATCH, 0.05, 11)
}

/// Ways to train, with the Plan that each needs.
fn settings() -> [(&'static str, PlanOptions, Brief); 6] {
    let train = PlanOptions::train(BATCH);
    let momentum = Optimizer::Sgd { momentum: 0.9, nesterov: true, decay: 1e-3 };
    let mut guided = Brief { optimizer: momentum, clip: Some(5.0), ..sgd() };
    (guided.objective.align, guided.objective.prox) = (0.25, 0.1);
    [
        ("fused", PlanOptions { fused: true, ..train }, sgd()),
        ("sgd", train, sgd()),
        ("guided", PlanOptions { moments: 1, error_feedback: true, guide: true, ..train }, guided),
        (
            "personal",
            PlanOptions { fused: true, personal: true, ..train },
            Brief { personal: Some(0.5), ..sgd() },
        ),
        ("both", PlanOptions { guide: true, ..train }, Brief { product: Product::Both, ..sgd() }),
        ("adam", PlanOptions { moments: 2, ..train }, Brief { optimizer: Optimizer::ADAM, ..sgd() }),
    ]
}

/// Plans for less memory than plain SGD needs: the minimum, half of the possible saving, and one byte less.
fn fitted(case: &Case) -> Vec<CompiledPlan> {
    let Case { graph, mask, .. } = case;
    let options = PlanOptions::train(BATCH);
    let Err(FitError::Short(short)) = fit(graph, mask, &options, 0) else { panic!("nothing fits no memory") };
    let whole = compile(graph, mask, &options).unwrap().info.arena_bytes();
    assert!(short.need < whole && fit(graph, mask, &options, short.need - 1).is_err());
    let rams = [short.need, (short.need + whole) / 2, whole - 1];
    let plans = rams.map(|ram| {
        let plan = fit(graph, mask, &options, ram).unwrap();
        assert!(plan.info.arena_bytes() <= ram);
        plan
    });
    assert_eq!(plans[0].info.arena_bytes(), short.need);
    plans.into()
}

/// Runs in the exact arena with two fillings.
fn exact(name: &str, plan: &CompiledPlan, case: &Case, brief: Option<&Brief>) -> Run {
    let first = run(plan, case, brief, None, &mut Portable::plain());
    let other = run(plan, case, brief, Some(-321.5), &mut Portable::plain());
    assert_eq!(first.scalars, other.scalars, "{name}: the loss depends on what was in memory");
    assert_eq!(bits(&first.weights), bits(&other.weights), "{name}: weights depend on what was in memory");
    assert_eq!(bits(&first.update), bits(&other.update), "{name}: the update depends on what was in memory");
    let mut covered = vec![false; first.touched.len()];
    for buffer in &plan.buffers {
        let stretch = buffer.at as usize..(buffer.at + buffer.len) as usize;
        let untouched = first.touched[stretch.clone()].iter().filter(|touched| !**touched).count();
        assert_eq!(untouched, 0, "{name}: {untouched} numbers of {buffer:?} are never written");
        covered[stretch].fill(true);
    }
    let gaps = first.touched.iter().zip(&covered).filter(|(touched, covered)| **touched && !**covered);
    assert_eq!(gaps.count(), 0, "{name}: something is written outside all buffers");
    let mark = first.touched.iter().rposition(|&touched| touched).map_or(0, |last| last + 1);
    assert_eq!(mark, plan.info.arena as usize, "{name}: high-water mark");
    first
}

fn can_fuse(graph: &Graph) -> bool {
    let uses: usize = graph.nodes().iter().map(|node| node.op.params().count()).sum();
    uses == graph.params().len()
}

/// Checks all settings of one model; returns the number of Plans that recompute activations.
fn check(name: &str, case: &Case) -> usize {
    let infer = compile(&case.graph, &case.mask, &PlanOptions::infer(BATCH)).unwrap();
    let loss = exact(&format!("{name}, inference"), &infer, case, None).scalars.loss_before;
    let mut again = 0;
    for (setting, options, brief) in settings() {
        if options.fused && !can_fuse(&case.graph) {
            continue;
        }
        let name = format!("{name}, {setting}");
        let plan = compile(&case.graph, &case.mask, &options).unwrap();
        let plain = exact(&name, &plan, case, Some(&brief));
        // The statistics of batch normalisation come from the samples, so both Plans give the same loss.
        assert_eq!(plain.scalars.loss_before, loss, "{name}");
        assert_ne!(bits(&plain.weights), bits(&case.weights), "{name}: nothing was learned");
        let constants = case.constants();
        assert_eq!(bits(&plain.weights[..constants]), bits(&case.weights[..constants]), "{name}");
        let options = PlanOptions { recompute: true, ..options };
        let saving = compile(&case.graph, &case.mask, &options).unwrap();
        if saving.schedule.is_empty() {
            continue;
        }
        again += 1;
        assert!(saving.info.arena < plan.info.arena, "{name}: nothing is saved");
        let saved = exact(&format!("{name}, again"), &saving, case, Some(&brief));
        assert_eq!(plain.scalars, saved.scalars, "{name}");
        assert_eq!(bits(&plain.update), bits(&saved.update), "{name}: computing again changes bits");
    }
    for plan in fitted(case) {
        let name = format!("{name} in {} bytes", plan.info.arena_bytes());
        let fitted = exact(&name, &plan, case, Some(&sgd()));
        let fused = plan.info.segments.grads.is_none();
        let options = PlanOptions { fused, ..PlanOptions::train(plan.info.batch) };
        let wasteful = compile(&case.graph, &case.mask, &options).unwrap();
        let plain = run(&wasteful, case, Some(&sgd()), None, &mut Portable::plain());
        assert_eq!(bits(&plain.update), bits(&fitted.update), "{name}: saving memory changes bits");
        again += usize::from(!plan.schedule.is_empty());
    }
    again
}

#[test]
fn the_high_water_mark_of_every_zoo_model_is_the_plan() {
    let again: usize = cases().iter().map(|(name, case)| check(name, case)).sum();
    assert!(again >= 10, "only {again} plans compute anything again");
}

#[test]
fn the_high_water_mark_of_random_models_is_the_plan() {
    let again: usize = random_cases().map(|(name, case)| check(&name, &case)).sum();
    assert!(again >= 20, "only {again} plans compute anything again");
}

/// Without dropout and batch normalisation, which depend on the batch.
#[test]
fn gradients_summed_over_several_passes_agree() {
    let brief = Brief { product: Product::Gradient, ..sgd() };
    for (name, case) in cases().into_iter().chain(random_cases()) {
        let gradient = |options: &PlanOptions| {
            let mut plan = compile(&case.graph, &case.mask, options).unwrap();
            for node in &mut plan.nodes {
                if let Op::Dropout { rate, .. } = &mut node.op {
                    *rate = 0.0;
                }
            }
            (plan.info.stats == 0)
                .then(|| run(&plan, &case, Some(&brief), None, &mut Portable::plain()).update)
        };
        let Some(whole) = gradient(&PlanOptions::train(BATCH)) else { continue };
        let largest = whole.iter().fold(0.0f32, |max, x| max.max(x.abs()));
        for (batch, recompute) in [(1, false), (3, false), (2, true)] {
            let options = PlanOptions { recompute, ..PlanOptions::train(batch) };
            let summed = gradient(&options).unwrap();
            let worst = whole.iter().zip(&summed).fold(0.0f32, |max, (a, b)| max.max((a - b).abs()));
            assert!(worst <= 1e-5 * largest, "{name}, batch {batch}: {worst} of {largest}");
        }
    }
}
