//! Noise on what is reported and sent.

use common::brief::{GroupReport, Laplace, Signal};

use super::*;

const LAPLACE: Laplace = Laplace { sums: 2.0, clip_l1: 1e6, update: 0.5 };

/// One question to one device.
#[derive(Clone)]
struct Case {
    secret: u64,
    ticket: Ticket,
    brief: Brief,
    model: [f32; 2],
    samples: Samples,
    /// Content of the residual segment, and whether it comes from an update without noise.
    owed: Option<([f32; 2], bool)>,
    options: Options,
}

type Answer = (Scalars, Vec<f32>, Option<Charge>);

fn case(privacy: Option<Laplace>) -> Case {
    let groups = Some(GroupReport { signal: Signal::CrossEntropy, cap: 5.0 });
    Case {
        secret: 9,
        ticket: TICKET,
        brief: Brief { privacy, groups, ..brief() },
        model: [0.3, -0.2],
        samples: with_groups(ten()),
        owed: None,
        options: PLAIN,
    }
}

fn with_groups(samples: Samples) -> Samples {
    samples.with_attributes(&[0, 1, 0, 1, 0, 1, 0, 1, 0, 1], 2).unwrap()
}

impl Case {
    fn answer(&self) -> Answer {
        let plan = logistic(4, Options { residual: self.owed.is_some(), ..self.options });
        let mut arena = plan.arena(1, |x| x as f32);
        arena[..2].copy_from_slice(&self.model);
        if let Some((owed, _)) = self.owed {
            arena[segment(&plan, plan.info.segments.residual)].copy_from_slice(&owed);
        }
        let (task, shard) = (Task::Train(self.brief.clone()), shard(self.samples.clone()));
        let owes_plain = self.owed.is_some_and(|(_, plain)| plain);
        let private = PrivateState {
            secret: Some(Secret::simulated(self.secret)),
            owes_plain,
            ..PrivateState::default()
        };
        let mut work = Work::begin_as(private, self.ticket, &task, plan.plan(), &mut arena, &shard).unwrap();
        let scalars = loop {
            let step = work.step(plan.plan(), &mut arena, &shard, &mut Portable::plain()).unwrap();
            if let WorkProgress::Done(scalars) = step {
                break scalars;
            }
        };
        let charge = work.finish(plan.plan(), &mut arena).unwrap();
        assert_eq!(charge.map(|charge| charge.question), work.question());
        (scalars, arena[segment(&plan, plan.info.segments.anchor)].to_vec(), charge)
    }

    /// The noise in sums and update.
    fn noise(&self) -> Vec<f64> {
        let (noisy, sent, _) = self.answer();
        let plain = Self { brief: Brief { privacy: None, ..self.brief.clone() }, ..self.clone() };
        let (scalars, update, _) = plain.answer();
        let sums = noisy.group_losses.iter().zip(&scalars.group_losses).map(|(noisy, plain)| noisy - plain);
        let update = sent.iter().zip(update).map(|(sent, plain)| f64::from(*sent) - f64::from(plain));
        sums.chain(update).collect()
    }
}

#[test]
fn sums_and_updates_carry_the_devices_own_noise() {
    let (plain, update, free) = case(None).answer();
    let (noisy, sent, charge) = case(Some(LAPLACE)).answer();
    assert!(free.is_none() && charge.is_some());
    assert!(noisy.group_losses.iter().zip(&plain.group_losses).all(|(noisy, plain)| noisy != plain));
    assert!(sent.iter().zip(&update).all(|(sent, plain)| sent != plain));
    for (value, grid) in
        noisy.group_losses.iter().map(|&sum| (sum, 2048.0)).chain(sent.iter().map(|&x| (x.into(), 8192.0)))
    {
        assert_eq!((value * grid).fract(), 0.0, "low bits would reveal the hidden value");
    }
    // Other numbers that would reveal the same losses are derived from those with noise, or withheld.
    let mean = noisy.group_losses.iter().sum::<f64>() / 10.0;
    assert_eq!((noisy.loss_before, noisy.loss_after), (mean.max(0.0), None));
    assert!(plain.loss_after.is_some());
    assert_eq!(noisy.group_counts, plain.group_counts);
    let other = Case { secret: 10, ..case(Some(LAPLACE)) }.answer();
    assert!(other.0.group_losses != noisy.group_losses && other.1 != sent && other.2 != charge);
}

