//! A fleet of which some are hostile, and its runs.

use std::{collections::BTreeSet, sync::Arc};

use aggregator::{
    config::{Config, ConfigError},
    coordinator::StoredUpdate,
    report::{DeviceLine, RoundReport},
};
use common::{
    Codec, DeviceId, Tier,
    metrics::{Better, Summary},
    rng::{Rng, derive},
};
use edge_client::data::{Part, Samples, digits, partition};

use super::{AttackError, AttackOptions, Case, Figures, Tactic, boaster::Boaster};
use crate::engine::{Chances, Engine, Hardware, Member, Tamper};

fn config(options: &AttackOptions, guard: &str, tiers: &str) -> Result<Config, ConfigError> {
    Config::parse(&format!(
        "[model]\ntiers = [{tiers}]\nseed = {seed}\n[run]\nrounds = {rounds}\nseed = {seed}\n\
         [strategy]\nname = \"fairheterofl\"\nparams = {{ step = \"reweight\", q = 1, q_m = 1 }}\n\
         [training]\nepochs = 2\nbatch = 8\nlr = 0.1\n[guard]\n{guard}\n",
        seed = options.seed,
        rounds = options.rounds,
    ))
}

/// Two tiers; a third of every device's samples are of one class.
pub(super) fn fleet(options: &AttackOptions) -> Result<Vec<Member>, AttackError> {
    let all = Samples::of(&digits::all(), Part::Train)?;
    let parts = partition::dominant_class(all.labels(), options.devices, 0.33, options.seed);
    let mut members = vec![];
    for (index, part) in parts.iter().enumerate() {
        let shard = all.select(part)?.split(0.4, derive(options.seed, index as u64))?;
        // Names of this form and two tiers are always legal.
        let (Ok(device), Some(tier)) = (format!("d{index:03}").parse(), Tier::new(index / 10 % 2)) else {
            continue;
        };
        members.push(Member { device, tier, hardware: Hardware::default(), shard: Arc::new(shard) });
    }
    Ok(members)
}

pub(super) fn hostile(fleet: &[Member], share: f64, seed: u64) -> BTreeSet<DeviceId> {
    let mut devices: Vec<_> = fleet.iter().map(|member| member.device.clone()).collect();
    Rng::new(derive(seed, 7)).shuffle(&mut devices);
    devices.truncate((share * fleet.len() as f64).round() as usize);
    devices.into_iter().collect()
}

/// One run: figures over honest devices, and whom the guard has named.
pub(super) fn once(
    options: &AttackOptions,
    guard: &str,
    mut members: Vec<Member>,
    hostile: &BTreeSet<DeviceId>,
    case: Case,
) -> Result<(Figures, BTreeSet<String>), AttackError> {
    let apart = (case.tactic == Tactic::OwnTier).then(|| Tier::new(2)).flatten();
    let config = config(options, guard, if apart.is_some() { "1.0, 0.5, 0.25" } else { "1.0, 0.5" })?;
    for Member { shard, tier, .. } in members.iter_mut().filter(|member| hostile.contains(&member.device)) {
        *shard = Arc::new(Boaster { shard: shard.clone(), factor: case.samples });
        *tier = apart.unwrap_or(*tier);
    }
    let (liars, rounds) = (hostile.clone(), options.rounds);
    let tamper = move |update: &mut StoredUpdate| {
        if liars.contains(&update.device) {
            let case = case.in_round(update.ticket.round, rounds);
            let scalars = &mut update.scalars;
            scalars.samples = scalars.samples.saturating_mul(case.samples);
            scalars.loss_before *= case.inflation;
            scalars.loss_after = scalars.loss_after.map(|loss| loss * case.inflation);
            multiply(&mut update.payload, update.codec, case.updates.factor());
        }
    };
    let engine = Engine::new(&config, members, Chances::default(), options.threads)?;
    let reports = engine.with_tamper(Tamper(Box::new(tamper))).run(|_, _| {})?;
    let last = reports.last().ok_or(AttackError::NoScores)?;
    let named =
        reports.iter().flat_map(|report| report.guard.iter().map(|line| line.device.clone())).collect();
    Ok((figures(last, hostile), named))
}

fn figures(report: &RoundReport, hostile: &BTreeSet<DeviceId>) -> Figures {
    let honest = || {
        let honest = |name: &str| hostile.iter().all(|device| device.as_str() != name);
        report.devices.iter().filter(move |line| honest(&line.device))
    };
    // The guard's view of honest scores must not flatter the defended run.
    let said = |name: &str| {
        let mut clipped = report.guard.iter().filter(|line| line.what == "test_loss");
        clipped.find(|line| line.device == name).map(|line| line.said)
    };
    let loss = |line: &DeviceLine| said(&line.device).or(line.test_loss).unwrap_or(line.loss_before);
    let mut losses: Vec<f64> = honest().map(loss).collect();
    let mut accuracies: Vec<f64> = honest().filter_map(|line| line.test_accuracy).collect();
    let loss = Summary::of(&mut losses, Better::Low);
    let accuracy = Summary::of(&mut accuracies, Better::High);
    Figures { loss: loss.mean, variance: loss.variance, worst10: loss.worst10, accuracy: accuracy.mean }
}

/// Multiplies the numbers of an exact update; others can not be changed without decoding them.
fn multiply(payload: &mut [u8], codec: Codec, factor: f32) {
    if codec != Codec::F32 || factor == 1.0 {
        return;
    }
    for bytes in payload.as_chunks_mut::<4>().0 {
        *bytes = (f32::from_le_bytes(*bytes) * factor).to_le_bytes();
    }
}
