//! What holds for any losses.

use common::{Tier, rng::Rng};
use proptest::prelude::*;

use crate::{
    fairness::{
        GainSetting, Measure, RoundSignal, SignalSums,
        controller::{Controller, Rule},
        meter::Meter,
        status::FairnessStatus,
    },
    strategy::FairnessScope,
};

fn rule() -> impl Strategy<Value = Rule> {
    let gains = prop_oneof![
        Just(GainSetting::Auto),
        (0.001..0.5f64, 0.0..3.0f64).prop_map(|(ki, kp)| GainSetting::Given([ki, kp]))
    ];
    let budget = prop_oneof![Just(0.0), 0.01..0.5f64];
    (budget, 0u32..4, gains).prop_map(|(budget, warmup, gains)| Rule { budget, warmup, gains })
}

/// d and the mean of each round.
fn readings() -> impl Strategy<Value = Vec<(f64, f64)>> {
    prop::collection::vec((-0.05..0.6f64, 0.1..3.0f64), 1..150)
}

/// Signals of tiers of devices, some of which are absent.
fn round(rng: &mut Rng, sizes: &[u64], level: f64) -> RoundSignal {
    let tier = |(m, &size): (usize, &u64)| {
        let mut sums = SignalSums { size, ..SignalSums::default() };
        for _ in 0..size {
            let x = level * (1.0 + 0.3 * m as f64) * (0.3 * rng.normal()).exp();
            let v = 0.01 * x * rng.unit_f64();
            if rng.below(3) > 0 {
                assert!(sums.add(x, v));
            }
        }
        sums
    };
    RoundSignal { tiers: sizes.iter().enumerate().map(tier).collect(), unmeasured: vec![0; sizes.len()] }
}

