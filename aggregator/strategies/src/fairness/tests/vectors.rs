//! The worked vectors of the specification, to 1e-9.

use common::Tier;
use serde::Deserialize;

use crate::{
    fairness::{
        FairnessSettings, Measure, RecordedRow, Recording, SignalSums,
        controller::{Controller, Rule},
        gains::{Gains, sampling},
        ledger::Ledger,
        meter::{Meter, TierMeter},
        replay,
        status::FairnessStatus,
    },
    method::by_name,
    strategy::{FairnessScope, Knob, Scale},
};

#[derive(Deserialize)]
struct Vectors {
    tolerance: f64,
    knobs: Vec<KnobVector>,
    gains: Vec<GainVector>,
    meters: Vec<MeterVector>,
    controllers: Vec<ControllerVector>,
    meter_then_controller: Vec<Step>,
}

#[derive(Deserialize)]
struct KnobVector {
    strategy: String,
    parameter: String,
    neutral: f64,
    most: f64,
    scale: Scale,
    values: Vec<(f64, f64)>,
}

#[derive(Deserialize)]
struct GainVector {
    n: u64,
    size: u64,
    ki: f64,
    kp: f64,
    window: usize,
}

#[derive(Deserialize)]
struct MeterVector {
    name: String,
    size: Vec<u64>,
    scope: FairnessScope,
    measure: Measure,
    tier: Option<usize>,
    rounds: Vec<MeterRound>,
}

#[derive(Deserialize)]
#[allow(non_snake_case, reason = "the names of the specification")]
struct MeterRound {
    n: Vec<u64>,
    s1: Vec<f64>,
    s2: Vec<f64>,
    sv: Vec<f64>,
    d: f64,
    mean: f64,
    mu: Vec<f64>,
    P: Vec<f64>,
    E: Vec<f64>,
    w: f64,
    A: Option<f64>,
}

#[derive(Deserialize)]
struct ControllerVector {
    name: String,
    target: f64,
    knob: Ends,
    #[serde(default)]
    options: Options,
    rounds: Vec<Step>,
    bound: f64,
    certified: bool,
    ledger: Ledger,
    window_rms: f64,
    reached: Option<f64>,
}

