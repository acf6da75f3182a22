//! What a measurement can tell, against fleets whose truth is known, and the words for it.

use common::rng::Rng;

use crate::{
    fairness::{
        Capped, FairnessLine, FairnessSettings, FairnessState, FairnessStatus, Measure, RoundSignal,
        SignalSums,
        meter::{Meter, Reading},
        resolution::Resolution,
    },
    strategy::FairnessScope,
};

/// A fleet whose devices have few samples: loss and squared standard error of each, by tier.
struct SampledFleet(Vec<Vec<(f64, f64)>>);

impl SampledFleet {
    /// Losses of samples are exponential, so their deviation is their mean.
    fn draw(rng: &mut Rng, means: &[f64], devices: usize, samples: usize) -> Self {
        let mut device = |mean: f64| {
            let losses: Vec<f64> = (0..samples).map(|_| -mean * (1.0 - rng.unit_f64()).ln()).collect();
            let own = losses.iter().sum::<f64>() / samples as f64;
            let squares: f64 = losses.iter().map(|loss| (loss - own).powi(2)).sum();
            (own, squares / (samples as f64 - 1.0) / samples as f64)
        };
        Self(means.iter().map(|&mean| (0..devices).map(|_| device(mean)).collect()).collect())
    }

    /// The reading after some rounds, each with some devices of every tier.
    fn read(&self, rng: &mut Rng, scope: FairnessScope, asked: usize, rounds: usize) -> Reading {
        let mut meter = Meter::new(scope, self.0.len());
        let mut reading = None;
        for _ in 0..rounds {
            let tier = |devices: &Vec<(f64, f64)>| {
                let mut devices = devices.clone();
                rng.shuffle(&mut devices);
                let mut sums = SignalSums { size: devices.len() as u64, ..SignalSums::default() };
                devices[..asked].iter().for_each(|&(x, v)| assert!(sums.add(x, v)));
                sums
            };
            let tiers: Vec<SignalSums> = self.0.iter().map(tier).collect();
            let round = RoundSignal { unmeasured: vec![0; tiers.len()], tiers };
            reading = meter.observe(&round, None, Measure::Cv, true);
        }
        reading.unwrap()
    }
}

/// Share of fleets that are told apart from equal ones, and the mean limit.
fn told_apart(means: &[f64], devices: usize, samples: usize, asked: usize, rounds: usize) -> (f64, f64) {
    let (mut told, mut limits) = (0, 0.0);
    let fleets = if rounds > 1 { 400 } else { 4000 };
    let mut rng = Rng::new(19);
    for _ in 0..fleets {
        let fleet = SampledFleet::draw(&mut rng, means, devices, samples);
        let reading = fleet.read(&mut rng, FairnessScope::Tiers, asked, rounds);
        let found = reading.noise.unwrap().resolution(0.1, reading.squared.max(0.0).sqrt()).unwrap();
        told += u32::from(!found.within_noise);
        limits += found.limit / f64::from(fleets);
    }
    (f64::from(told) / f64::from(fleets), limits)
}

/// Equal tiers are told apart in about one fleet of twenty; tiers that differ by twice the limit nearly always. A fixed seed,
/// so the result is always the same.
#[test]
fn equal_tiers_are_within_noise() {
    for (tiers, devices, samples, asked, rounds) in
        [(3, 1, 20, 1, 1), (3, 4, 20, 4, 1), (5, 10, 30, 10, 1), (2, 6, 40, 6, 1), (3, 10, 30, 2, 60)]
    {
        let (told, limit) = told_apart(&vec![1.0; tiers], devices, samples, asked, rounds);
        assert!((0.02..0.10).contains(&told), "{tiers} x {devices} x {samples}: {told}");
        // Half of the tiers above, half below: their deviation is this share of their mean.
        let level = |m: usize| 1.0 + 2.0 * limit * [1.0, -1.0, 0.0][m % if tiers % 2 == 0 { 2 } else { 3 }];
        let means: Vec<f64> = (0..tiers).map(level).collect();
        let (told, _) = told_apart(&means, devices, samples, asked, rounds);
        assert!(told > 0.75, "{tiers} x {devices} x {samples}, limit {limit}: {told}");
    }
}

/// Four times as many samples halve the limit; more rounds with the same samples do not lower it.
#[test]
fn samples_resolve_and_rounds_do_not() {
    let limit = |samples, rounds| told_apart(&[1.0; 3], 4, samples, 4, rounds).1;
    let ratio = limit(20, 1) / limit(80, 1);
    assert!((ratio - 2.0).abs() < 0.1, "{ratio}");
    let ratio = limit(20, 1) / limit(20, 30);
    assert!((ratio - 1.0).abs() < 0.1, "{ratio}");
}

/// The same between devices.
#[test]
fn equal_devices_are_within_noise() {
    let mut rng = Rng::new(20);
    let fleets = 2000;
    let mut told = 0;
    for _ in 0..fleets {
        let fleet = SampledFleet::draw(&mut rng, &[1.0; 2], 10, 40);
        let reading = fleet.read(&mut rng, FairnessScope::Devices, 10, 1);
        let found = reading.noise.unwrap().resolution(0.1, reading.squared.max(0.0).sqrt()).unwrap();
        told += u32::from(!found.within_noise);
    }
    let told = f64::from(told) / f64::from(fleets);
    assert!((0.02..0.10).contains(&told), "{told}");
}

