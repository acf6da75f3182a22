//! Small fleets on the built-in digits.

use std::{path::Path, time::Duration};

use aggregator::{ca::Authority, config::Config, server::Server};
use client::{
    Profile,
    data::{DataSplit, Samples, digits},
    host::{Client, Identity},
    train::Fast,
};
use models::Graph;
use tokio::task::JoinSet;

use super::*;

/// Five devices, one per tier, with their own digits.
fn specs() -> Vec<DeviceSpec> {
    let all = Samples::of(&digits::all(), DataSplit::Train).unwrap();
    let spec = |index: usize| {
        let chosen: Vec<u32> = (index * 60..(index + 1) * 60).map(|at| at as u32).collect();
        let shard = all.select(&chosen).unwrap().split(0.25, index as u64).unwrap();
        DeviceSpec {
            device: format!("d{index}").parse().unwrap(),
            tier: Tier::new(index).unwrap(),
            hardware: Hardware { macs_per_s: if index == 4 { 1e5 } else { 1e7 }, ..Hardware::default() },
            shard: Arc::new(shard),
        }
    };
    (0..5).map(spec).collect()
}

fn engine(config: &str, chances: Chances, threads: usize) -> Engine {
    Engine::new(&Registry::standard(), &Config::parse(config).unwrap(), specs(), chances, threads).unwrap()
}

fn bits(engine: &Engine) -> Vec<u32> {
    engine.parameters().iter().map(|value| value.to_bits()).collect()
}

const HETEROFL: &str = "run = { rounds = 10 }\ntraining = { lr = 0.3 }\nstrategy = { name = \"heterofl\" }";

#[test]
fn a_fleet_learns_and_the_number_of_threads_does_not_matter() {
    let mut one = engine(HETEROFL, Chances::default(), 1);
    let mut seen = 0;
    let reports = one.run(|_, _| seen += 1).unwrap();
    assert_eq!((reports.len(), seen), (11, 11));
    assert!(reports[10].loss.mean < 0.8 * reports[0].loss.mean);
    assert!(reports.iter().all(|report| report.devices.len() == 5));
    for threads in [1, 2, 3] {
        let mut again = engine(HETEROFL, Chances::default(), threads);
        assert_eq!(again.run(|_, _| {}).unwrap(), reports);
        assert_eq!(bits(&again), bits(&one));
    }
    let account = &one.account().tiers;
    assert!(account.iter().all(|tier| (tier.asked, tier.answered) == (11, 11) && tier.joules > 0.0));
    assert!(account[4].busy_s > account[0].busy_s);
    assert!(account.windows(2).all(|pair| pair[0].bytes_up > pair[1].bytes_up));
}

/// The engine passes on what the gateway asks and what devices report.
#[test]
fn devices_report_validation_losses_where_they_are_asked_for() {
    // The first round is announced while the fleet connects, so the configuration must ask.
    let config = "run = { rounds = 10 }\ntraining = { lr = 0.3 }\nfairness = { target = 0.3 }";
    let mut engine = engine(config, Chances::default(), 2);
    let reports = engine.run(|_, _| {}).unwrap();
    let (last, rounds) = reports.split_last().unwrap();
    assert!(last.devices.iter().all(|line| line.validation_loss.is_none()), "scores of the final model");
    for line in rounds.iter().flat_map(|report| &report.devices) {
        // 9 of the 45 training samples are kept back.
        assert_eq!(line.samples, 36);
        assert!(line.validation_loss.is_some_and(|loss| loss > 0.0 && loss != line.loss_before));
    }
}

#[test]
fn slow_devices_miss_the_deadline_and_dropouts_do_not_answer() {
    let config =
        format!("{HETEROFL}\nround = {{ deadline_s = 0.2, quorum = [0, 0, 0, 0, 0], give_up_s = 60 }}");
    let mut engine = engine(&config, Chances { dropout: 0.2, seed: 3, ..Chances::default() }, 2);
    let reports = engine.run(|_, _| {}).unwrap();
    let silent: usize = reports.iter().map(|report| report.silent.len()).sum();
    assert!(silent > 0);
    for report in &reports {
        assert!(!report.devices.is_empty() && report.devices.len() + report.silent.len() == 5);
    }
    let account = engine.account().tiers[4];
    assert!(account.asked == 11 && account.answered == 0 && account.busy_s > 1.0);
    // The slowest tier is never in time.
    let slowest = reports.iter().take(10).filter(|report| report.devices.iter().any(|line| line.tier == 4));
    assert_eq!(slowest.count(), 0);
}

