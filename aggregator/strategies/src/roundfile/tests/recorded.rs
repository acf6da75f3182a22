//! Reads and replays what a live round has recorded.

use std::path::Path;

use common::{
    Tier, WidthMask,
    message::{Scalars, Validation},
    rng::Rng,
};
use models::{plan::PlanOptions, zoo};
use serde_json::{Map, Value, json};

use super::{super::*, close, method};
use crate::{
    check::check_update,
    cohort::{Absent, Cohort},
    combine::combine,
    fairness::FairnessSettings,
    method::{Method, by_name},
    strategy::{Needs, Strategy, Weights},
    tiered::TieredModel,
    updates::{UpdateRef, Updates},
};

/// A fleet on a model of the zoo: parameters, a cohort and `f32` updates.
struct Live {
    model: TieredModel,
    parameters: Vec<f32>,
    devices: Vec<(&'static str, usize, Scalars)>,
    updates: Source,
    absent: Vec<Absent>,
}

/// By participant; `first` and `absent` are derived.
struct Source(Vec<Vec<f32>>, Vec<f32>);

impl Updates for Source {
    type Value = f32;
    type Error = std::convert::Infallible;

    fn read<'a>(
        &'a mut self,
        which: UpdateRef<'_>,
        buffer: &'a mut Vec<f32>,
    ) -> Result<&'a [f32], Self::Error> {
        Ok(match which {
            UpdateRef::Update(index, _) => &self.0[index],
            UpdateRef::FirstStep(index, _) => {
                *buffer = self.0[index].iter().map(|value| value / 4.0).collect();
                buffer
            }
            UpdateRef::Absent(..) => &self.1,
        })
    }
}

impl Live {
    fn new() -> Self {
        let (graph, parameters) = zoo::by_name("digits-mlp").unwrap().build(3);
        let masks: Vec<WidthMask> = [1.0, 0.5, 0.25].map(|rate| graph.full().at_rate(rate).unwrap()).to_vec();
        let model = TieredModel::new(graph, masks, &PlanOptions::train(4)).unwrap();
        let mut rng = Rng::new(11);
        let mut vector = |tier: usize| -> Vec<f32> {
            let len = model.regions.slice_len(Tier::new(tier).unwrap());
            (0..len).map(|_| 0.01 * rng.normal() as f32).collect()
        };
        let scalars = |samples, loss_before| Scalars {
            samples,
            loss_before,
            loss_after: Some(loss_before / 2.0),
            gap: Some(-0.25),
            mass: Some(7.5),
            group_losses: [1.0, 2.0, 3.0, 4.5].into_iter().collect(),
            group_counts: [2, 3, 4, 5].into_iter().collect(),
            ..Scalars::default()
        };
        let devices = vec![
            ("cam-1", 0, scalars(10, 0.7)),
            ("cam-2", 1, scalars(30, 1.1)),
            ("cam-3", 1, Scalars { loss_after: None, ..scalars(20, 2.3) }),
            ("tiny", 2, scalars(5, 1.9)),
        ];
        let updates = Source(devices.iter().map(|(_, tier, _)| vector(*tier)).collect(), vector(1));
        let absent = vec![Absent {
            device: "gone".parse().unwrap(),
            tier: Tier::new(1).unwrap(),
            round: 5,
            lr: 0.2,
            norm: 1.0,
        }];
        Self { model, parameters, devices, updates, absent }
    }

    fn cohort(&self) -> Cohort {
        let regions = &self.model.regions;
        let mut cohort = Cohort::new(regions.clone(), 0.05);
        cohort.round = 8;
        cohort.server_lr = 0.9;
        cohort.set_clients(12);
        cohort.set_enrolled(vec![9, 8, 7]);
        cohort.set_layers(self.model.layers.as_slice());
        for ((name, tier, scalars), update) in self.devices.iter().zip(&self.updates.0) {
            let tier = Tier::new(*tier).unwrap();
            let norms = check_update(update, regions.pieces(tier), regions.sets().len()).unwrap();
            cohort.admit(name.parse().unwrap(), tier, scalars.clone(), &norms).unwrap();
        }
        cohort.set_tier_weight(Tier::new(1).unwrap(), 0.25).unwrap();
        cohort.set_device_weight(&"cam-2".parse().unwrap(), 0.75).unwrap();
        cohort.set_trials(&"tiny".parse().unwrap(), &[0.5, 0.25]);
        self.absent.iter().for_each(|absent| cohort.add_absent(absent.clone()));
        cohort
    }