const SCOPES: [(FairnessScope, Option<usize>); 3] =
    [(FairnessScope::Tiers, None), (FairnessScope::Devices, None), (FairnessScope::Inside, Some(1))];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Limits, the identity, the certificate, and that a copy of the state gives the same bits.
    #[test]
    fn the_rule(rule in rule(), target in 0.05..1.0f64, readings in readings()) {
        let mut controller = Controller::new(target);
        let (mut raw, mut squares) = (0.0, 0.0);
        for &(d, mean) in &readings {
            let bytes = postcard::to_allocvec(&controller).unwrap();
            let text = serde_json::to_string(&controller).unwrap();
            let mut copies: [Controller; 2] =
                [postcard::from_bytes(&bytes).unwrap(), serde_json::from_str(&text).unwrap()];
            controller.step(rule, d, Some(mean), 0.0);
            for copy in &mut copies {
                copy.step(rule, d, Some(mean), 0.0);
                prop_assert_eq!(&*copy, &controller);
                prop_assert_eq!(copy.position.to_bits(), controller.position.to_bits());
            }
            prop_assert!((0.0..=1.0).contains(&controller.integrator));
            prop_assert!((0.0..=1.0).contains(&controller.position));
            if controller.rounds <= rule.warmup {
                prop_assert_eq!((controller.position, controller.ledger.rounds), (0.0, 0));
                continue;
            }
            raw += d / (target * target) - 1.0;
            squares += d.max(0.0);
            let rounds = f64::from(controller.ledger.rounds);
            let exact = raw / rounds;
            prop_assert!((controller.mean_error().unwrap() - exact).abs() <= 1e-9 * exact.abs().max(1.0));
            if controller.ledger.is_certified() {
                prop_assert!((squares / rounds).sqrt() <= controller.bound().unwrap() * (1.0 + 1e-12));
            }
        }
        prop_assert!(controller.is_sound());
    }

    /// Another target keeps the integrator and begins a ledger.
    #[test]
    fn retarget_keeps_the_integrator(readings in readings(), target in 0.05..1.0f64, other in 0.05..1.0f64) {
        let mut controller = Controller::new(target);
        readings.iter().for_each(|&(d, mean)| controller.step(Rule::default(), d, Some(mean), 0.0));
        let before = controller.clone();
        controller.retarget(target);
        prop_assert_eq!(&controller, &before);
        controller.retarget(other);
        prop_assert_eq!((controller.integrator, controller.position), (before.integrator, before.position));
        prop_assert_eq!((controller.ledger.rounds, controller.ledger.start), (0, before.integrator));
    }

    /// cv does not depend on the scale of losses; spread does with its square.
    #[test]
    fn scale_of_losses(seed: u64, scale in 0.01..100.0f64) {
        for (scope, tier) in SCOPES {
            for measure in [Measure::Cv, Measure::Spread] {
                let mut meters = [Meter::new(scope, 3), Meter::new(scope, 3)];
                let mut rng = Rng::new(seed);
                for _ in 0..10 {
                    let plain = round(&mut rng, &[6, 5, 4], 1.0);
                    let mut scaled = plain.clone();
                    for sums in &mut scaled.tiers {
                        (sums.s1, sums.s2, sums.sv) =
                            (sums.s1 * scale, sums.s2 * scale * scale, sums.sv * scale * scale);
                    }
                    let read = |meter: &mut Meter, round| {
                        meter.observe(round, tier.and_then(Tier::new), measure, true).map(|reading| reading.squared)
                    };
                    let (a, b) = (read(&mut meters[0], &plain), read(&mut meters[1], &scaled));
                    prop_assert_eq!(a.is_some(), b.is_some());
                    let factor = if measure == Measure::Cv { 1.0 } else { scale * scale };
                    if let Some((a, b)) = a.zip(b) {
                        prop_assert!((a * factor - b).abs() <= 1e-9 * factor.max(1.0), "{} {}", a * factor, b);
                    }
                }
            }
        }
    }

    /// Without participants, or with sums that overflow, there is neither a meter nor a reading.
    #[test]
    fn rounds_without_a_measurement(seed: u64) {
        for (scope, tier) in SCOPES {
            let tier = tier.and_then(Tier::new);
            let mut rng = Rng::new(seed);
            let mut meter = Meter::new(scope, 3);
            for _ in 0..5 {
                let _ = meter.observe(&round(&mut rng, &[6, 5, 4], 1.0), tier, Measure::Cv, true);
                let before = meter.clone();
                let empty = RoundSignal { tiers: vec![SignalSums::default(); 3], unmeasured: vec![2; 3] };
                prop_assert_eq!(meter.observe(&empty, tier, Measure::Cv, true), None);
                let mut huge = round(&mut rng, &[6, 5, 4], 1.0);
                huge.tiers[1].add(1e200, 0.0);
                prop_assert_eq!(meter.observe(&huge, tier, Measure::Cv, true), None);
                prop_assert_eq!(&meter, &before);
            }
        }
    }

    /// Equal tiers never move the knob.
    #[test]
    fn equal_tiers(seed: u64, target in 0.01..1.0f64, v in 0.0..0.1f64) {
        let mut rng = Rng::new(seed);
        let (mut meter, mut controller) = (Meter::new(FairnessScope::Tiers, 3), Controller::new(target));
        for _ in 0..30 {
            let x = 0.1 + rng.unit_f64();
            let mut sums = SignalSums { size: 5, ..SignalSums::default() };
            (0..5).for_each(|_| assert!(sums.add(x, v)));
            let signal = RoundSignal { tiers: vec![sums; 3], unmeasured: vec![0; 3] };
            let reading = meter.observe(&signal, None, Measure::Cv, true).unwrap();
            prop_assert!(reading.squared <= 1e-12);
            controller.step(Rule::default(), reading.squared, Some(reading.mean), reading.sampling);
            prop_assert_eq!(controller.position, 0.0);
        }
    }

    /// The same from the definition, device by device.
    #[test]
    fn pooled_meters_by_hand(seed: u64) {
        let mut rng = Rng::new(seed);
        let mut all: Option<(f64, f64)> = None;
        let (mut pooled, mut inside) = (Meter::new(FairnessScope::Devices, 2), Meter::new(FairnessScope::Inside, 2));
        for _ in 0..8 {
            let devices: Vec<(f64, f64)> =
                (0..2 + rng.below(8)).map(|_| (0.2 + rng.unit_f64(), 0.02 * rng.unit_f64())).collect();
            let mut sums = SignalSums { size: 12, ..SignalSums::default() };
            devices.iter().for_each(|&(x, v)| assert!(sums.add(x, v)));
            let n = devices.len() as f64;
            let mean = devices.iter().map(|(x, _)| x).sum::<f64>() / n;
            let a = devices.iter().map(|(x, _)| (x - mean).powi(2)).sum::<f64>() / (n - 1.0)
                - devices.iter().map(|(_, v)| v).sum::<f64>() / n;
            let b = 1.0 / (5.0 + 20.0 * (1.0 / n - 1.0 / 12.0));
            let (abar, mbar) = all.map_or((a, mean), |(abar, mbar)| (abar + b * (a - abar), mbar + b * (mean - mbar)));
            all = Some((abar, mbar));
            let round = RoundSignal { tiers: vec![SignalSums::default(), sums], unmeasured: vec![0; 2] };
            let expected = abar / (mbar * mbar);
            for (meter, tier) in [(&mut pooled, None), (&mut inside, Tier::new(1))] {
                let reading = meter.observe(&round, tier, Measure::Cv, true).unwrap();
                prop_assert!((reading.squared - expected).abs() < 1e-9);
            }
            // One device alone: the last values.
            let mut one = SignalSums { size: 12, ..SignalSums::default() };
            one.add(9.0, 0.0);
            let one = RoundSignal { tiers: vec![SignalSums::default(), one], unmeasured: vec![0; 2] };
            let again = inside.observe(&one, Tier::new(1), Measure::Cv, true).unwrap();
            prop_assert!((again.squared - expected).abs() < 1e-9);
        }
    }

    /// Fixed point of 2^-32, as under secure aggregation.
    #[test]
    fn sums_in_fixed_point(xs in prop::collection::vec((0.0..100.0f64, 0.0..100.0f64), 1..40)) {
        let mut plain = SignalSums::default();
        let mut fixed = [0i128; 3];
        let one = 2f64.powi(32);
        for &(x, v) in &xs {
            prop_assert!(plain.add(x, v));
            for (sum, value) in fixed.iter_mut().zip([x, x * x, v]) {
                *sum += (value * one).round() as i128;
            }
        }
        for (fixed, plain) in fixed.iter().zip([plain.s1, plain.s2, plain.sv]) {
            let slack = xs.len() as f64 / one + 1e-12 * plain;
            prop_assert!((*fixed as f64 / one - plain).abs() <= slack);
        }
    }
}

