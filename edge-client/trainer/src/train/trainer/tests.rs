use common::{Code, message::Scalars};

use common::{
    brief::{Augment, Objective, Optimizer, PropFair, SelfRegular},
    plan::Loss,
};

use super::{pass::factor, *};
use crate::{
    data::{Samples, VecShard, digits},
    train::{
        Fast, Portable,
        test_plan::{Builder, Options, PLAIN, TestPlan},
    },
};

mod alone;
mod attack;
mod groups;
mod personal;
mod privacy;
mod reads;
mod trials;
mod validation;

const TICKET: Ticket = Ticket { run: RunId(1), round: 1, exchange: 0, attempt: 0 };

fn brief() -> Brief {
    Brief { loss_after: true, ..Brief::sgd(2, 7, 0.1, 5) }
}

/// 50 training and 9 test samples of the built-in digits.
fn small() -> VecShard {
    let all = Samples::of(&digits::all(), DataSplit::Train).unwrap();
    let part = |range: core::ops::Range<u32>| all.select(&range.collect::<Vec<_>>()).unwrap();
    VecShard::new(part(0..50), part(50..59)).unwrap()
}

fn small_plan(options: Options) -> TestPlan {
    TestPlan::new(&[64, 12, 10], 8, options)
}

fn run(
    task: &Task,
    plan: &TestPlan,
    arena: &mut [f32],
    shard: &dyn Shard,
    backend: &mut dyn Backend<f32>,
) -> Result<Scalars, TrainError> {
    run_as(PrivateState::default(), task, plan, arena, shard, backend).map(|(scalars, _)| scalars)
}

fn run_as(
    private: PrivateState,
    task: &Task,
    plan: &TestPlan,
    arena: &mut [f32],
    shard: &dyn Shard,
    backend: &mut dyn Backend<f32>,
) -> Result<(Scalars, Work), TrainError> {
    let mut work = Work::begin_as(private, TICKET, task, plan.plan(), arena, shard)?;
    let mut calls = 0;
    loop {
        calls += 1;
        match work.step(plan.plan(), arena, shard, backend)? {
            WorkProgress::Busy { step, steps } => assert!(step == calls && step < steps),
            WorkProgress::Done(scalars) => {
                if !matches!(task, Task::Alone(_)) {
                    assert_eq!(calls, work.steps, "announced and made steps");
                }
                return Ok((scalars, work));
            }
        }
    }
}

/// `z = w x + b`, binary.
fn logistic(batch: u16, options: Options) -> TestPlan {
    let (mut b, x) = Builder::new(1, batch);
    let _ = b.dense(x, 1, 1);
    b.finish(Loss::Sigmoid, options)
}

/// The same with two logits: 0 and `w x + b`.
fn softmax(batch: u16) -> TestPlan {
    TestPlan::new(&[1, 2], batch, PLAIN)
}

/// Ten samples of one number, with labels that overlap.
fn ten() -> Samples {
    let features = vec![-1.0, 2.0, 0.5, 3.0, -2.0, 0.25, 1.5, -0.5, 1.0, -1.5];
    Samples::new(features, vec![0, 1, 1, 0, 0, 1, 1, 0, 1, 1], 1).unwrap()
}

fn shard(train: Samples) -> VecShard {
    VecShard::new(train, Samples::default()).unwrap()
}

fn segment(plan: &TestPlan, at: Option<u32>) -> core::ops::Range<usize> {
    let at = at.unwrap() as usize;
    at..at + plan.info.params as usize
}

/// Binary cross-entropy of a logit.
fn entropy(z: f64, label: u32) -> f64 {
    (1.0 + z.exp()).ln() - z * f64::from(label)
}

/// Mean loss of `z = w x + b` and its gradient, each sample with its weight.
fn reference([w, b]: [f64; 2], samples: &Samples, weights: &[f64]) -> (f64, [f64; 2]) {
    let (mut loss, mut grad) = (0.0, [0.0; 2]);
    for ((&x, &label), weight) in samples.features().iter().zip(samples.labels()).zip(weights) {
        let z = w * f64::from(x) + b;
        loss += weight * entropy(z, label);
        let slope = weight * (1.0 / (1.0 + (-z).exp()) - f64::from(label));
        grad = [grad[0] + slope * f64::from(x), grad[1] + slope];
    }
    let total: f64 = weights.iter().sum();
    (loss / total, grad.map(|grad| grad / total))
}