    fn record(&self, dir: &Path, method: &Method, params: &Value) -> PathBuf {
        let mut updates = Source(self.updates.0.clone(), self.updates.1.clone());
        let cohort = self.cohort();
        let tripled = |update: &Vec<f32>| update.iter().map(|x| x * 3.0).collect();
        let names = cohort.participants().iter().map(|participant| participant.device.clone());
        let gradients = names.zip(self.updates.0.iter().map(tripled)).collect();
        let empty = Map::new();
        let dump = RoundDump {
            model: &self.model,
            parameters: &self.parameters,
            method,
            params: params.as_object().unwrap_or(&empty),
            cohort: &self.cohort(),
            updates: &mut updates,
            steps: &[1.0, 0.5],
            gradients: &gradients,
        };
        record(dir, dump).unwrap()
    }
}

#[test]
fn a_recorded_round_gives_the_same_model() {
    let dir = tempfile::tempdir().unwrap();
    let live = Live::new();
    for (name, params) in [
        ("fedavg", json!({})),
        ("heterofl", json!({ "server_momentum": 0.9 })),
        ("fairheterofl", json!({ "q": 2.0, "q_m": [1.0, 0.0, 0.5] })),
        ("fairheterofl", json!({ "step": "reweight", "q": 5 })),
    ] {
        let mut method = by_name(name, params.clone()).unwrap();
        if let Some(momentum) = &mut method.momentum {
            momentum.buffer = vec![0.001; live.parameters.len()];
        }
        let path = live.record(dir.path(), &method, &params);
        assert_eq!(path, dir.path().join("rounds/round-000008.json"));
        let mut theta = live.parameters.clone();
        let mut updates = Source(live.updates.0.clone(), live.updates.1.clone());
        let outcome = combine(&mut method, &live.cohort(), &[], &mut updates, &mut theta).unwrap();
        let file = RoundFile::open(&path).unwrap();
        let (own, own_params) = file.strategy.clone().unwrap();
        assert_eq!((own.as_str(), &own_params), (name, &params));
        let answer = replay(&crate::registry::Registry::standard(), &file, name, params).unwrap();
        let live_theta: Vec<f64> = theta.iter().map(|&value| value.into()).collect();
        close(&answer.parameters, &live_theta, 1e-7);
        assert_ne!(theta, live.parameters);
        let weights: Vec<f64> = answer.weights.values().copied().collect();
        close(&weights, &outcome.weights, 1e-12);
    }
}

#[test]
fn a_recorded_round_holds_everything() {
    let dir = tempfile::tempdir().unwrap();
    let live = Live::new();
    #[derive(Debug)]
    struct Both;
    impl Strategy for Both {
        fn name(&self) -> &'static str {
            "both"
        }
        fn needs(&self) -> Needs {
            Needs { product: common::brief::Product::Both, ..Needs::default() }
        }
        fn weigh(&self, cohort: &Cohort) -> Weights {
            Weights::per_device(cohort.data_shares())
        }
        fn save(&self) -> Value {
            json!({ "seen": 2 })
        }
    }
    let path = live.record(dir.path(), &method(Both), &json!({}));
    let file = RoundFile::open(&path).unwrap();
    assert_eq!((file.round, file.clients, file.lr, file.server_lr), (8, Some(12), Some(0.05), 0.9));
    assert_eq!(file.regions, *live.model.regions);
    assert_eq!((&file.layers, &file.tier_weights[..]), (&live.model.layers, &[None, Some(0.25), None][..]));
    let wide = |values: &[f32]| -> Vec<f64> { values.iter().map(|&value| value.into()).collect() };
    assert_eq!(file.parameters, wide(&live.parameters));
    assert_eq!(file.state, json!({ "seen": 2 }));
    for ((device, (id, tier, scalars)), update) in file.devices.iter().zip(&live.devices).zip(&live.updates.0)
    {
        assert_eq!((device.id.as_str(), device.tier.index()), (*id, *tier));
        assert_eq!(
            (device.samples, device.loss_before, device.loss_after),
            (scalars.samples, Some(scalars.loss_before), scalars.loss_after)
        );
        assert_eq!(device.update, Some(wide(update)));
        assert_eq!(device.first_update, Some(update.iter().map(|&value| f64::from(value / 4.0)).collect()));
        assert_eq!(device.gradient, Some(update.iter().map(|&value| f64::from(value * 3.0)).collect()));
        assert_eq!((device.gap, device.sample_mass), (Some(-0.25), Some(7.5)));
        assert_eq!(
            (&device.group_loss_sums[..], &device.group_counts[..]),
            (&[1.0, 2.0, 3.0, 4.5][..], &[2, 3, 4, 5][..])
        );
    }
    assert_eq!(file.devices[1].weight, Some(0.75));
    assert_eq!(file.devices[3].trial_losses, Some(vec![(1.0, 0.5), (0.5, 0.25)]));
    let past = &file.history[0];
    assert_eq!((past.id.as_str(), past.round, past.lr), ("gone", 5, Some(0.2)));
    assert_eq!(past.gradient, live.updates.1.iter().map(|&value| -f64::from(value)).collect::<Vec<_>>());

    // For other programs: named tensors, and what each tier keeps of them.
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let tensors = json["tensors"].as_array().unwrap();
    let sizes =
        |shape: &Value| shape.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).product::<u64>();
    let all: u64 = tensors.iter().map(|tensor| sizes(&tensor["shape"])).sum();
    assert_eq!(all, live.parameters.len() as u64);
    assert!(json["tiers"][0].get("indices").is_none());
    assert_eq!(json["tiers"][1]["widths"], json!([16]));
    let kept: u64 =
        json["tiers"][1]["tensors"].as_array().unwrap().iter().map(|tensor| sizes(&tensor["shape"])).sum();
    assert_eq!(kept, live.model.regions.slice_len(Tier::new(1).unwrap()) as u64);
    assert_eq!(json["tiers"][1]["indices"]["npy"], "round-000008/tier-1.npy");
}

