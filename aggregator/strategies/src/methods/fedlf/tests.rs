use std::ops::Range;

use common::rng::Rng;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    algebra::Products,
    method::by_name,
    methods::{
        fleet::{Fleet, assert_close},
        minnorm::min_norm,
    },
    strategy::direction::gradients::{self, Gradients, add, dot, norm},
};

fn worked() -> Fleet {
    let g = [vec![0.1, 0.1, 0.2, -0.1], vec![-0.1, 0.2, -0.1, 0.4]];
    let mut fleet = gradients::fleet(&g, &[1.0, 2.0]);
    fleet.layers = vec![0..2, 2..4];
    fleet
}

/// The step as it is written in the worked numbers, theta_new - theta.
fn d(fleet: &Fleet, params: Value) -> Vec<f64> {
    gradients::step(fleet, "fedlf", params).iter().map(|value| -value).collect()
}

fn notes(fleet: &Fleet) -> serde_json::Map<String, Value> {
    fleet.combine(&mut by_name("fedlf", Value::Null).unwrap()).1.notes
}

#[test]
fn worked_numbers() {
    let fleet = worked();
    let found = d(&fleet, Value::Null);
    for (found, expected) in found.iter().zip([0.06101107, -0.14729375, -0.09226188, -0.11649011]) {
        assert!((found - expected).abs() < 5e-9, "{found}");
    }
    let all = Gradients::of(&fleet);
    let along = |i: usize, range: Range<usize>| dot(&all.clients[i][range.clone()], &found[range]);
    for (along, expected) in [
        (along(0, 0..4), -0.01543163),
        (along(1, 0..4), -0.07292971),
        (along(0, 0..2), -0.00862827),
        (along(0, 2..4), -0.00680336),
        (along(1, 0..2), -0.03555986),
        (along(1, 2..4), -0.03736986),
        (-0.1264911064 * along(0, 0..4) + 0.0632455532 * along(1, 0..4), -0.00266052),
    ] {
        assert!((along - expected).abs() < 5e-9, "{along} {expected}");
    }
    assert!((norm(&found) - 0.2179449472).abs() < 1e-10);
    let literal = d(&fleet, json!({"normalize_rows": false}));
    for (found, expected) in literal.iter().zip([0.08366313, -0.09953710, -0.08949938, -0.15027544]) {
        assert!((found - expected).abs() < 5e-9, "{found}");
    }
    let notes = notes(&fleet);
    assert_eq!(notes["conflicts"], json!({"model": 0, "layers": [0, 0]}));
    assert_eq!(notes["conflicts_of_mean"], json!({"model": 0, "layers": [0, 1]}));
    assert_eq!((&notes["blocks"], &notes["merged"]), (&json!(2), &json!(0)));
    assert!(!notes.contains_key("fallback"));
}

#[test]
fn equal_gradients_need_the_fallback() {
    let g = vec![0.3, -0.2, 0.1, 0.4];
    let mut fleet = gradients::fleet(&[g.clone(), g.clone()], &[1.0, 2.0]);
    fleet.layers = vec![0..2, 2..4];
    assert_close(&gradients::step(&fleet, "fedlf", Value::Null), &g, 1e-12);
    assert_eq!(notes(&fleet)["fallback"], json!([{"region": 0, "rows": "clients only"}]));
}

#[test]
fn opposite_gradients_give_no_step() {
    let g = vec![0.3, -0.2, 0.1, 0.4];
    let back: Vec<f64> = g.iter().map(|value| -0.5 * value).collect();
    let mut fleet = gradients::fleet(&[g, back], &[1.0, 2.0]);
    fleet.layers = vec![0..1, 1..4];
    assert_eq!(gradients::step(&fleet, "fedlf", Value::Null), [0.0; 4]);
    assert_eq!(notes(&fleet)["fallback"], json!([{"region": 0, "rows": "none left"}]));
}