fn assert_close(got: &[f32], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        assert!((f64::from(*got) - want).abs() < 1e-6, "{got} {want}");
    }
}

#[test]
fn scalars_of_training() {
    let (plan, shard) = (small_plan(PLAIN), small());
    let mut arena = plan.arena(1, |x| x as f32);
    let received = arena[..plan.info.params as usize].to_vec();
    let scalars = run(&Task::Train(brief()), &plan, &mut arena, &shard, &mut Portable::plain()).unwrap();
    assert_eq!((scalars.samples, scalars.steps), (50, 16));
    assert_eq!(scalars.test.unwrap().samples, 9);
    assert!(scalars.loss_after.unwrap() < scalars.loss_before);

    // The losses are those of plain evaluations of the two models.
    let after =
        run(&Task::Evaluate(None), &plan, &mut arena.clone(), &shard, &mut Portable::plain()).unwrap();
    assert_eq!(Some(after.loss_before), scalars.loss_after);
    let mut fresh = arena.clone();
    fresh[..received.len()].copy_from_slice(&received);
    let before = run(&Task::Evaluate(None), &plan, &mut fresh, &shard, &mut Portable::plain()).unwrap();
    assert_eq!((before.loss_before, before.test), (scalars.loss_before, scalars.test));
    assert_eq!((before.loss_after, before.steps), (None, 0));
    assert_eq!(fresh[..received.len()], received, "evaluating must not train");

    let trained = arena[..received.len()].to_vec();
    finish_update(plan.plan(), &mut arena, Product::Update).unwrap();
    let update = &arena[plan.info.segments.anchor.unwrap() as usize..][..received.len()];
    assert!(update.iter().zip(trained.iter().zip(&received)).all(|(&u, (&t, &r))| u == t - r));
    assert!(update.iter().any(|&u| u != 0.0));
}

#[test]
fn the_update_includes_the_residual_of_the_codec() {
    let plan = small_plan(Options { residual: true, ..PLAIN });
    let mut arena = plan.arena(1, |x| x as f32);
    let segment = |at: Option<u32>| at.unwrap_or(0) as usize..(at.unwrap_or(0) + plan.info.params) as usize;
    let owed = arena[segment(plan.info.segments.residual)].to_vec();
    Work::begin(&Task::Train(brief()), plan.plan(), &mut arena, &small()).unwrap();
    finish_update(plan.plan(), &mut arena, Product::Update).unwrap();
    assert_eq!(arena[segment(plan.info.segments.anchor)], owed);
}

#[test]
fn the_same_work_gives_the_same_bits_however_it_is_interleaved() {
    let (plan, shard) = (small_plan(Options { grads: false, ..PLAIN }), small());
    let start = plan.arena(1, |x| x as f32);
    let mut alone = start.clone();
    let scalars = run(&Task::Train(brief()), &plan, &mut alone, &shard, &mut Portable::plain()).unwrap();

    let other_brief = Brief { seed: 6, ..brief() };
    let (mut a, mut b) = (start.clone(), start);
    let mut first = Work::begin(&Task::Train(brief()), plan.plan(), &mut a, &shard).unwrap();
    let mut second = Work::begin(&Task::Train(other_brief), plan.plan(), &mut b, &shard).unwrap();
    let mut last = None;
    for turn in 0..3 * first.steps {
        if turn % 3 == 0 {
            last = Some(first.step(plan.plan(), &mut a, &shard, &mut Portable::plain()).unwrap());
        } else {
            second.step(plan.plan(), &mut b, &shard, &mut Portable::plain()).unwrap();
        }
    }
    assert_eq!(last, Some(WorkProgress::Done(scalars)));
    let bits =
        |arena: &[f32]| arena[..plan.info.params as usize].iter().map(|w| w.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&alone), bits(&a));
    assert_ne!(bits(&a), bits(&b), "the seed decides the order");
}

