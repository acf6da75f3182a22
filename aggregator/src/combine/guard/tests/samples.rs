//! Sample counts.

use std::collections::BTreeMap;

use super::*;

fn record(device: &Device) -> DeviceRecord {
    let groups = [device.samples / 2, device.samples / 2].into_iter().collect();
    let data = DataSummary { train_samples: device.samples, groups, ..DataSummary::default() };
    let tier = Tier::new(device.tier).unwrap();
    DeviceRecord { device: id(&device.name), tier, budget: Budget::UNLIMITED, data }
}

/// A fleet of one tier that has said the same from its first Hello on.
fn enrolled(counts: &[u32], config: GuardConfig) -> (Guard, Vec<Device>) {
    let device = |(at, &samples): (usize, &u32)| {
        let update = vec![0.1 * f64::from(samples).sqrt(); PARAMETERS];
        Device { name: format!("d{at:02}"), tier: 0, samples, loss: 2.0, update }
    };
    let fleet: Vec<_> = counts.iter().enumerate().map(device).collect();
    let mut guard = Guard::new(config);
    fleet.iter().for_each(|device| guard.enrol(&record(device)));
    (guard, fleet)
}

/// What counts, and the samples' lines.
fn counted(guard: &Guard, fleet: &[Device]) -> (Vec<f64>, Vec<GuardLine>) {
    let regions = regions();
    let mut cohort = cohort(&regions, fleet);
    let Verdict { mut lines, .. } = guard.inspect(&mut cohort, Kind::Train);
    lines.retain(|line| line.what == "samples");
    (cohort.participants().iter().map(|participant| participant.samples()).collect(), lines)
}

#[test]
fn a_count_far_above_the_peers_counts_as_their_middle_from_the_first_hello_on() {
    let (guard, fleet) = enrolled(&[151, 155, 48_008, 154, 158, 150], GuardConfig::default());
    let (samples, lines) = counted(&guard, &fleet);
    // The median of all six.
    assert_eq!(samples, [151.0, 155.0, 154.0, 154.0, 158.0, 150.0]);
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((line.device.as_str(), line.action, line.why), ("d02", "clipped", PEERS));
    assert_eq!((line.said, line.counted), (48_008.0, 154.0));
    // It can not have it both ways: more than it enrolled with, which is too much already.
    let (guard, mut fleet) = enrolled(&[151, 155, 48_008, 154, 158, 150], GuardConfig::default());
    fleet[2].samples = 4_000_000;
    assert_eq!(counted(&guard, &fleet).1[0].counted, 154.0);
    let refuse = GuardConfig { mode: Mode::Refuse, ..GuardConfig::default() };
    let (guard, fleet) = enrolled(&[151, 155, 48_008, 154, 158, 150], refuse);
    let regions = regions();
    let verdict = guard.inspect(&mut cohort(&regions, &fleet), Kind::Train);
    assert_eq!(verdict.refused, [(id("d02"), Tier::new(0).unwrap(), Code::ImplausibleSamples)]);
}

#[test]
fn an_operator_may_know_better() {
    let counts = [50, 48, 52, 50_000, 51, 49];
    let known = GuardConfig { large_shards: [id("d03")].into(), ..GuardConfig::default() };
    let (guard, fleet) = enrolled(&counts, known.clone());
    assert_eq!(counted(&guard, &fleet).1, []);
    // Only the one that is named, and only what it enrolled with.
    let (guard, mut fleet) = enrolled(&[50, 48, 52, 50_000, 51, 50_000], known);
    fleet[3].samples = 200_000;
    let (samples, lines) = counted(&guard, &fleet);
    assert_eq!((samples[3], samples[5], lines.len()), (50_000.0, 51.0, 2));
    let (guard, fleet) = enrolled(&counts, GuardConfig { peer_samples: 10_000.0, ..GuardConfig::default() });
    assert_eq!(counted(&guard, &fleet).1, []);
}

#[test]
fn two_or_three_devices_are_nobodys_peers() {
    for counts in [&[10, 1_000_000][..], &[10, 10, 1_000_000]] {
        let (guard, fleet) = enrolled(counts, GuardConfig::default());
        assert_eq!(counted(&guard, &fleet).1, []);
    }
}

