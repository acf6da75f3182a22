use common::{Code, message::Scalars};

use super::*;
use crate::{
    data::{Samples, VecShard, digits},
    train::{
        Fast, Portable,
        test_plan::{Options, PLAIN, TestPlan},
    },
};

fn brief() -> Brief {
    Brief { loss_after: true, ..Brief::sgd(2, 7, 0.1, 5) }
}

/// 50 training and 9 test samples of the built-in digits.
fn small() -> VecShard {
    let all = Samples::of(&digits::all(), Part::Train).unwrap();
    let part = |range: core::ops::Range<u32>| all.select(&range.collect::<Vec<_>>()).unwrap();
    VecShard::new(part(0..50), part(50..59)).unwrap()
}

fn small_plan(options: Options) -> TestPlan {
    TestPlan::new(&[64, 12, 10], 8, options)
}

fn run(
    task: Task,
    plan: &TestPlan,
    arena: &mut [f32],
    shard: &dyn Shard,
    backend: &mut dyn Backend<f32>,
) -> Result<Scalars, TrainError> {
    let mut work = Work::begin(&task, plan.plan(), arena, shard)?;
    let mut calls = 0;
    loop {
        calls += 1;
        match work.step(plan.plan(), arena, shard, backend)? {
            Progress::Busy { step, steps } => assert!(step == calls && step < steps),
            Progress::Done(scalars) => {
                assert_eq!(calls, work.steps, "announced and made steps");
                return Ok(scalars);
            }
        }
    }
}

#[test]
fn scalars_of_training() {
    let (plan, shard) = (small_plan(PLAIN), small());
    let mut arena = plan.arena(1, |x| x as f32);
    let received = arena[..plan.info.params as usize].to_vec();
    let scalars = run(Task::Train(brief()), &plan, &mut arena, &shard, &mut Portable::PLAIN).unwrap();
    assert_eq!((scalars.samples, scalars.steps), (50, 16));
    assert_eq!(scalars.test.unwrap().samples, 9);
    assert!(scalars.loss_after.unwrap() < scalars.loss_before);

    // The losses are those of plain evaluations of the two models.
    let after = run(Task::Evaluate, &plan, &mut arena.clone(), &shard, &mut Portable::PLAIN).unwrap();
    assert_eq!(Some(after.loss_before), scalars.loss_after);
    let mut fresh = arena.clone();
    fresh[..received.len()].copy_from_slice(&received);
    let before = run(Task::Evaluate, &plan, &mut fresh, &shard, &mut Portable::PLAIN).unwrap();
    assert_eq!((before.loss_before, before.test), (scalars.loss_before, scalars.test));
    assert_eq!((before.loss_after, before.steps), (None, 0));
    assert_eq!(fresh[..received.len()], received, "evaluating must not train");

    let trained = arena[..received.len()].to_vec();
    finish_update(plan.plan(), &mut arena, Product::Update).unwrap();
    let update = &arena[plan.info.anchor.unwrap() as usize..][..received.len()];
    assert!(update.iter().zip(trained.iter().zip(&received)).all(|(&u, (&t, &r))| u == t - r));
    assert!(update.iter().any(|&u| u != 0.0));
}

#[test]
fn the_update_includes_what_the_codec_owes() {
    let plan = small_plan(Options { residual: true, ..PLAIN });
    let mut arena = plan.arena(1, |x| x as f32);
    let segment = |at: Option<u32>| at.unwrap_or(0) as usize..(at.unwrap_or(0) + plan.info.params) as usize;
    let owed = arena[segment(plan.info.residual)].to_vec();
    Work::begin(&Task::Train(brief()), plan.plan(), &mut arena, &small()).unwrap();
    finish_update(plan.plan(), &mut arena, Product::Update).unwrap();
    assert_eq!(arena[segment(plan.info.anchor)], owed);
}

#[test]
fn the_same_work_gives_the_same_bits_however_it_is_interleaved() {
    let (plan, shard) = (small_plan(Options { grads: false, ..PLAIN }), small());
    let start = plan.arena(1, |x| x as f32);
    let mut alone = start.clone();
    let scalars = run(Task::Train(brief()), &plan, &mut alone, &shard, &mut Portable::PLAIN).unwrap();

    let other_brief = Brief { seed: 6, ..brief() };
    let (mut a, mut b) = (start.clone(), start);
    let mut first = Work::begin(&Task::Train(brief()), plan.plan(), &mut a, &shard).unwrap();
    let mut second = Work::begin(&Task::Train(other_brief), plan.plan(), &mut b, &shard).unwrap();
    let mut last = None;
    for turn in 0..3 * first.steps {
        if turn % 3 == 0 {
            last = Some(first.step(plan.plan(), &mut a, &shard, &mut Portable::PLAIN).unwrap());
        } else {
            second.step(plan.plan(), &mut b, &shard, &mut Portable::PLAIN).unwrap();
        }
    }
    assert_eq!(last, Some(Progress::Done(scalars)));
    let bits =
        |arena: &[f32]| arena[..plan.info.params as usize].iter().map(|w| w.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&alone), bits(&a));
    assert_ne!(bits(&a), bits(&b), "the seed decides the order");
}

