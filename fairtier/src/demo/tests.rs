use std::{
    future,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use client::data::DataSplit;

use super::*;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

fn demo(options: &DemoOptions) -> Result<DemoResult, DemoError> {
    block_on(run(options, Arc::new(|_| {}), future::pending()))
}

fn tiny_options() -> DemoOptions {
    DemoOptions { rounds: 2, others: vec![0], ..DemoOptions::default() }
}

/// A demo of two rounds, run once for all tests that inspect the result.
pub(crate) static TINY: LazyLock<DemoResult> = LazyLock::new(|| demo(&tiny_options()).unwrap());

#[test]
fn all_tiers_take_part_with_four_devices_and_finite_numbers() {
    assert_eq!(TINY.setup.devices, 20);
    assert_eq!(TINY.runs.iter().map(|run| run.strategy).collect::<Vec<_>>(), ["heterofl", "fairheterofl"]);
    for run in &TINY.runs {
        for tier in 0..5 {
            // The aggregator chose these tiers from the memory budgets.
            assert_eq!(run.devices.iter().filter(|device| device.tier == tier).count(), 4, "tier {tier}");
            let name =
                |device: &&coordinator::report::DeviceLine| device.device.starts_with(&format!("t{tier}-"));
            assert_eq!(run.devices.iter().filter(name).filter(|device| device.tier == tier).count(), 4);
        }
        let losses = run.devices.iter().filter_map(|device| device.test_loss);
        assert_eq!(losses.clone().filter(|loss| loss.is_finite() && *loss > 0.0).count(), 20);
        assert_eq!(run.curve.iter().map(|point| point.rounds).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(run.curve[2].loss < run.curve[0].loss, "the loss does not fall");
        let parts = run.loss_split.within + run.loss_split.inter_weighted;
        assert!((run.loss.variance - parts).abs() < 1e-12);
    }
    let [hetero, fair] = &TINY.runs[..] else { panic!("two runs") };
    assert_eq!(
        hetero.curve[0],
        CurvePoint { rho: hetero.curve[0].rho, ..fair.curve[0].clone() },
        "the runs start from different models"
    );
    assert_ne!(hetero.curve[2].loss, fair.curve[2].loss);
    assert_eq!(TINY.changes[0].variance, change(hetero.loss.variance, fair.loss.variance));
}

#[test]
fn the_same_seed_gives_the_same_losses_bit_for_bit() {
    let options = DemoOptions { devices_per_tier: 1, rounds: 3, others: vec![], ..DemoOptions::default() };
    let bits = |options: &DemoOptions| {
        let result = demo(options).unwrap();
        let of = |run: &StrategyRun| {
            let devices = run.devices.iter().flat_map(|device| [Some(device.loss_before), device.test_loss]);
            let curve = run.curve.iter().map(|point| Some(point.loss));
            let disparity = run.disparity.iter().flat_map(|point| [point.measured, Some(point.knob)]);
            devices.chain(curve).chain(disparity).map(|loss| loss.unwrap().to_bits()).collect::<Vec<_>>()
        };
        result.runs.iter().map(of).collect::<Vec<_>>()
    };
    let first = bits(&options);
    assert_eq!(first, bits(&options));
    assert_ne!(first, bits(&DemoOptions { seed: 2, ..options }));
}

#[test]
fn without_fairness_both_strategies_are_the_same() {
    let options = DemoOptions { devices_per_tier: 1, target: 0.0, others: vec![], ..tiny_options() };
    let options = options.with_strategy_params(r#"{"q": 0, "q_m": 0}"#).unwrap();
    let result = demo(&options).unwrap();
    let [hetero, fair] = &result.runs[..] else { panic!("two runs") };
    assert!((hetero.loss.mean - fair.loss.mean).abs() < 1e-6);
    assert!(result.runs.iter().all(|run| run.target.is_none() && run.disparity.is_empty()));
    assert_eq!((result.seeds[0].status, result.setup.held_out), (None, 0));
}

/// Devices with validation samples of their own train on the same samples with and without a target.
#[test]
fn the_measured_baseline_has_the_bits_of_heterofl() {
    let options = DemoOptions { rounds: 4, others: vec![], ..DemoOptions::default() };
    let mut fleet = Fleet::new(&DemoOptions { devices_per_tier: 2, ..options.clone() }).unwrap();
    for device in &mut fleet.devices {
        let own = device.shard.part(DataSplit::Test).clone();
        device.shard = device.shard.clone().with_validation(own).unwrap();
    }
    let bits = |options: &DemoOptions| {
        let [baseline, _] = options.strategies();
        let config = options.config(&baseline, fleet.devices.len());
        let mut never = Box::pin(future::pending());
        let (reports, _) =
            block_on(federation::run(&config, &fleet, None, Box::new(|_| {}), &mut never)).unwrap();
        let scores = |report: &RoundReport| {
            let losses = report.devices.iter().flat_map(|line| [line.test_loss, Some(line.loss_before)]);
            losses.map(|loss| loss.unwrap().to_bits()).collect::<Vec<_>>()
        };
        let trained = reports.iter().filter(|report| report.purpose == "train");
        let measured = trained.filter(|report| !report.fairness.is_empty()).count();
        (config.strategy.name.clone(), measured, reports.iter().map(scores).collect::<Vec<_>>())
    };
    let plain = bits(&DemoOptions { target: 0.0, ..options.clone() });
    let measured = bits(&options);
    assert_eq!((plain.0.as_str(), plain.1), ("heterofl", 0));
    assert_eq!((measured.0.as_str(), measured.1), ("fairheterofl", 4));
    assert_eq!(plain.2, measured.2);
}

#[test]
fn both_runs_hold_out_the_same_samples_and_only_one_turns_the_knob() {
    // So strict that the knob moves in the first rounds.
    let options =
        DemoOptions { devices_per_tier: 2, rounds: 6, target: 0.01, others: vec![], ..tiny_options() };
    let result = demo(&options).unwrap();
    let [base, fair] = &result.runs[..] else { panic!("two runs") };
    let samples = |run: &StrategyRun| run.devices.iter().map(|line| line.samples).collect::<Vec<_>>();
    assert_eq!(samples(base), samples(fair));
    assert!(result.setup.held_out > 0);
    for run in [base, fair] {
        assert_eq!(run.disparity.iter().map(|point| point.round).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        assert!(run.disparity.iter().all(|point| point.measured.is_some()));
    }
    assert_eq!(base.disparity[0].measured, fair.disparity[0].measured, "the same start");
    assert!(base.disparity.iter().all(|point| point.knob == 0.0));
    assert!(fair.disparity.iter().any(|point| point.knob > 0.0));
}

#[test]
fn every_seed_has_a_row_in_order() {
    assert_eq!(TINY.seeds.iter().map(|seed| seed.seed).collect::<Vec<_>>(), [0, 1]);
    let own = &TINY.seeds[1];
    assert_eq!(own.change, TINY.changes[0]);
    assert_eq!(own.disparity[1], TINY.runs[1].target.as_ref().unwrap().window_rms);
    assert_eq!(own.target, Some(DemoOptions::default().target));
    assert_ne!(TINY.seeds[0].change, own.change);
}

#[test]
fn the_minority_and_the_others_have_their_own_accuracy() {
    let options = DemoOptions { minority: true, others: vec![], ..tiny_options() };
    let result = demo(&options).unwrap();
    let scores = result.seeds[0].minority.unwrap();
    for (run, (alone, others)) in result.runs.iter().zip(scores.alone.iter().zip(scores.others)) {
        let line = run.devices.iter().find(|line| line.device == "t2-00").unwrap();
        assert_eq!(line.test_accuracy, Some(*alone));
        assert!((run.accuracy.mean * 20.0 - alone - 19.0 * others).abs() < 1e-9);
    }
    let page = report::html(&result);
    let table = report::table(&result);
    for part in ["t2-00", "classes 8 and 9"] {
        assert!(page.contains(part) && table.contains(part), "{part}");
    }
    assert!(page.contains("--minority") && !report::html(&TINY).contains("minority"));
}

#[test]
fn it_stops_when_the_stop_future_resolves() {
    let seen = Arc::new(AtomicU32::new(0));
    let (tell, told) = tokio::sync::oneshot::channel();
    let tell = std::sync::Mutex::new(Some(tell));
    let counter = seen.clone();
    let observe: Observe = Arc::new(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        if let Some(tell) = tell.lock().unwrap().take() {
            let _ = tell.send(());
        }
    });
    let options =
        DemoOptions { rounds: 100_000, devices_per_tier: 1, others: vec![], ..DemoOptions::default() };
    let ended = block_on(run(&options, observe, async {
        let _ = told.await;
    }));
    assert!(matches!(ended, Err(DemoError::Stopped)), "{ended:?}");
    assert!((1..100_000).contains(&seen.load(Ordering::Relaxed)));
}