#[test]
fn a_small_round_knows_who_took_part_before() {
    let (mut guard, mut fleet) = enrolled(&[150, 155, 152, 48_000, 154, 158], GuardConfig::default());
    let second = fleet.split_off(3);
    assert_eq!(names(&round(&mut guard, &fleet)), []);
    // Who is only enrolled is nobody's peer yet, so the order in which devices come changes nothing.
    assert_eq!(counted(&guard, &second[..1]).1[0].counted, 153.0);
    let mut restored = Guard::new(guard.config().clone());
    restored.restore(&guard.save());
    assert_eq!(counted(&restored, &second), counted(&guard, &second));
    assert_eq!(counted(&guard, &second).1.len(), 1);
}

/// A power law, log-normal counts on top of a minimum, and classes divided by Dirichlet draws with alpha = 0.1.
#[test]
fn honest_shards_are_left_alone_however_unequal() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let devices = 10 + 9 * (seed as usize % 11);
        let shape = 0.5 + 0.37 * rng.unit_f64();
        let power_law = |rank: usize| 20_000.0 / (1.0 + rank as f64).powf(shape);
        let log_normal = |rng: &mut Rng| 50.0 + (4.0 + rng.normal()).exp();
        let mut dirichlet = vec![0.0; devices];
        for _class in 0..10 {
            // A draw of Gamma(1.1) is near enough one of Gamma(1).
            let gamma = |rng: &mut Rng| -rng.unit_f64().max(1e-9).ln() * rng.unit_f64().powf(1.0 / 0.1);
            let draws: Vec<f64> = (0..devices).map(|_| gamma(&mut rng)).collect();
            let all: f64 = draws.iter().sum();
            dirichlet.iter_mut().zip(draws).for_each(|(count, draw)| *count += 6000.0 * draw / all);
        }
        let fleets: [Vec<f64>; 3] = [
            (0..devices).map(power_law).collect(),
            (0..devices).map(|_| log_normal(&mut rng)).collect(),
            dirichlet,
        ];
        for counts in fleets {
            let counts: Vec<u32> = counts.iter().map(|&count| count.max(1.0) as u32).collect();
            let (guard, fleet) = enrolled(&counts, GuardConfig::default());
            assert_eq!(counted(&guard, &fleet).1, [], "seed {seed}: {counts:?}");
        }
    }
}

#[test]
fn what_strategies_start_from_is_judged_too() {
    let (guard, fleet) = enrolled(&[100, 110, 90_000, 90, 104], GuardConfig::default());
    let all: BTreeMap<_, _> = fleet.iter().map(|device| (id(&device.name), record(device))).collect();
    let believed = guard.enrolled(&all);
    let counts: Vec<_> = believed.iter().map(|record| record.data.train_samples).collect();
    assert_eq!(counts, [100, 110, 104, 90, 104]);
    assert_eq!(believed[2].data.groups, [52, 52]);
    assert_eq!(believed[0], all[&id("d00")]);
    let off = Guard::new(GuardConfig { mode: Mode::Off, ..GuardConfig::default() });
    assert_eq!(off.enrolled(&all)[2].data.train_samples, 90_000);
}

/// A fifth of the fleet where honest shards differ by a factor of ten, and four tenths where they are alike.
#[test]
fn many_liars_are_found_too() {
    let mut rng = Rng::new(5);
    for (most, spread) in [(8, 0.5), (16, 0.02)] {
        for liars in 1..=most {
            let mut counts: Vec<u32> =
                (0..40).map(|_| (200.0 * (spread * rng.normal()).exp()) as u32).collect();
            counts.iter_mut().take(liars).for_each(|count| *count = 48_008);
            let (guard, fleet) = enrolled(&counts, GuardConfig::default());
            let (samples, lines) = counted(&guard, &fleet);
            assert_eq!(lines.len(), liars, "{liars}: {samples:?}");
            assert!(samples.iter().all(|&samples| samples < 1500.0), "{liars}: {samples:?}");
        }
    }
}

proptest! {
    /// A factor of five between any two is nothing unusual.
    #[test]
    fn five_times_as_many_are_believed(counts in prop::collection::vec(100u32..=500, 1..40)) {
        let (guard, fleet) = enrolled(&counts, GuardConfig::default());
        prop_assert!(counted(&guard, &fleet).1.is_empty());
    }

    /// Whatever a liar among equals says, it counts as one of them, or at most five times as much.
    #[test]
    fn a_liar_among_equals_gains_little(said: u32, peers in 3usize..30) {
        let mut counts = vec![200; peers];
        counts.push(said.max(1));
        let (guard, fleet) = enrolled(&counts, GuardConfig::default());
        let (samples, lines) = counted(&guard, &fleet);
        let believed = samples[peers];
        prop_assert!(if lines.is_empty() { believed <= 1000.0 } else { believed == 200.0 }, "{said}: {believed}");
    }
}
