use std::collections::BTreeSet;

use common::{Code, DeviceId, RegionId, Tier, TierSet, message::Scalars, region::RegionMap};
use serde_json::{Value, json};

use crate::{
    check::check_update,
    cohort::{Bounds, Cohort, Participant},
    combine::{Fold, combine},
    error::{CombineError, UpdateLength},
    method::{Method, by_name},
    strategy::{Mix, Strategy, TierSums, Weight, Weights},
    table::Table,
    updates::{UpdateRef, Updates},
};

const ZERO: usize = 0;
const ONE: usize = 1;

fn tier(index: usize) -> Tier {
    Tier::new(index).unwrap()
}

fn id(name: &str) -> DeviceId {
    name.parse().unwrap()
}

fn scalars(samples: u32) -> Scalars {
    Scalars { samples, loss_before: 1.0, loss_after: None, test: None, steps: 1, ..Scalars::default() }
}

/// Parameters 0 and 3 belong to tier 0, 1 to both, 2 to no tier, 4 to tier 1.
fn map() -> RegionMap {
    let only = |index| TierSet::EMPTY.with(tier(index));
    let both = only(ZERO).with(tier(ONE));
    RegionMap::from_spans(5, 2, [(0, 1, only(0)), (1, 1, both), (3, 1, only(0)), (4, 1, only(1))])
}

fn cohort(map: &RegionMap, members: &[(&str, usize, u32, &[f32])]) -> Cohort {
    let mut cohort = Cohort::new(map.clone(), 0.1);
    for &(name, index, samples, update) in members {
        let norms = check_update(update, map.pieces(tier(index)), map.sets().len()).unwrap();
        cohort.admit(id(name), tier(index), scalars(samples), &norms).unwrap();
    }
    cohort
}

fn fedavg() -> Method {
    by_name("fedavg", Value::Null).unwrap()
}

#[test]
fn tiers_that_are_not_nested_meet_where_they_overlap() {
    let map = map();
    let updates = vec![vec![1.0f32, 2.0, 3.0], vec![10.0, 20.0]];
    let cohort = cohort(&map, &[("a", 0, 1, &updates[0]), ("b", 1, 3, &updates[1])]);
    let mut theta = [100.0f32; 5];
    let outcome = combine(&mut fedavg(), &cohort, &[], &mut updates.as_slice(), &mut theta).unwrap();
    assert_eq!(theta, [101.0, 108.0, 100.0, 103.0, 120.0]);
    assert_eq!(outcome.weights, [0.25, 0.75]);
    let reaching: Vec<_> =
        outcome.regions.iter().map(|region| (region.participants, region.weight)).collect();
    assert_eq!(reaching, [(1, 0.25), (2, 1.0), (1, 0.75)]);
}

/// `a` with 4 units and `b` with 2 are joined for `c`; the narrow tier keeps half of each.
#[test]
fn updates_of_joined_branches_reach_their_own_parameters() {
    use models::graph::{Builder, Param, ValueId};
    let mut builder = Builder::new("m", "x", &[2]).unwrap();
    let dense = |builder: &mut Builder, name: &str, input, inputs, units| {
        let [weight, bias] = ["w", "b"].map(|kind| Param::plain(format!("{name}.{kind}")));
        builder.dense(name, input, inputs, units, weight, Some(bias)).unwrap()
    };
    let a = dense(&mut builder, "a", ValueId::INPUT, 2, 4);
    let b = dense(&mut builder, "b", ValueId::INPUT, 2, 2);
    let both = builder.concat("both", a, b, 0).unwrap();
    let logits = dense(&mut builder, "c", both, 6, 3);
    let graph = builder.finish("y", logits, None).unwrap();
    let masks = [1.0, 0.5].map(|rate| graph.full().at_rate(rate).unwrap());
    let map = RegionMap::new(graph.layout(), &masks);
    let updates: Vec<Vec<f32>> = [(0, 3.0), (1, 1.0)].map(|(at, x)| vec![x; map.slice_len(tier(at))]).into();
    assert_eq!([updates[0].len(), updates[1].len()], [39, 4 + 2 + 2 + 1 + 9 + 3]);
    let cohort = cohort(&map, &[("a", 0, 1, &updates[0]), ("b", 1, 1, &updates[1])]);
    let mut theta = [0.0f32; 39];
    combine(&mut fedavg(), &cohort, &[], &mut updates.as_slice(), &mut theta).unwrap();
    let (wide, shared) = (3.0, 2.0);
    let of = |width: usize, held: &[usize]| {
        (0..width).map(|at| if held.contains(&at) { shared } else { wide }).collect::<Vec<f32>>()
    };
    let expected = [
        of(8, &[0, 1, 2, 3]),
        of(4, &[0, 1]),
        of(4, &[0, 1]),
        of(2, &[0]),
        of(6, &[0, 1, 4]).repeat(3),
        of(3, &[0, 1, 2]),
    ];
    assert_eq!(theta.to_vec(), expected.concat());
}