#[test]
fn a_fleet_without_quorum_is_an_error_not_a_hang() {
    let config = format!("{HETEROFL}\nround = {{ deadline_s = 1, quorum = 1.0, give_up_s = 0 }}");
    let mut engine = engine(&config, Chances { dropout: 1.0, ..Chances::default() }, 1);
    assert!(matches!(engine.run(|_, _| {}), Err(EngineError::Stuck { round: 1, answered: 0, asked: 5 })));
}

/// One aggregator and five clients over loopback.
async fn over_quic(config: &Config, dir: &Path, plans: &[strategies::tiered::TierPlan]) {
    let authority = Authority::create(dir).unwrap();
    let server = Server::start(&Registry::standard(), config, dir, None).unwrap();
    let mut clients = JoinSet::new();
    for spec in specs() {
        let bundle = authority.enroll(&spec.device).unwrap();
        let budget = Budget { ram: plans[spec.tier.index()].info.arena_bytes(), ..Budget::UNLIMITED };
        let profile = Profile {
            device: spec.device,
            budget,
            data: spec.shard.summary(),
            privacy: Privacy::simulated(0),
        };
        let client = Client {
            silence: client::host::SILENCE,
            leave_after: client::host::refusals::LEAVE_AFTER,
            gateways: server.address().into(),
            identity: Identity::parse(bundle.as_bytes()).unwrap(),
            profile,
            spent: None,
            save_model: None,
            give_up_after: Some(Duration::from_secs(30)),
        };
        clients.spawn(async move {
            let never = std::future::pending();
            client.run(&*spec.shard, &mut Fast::new(), never, |_| {}).await.unwrap();
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    server.finished().await;
    server.stop().await.unwrap();
}

#[test]
fn rounds_over_quic_give_the_same_model() {
    for strategy in ["heterofl", "fedrolex", "fairheterofl", "fedeba_plus"] {
        let text = format!(
            "run = {{ rounds = 3, min_devices = 5, seed = 7 }}\ntraining = {{ lr = 0.2 }}\n\
             server = {{ listen = \"127.0.0.1:0\" }}\nstrategy = {{ name = \"{strategy}\" }}"
        );
        let config = Config::parse(&text).unwrap();
        let mut simulated = engine(&text, Chances::default(), 2);
        simulated.run(|_, _| {}).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(over_quic(&config, dir.path(), &simulated.worker().conductor.run.model.plans));
        let file = std::fs::read(dir.path().join("model.onnx")).unwrap();
        let (_, parameters) = Graph::from_onnx(&file).unwrap();
        let real: Vec<u32> = parameters.iter().map(|value| value.to_bits()).collect();
        assert_eq!(real, bits(&simulated), "{strategy}");
    }
}

#[test]
fn a_slow_tier_is_waited_for_unless_its_quorum_is_0_and_an_empty_round_is_given_up() {
    let config = format!("{HETEROFL}\nround = {{ deadline_s = 0.2, quorum = 0.4 }}");
    let reports = engine(&config, Chances::default(), 2).run(|_, _| {}).unwrap();
    for report in &reports {
        let asked = &report.participation;
        assert_eq!(asked[4].delivered, 1, "round {}, {}: {asked:?}", report.round, report.purpose);
    }
    assert!(reports.iter().take(10).any(|report| report.participation[4].late == 1));
    let config = format!("{HETEROFL}\nround = {{ deadline_s = 1, quorum = 1.0, give_up_s = 7 }}");
    let mut silent = engine(&config, Chances { dropout: 1.0, ..Chances::default() }, 1);
    let before = bits(&silent);
    let reports = silent.run(|_, _| {}).unwrap();
    assert_eq!(bits(&silent), before);
    let train: Vec<_> = reports.iter().filter(|report| report.purpose == "train").collect();
    assert!(train.len() == 10 && train.iter().all(|report| report.seconds == 7.0 && report.kept == Some(55)));
    assert!(train.iter().all(|report| report.participation.iter().all(|tier| tier.stragglers == 1)));
}