#[test]
fn a_layer_of_opposite_gradients_is_merged() {
    let g = [vec![1.0, 1.0, 0.0, 1.0], vec![-1.0, 0.5, 0.5, 1.0]];
    let mut fleet = gradients::fleet(&g, &[1.0, 1.0]);
    fleet.layers = vec![0..1, 1..3, 3..4];
    let notes = notes(&fleet);
    assert_eq!((&notes["blocks"], &notes["merged"]), (&json!(2), &json!(1)));
    let step = gradients::step(&fleet, "fedlf", Value::Null);
    assert!(g.iter().all(|g| dot(&g[..3], &step[..3]) > 0.0 && g[3] * step[3] > 0.0));
    // The last layer has no next one.
    fleet.layers = vec![0..1, 1..3, 3..4];
    let turned: Vec<Vec<f64>> = g.iter().map(|g| g.iter().rev().copied().collect()).collect();
    let mut back = gradients::fleet(&turned, &[1.0, 1.0]);
    back.layers = vec![0..1, 1..3, 3..4];
    let mut mirrored = gradients::step(&back, "fedlf", Value::Null);
    mirrored.reverse();
    assert_close(&mirrored, &step, 1e-12);
}

#[test]
fn equal_losses_drop_the_fairness_row() {
    let mut fleet = worked();
    let different = d(&fleet, Value::Null);
    fleet.devices.iter_mut().for_each(|member| member.loss = 0.7);
    let equal = d(&fleet, Value::Null);
    assert!(equal != different);
    let mut all = Gradients::of(&fleet);
    all.losses = vec![];
    assert_close(&equal, &negative(&plain(&all, &fleet.layers, &[], true).0), 1e-12);
    // Of any size.
    for loss in [0.0, 1e-12, 1e8, 1e300] {
        fleet.devices.iter_mut().for_each(|member| member.loss = loss);
        assert_eq!(d(&fleet, Value::Null), equal);
    }
}

#[test]
fn absent_clients_count_while_they_are_recent() {
    let mut fleet = worked();
    fleet.round = 10;
    let alone = d(&fleet, Value::Null);
    let past =
        [(4, vec![0.3, -0.3, -0.1, 0.2]), (8, vec![-0.2, 0.0, -0.3, 0.1]), (9, vec![-0.1, -0.1, 0.0, 0.3])];
    for ((round, g), name) in past.iter().zip(["x", "y", "z"]) {
        gradients::absent(&mut fleet, name, *round, g);
    }
    let all = Gradients::of(&fleet);
    let expected = |past: &[&Vec<f64>]| {
        let past: Vec<_> = past.iter().map(|&g| g.clone()).collect();
        negative(&plain(&all, &fleet.layers, &past, true).0)
    };
    // Five were seen, two take part: the last two rounds count.
    assert_close(&d(&fleet, Value::Null), &expected(&[&past[1].1, &past[2].1]), 1e-9);
    assert_close(&d(&fleet, json!({"history_cap": 1})), &expected(&[&past[2].1]), 1e-9);
    assert_eq!(d(&fleet, json!({"history": false})), alone);
    assert_eq!(d(&fleet, json!({"history_cap": 0})), alone);
    assert_eq!(by_name("fedlf", json!({"history_cap": 7})).unwrap().needs().history, 7);
    assert_eq!(by_name("fedlf", json!({"history": false})).unwrap().needs().history, 0);
    // More clients are known to have been seen than are stored.
    let mut method = by_name("fedlf", Value::Null).unwrap();
    method.set_state(json!({"seen": 12})).unwrap();
    let (theta, outcome) = fleet.combine(&mut method);
    assert_close(&theta, &expected(&[&past[0].1, &past[1].1, &past[2].1]), 1e-9);
    assert_eq!((&outcome.notes["absent"], &method.state()["seen"]), (&json!(3), &json!(12)));
}

#[test]
fn seen_clients_are_counted_once() {
    let mut method = by_name("fedlf", Value::Null).unwrap();
    let mut fleet = worked();
    assert_eq!(method.state(), Value::Null);
    fleet.combine(&mut method);
    assert_eq!(method.state(), json!({"seen": 2, "ids": ["a", "b"]}));
    fleet.add("q", 0, 1, 1.0, &[0.1, 0.1, 0.1, 0.1]);
    fleet.combine(&mut method);
    fleet.combine(&mut method);
    assert_eq!(method.state()["seen"], 3);
    assert!(method.set_state(json!({"lambda": 3})).is_err());
}