#[test]
fn digits_are_learnt() {
    let plan = TestPlan::new(&[64, 32, 10], 16, Options { in_place: true, grads: false, ..PLAIN });
    let mut arena = plan.arena(1, |x| x as f32);
    let brief = Brief { epochs: 12, batch: 16, lr: 0.3, loss_after: false, ..brief() };
    run(&Task::Train(brief), &plan, &mut arena, &digits::all(), &mut Portable::plain()).unwrap();
    let test = run(&Task::Evaluate(None), &plan, &mut arena, &digits::all(), &mut Fast::new())
        .unwrap()
        .test
        .unwrap();
    assert_eq!(test.samples, 1797);
    assert!(test.accuracy() > 0.95, "{}", test.accuracy());
}

#[test]
fn divergence_is_reported() {
    let (plan, shard) = (small_plan(PLAIN), small());
    let mut arena = plan.arena(1, |x| x as f32);
    let wild = Brief { lr: 1e30, ..brief() };
    let error = run(&Task::Train(wild), &plan, &mut arena, &shard, &mut Portable::plain()).unwrap_err();
    assert!(matches!(error, TrainError::Diverged { step: 10.. }), "{error}");
    assert_eq!(error.code(), Code::NonFiniteLoss);
    let error = finish_update(plan.plan(), &mut arena, Product::Update).unwrap_err();
    assert_eq!(error.code(), Code::NonFiniteUpdate);
}

#[test]
fn mismatches_are_refused_before_any_work() {
    let (plan, shard) = (small_plan(PLAIN), small());
    let arena = plan.arena(1, |x| x as f32);
    let refused = |task: &Task, plan: &TestPlan, len: usize, shard: &dyn Shard| {
        let mut copy = arena[..len].to_vec();
        let error = Work::begin(task, plan.plan(), &mut copy, shard).unwrap_err();
        assert_eq!(copy, arena[..len], "{error}");
        (error, error.code())
    };
    let (train, len) = (&Task::Train(brief()), arena.len());

    let features = |inputs: usize| Samples::new(vec![0.5; inputs], vec![3], inputs).unwrap();
    let none = Samples::new(vec![], vec![], 64).unwrap();
    let empty = VecShard::new(none.clone(), features(64)).unwrap();
    assert_eq!(refused(train, &plan, len, &empty), (TrainError::EmptyShard, Code::EmptyShard));
    let narrow = VecShard::new(features(63), none.clone()).unwrap();
    let inputs = TrainError::Inputs { plan: 64, shard: 63 };
    assert_eq!(refused(&Task::Evaluate(None), &plan, len, &narrow), (inputs, Code::WrongData));
    let eleventh = Samples::new(vec![0.0; 64], vec![10], 64).unwrap();
    let classes = TrainError::Classes { plan: 10, classes: 11 };
    let eleven = VecShard::new(eleventh, none).unwrap();
    assert_eq!(refused(train, &plan, len, &eleven), (classes, Code::WrongData));
    assert_eq!(classes.to_string(), "the model has 10 classes, but the labels go up to 10");

    let short = TrainError::Arena { need: len, have: len - 1 };
    assert_eq!(refused(train, &plan, len - 1, &shard), (short, Code::DoesNotFit));
    let brief = |change: &dyn Fn(&mut Brief)| {
        let mut brief = brief();
        change(&mut brief);
        refused(&Task::Train(brief), &plan, len, &shard).1
    };
    let objective = |change: &dyn Fn(&mut Objective)| brief(&|brief| change(&mut brief.objective));
    assert_eq!(brief(&|brief| brief.batch = 0), Code::BadConfig);
    assert_eq!(brief(&|brief| brief.lr = f32::NAN), Code::BadConfig);
    assert_eq!(brief(&|brief| brief.lr = -0.1), Code::BadConfig);
    assert_eq!(brief(&|brief| brief.clip = Some(0.0)), Code::BadConfig);
    assert_eq!(brief(&|brief| brief.optimizer = Optimizer::ADAM), Code::BadPlan);
    assert_eq!(brief(&|brief| brief.optimizer = momentum(0.9, false)), Code::BadPlan);
    assert_eq!(brief(&|brief| brief.optimizer = momentum(1.0, false)), Code::BadConfig);
    assert_eq!(objective(&|objective| objective.align = 0.5), Code::BadPlan);
    assert_eq!(objective(&|objective| objective.align = 1.5), Code::BadConfig);
    assert_eq!(objective(&|objective| objective.weight = f32::INFINITY), Code::BadConfig);
    let transform = PropFair { m: 2.0, eps: 0.0 };
    assert_eq!(objective(&|objective| objective.transform = Some(transform)), Code::BadConfig);

    let lean = small_plan(Options { grads: false, ..PLAIN });
    let lean_len = lean.info.arena as usize;
    let lean_refused = |change: &dyn Fn(&mut Brief)| {
        let mut brief = super::tests::brief();
        change(&mut brief);
        let mut arena = lean.arena(1, |x| x as f32);
        assert_eq!(arena.len(), lean_len);
        Work::begin(&Task::Train(brief), lean.plan(), &mut arena, &shard).unwrap_err()
    };
    assert_eq!(lean_refused(&|brief| brief.batch = 9), TrainError::Batch { rows: 9, batch: 8 });
    assert_eq!(lean_refused(&|brief| brief.clip = Some(1.0)).code(), Code::BadPlan);
    let error = lean_refused(&|brief| brief.product = Product::Gradient);
    let text = "the brief asks for a gradient over all samples, so the plan needs a gradient segment; \
                compile it for this brief";
    assert_eq!(error.to_string(), text);

    let mut inference = small_plan(PLAIN);
    inference.nodes.iter_mut().for_each(|node| node.output_grad = None);
    assert_eq!(refused(train, &inference, len, &shard), (TrainError::InferenceOnly, Code::BadPlan));
    let mut lossless = small_plan(PLAIN);
    lossless.nodes[2].output_grad = None;
    assert_eq!(refused(train, &lossless, len, &shard), (TrainError::InferenceOnly, Code::BadPlan));
}