/// A run with one device per tier and 20 samples each: the reading is 0, and the words say why.
fn noisy_line(target: f64) -> FairnessLine {
    let settings = FairnessSettings { target, ..FairnessSettings::default() };
    let method = crate::method::by_name("fairheterofl", serde_json::json!({"q_m": 0})).unwrap();
    let given = serde_json::Map::new();
    let mut fairness = super::super::Fairness::new(settings, &*method.strategy, &given, 3).unwrap().unwrap();
    let mut line = None;
    for round in 0..60 {
        let level = 2.3 / (1.0 + 0.2 * f64::from(round));
        let tier = |m: usize| {
            let mut sums = SignalSums { size: 1, ..SignalSums::default() };
            assert!(sums.add(level * (1.0 + 0.1 * m as f64), level * level / 20.0));
            sums
        };
        let signal = RoundSignal { tiers: (0..3).map(tier).collect(), unmeasured: vec![0; 3] };
        line = fairness.observe(&signal).pop();
    }
    line.unwrap()
}

#[test]
fn words_for_noise() {
    let line = noisy_line(0.2);
    assert_eq!((line.status, line.measured, line.value), (FairnessStatus::Met, Some(0.0), 0.0));
    let Resolution { noise, limit, within_noise, more_samples } = line.resolution.unwrap();
    assert!(within_noise && noise < limit && more_samples.is_some_and(|more| more > 1.0), "{line:?}");
    assert_eq!(line.summary(), "fairness 0.00 of 0.20  q 0  met, within noise");
    assert_eq!(
        line.advice(),
        "met without help: the tiers differ by less than their validation samples can resolve (about 0.287); \
         to resolve 0.2 takes about 3 times as many validation samples"
    );
    // A target above the limit needs no more samples.
    let easy = noisy_line(0.3);
    assert_eq!(
        easy.advice(),
        "met without help: the tiers differ by less than their validation samples can resolve (about 0.287)"
    );
    // Not met, and the samples do not tell the target: a note.
    let open = FairnessLine { status: FairnessStatus::Approaching, ..noisy_line(0.1) };
    let notes = open.notes().join("\n");
    assert!(notes.contains("resolve a disparity of about 0.287 or more; to resolve 0.1 takes"), "{notes}");
    // Before a window is full nothing is judged.
    let early = FairnessLine { status: FairnessStatus::Measuring, ..line.clone() };
    assert!(!early.is_within_noise() && early.summary().ends_with("  measuring"));
    // A report of before has neither field.
    let mut report = serde_json::to_value(&line).unwrap();
    assert!(report["resolution"]["limit"].is_f64());
    report.as_object_mut().unwrap().remove("resolution");
    assert_eq!(serde_json::from_value::<FairnessLine>(report).unwrap().resolution, None);
}

#[test]
fn words_for_the_guard() {
    let names = |count: usize| (0..count).map(|number| format!("cam-{number}")).collect();
    let line = FairnessLine { status: FairnessStatus::NotReachable, reached: Some(0.41), ..noisy_line(0.3) };
    let says = |devices: u64, known: usize| {
        FairnessLine { capped: Capped { devices, names: names(known) }, ..line.clone() }.advice()
    };
    let free = "not reachable with q up to 10: best 0.41; ask for at least 0.41 or raise fairness.most";
    assert_eq!(says(0, 0), free);
    let allow = "allow larger ones with guard.share";
    assert_eq!(says(1, 1), format!("{free}; the guard bounds the share of cam-0: {allow}"));
    assert_eq!(says(2, 2), format!("{free}; the guard bounds the shares of cam-0 and cam-1: {allow}"));
    let many = says(9, 5);
    assert!(many.contains("the shares of cam-0, cam-1, cam-2, cam-3, cam-4 and 4 others: allow"), "{many}");
}

/// The bytes of a program that did not know notes.
#[test]
fn states_without_notes_are_read() {
    let mut rng = Rng::new(3);
    let fleet = SampledFleet::draw(&mut rng, &[1.0, 2.0], 2, 10);
    let tiers = fleet.0.iter().map(|devices| {
        let mut sums = SignalSums { size: 2, ..SignalSums::default() };
        devices.iter().for_each(|&(x, v)| assert!(sums.add(x, v)));
        sums
    });
    let round = RoundSignal { tiers: tiers.collect(), unmeasured: vec![0; 2] };
    let settings = FairnessSettings { target: 0.2, ..FairnessSettings::default() };
    let method = crate::method::by_name("fairheterofl", serde_json::Value::Null).unwrap();
    let aimed = || {
        super::super::Fairness::new(settings.clone(), &*method.strategy, &serde_json::Map::new(), 2)
            .unwrap()
            .unwrap()
    };
    let mut fairness = aimed();
    fairness.observe(&round);
    let state = fairness.state();
    let bytes = state.to_bytes();
    assert_eq!(FairnessState::from_bytes(&bytes), Some(state.clone()));
    let notes = postcard::to_allocvec(&state.notes).unwrap();
    let old = FairnessState::from_bytes(&bytes[..bytes.len() - notes.len()]).unwrap();
    assert_eq!((&old.knobs, old.notes.len()), (&state.knobs, 0));
    let mut resumed = aimed();
    resumed.set_state(Some(&old)).unwrap();
    assert_eq!(resumed.lines()[0].resolution, None);
    // The next round gives the same knob and the same words.
    assert_eq!(resumed.observe(&round), fairness.observe(&round));
    assert!(resumed.lines()[0].resolution.is_some());
    assert_eq!(FairnessState::from_bytes(&[&bytes[..], &[0]].concat()), None);
}