#[test]
fn every_sample_is_seen_once_per_epoch() {
    /// Counts what is read for training.
    struct Counting(VecShard, core::cell::RefCell<Vec<u32>>);
    impl Shard for Counting {
        fn train_len(&self) -> u32 {
            self.0.train_len()
        }
        fn test_len(&self) -> u32 {
            0
        }
        fn inputs(&self) -> u32 {
            self.0.inputs()
        }
        fn classes(&self) -> u32 {
            self.0.classes()
        }
        fn label(&self, part: Part, index: u32) -> Result<u32, crate::data::DataError> {
            self.0.label(part, index)
        }
        fn sample(&self, part: Part, index: u32, out: &mut [f32]) -> Result<u32, crate::data::DataError> {
            self.1.borrow_mut().push(index);
            self.0.sample(part, index, out)
        }
    }
    let (plan, shard) = (small_plan(PLAIN), Counting(small(), Vec::new().into()));
    let task = Task::Train(Brief { loss_after: false, ..brief() });
    let scalars = run(task, &plan, &mut plan.arena(1, |x| x as f32), &shard, &mut Portable::PLAIN).unwrap();
    assert_eq!((scalars.test, scalars.loss_after), (None, None));
    let read = shard.1.into_inner();
    let mut passes: Vec<Vec<u32>> = read.chunks(50).map(<[_]>::to_vec).collect();
    assert_eq!(passes.len(), 3);
    assert!(passes[1] != passes[2] && passes[1] != passes[0], "epochs are shuffled differently");
    passes.iter_mut().for_each(|pass| pass.sort_unstable());
    assert!(passes.iter().all(|pass| pass.iter().copied().eq(0..50)));
}

#[test]
fn digits_are_learnt() {
    let plan = TestPlan::new(&[64, 32, 10], 16, Options { in_place: true, grads: false, ..PLAIN });
    let mut arena = plan.arena(1, |x| x as f32);
    let brief = Brief { epochs: 12, batch: 16, lr: 0.3, loss_after: false, ..brief() };
    run(Task::Train(brief), &plan, &mut arena, &digits::all(), &mut Portable::PLAIN).unwrap();
    let test = run(Task::Evaluate, &plan, &mut arena, &digits::all(), &mut Fast::new()).unwrap().test.unwrap();
    assert_eq!(test.samples, 1797);
    assert!(test.accuracy() > 0.95, "{}", test.accuracy());
}

#[test]
fn divergence_is_reported() {
    let (plan, shard) = (small_plan(PLAIN), small());
    let mut arena = plan.arena(1, |x| x as f32);
    let wild = Brief { lr: 1e30, ..brief() };
    let error = run(Task::Train(wild), &plan, &mut arena, &shard, &mut Portable::PLAIN).unwrap_err();
    assert!(matches!(error, TrainError::Diverged { step: 10.. }), "{error}");
    assert_eq!(error.code(), Code::NonFiniteLoss);
    let error = finish_update(plan.plan(), &mut arena, Product::Update).unwrap_err();
    assert_eq!(error.code(), Code::NonFiniteUpdate);
}

#[test]
fn what_does_not_fit_is_refused_before_any_work() {
    let (plan, shard) = (small_plan(PLAIN), small());
    let arena = plan.arena(1, |x| x as f32);
    let refused = |task: Task, plan: &TestPlan, len: usize, shard: &dyn Shard| {
        let mut copy = arena[..len].to_vec();
        let error = Work::begin(&task, plan.plan(), &mut copy, shard).unwrap_err();
        assert_eq!(copy, arena[..len], "{error}");
        (error, error.code())
    };
    let (train, len) = (Task::Train(brief()), arena.len());

    let features = |inputs: usize| Samples::new(vec![0.5; inputs], vec![3], inputs).unwrap();
    let none = Samples::new(vec![], vec![], 64).unwrap();
    let empty = VecShard::new(none.clone(), features(64)).unwrap();
    assert_eq!(refused(train, &plan, len, &empty), (TrainError::EmptyShard, Code::EmptyShard));
    let narrow = VecShard::new(features(63), none.clone()).unwrap();
    let inputs = TrainError::Inputs { plan: 64, shard: 63 };
    assert_eq!(refused(Task::Evaluate, &plan, len, &narrow), (inputs, Code::WrongData));
    let eleventh = Samples::new(vec![0.0; 64], vec![10], 64).unwrap();
    let classes = TrainError::Classes { plan: 10, classes: 11 };
    let eleven = VecShard::new(eleventh, none).unwrap();
    assert_eq!(refused(train, &plan, len, &eleven), (classes, Code::WrongData));
    assert_eq!(classes.to_string(), "the model tells 10 classes apart, the labels go up to 10");

    let short = TrainError::Arena { need: len, have: len - 1 };
    assert_eq!(refused(train, &plan, len - 1, &shard), (short, Code::DoesNotFit));
    let brief = |change: &dyn Fn(&mut Brief)| {
        let mut brief = brief();
        change(&mut brief);
        refused(Task::Train(brief), &plan, len, &shard).1
    };
    assert_eq!(brief(&|brief| brief.batch = 9), Code::DoesNotFit);
    assert_eq!(brief(&|brief| brief.batch = 0), Code::BadConfig);
    assert_eq!(brief(&|brief| brief.lr = f32::NAN), Code::BadConfig);
    assert_eq!(brief(&|brief| brief.lr = -0.1), Code::BadConfig);

    let mut inference = small_plan(PLAIN);
    inference.nodes[0].output_grad = None;
    assert_eq!(refused(train, &inference, len, &shard), (TrainError::InferenceOnly, Code::BadPlan));
    let mut lossless = small_plan(PLAIN);
    lossless.nodes[2].output_grad = None;
    assert_eq!(refused(train, &lossless, len, &shard), (TrainError::InferenceOnly, Code::BadPlan));
}