#[test]
fn overflow_of_the_model_keeps_it() {
    let map = map();
    let updates = vec![vec![0.0f32, f32::MAX, 0.0]];
    let cohort = cohort(&map, &[("a", 0, 1, &updates[0])]);
    let mut theta = [f32::MAX; 5];
    let outcome = combine(&mut fedavg(), &cohort, &[], &mut updates.as_slice(), &mut theta).unwrap();
    assert_eq!(outcome.kept, Some(Code::NonFiniteResult));
    assert_eq!(theta, [f32::MAX; 5]);
}

#[test]
fn wrong_lengths_leave_the_model_unchanged() {
    let map = map();
    let good = vec![1.0f32; 3];
    let cohort = cohort(&map, &[("a", 0, 1, &good), ("b", 0, 1, &good)]);
    let mut theta = [0.0f32; 5];
    let updates = vec![good, vec![1.0; 4]];
    let error = combine(&mut fedavg(), &cohort, &[], &mut updates.as_slice(), &mut theta).unwrap_err();
    let CombineError::Update(UpdateLength { device, expected: 3, got: 4 }) = error else { panic!("{error}") };
    assert_eq!(device, id("b"));
    let error = combine(&mut fedavg(), &cohort, &[], &mut updates.as_slice(), &mut [0.0f32; 4]).unwrap_err();
    assert!(matches!(error, CombineError::Model { expected: 5, got: 4 }));
    assert_eq!(theta, [0.0; 5]);
}

#[test]
fn an_unreadable_update_leaves_the_model_unchanged() {
    struct Broken;
    impl Updates for Broken {
        type Value = f32;
        type Error = &'static str;
        fn read<'a>(&'a mut self, _: UpdateRef<'_>, _: &'a mut Vec<f32>) -> Result<&'a [f32], &'static str> {
            Err("disk gone")
        }
    }
    let map = map();
    let cohort = cohort(&map, &[("a", 0, 1, &[1.0; 3])]);
    let mut theta = [0.0f32; 5];
    let error = combine(&mut fedavg(), &cohort, &[], &mut Broken, &mut theta).unwrap_err();
    assert!(error.to_string().contains("disk gone"));
}

#[test]
fn weights_may_differ_by_region() {
    let map = map();
    let cohort = cohort(&map, &[("a", 0, 1, &[1.0; 3]), ("b", 1, 1, &[1.0; 2])]);
    let mut fold = Fold::new(&cohort, None);
    let mut weights = Table::zeros(0, 3);
    weights.insert(0, &[2.0, 3.0, 0.0]);
    weights.insert(1, &[0.0, 5.0, 7.0]);
    let weights = Weights::per_region(weights, &[1.0, 1.0]);
    fold.add(tier(0), &[1.0f32, 10.0, 100.0], weights.of(0));
    fold.add(tier(1), &[1.0f32, 10.0], weights.of(1));
    let short = std::panic::AssertUnwindSafe(|| fold.add(tier(1), &[1.0f32], Weight::Whole(1.0)));
    assert!(std::panic::catch_unwind(short).is_err());
    let sums = fold.sums();
    // Regions in order of appearance: tier 0 alone (two pieces), both, tier 1 alone.
    assert_eq!(sums.norm_in(tier(0), RegionId(0)), 4.0 + 40_000.0);
    assert_eq!(sums.norm_in(tier(0), RegionId(1)), 900.0);
    assert_eq!(sums.norm_in(tier(1), RegionId(1)), 25.0);
    assert_eq!(sums.norm(tier(1)), 25.0 + 4900.0);
    let both = map.sets()[1];
    assert_eq!((sums.weight(tier(0), RegionId(1)), sums.weight_in(RegionId(1), both)), (3.0, 8.0));
}

/// A third-party strategy that leaves out a device, or answers for another model.
#[test]
fn a_strategy_that_forgets_a_device_or_region_is_an_error() {
    #[derive(Debug)]
    struct Forgetful(&'static str);
    impl Strategy for Forgetful {
        fn name(&self) -> &'static str {
            "forgetful"
        }
        fn weigh(&self, cohort: &Cohort) -> Weights {
            Weights::per_device(vec![1.0; cohort.participants().len() - usize::from(self.0 == "weigh")])
        }
        fn base_weights(&self, cohort: &Cohort) -> Vec<f64> {
            vec![1.0; cohort.participants().len() - usize::from(self.0 == "base_weights")]
        }
        fn mix(&self, cohort: &Cohort, sums: &TierSums) -> Mix {
            match self.0 {
                "mix" => Mix::none(&RegionMap::from_spans(1, 1, [(0, 1, TierSet::first(1))])),
                _ => Mix::mean(cohort.regions(), sums),
            }
        }
    }
    let map = map();
    let good = vec![1.0f32; 3];
    let mut cohort = cohort(&map, &[("a", 0, 1, &good), ("b", 0, 1, &good)]);
    cohort.bounds = Some(Bounds {
        share: 2.0,
        fifth: 2.0,
        counts: 2.0,
        floor: 0.5,
        trusted: BTreeSet::new(),
        no_bonus: BTreeSet::new(),
    });
    let updates = vec![good.clone(), good];
    for forgotten in ["weigh", "base_weights", "mix", ""] {
        let strategy = Box::new(Forgetful(forgotten));
        let mut method = Method::new(strategy);
        let mut theta = [0.0f32; 5];
        let result = combine(&mut method, &cohort, &[], &mut updates.as_slice(), &mut theta);
        match forgotten {
            "" => assert!(result.is_ok_and(|outcome| outcome.kept.is_none()) && theta != [0.0; 5]),
            _ => {
                let error = result.unwrap_err().to_string();
                assert!(error.contains("forgetful") && error.contains(forgotten), "{error}");
                assert_eq!(theta, [0.0; 5]);
            }
        }
    }
}