fn momentum(momentum: f32, nesterov: bool) -> Optimizer {
    Optimizer::Sgd { momentum, nesterov, decay: 0.0 }
}

fn trained(brief: Brief, options: Options, batch: u16) -> (Vec<f32>, Scalars) {
    let plan = TestPlan::new(&[64, 12, 10], batch, options);
    let mut arena = vec![0.0f32; plan.info.arena as usize];
    let start = small_plan(PLAIN).arena(1, |x| x as f32);
    let params = plan.info.params as usize;
    arena[..params].copy_from_slice(&start[..params]);
    if let Some(guide) = plan.info.segments.guide {
        arena[guide as usize..][..params].fill(0.01);
    }
    let product = brief.product;
    let scalars = run(&Task::Train(brief), &plan, &mut arena, &small(), &mut Portable::plain()).unwrap();
    finish_update(plan.plan(), &mut arena, product).unwrap();
    (arena[plan.info.segments.anchor.unwrap() as usize..][..params].to_vec(), scalars)
}

fn assert_near(a: &[f32], b: &[f32], tolerance: f32) {
    let largest = a.iter().fold(0.0f32, |largest, a| largest.max(a.abs()));
    assert!(largest > 0.0);
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= tolerance * largest, "{a} {b}");
    }
}

#[test]
fn applying_gradients_at_once_gives_the_same_bits() {
    let lean = Options { grads: false, in_place: true, ..PLAIN };
    let mut all = vec![brief()];
    all.push(Brief { optimizer: Optimizer::Sgd { momentum: 0.0, nesterov: false, decay: 0.01 }, ..brief() });
    for objective in [
        Objective { prox: 0.1, ..Objective::default() },
        Objective { weight: -0.7, prox: 0.3, ..Objective::default() },
        Objective { transform: Some(PropFair { m: 3.0, eps: 0.2 }), ..Objective::default() },
    ] {
        all.push(Brief { objective, ..brief() });
    }
    for brief in all {
        let kept = trained(brief.clone(), PLAIN, 8).0;
        assert_eq!(kept, trained(brief, lean, 8).0);
    }
}