#[test]
fn the_same_question_gets_the_same_bytes_also_in_another_attempt() {
    let asked = case(Some(LAPLACE));
    let again = Case { ticket: Ticket { attempt: 7, ..TICKET }, ..asked.clone() };
    assert_eq!(asked.answer(), again.answer());
}

/// After a rollback the aggregator may ask for the same round with another model and the same seed.
#[test]
fn another_question_gets_other_noise() {
    let asked = case(Some(LAPLACE));
    let (noise, charge) = (asked.noise(), asked.answer().2);
    let brief = |brief: Brief| Case { brief, ..asked.clone() };
    let told = &asked.brief;
    let ticket = |ticket| Case { ticket, ..asked.clone() };
    let mut changed = ten();
    changed = Samples::new(
        changed.features().iter().map(|x| if *x == 3.0 { 3.0625 } else { *x }).collect(),
        changed.labels().to_vec(),
        1,
    )
    .unwrap();
    for (what, other) in [
        ("model", Case { model: [0.3, -0.200_000_02], ..asked.clone() }),
        ("samples", Case { samples: with_groups(changed), ..asked.clone() }),
        ("plan", Case { options: Options { in_place: true, ..PLAIN }, ..asked.clone() }),
        ("run", ticket(Ticket { run: RunId(2), ..TICKET })),
        ("round", ticket(Ticket { round: 2, ..TICKET })),
        ("exchange", ticket(Ticket { exchange: 1, ..TICKET })),
        ("seed", brief(Brief { seed: 6, ..told.clone() })),
        ("clip", brief(Brief { privacy: Some(Laplace { clip_l1: 1e5, ..LAPLACE }), ..told.clone() })),
        ("codec", brief(Brief { codec: common::Codec::F16, ..told.clone() })),
    ] {
        let differs = other.noise().iter().zip(&noise).all(|(other, noise)| (other - noise).abs() > 1e-3);
        assert!(differs, "{what}: {noise:?} {:?}", other.noise());
        assert_ne!(other.answer().2, charge, "{what}");
    }
}

#[test]
fn updates_are_clipped_before_the_residual_is_added() {
    let cut = Laplace { sums: 0.0, clip_l1: 1e-3, update: 0.0 };
    let (plain, update, _) = case(None).answer();
    let norm: f32 = update.iter().map(|value| value.abs()).sum();
    assert!(norm > 1e-2);
    let (scalars, sent, _) = case(Some(cut)).answer();
    assert_eq!(scalars.group_losses, plain.group_losses);
    assert_close(&sent, &[0, 1].map(|at| f64::from(update[at]) * 1e-3 / f64::from(norm)));
    let owed = |plain| Case { owed: Some(([10.0, 20.0], plain)), ..case(Some(cut)) }.answer().1;
    assert_eq!(owed(false), [sent[0] + 10.0, sent[1] + 20.0]);
    assert_eq!(
        owed(true),
        sent,
        "the residual of an update without noise must not be added to one with noise"
    );
    let loose = Laplace { clip_l1: 1e3, ..cut };
    assert_eq!(case(Some(loose)).answer().1, update);
}

/// The bounds behind `Brief::epsilon`: one sample changes one sum by at most the cap, and the update by at most twice its norm.
#[test]
fn one_sample_moves_sums_and_update_by_no_more_than_epsilon_counts() {
    let bare = Laplace { sums: 0.0, clip_l1: 0.25, update: 0.0 };
    let base = case(Some(bare));
    let (scalars, update, _) = base.answer();
    let (mut sums, mut length) = (0.0f64, 0.0f64);
    for at in 0..10 {
        for instead in [0.0, 1e-3, -40.0, 40.0, 1e20, -1e20, f32::MAX] {
            let mut features = ten().features().to_vec();
            features[at] = instead;
            let samples = with_groups(Samples::new(features, ten().labels().to_vec(), 1).unwrap());
            let (moved, other, _) = Case { samples, ..base.clone() }.answer();
            let pairs = moved.group_losses.iter().zip(&scalars.group_losses);
            sums = sums.max(pairs.map(|(moved, sum)| (moved - sum).abs()).sum());
            let pairs = other.iter().zip(&update);
            length = length.max(pairs.map(|(moved, sent)| f64::from((moved - sent).abs())).sum());
            let counts = |scalars: &Scalars| (scalars.samples, scalars.steps, scalars.group_counts.clone());
            assert_eq!(counts(&moved), counts(&scalars), "told without noise");
        }
    }
    // The bounds are nearly reached.
    assert!((4.0..=5.0 + 1e-9).contains(&sums) && (0.3..=0.5 + 1e-6).contains(&length), "{sums} {length}");
}