#[derive(Deserialize)]
struct Ends {
    neutral: f64,
    most: f64,
    scale: Scale,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Options {
    budget: f64,
    warmup: u32,
}

#[derive(Deserialize)]
#[allow(non_snake_case, reason = "the names of the specification")]
struct Step {
    d: Option<f64>,
    mean: Option<f64>,
    e: f64,
    I: f64,
    u: f64,
    value: f64,
    status: Option<FairnessStatus>,
    ledger_mean: Option<f64>,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../vectors.json")).unwrap()
}

impl MeterVector {
    fn recording(&self) -> Recording {
        let sums = |round: &MeterRound| replay::RecordedSums {
            n: round.n.clone(),
            s1: round.s1.clone(),
            s2: round.s2.clone(),
            sv: round.sv.clone(),
            size: None,
        };
        Recording { size: self.size.clone(), rounds: self.rounds.iter().map(sums).collect() }
    }
}

#[track_caller]
fn close(what: &str, got: f64, expected: f64) {
    assert!((got - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{what}: {got} is not {expected}");
}

/// What the file holds. Its loops below would pass over an empty list, and a part that is added needs a test.
#[test]
fn every_part_of_the_file_is_tested() {
    let file: serde_json::Value = serde_json::from_str(include_str!("../vectors.json")).unwrap();
    let parts: Vec<&str> = file.as_object().unwrap().keys().map(String::as_str).collect();
    let known = [
        "controllers",
        "format",
        "gains",
        "knobs",
        "meter_then_controller",
        "meters",
        "note",
        "tolerance",
        "version",
    ];
    let mut sorted = parts.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, known);
    let vectors = vectors();
    let meters: Vec<_> = vectors.meters.iter().map(|meter| (&*meter.name, meter.rounds.len())).collect();
    assert_eq!(meters, [("tiers-full", 10), ("tiers-partial", 10), ("tiers-spread", 10)]);
    let runs = vectors.controllers.iter().map(|run| (&*run.name, run.rounds.len()));
    assert_eq!(runs.collect::<Vec<_>>(), [("worked", 10), ("saturates", 40), ("gap-and-negative", 5)]);
    let lists = (vectors.knobs.len(), vectors.gains.len(), vectors.meter_then_controller.len());
    assert_eq!(lists, (7, 4, 10));
}

/// Warm-up and a knob that goes down are not in the file. By hand, c* = 0.2: e = 1.25 gives I = 0.0625 and u = 1; then e = 0.
#[test]
fn warm_up_with_a_knob_that_goes_down() {
    let knobs = by_name("fedeba", serde_json::Value::Null).unwrap().strategy.knobs();
    let tau = knobs.iter().find(|knob| knob.parameter == "tau").unwrap();
    let rule = Rule { warmup: 2, ..Rule::default() };
    let mut controller = Controller::new(0.2);
    let expected = [(0.0, 20.0), (0.0, 20.0), (0.0625, 0.5), (0.0625, 15.881_855_715_843_544)];
    for (squared, (integrator, value)) in [0.09, 0.09, 0.09, 0.04].into_iter().zip(expected) {
        controller.step(rule, squared, Some(1.0), 0.0);
        close("I", controller.integrator, integrator);
        close("tau", tau.value(controller.position), value);
    }
    assert_eq!((controller.rounds, controller.ledger.rounds), (4, 2));
}

/// As strategies declare them, not only as the file states them.
#[test]
fn knobs_and_their_values() {
    let vectors = vectors();
    assert_eq!((vectors.tolerance, vectors.knobs.len()), (1e-9, 7));
    for vector in vectors.knobs {
        let knobs = by_name(&vector.strategy, serde_json::Value::Null).unwrap().strategy.knobs();
        let knob = knobs.iter().find(|knob| knob.parameter == vector.parameter).unwrap();
        assert_eq!((knob.neutral, knob.most, knob.scale), (vector.neutral, vector.most, vector.scale));
        for (position, value) in vector.values {
            close(&vector.strategy, knob.value(position), value);
        }
        assert_eq!((knob.value(0.0), knob.value(1.0)), (vector.neutral, vector.most));
    }
}

#[test]
fn gains_of_a_participation() {
    for GainVector { n, size, ki, kp, window } in vectors().gains {
        let gains = Gains::of(sampling(&SignalSums { n, size, ..SignalSums::default() }));
        close("ki", gains.ki, ki);
        close("kp", gains.kp, kp);
        assert_eq!(gains.window(), window);
    }
}

#[test]
fn meters() {
    for vector in vectors().meters {
        let mut meter = Meter::new(vector.scope, vector.size.len());
        let signals = vector.recording().signals().unwrap();
        for (round, signal) in vector.rounds.iter().zip(&signals) {
            let tier = vector.tier.and_then(Tier::new);
            let reading = meter.observe(signal, tier, vector.measure, true).unwrap();
            close(&vector.name, reading.squared, round.d);
            close(&vector.name, reading.mean, round.mean);
            match &meter {
                Meter::Tiers(meter) => {
                    for (tier, mu) in meter.mu.iter().enumerate() {
                        close("mu", mu.unwrap(), round.mu[tier]);
                        close("P", meter.p[tier], round.P[tier]);
                        close("E", meter.e[tier], round.E[tier]);
                    }
                    close("w", meter.w, round.w);
                }
                Meter::Devices(meter) | Meter::Inside(meter) => {
                    close("A", meter.seen.unwrap().a, round.A.unwrap());
                }
            }
        }
    }
}

#[test]
fn controllers() {
    for vector in vectors().controllers {
        let Ends { neutral, most, scale } = vector.knob;
        let knob = Knob::new("q", neutral, most, scale);
        let rule = Rule { budget: vector.options.budget, warmup: vector.options.warmup, ..Rule::default() };
        let mut controller = Controller::new(vector.target);
        for (at, step) in vector.rounds.iter().enumerate() {
            let what = format!("{}, round {}", vector.name, at + 1);
            if let Some(d) = step.d {
                controller.step(rule, d, step.mean, 0.0);
            }
            close(&what, controller.e.unwrap(), step.e);
            close(&what, controller.integrator, step.I);
            close(&what, controller.position, step.u);
            close(&what, knob.value(controller.position), step.value);
            assert_eq!(Some(controller.status()), step.status, "{what}");
            close(&what, controller.mean_error().unwrap(), step.ledger_mean.unwrap());
        }
        let (ours, theirs) = (controller.ledger, vector.ledger);
        assert_eq!((ours.rounds, ours.is_certified()), (theirs.rounds, vector.certified), "{}", vector.name);
        for (ours, theirs) in [
            (ours.sum_d, theirs.sum_d),
            (ours.start, theirs.start),
            (ours.up, theirs.up),
            (ours.down, theirs.down),
            (ours.over, theirs.over),
            (ours.under, theirs.under),
            (ours.withheld, theirs.withheld),
            (controller.bound().unwrap(), vector.bound),
            (controller.window_rms().unwrap(), vector.window_rms),
        ] {
            close(&vector.name, ours, theirs);
        }
        assert_eq!(controller.reached.is_some(), vector.reached.is_some(), "{}", vector.name);
        if let Some((ours, theirs)) = controller.reached.zip(vector.reached) {
            close(&vector.name, ours, theirs);
        }
    }
}

/// Through the function that a command calls, from lists and from rows.
#[test]
fn meter_then_controller() {
    let vectors = vectors();
    let recording = vectors.meters.iter().find(|meter| meter.name == "tiers-full").unwrap().recording();
    let settings = FairnessSettings { target: 0.2, ..FairnessSettings::default() };
    let knob = Knob::new("q", 0.0, 10.0, Scale::Log1p).between_tiers();
    let lines = replay(&recording, &settings, "fairheterofl", &knob, None).unwrap();
    assert_eq!(lines.len(), vectors.meter_then_controller.len());
    for (line, step) in lines.iter().zip(&vectors.meter_then_controller) {
        close("d", line.squared.unwrap(), step.d.unwrap());
        close("mean", line.mean.unwrap(), step.mean.unwrap());
        close("I", line.integrator, step.I);
        close("u", line.position, step.u);
        close("value", line.next_value, step.value);
    }
    assert!(lines.windows(2).all(|pair| pair[0].next_value == pair[1].value));

    let row = |(at, round): (usize, &replay::RecordedSums)| {
        let of = |tier: usize| RecordedRow {
            round: at as u32 + 1,
            tier,
            size: recording.size[tier],
            n: round.n[tier],
            s1: round.s1[tier],
            s2: round.s2[tier],
            sv: round.sv[tier],
        };
        (0..recording.size.len()).rev().map(of).collect::<Vec<_>>()
    };
    let rows: Vec<RecordedRow> = recording.rounds.iter().enumerate().rev().flat_map(row).collect();
    let again = Recording::from_rows(rows.iter().copied()).unwrap();
    assert_eq!(replay(&again, &settings, "fairheterofl", &knob, None).unwrap(), lines);
    let twice = rows.iter().chain(&rows[..1]).copied();
    assert!(Recording::from_rows(twice).unwrap_err().to_string().contains("twice"));
    let mut short = recording.clone();
    short.rounds[1].s2.pop();
    let why = replay(&short, &settings, "x", &knob, None).unwrap_err().to_string();
    assert!(why.contains("round 2: `s2` has 2 numbers"), "{why}");
    let off = FairnessSettings::default();
    assert!(replay(&recording, &off, "x", &knob, None).unwrap_err().to_string().contains("fairness.target"));
}

/// Section 12, as printed.
#[test]
fn worked_numbers() {
    let mut controller = Controller::new(0.2);
    let squared = [0.0025, 0.01, 0.04, 0.09, 0.1225, 0.1024, 0.0784, 0.0576, 0.0441, 0.04];
    squared.iter().for_each(|&d| controller.step(Rule::default(), d, None, 0.0));
    close("I", controller.integrator, 0.318_75);
    close("mean error", controller.mean_error().unwrap(), 0.468_75);
    close("bound", controller.bound().unwrap(), 0.346_410_161_5);
    close("window rms", controller.window_rms().unwrap(), 0.242_383_992_9);
    close("down", controller.ledger.down, 0.084_375);
    assert!(controller.ledger.is_certified());

    // Losses of devices in place of sums; some devices, and a tier, are absent.
    let expected = [
        0.010_798_015_1,
        0.012_478_652_1,
        0.012_933_269_6,
        0.019_838_062_5,
        0.022_933_894_3,
        0.022_855_123_8,
        0.029_067_877_2,
        0.032_617_598_3,
        0.032_218_963_3,
        0.039_607_349_9,
    ];
    let mut meter = Meter::new(FairnessScope::Tiers, 3);
    for (t, expected) in (1..).zip(expected) {
        let tier = |m: usize| {
            let mut sums = SignalSums { size: 4, ..SignalSums::default() };
            let absent = |i: usize| (t + i + m).is_multiple_of(3) || (m == 2 && t == 4);
            for i in (0..4).filter(|&i| !absent(i)) {
                let x = 2.3 / (1.0 + 0.5 * t as f64 / (1.0 + m as f64)) + 0.03125 * (i as f64 - 1.5);
                assert!(sums.add(x, (1.0 + m as f64) / 1024.0));
            }
            sums
        };
        let round =
            crate::fairness::RoundSignal { tiers: (0..3).map(tier).collect(), unmeasured: vec![0; 3] };
        close("d", meter.observe(&round, None, Measure::Cv, true).unwrap().squared, expected);
        let Meter::Tiers(TierMeter { w, .. }) = &meter else { unreachable!() };
        close("w", *w, if t == 4 { 0.002_278_645_8 } else { 0.001_920_572_9 });
    }
}
