use std::{
    future,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

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
    DemoOptions { rounds: 2, ..DemoOptions::default() }
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
    let options = DemoOptions { devices_per_tier: 1, rounds: 3, ..DemoOptions::default() };
    let bits = |options: &DemoOptions| {
        let result = demo(options).unwrap();
        let of = |run: &StrategyRun| {
            let devices = run.devices.iter().flat_map(|device| [Some(device.loss_before), device.test_loss]);
            let curve = run.curve.iter().map(|point| Some(point.loss));
            devices.chain(curve).map(|loss| loss.unwrap().to_bits()).collect::<Vec<_>>()
        };
        result.runs.iter().map(of).collect::<Vec<_>>()
    };
    let first = bits(&options);
    assert_eq!(first, bits(&options));
    assert_ne!(first, bits(&DemoOptions { seed: 2, ..options }));
}

#[test]
fn without_fairness_both_strategies_are_the_same() {
    let options = DemoOptions { devices_per_tier: 1, ..tiny_options() };
    let options = options.with_strategy_params(r#"{"q": 0, "q_m": 0}"#).unwrap();
    let result = demo(&options).unwrap();
    let [hetero, fair] = &result.runs[..] else { panic!("two runs") };
    assert!((hetero.loss.mean - fair.loss.mean).abs() < 1e-6);
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
    let options = DemoOptions { rounds: 100_000, devices_per_tier: 1, ..DemoOptions::default() };
    let ended = block_on(run(&options, observe, async {
        let _ = told.await;
    }));
    assert!(matches!(ended, Err(DemoError::Stopped)), "{ended:?}");
    assert!((1..100_000).contains(&seen.load(Ordering::Relaxed)));
}