/// B over random subsets of a fixed fleet, in the first round: a fixed seed, so the result is always the same.
#[test]
fn the_correction_is_unbiased() {
    let mut rng = Rng::new(7);
    let fleet: Vec<Vec<f64>> = (0..4)
        .map(|m| (0..10).map(|_| (1.0 + 0.4 * m as f64) * (0.4 * rng.normal()).exp()).collect())
        .collect();
    let means: Vec<f64> = fleet.iter().map(|tier| tier.iter().sum::<f64>() / 10.0).collect();
    let mean = means.iter().sum::<f64>() / 4.0;
    let truth = means.iter().map(|mu| (mu - mean).powi(2)).sum::<f64>() / 4.0;
    let draws = 4000;
    let (mut corrected, mut plain) = (0.0, 0.0);
    for _ in 0..draws {
        let tiers = fleet.iter().map(|tier| {
            let mut devices = tier.clone();
            rng.shuffle(&mut devices);
            let mut sums = SignalSums { size: 10, ..SignalSums::default() };
            devices[..3].iter().for_each(|&x| assert!(sums.add(x, 0.0)));
            sums
        });
        let round = RoundSignal { tiers: tiers.collect(), unmeasured: vec![0; 4] };
        let read = |correct| {
            let mut meter = Meter::new(FairnessScope::Tiers, 4);
            meter.observe(&round, None, Measure::Spread, correct).unwrap().squared
        };
        corrected += read(true) / f64::from(draws);
        plain += read(false) / f64::from(draws);
    }
    assert!((corrected / truth - 1.0).abs() < 0.03, "{corrected} for {truth}");
    assert!(plain / truth > 1.1, "{plain} for {truth}");
}

#[test]
fn numbers_that_are_not_possible_are_refused_before_sums() {
    let mut sums = SignalSums::default();
    for (x, v) in [(f64::NAN, 0.0), (f64::INFINITY, 0.0), (1.0, f64::NAN), (1.0, -1.0)] {
        assert!(!sums.add(x, v));
    }
    assert_eq!(sums, SignalSums::default());
    assert!(sums.add(-0.5, 0.0));
}