#[test]
fn gradients_are_summed_over_passes() {
    let objective =
        Objective { transform: Some(PropFair { m: 4.0, eps: 0.2 }), weight: 0.8, ..Objective::default() };
    for brief in [Brief { batch: 20, ..brief() }, Brief { batch: 20, objective, ..brief() }] {
        let (whole, scalars) = trained(brief.clone(), PLAIN, 20);
        let (summed, in_parts) = trained(brief, PLAIN, 6);
        assert_near(&whole, &summed, 1e-5);
        assert_eq!((scalars.steps, in_parts.steps), (6, 6));
    }
}

#[test]
fn products_of_other_kinds() {
    let rate = 0.1f32;
    let (gradient, scalars) = trained(Brief { product: Product::Gradient, ..brief() }, PLAIN, 8);
    assert_eq!((scalars.steps, scalars.loss_after), (0, Some(scalars.loss_before)));
    // One step over all samples is the gradient times the rate.
    let whole = Brief { batch: 50, product: Product::FirstStep, lr: rate, epochs: 3, ..brief() };
    let (first, scalars) = trained(whole, PLAIN, 8);
    assert_eq!(scalars.steps, 1);
    let expected: Vec<f32> = first.iter().map(|first| -first / rate).collect();
    assert_near(&expected, &gradient, 1e-4);
}

#[test]
fn a_guide_takes_its_share() {
    let only = Objective { align: 1.0, ..Objective::default() };
    let brief = Brief { objective: only, product: Product::FirstStep, lr: 0.5, ..brief() };
    let (update, _) = trained(brief, Options { guide: true, ..PLAIN }, 8);
    assert!(update.iter().all(|update| (update + 0.005).abs() < 1e-6));
}

#[test]
fn clipping_bounds_the_step() {
    let brief = Brief { clip: Some(0.01), product: Product::FirstStep, lr: 1.0, ..brief() };
    let (update, _) = trained(brief, PLAIN, 8);
    let norm = update.iter().map(|update| update * update).sum::<f32>().sqrt();
    assert!((norm - 0.01).abs() < 1e-6, "{norm}");
}

#[test]
fn self_regularisation_trains() {
    let terms = SelfRegular { sharpen: 0.5, soften: 3.0, gamma: 0.4, augment: Augment::Noise(0.05) };
    let objective = Objective { robust: Some(terms), ..Objective::default() };
    let brief = Brief { objective, epochs: 5, batch: 6, ..brief() };
    let (update, scalars) = trained(brief.clone(), PLAIN, 12);
    assert!(scalars.loss_after.unwrap() < 0.8 * scalars.loss_before);
    assert_eq!(scalars.samples, 50);
    assert_eq!(update, trained(brief.clone(), Options { grads: false, ..PLAIN }, 12).0);
    let plan = TestPlan::new(&[64, 12, 10], 8, Options { grads: false, ..PLAIN });
    let mut arena = plan.arena(1, |x| x as f32);
    let refused = Work::begin(&Task::Train(brief), plan.plan(), &mut arena, &small()).unwrap_err();
    assert_eq!(refused, TrainError::Batch { rows: 12, batch: 8 });
}

#[test]
fn self_regularisation_shifts_images() {
    let brief = |height: u16, pixels: u8, seed: u64| {
        let augment = Augment::Shift { channels: 1, height, width: 8, pixels, flip: false };
        let terms = SelfRegular { sharpen: 0.5, soften: 3.0, gamma: 0.4, augment };
        let objective = Objective { robust: Some(terms), ..Objective::default() };
        Brief { objective, epochs: 5, batch: 6, seed, ..brief() }
    };
    let (update, scalars) = trained(brief(8, 1, 5), PLAIN, 12);
    assert!(scalars.loss_after.unwrap() < 0.9 * scalars.loss_before);
    assert_eq!(update, trained(brief(8, 1, 5), PLAIN, 12).0, "the seed decides");
    assert_ne!(update, trained(brief(8, 2, 5), PLAIN, 12).0);
    let plan = small_plan(PLAIN);
    let mut arena = plan.arena(1, |x| x as f32);
    let task = Task::Train(brief(7, 1, 5));
    let refused = Work::begin(&task, plan.plan(), &mut arena, &small()).unwrap_err();
    assert!(refused.to_string().contains("as many numbers as a sample"), "{refused}");
}