#[test]
fn literal_history_counts_at_the_learning_rate_of_now() {
    let mut fleet = worked();
    fleet.round = 3;
    let h = vec![0.02, -0.05, 0.01, 0.03];
    gradients::absent(&mut fleet, "z", 2, &h);
    fleet.absent[0].0.lr = 4.0 * fleet.lr;
    let all = Gradients::of(&fleet);
    let scaled = vec![h.iter().map(|value| value / 4.0).collect()];
    let expected = negative(&plain(&all, &fleet.layers, &scaled, false).0);
    // M_seen is 3, two take part: one round.
    assert_close(&d(&fleet, json!({"normalize_rows": false})), &expected, 1e-9);
    fleet.absent[0].0.lr = fleet.lr;
    assert!(d(&fleet, json!({"normalize_rows": false})) != expected);
}

#[test]
fn impossible_parameters_are_refused() {
    for bad in [json!({"ztol": -1}), json!({"ztol": 1}), json!({"history_cap": -1}), json!({"history": 3})] {
        assert!(by_name("fedlf", bad).is_err());
    }
}

/// Layers with their rows dropped, merged and solved on vectors as published. Second: the final blocks, and the shortest point
/// relative to its longest row and to the precision of g_P.
fn plain(
    all: &Gradients,
    layers: &[Range<usize>],
    past: &[Vec<f64>],
    normalize: bool,
) -> (Vec<f64>, Vec<Range<usize>>, f64) {
    let m = all.losses.len() as f64;
    let length = norm(&all.losses);
    let sum: f64 = all.losses.iter().sum();
    let q: Vec<f64> = all
        .losses
        .iter()
        .map(|loss| (sum / (m.sqrt() * length * length) * loss - 1.0 / m.sqrt()) / length)
        .collect();
    let solve = |block: &Range<usize>, with_past: bool, with_pull: bool| {
        let cut = |g: &Vec<f64>| g[block.clone()].to_vec();
        let mut rows: Vec<Vec<f64>> = all.clients.iter().map(cut).filter(|g| norm(g) > 0.0).collect();
        let mean = rows.iter().map(|row| norm(row)).sum::<f64>() / rows.len().max(1) as f64;
        let mut pull = vec![0.0; block.len()];
        all.clients.iter().zip(&q).for_each(|(g, &q)| add(&mut pull, q, &cut(g)));
        // How much of g_P cancels: its products lose as many digits.
        let mut lost = 1.0f64;
        if with_pull && norm(&pull) > 1e-12 * mean {
            let terms: f64 = all.clients.iter().zip(&q).map(|(g, q)| q.abs() * norm(&cut(g))).sum();
            lost = lost.max(terms / norm(&pull));
            rows.push(pull);
        }
        if with_past {
            rows.extend(past.iter().map(cut).filter(|g| norm(g) > 0.0));
        }
        if normalize {
            for row in &mut rows {
                let factor = mean / norm(row);
                row.iter_mut().for_each(|value| *value *= factor);
            }
        }
        let mut p = vec![0.0; block.len()];
        let weights = min_norm(&Products::new(rows.len(), |i, j| dot(&rows[i], &rows[j])));
        rows.iter().zip(&weights).for_each(|(row, &weight)| add(&mut p, weight, row));
        let longest = rows.iter().map(|row| norm(row)).fold(0.0, f64::max);
        let zero = norm(&p) <= 1e-6 * longest;
        (p.clone(), zero, norm(&p) / longest / lost)
    };
    for (with_past, with_pull) in [(true, true), (false, true), (false, false)] {
        let mut blocks = layers.to_vec();
        let mut k = 0;
        let mut failed = false;
        while k < blocks.len() {
            if !solve(&blocks[k], with_past, with_pull).1 {
                k += 1;
            } else if blocks.len() == 1 {
                failed = true;
                break;
            } else {
                k = k.min(blocks.len() - 2);
                blocks[k] = blocks[k].start..blocks[k + 1].end;
                blocks.remove(k + 1);
            }
        }
        if !failed {
            let solved: Vec<_> = blocks.iter().map(|block| solve(block, with_past, with_pull)).collect();
            let p: Vec<f64> = solved.iter().flat_map(|(p, ..)| p.clone()).collect();
            let factor = norm(&all.mean()) / norm(&p);
            let shortest = solved.iter().map(|(.., short)| *short).fold(1.0, f64::min);
            return (p.iter().map(|value| value * factor).collect(), blocks, shortest);
        }
    }
    (vec![0.0; all.size()], vec![], 1.0)
}