/// One tier after the other: means are known from earlier rounds.
#[test]
fn tiers_that_never_meet_are_compared() {
    let one = |m: usize| {
        let mut tiers = vec![SignalSums { size: 2, ..SignalSums::default() }; 2];
        tiers[m].add(1.0 + m as f64, 0.0);
        tiers[m].add(1.0 + m as f64, 0.0);
        RoundSignal { tiers, unmeasured: vec![0; 2] }
    };
    let mut meter = Meter::new(FairnessScope::Tiers, 2);
    assert_eq!(meter.observe(&one(0), None, Measure::Cv, true), None);
    let reading = meter.observe(&one(1), None, Measure::Cv, true).unwrap();
    assert!((reading.squared - 0.25 / 2.25).abs() < 1e-12);
}

#[test]
fn the_price_lowers_the_integrator() {
    let rule = Rule { budget: 0.1, ..Rule::default() };
    let mut controller = Controller::new(0.2);
    (0..8).for_each(|_| controller.step(rule, 0.1, Some(1.0), 0.0));
    let before = controller.integrator;
    assert!(before > 0.1);
    controller.step(rule, 0.1, Some(1.2), 0.0);
    assert!((controller.integrator - (before - 0.05)).abs() < 1e-15);
    assert_eq!(controller.position, controller.integrator);
    assert_eq!((controller.price_acted(), controller.ledger.is_certified()), (1, false));
    (0..19).for_each(|_| controller.step(rule, 0.1, Some(1.2), 0.0));
    controller.rounds = 51;
    assert_eq!(controller.status(), FairnessStatus::LimitedByPrice);
}

#[test]
fn words_for_the_state() {
    let run = |target: f64, rounds: usize, d: f64, mean: f64| {
        let mut controller = Controller::new(target);
        controller.step(Rule::default(), d, Some(1.0), 0.0);
        (1..rounds).for_each(|_| controller.step(Rule::default(), d, Some(mean), 0.0));
        controller
    };
    assert_eq!(run(0.2, 19, 0.04, 0.5).status(), FairnessStatus::Measuring);
    assert_eq!(run(0.2, 20, 0.04, 0.8).status(), FairnessStatus::Early);
    assert_eq!(run(0.2, 51, 0.04, 0.8).status(), FairnessStatus::Met);
    assert_eq!(run(0.2, 20, 0.04, 0.5).status(), FairnessStatus::Met);
    assert_eq!(run(0.2, 20, 0.06, 0.5).status(), FairnessStatus::Approaching);
    let end = run(0.2, 80, 0.06, 0.5);
    assert_eq!(end.status(), FairnessStatus::NotReachable);
    assert!((end.reached.unwrap() - 0.06f64.sqrt()).abs() < 1e-12);
    // A knob that acts the wrong way.
    let mut wrong = Controller::new(0.2);
    (0..25).for_each(|_| wrong.step(Rule::default(), 0.05, None, 0.0));
    (0..60).for_each(|_| wrong.step(Rule::default(), 0.2, None, 0.0));
    assert_eq!((wrong.status(), wrong.raising_helps()), (FairnessStatus::NotReachable, Some(false)));
}

/// More devices asked: gains rise, and the ledger begins anew; a little more changes nothing.
#[test]
fn gains_follow_participation() {
    let mut controller = Controller::new(0.2);
    (0..10).for_each(|_| controller.step(Rule::default(), 0.05, None, 0.4));
    let (gains, integrator) = (controller.gains.unwrap(), controller.integrator);
    (0..10).for_each(|_| controller.step(Rule::default(), 0.04, None, 0.35));
    assert_eq!((controller.gains, controller.ledger.rounds), (Some(gains), 20));
    (0..60).for_each(|_| controller.step(Rule::default(), 0.04, None, 0.0));
    assert!(controller.gains.unwrap().ki > 2.0 * gains.ki);
    assert!(controller.ledger.rounds < 60 && controller.ledger.start > 0.0);
    assert!((controller.integrator - integrator).abs() < 1e-9);
    assert!(controller.ring.len() <= controller.window());
}