/// The file carries target, state, signals and sizes: replaying gives the next value of the knob.
#[test]
fn a_recorded_target_gives_the_next_knob() {
    let dir = tempfile::tempdir().unwrap();
    let mut live = Live::new();
    for (number, (.., scalars)) in live.devices.iter_mut().enumerate() {
        let loss = 0.2 + 0.3 * number as f64;
        scalars.validation = (number != 1).then_some(Validation { loss, error: 0.001 });
    }
    let params = json!({ "q_m": 0.0 });
    let settings = FairnessSettings { target: 0.05, ..FairnessSettings::default() };
    let mut method = by_name("fairheterofl", params.clone()).unwrap();
    method.aim(settings.clone(), params.as_object().unwrap(), &live.model.regions).unwrap();
    for _ in 0..3 {
        let path = live.record(dir.path(), &method, &params);
        let file = RoundFile::open(&path).unwrap();
        assert_eq!(
            (file.fairness.as_ref(), &file.enrolled[..]),
            (Some(&settings), &[Some(9), Some(8), Some(7)][..])
        );
        assert_eq!(
            (file.devices[0].validation_loss, file.devices[0].validation_error),
            (Some(0.2), Some(0.001))
        );
        assert_eq!(file.devices[1].validation_loss, None);
        let mut theta = live.parameters.clone();
        let mut updates = Source(live.updates.0.clone(), live.updates.1.clone());
        let outcome = combine(&mut method, &live.cohort(), &[], &mut updates, &mut theta).unwrap();
        let registry = crate::registry::Registry::standard();
        let answer = replay(&registry, &file, "fairheterofl", params.clone()).unwrap();
        assert_eq!(answer.fairness, outcome.fairness);
        assert_eq!((answer.fairness[0].unmeasured, answer.state["fairness"].is_object()), (1, true));
        assert_eq!(answer.state, method.state());
        // Another strategy is replayed without the target.
        let other = replay(&registry, &file, "fedavg", Value::Null).unwrap();
        assert_eq!((other.fairness.len(), other.state), (0, Value::Null));
        let both = replay(&registry, &file, "fairheterofl", json!({ "q": 1 })).unwrap_err().to_string();
        assert!(both.contains("strategy.params.q"), "{both}");
    }
    assert!(method.fairness.unwrap().lines()[0].next_value > 0.0);
    let path = live.record(dir.path(), &by_name("fedavg", Value::Null).unwrap(), &json!({}));
    let mut file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(file.get("fairness").is_none());
    file["fairness"] = json!({ "targt": 1 });
    let error = RoundFile::parse(&file.to_string(), &dir.path().join("rounds")).unwrap_err().to_string();
    assert!(error.starts_with("fairness: ") && error.contains("targt"), "{error}");
}