#[test]
fn a_saved_vector_of_another_model_is_an_error() {
    let map = RegionMap::from_spans(3, 1, [(0, 3, TierSet::first(1))]);
    let good = vec![1.0f32; 3];
    let cohort = cohort(&map, &[("a", 0, 1, &good)]);
    for (option, state) in
        [("server_momentum", json!({"momentum": [1.0]})), ("varp", json!({"varp": {"a": [1.0]}}))]
    {
        let mut method = by_name("fedavg", json!({ option: true })).unwrap();
        method.set_state(state).unwrap();
        let updates = vec![good.clone()];
        let error =
            combine(&mut method, &cohort, &[], &mut updates.as_slice(), &mut [0.0f32; 3]).unwrap_err();
        assert!(error.to_string().contains("has 1 numbers, not 3"), "{error}");
    }
}

#[test]
fn a_cohort_is_sorted_whatever_the_arrival() {
    let map = map();
    let norms = |n: f64| [n, n + 0.5, 0.0];
    let mut cohort = Cohort::new(map.clone(), 0.1);
    for (name, n) in [("m", 2.0), ("z", 3.0), ("B", 0.0), ("c", 1.0)] {
        cohort.admit(id(name), tier(0), scalars(1), &norms(n)).unwrap();
    }
    // Byte order: capitals come first.
    let names: Vec<_> = cohort.participants().iter().map(|participant| participant.device.as_str()).collect();
    assert_eq!(names, ["B", "c", "m", "z"]);
    for index in 0..4 {
        assert_eq!(cohort.norms(index), norms(index as f64));
        assert_eq!(cohort.norm(index), 2.0 * index as f64 + 0.5);
    }
    assert_eq!(cohort.admit(id("c"), tier(0), scalars(1), &norms(0.0)), Err(Code::Duplicate));
    assert_eq!(cohort.admit(id("d"), tier(2), scalars(1), &norms(0.0)), Err(Code::WrongShape));
    assert_eq!(cohort.admit(id("e"), tier(0), scalars(1), &[0.0]), Err(Code::WrongShape));
    assert_eq!(cohort.admit(id("f"), tier(0), scalars(0), &norms(0.0)), Err(Code::EmptyShard));
    assert_eq!(cohort.refused().len(), 4);

    cohort.set_device_weight(&id("m"), 0.5).unwrap();
    assert_eq!(cohort.set_device_weight(&id("no"), 0.5), Err(Code::UnknownDevice));
    assert_eq!(cohort.set_device_weight(&id("m"), -0.5), Err(Code::BadConfig));
    cohort.admit(id("a"), tier(1), scalars(1), &norms(0.0)).unwrap();
    assert_eq!((cohort.device_weight(1), cohort.device_weight(3)), (None, Some(0.5)));
    assert_eq!(cohort.set_tier_weight(tier(2), 1.0), Err(Code::BadConfig));
    assert_eq!(cohort.clients(), 5);
}

#[test]
fn a_thousand_participants_stay_small() {
    assert!(size_of::<Participant>() + 5 * size_of::<f64>() <= 150);
}

#[test]
fn devices_of_weight_zero_are_not_read() {
    #[derive(Debug)]
    struct AllZero;
    impl Strategy for AllZero {
        fn name(&self) -> &'static str {
            "all_zero"
        }
        fn weigh(&self, cohort: &Cohort) -> Weights {
            Weights::per_device(vec![0.0; cohort.participants().len()])
        }
    }
    let map = map();
    let cohort = cohort(&map, &[("a", 0, 1, &[1.0; 3])]);
    let mut theta = [1.0f32; 5];
    // The source holds nothing, so reading would fail by length.
    let mut method = Method::new(Box::new(AllZero));
    let outcome =
        combine(&mut method, &cohort, &[], &mut [].as_slice() as &mut &[Vec<f32>], &mut theta).unwrap();
    assert_eq!((outcome.kept, theta), (None, [1.0; 5]));
    assert!(outcome.regions.iter().all(|region| !region.moved));
}