fn negative(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| -value).collect()
}

fn layered(seed: u64, tiers: usize, nested: bool) -> Fleet {
    let mut fleet = Fleet::random(seed, tiers, nested);
    let (mut rng, size) = (Rng::new(seed ^ 5), fleet.theta.len());
    let first = 1 + rng.below(size as u64 - 1) as usize;
    fleet.layers = if first + 1 < size && rng.below(2) == 0 {
        vec![0..first, first..first + 1, first + 1..size]
    } else {
        vec![0..first, first..size]
    };
    fleet
}

/// The layers of the fleet inside a region, as ranges of its parameters.
fn layers_in(fleet: &Fleet, region: &[usize]) -> Vec<Range<usize>> {
    let count = |layer: &Range<usize>| {
        let start = region.partition_point(|&at| at < layer.start);
        start..region.partition_point(|&at| at < layer.end)
    };
    fleet.layers.iter().map(count).filter(|range| !range.is_empty()).collect()
}

proptest! {
    #[test]
    fn every_region_is_the_plain_algorithm(seed: u64, tiers in 1usize..5, nested: bool, normalize: bool) {
        let fleet = layered(seed, tiers, nested);
        let step = gradients::step(&fleet, "fedlf", json!({"normalize_rows": normalize}));
        for (region, all) in gradients::by_region(&fleet) {
            let (expected, _, shortest) = plain(&all, &layers_in(&fleet, &region), &[], normalize);
            // Near the limit of what counts as 0 both may decide differently.
            if shortest > 1e-4 {
                assert_close(&gradients::restrict(&step, &region), &expected, 1e-12 / shortest / shortest);
            }
        }
    }

    #[test]
    fn nobody_climbs_in_any_block(seed: u64, tiers in 1usize..5, nested: bool) {
        let fleet = layered(seed, tiers, nested);
        let step = gradients::step(&fleet, "fedlf", Value::Null);
        for (region, all) in gradients::by_region(&fleet) {
            let own = gradients::restrict(&step, &region);
            let (_, blocks, shortest) = plain(&all, &layers_in(&fleet, &region), &[], true);
            if norm(&own) == 0.0 || shortest <= 1e-5 {
                continue;
            }
            // Products give a length to half the digits, relative to the longest row.
            let (off, tolerance) = (norm(&own) - norm(&all.mean()), 1e-14 / shortest / shortest + 1e-12);
            prop_assert!(off.abs() <= tolerance, "{off:e} {shortest:e}");
            for g in &all.clients {
                for block in &blocks {
                    let along = dot(&g[block.clone()], &own[block.clone()]);
                    prop_assert!(along > 0.0 || norm(&g[block.clone()]) == 0.0, "{along}");
                }
            }
            if let [alone] = all.clients.as_slice() {
                assert_close(&own, alone, 1e-12);
            }
        }
    }

    /// Losses of devices that do not hold a region do not matter to it.
    #[test]
    fn regions_see_their_own_losses_only(seed: u64, tiers in 2usize..5, nested: bool) {
        let fleet = layered(seed, tiers, nested);
        let mut other = fleet.clone();
        other.devices.iter_mut().filter(|member| member.tier == 1).for_each(|member| member.loss *= 3.0);
        let steps = [&fleet, &other].map(|fleet| gradients::step(fleet, "fedlf", Value::Null));
        for (at, (a, b)) in steps[0].iter().zip(&steps[1]).enumerate() {
            prop_assert!(fleet.tiers[1].contains(&at) || a == b);
        }
    }

    #[test]
    fn one_huge_update_does_no_harm(seed: u64, tiers in 1usize..5, nested: bool) {
        let mut fleet = layered(seed, tiers, nested);
        fleet.devices[0].update.iter_mut().for_each(|value| *value *= 1e6);
        let step = gradients::step(&fleet, "fedlf", Value::Null);
        prop_assert!(step.iter().all(|value| value.is_finite()));
    }
}