/// Statistics are the mean of the batches' figures, weighted by rows; evaluation normalises with them.
#[test]
fn batch_normalisation_is_evaluated_with_the_devices_own_statistics() {
    let (mut b, x) = Builder::new(2, 4);
    let _ = b.batchnorm(x, 2);
    let plan = b.finish(Loss::Softmax { classes: 2 }, PLAIN);
    let mut arena = plan.arena(1, |x| x as f32);
    arena[..4].copy_from_slice(&[1.0, 1.0, 0.0, 0.0]);
    let features: Vec<f32> = vec![1.0, 0.0, 3.0, 0.0, 5.0, 4.0, 7.0, 4.0, 2.0, 6.0, 4.0, 8.0];
    let samples = Samples::new(features, vec![0, 1, 0, 1, 0, 1], 2).unwrap();
    let shard = VecShard::new(samples, Samples::default()).unwrap();
    let scalars = run(&Task::Evaluate(None), &plan, &mut arena, &shard, &mut Portable::plain()).unwrap();
    let stats = &arena[plan.info.segments.stats.unwrap() as usize..][..4];
    // Batches of 4 and 2 rows: means 4, 3 and 2, 7; variances 5, 1 and 4, 1.
    let want = [(4.0 * 4.0 + 2.0 * 3.0) / 6.0, (4.0 * 2.0 + 2.0 * 7.0) / 6.0, 22.0 / 6.0, 18.0 / 6.0];
    for (got, want) in stats.iter().zip(want) {
        assert!((got - want).abs() < 1e-5, "{got} {want}");
    }
    let scale = |x: f64, mean: f64, variance: f64| (x - mean) / (variance + 1e-5).sqrt();
    let rows = [(1.0, 0.0), (3.0, 0.0), (5.0, 4.0), (7.0, 4.0), (2.0, 6.0), (4.0, 8.0)];
    let losses = rows.iter().enumerate().map(|(index, &(a, b))| {
        let z = [scale(a, 22.0 / 6.0, 22.0 / 6.0), scale(b, 22.0 / 6.0, 3.0)];
        (z[0].exp() + z[1].exp()).ln() - z[index % 2]
    });
    let mean = losses.sum::<f64>() / 6.0;
    assert!((scalars.loss_before - mean).abs() < 1e-5, "{} {mean}", scalars.loss_before);
    // After training they are collected anew, from the trained model.
    let brief = Brief { batch: 3, ..brief() };
    let scalars = run(&Task::Train(brief), &plan, &mut arena, &shard, &mut Portable::plain()).unwrap();
    let again = run(&Task::Evaluate(None), &plan, &mut arena, &shard, &mut Portable::plain()).unwrap();
    assert_eq!(scalars.loss_after, Some(again.loss_before));
}

/// The worked numbers of PropFair, and its slope against finite differences.
#[test]
fn the_factor_is_the_slope_of_propfairs_transform() {
    let transform = PropFair { m: 2.0, eps: 0.2 };
    let with = |weight| Brief {
        objective: Objective { weight, transform: Some(transform), ..Objective::default() },
        ..brief()
    };
    let phi = |loss: f64| match 2.0 - loss {
        room if room >= 0.2 => -room.ln(),
        room => -0.2f64.ln() + (0.2 - room) / 0.2,
    };
    for (loss, want) in [(0.5, 2.0 / 3.0), (1.8, 5.0), (2.5, 5.0)] {
        assert!((f64::from(factor(&with(1.0), loss)) - want).abs() < 1e-5);
        assert!((f64::from(factor(&with(-3.0), loss)) + 3.0 * want).abs() < 1e-5);
    }
    for loss in [0.1, 0.9, 1.7, 1.9, 3.0] {
        let slope = (phi(loss + 1e-6) - phi(loss - 1e-6)) / 2e-6;
        assert!((f64::from(factor(&with(1.0), loss)) - slope).abs() < 1e-5, "{loss} {slope}");
    }
}