/// An aggregator can choose a model or a rate with which only some samples diverge.
#[test]
fn divergence_is_not_revealed() {
    let optimizer = Optimizer::Sgd { momentum: 0.0, nesterov: false, decay: 1e38 };
    let wild = Case { brief: Brief { lr: 1e38, optimizer, ..case(None).brief }, ..case(None) };
    let plan = logistic(4, PLAIN);
    let mut arena = plan.arena(1, |x| x as f32);
    let (task, samples) = (Task::Train(wild.brief.clone()), shard(wild.samples.clone()));
    let told = run(&task, &plan, &mut arena, &samples, &mut Portable::plain()).unwrap_err();
    assert_eq!(told.code(), Code::NonFiniteLoss);
    let hidden = Case { brief: Brief { privacy: Some(LAPLACE), ..wild.brief.clone() }, ..wild };
    let (scalars, sent, _) = hidden.answer();
    assert!(scalars.loss_before.is_finite() && sent.iter().all(|value| value.is_finite() && *value != 0.0));
    // A received model of NaN gives the largest losses.
    let odd = Case { model: [f32::NAN; 2], ..case(Some(Laplace { sums: 0.0, ..LAPLACE })) };
    assert_eq!(odd.answer().0.group_losses, [10.0, 10.0, 15.0, 15.0]);
}

#[test]
fn scores_of_trained_models_are_withheld() {
    let plan = logistic(4, Options { personal: true, ..PLAIN });
    let shard = VecShard::new(with_groups(ten()), with_groups(ten())).unwrap();
    let scalars = |privacy| {
        let task = Task::Train(Brief { personal: Some(0.1), privacy, ..brief() });
        let private = PrivateState { secret: Some(Secret::simulated(1)), ..PrivateState::default() };
        let mut arena = plan.arena(1, |x| x as f32);
        run_as(private, &task, &plan, &mut arena, &shard, &mut Portable::plain()).unwrap().0
    };
    let (open, hidden) = (scalars(None), scalars(Some(LAPLACE)));
    assert!(open.personal.is_some() && hidden.personal.is_none());
    assert_eq!(hidden.test, open.test, "the score of the received model depends on test samples only");
}

#[test]
fn invalid_noise_is_refused() {
    let plan = logistic(4, Options { guide: true, ..PLAIN });
    let fine = Laplace { sums: 1.0, clip_l1: 1.0, update: 1.0 };
    let check = |privacy, product| {
        let task = Task::Train(Brief { privacy: Some(privacy), product, ..brief() });
        Work::check(&task, plan.plan()).map_err(|error| error.code())
    };
    assert_eq!(check(fine, Product::Update), Ok(()));
    assert_eq!(check(fine, Product::Both), Err(Code::BadConfig));
    for wrong in [
        Laplace { sums: -1.0, ..fine },
        Laplace { update: f32::NAN, ..fine },
        Laplace { clip_l1: 0.0, ..fine },
    ] {
        assert_eq!(check(wrong, Product::Update), Err(Code::BadConfig));
    }
}

#[test]
fn batch_normalisation_and_tokens_are_refused_with_noise() {
    let normalised = {
        let (mut b, x) = Builder::new(2, 4);
        let x = b.batchnorm(x, 2);
        let _ = b.dense(x, 1, 1);
        b.finish(Loss::Sigmoid, PLAIN)
    };
    let embedded = {
        let (mut b, x) = Builder::new(2, 4);
        let x = b.embed(x, 3, 2);
        let _ = b.dense(x, 1, 1);
        b.finish(Loss::Sigmoid, PLAIN)
    };
    for plan in [normalised, embedded] {
        let check = |privacy| Work::check(&Task::Train(Brief { privacy, ..brief() }), plan.plan());
        assert_eq!(check(None), Ok(()));
        assert_eq!(check(Some(LAPLACE)).unwrap_err().code(), Code::BadConfig);
    }
}

#[test]
fn without_a_secret_there_is_no_noise_and_no_answer() {
    let plan = logistic(4, PLAIN);
    let mut arena = plan.arena(1, |x| x as f32);
    let task = Task::Train(case(Some(LAPLACE)).brief);
    let error = Work::begin(&task, plan.plan(), &mut arena, &shard(with_groups(ten()))).unwrap_err();
    assert_eq!((error, error.code()), (TrainError::NoSecret, Code::NoiseTooWeak));
}
