use common::{Tier, message::Scalars};
use models::{plan::PlanOptions, zoo};
use serde_json::{Value, json};

use crate::{
    check::check_update,
    cohort::Cohort,
    combine::combine,
    method::{Method, by_name},
    methods::fleet::assert_close,
    tiered::TieredModel,
};

const UNITS: usize = 6;
/// Units and samples of each device, which is alone in its tier.
const DEVICES: [(u32, u32); 3] = [(6, 10), (3, 30), (2, 25)];

fn model() -> (TieredModel, Vec<f32>) {
    let (graph, parameters) = zoo::build("mlp:4-6-3", 5).unwrap();
    let masks = DEVICES.map(|(width, _)| graph.full().at_widths(&[width]).unwrap());
    (TieredModel::new(graph, masks.into(), &PlanOptions::train(4)).unwrap(), parameters)
}

/// The hidden unit of a coordinate, where it has one: 6 x 4 weights, 6 biases, 3 x 6 weights, 3 biases.
fn unit(at: usize) -> Option<usize> {
    match at {
        0..24 => Some(at / 4),
        24..30 => Some(at - 24),
        30..48 => Some((at - 30) % UNITS),
        _ => None,
    }
}

/// The coordinate of the same weight of another unit.
fn of_unit(at: usize, unit: usize) -> usize {
    match at {
        0..24 => 4 * unit + at % 4,
        24..30 => 24 + unit,
        30..48 => 30 + (at - 30) / UNITS * UNITS + unit,
        _ => at,
    }
}

/// What a device's training adds to a parameter. It does not depend on the place of the parameter.
fn change(device: usize, value: f64) -> f64 {
    0.05 * (device + 1) as f64 - 0.3 * value
}

/// A round of the real thing.
fn run(model: &TieredModel, method: &mut Method, parameters: &mut Vec<f32>) {
    let mut cohort = Cohort::new(model.regions.clone(), 0.1);
    let mut updates = Vec::new();
    for (device, &(_, samples)) in DEVICES.iter().enumerate() {
        let tier = Tier::new(device).unwrap();
        let slice = model.slice(tier, parameters);
        let update: Vec<f32> = slice.iter().map(|&value| change(device, value.into()) as f32).collect();
        let norms = check_update(&update, model.regions.pieces(tier), model.regions.sets().len()).unwrap();
        let scalars = Scalars { samples, loss_before: 1.0, steps: 1, ..Scalars::default() };
        cohort.admit(format!("d{device}").parse().unwrap(), tier, scalars, &norms).unwrap();
        updates.push(update);
    }
    let outcome = combine(method, &cohort, &[], &mut updates.as_slice(), parameters.as_mut_slice()).unwrap();
    assert_eq!(outcome.kept, None);
    method.roll(&model.graph, parameters);
}

/// A round as the paper has it: units keep their numbers, and the windows are index sets.
fn literal(round: usize, theta: &[f64]) -> Vec<f64> {
    let next = |(at, &value): (usize, &f64)| {
        let holds =
            |width: u32| unit(at).is_none_or(|unit| (unit + UNITS - round % UNITS) % UNITS < width as usize);
        let holders = || DEVICES.iter().enumerate().filter(|(_, (width, _))| holds(*width));
        let all: f64 = holders().map(|(_, (_, samples))| f64::from(*samples)).sum();
        value + holders().map(|(device, (_, n))| f64::from(*n) * change(device, value)).sum::<f64>() / all
    };
    theta.iter().enumerate().map(next).collect()
}

#[test]
fn it_is_the_paper_with_windows_as_index_sets() {
    let (model, mut parameters) = model();
    let mut theta: Vec<f64> = parameters.iter().copied().map(f64::from).collect();
    let mut method = by_name("fedrolex", Value::Null).unwrap();
    for round in 0..2 * UNITS + 1 {
        run(&model, &mut method, &mut parameters);
        theta = literal(round, &theta);
        // What is unit u of the paper has moved on by a place in every round.
        let place = |at: usize| unit(at).map_or(at, |unit| of_unit(at, (unit + round + 1) % UNITS));
        let ours: Vec<f64> = parameters.iter().copied().map(f64::from).collect();
        let expected: Vec<f64> = (0..theta.len()).map(|at| theta[place(at)]).collect();
        assert_close(&ours, &expected, 1e-5);
    }
}

#[test]
fn every_unit_is_trained_by_the_narrowest_tier() {
    let (model, parameters) = model();
    let narrow = Tier::new(2).unwrap();
    let numbered: Vec<usize> = (0..parameters.len()).collect();
    let mut rolled = numbered.clone();
    let mut held = vec![false; parameters.len()];
    for _ in 0..UNITS {
        model.regions.pieces(narrow).iter().for_each(|piece| {
            rolled[piece.full..piece.full + piece.len].iter().for_each(|&at| held[at] = true);
        });
        rolled = model.graph.rolled(&rolled);
    }
    assert_eq!(rolled, numbered);
    assert!(held.iter().all(|&held| held), "{held:?}");
    // Without rolling, four of six units would never be.
    assert_eq!(model.regions.slice_len(narrow), 2 * 4 + 2 + 3 * 2 + 3);
}

#[test]
fn momentum_moves_with_its_units() {
    let (model, start) = model();
    let numbers = |method: &Method| -> Vec<f64> {
        let state = method.state();
        state["momentum"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
    };
    let mut rolling = by_name("fedrolex", json!({"server_momentum": 0.5})).unwrap();
    let mut plain = by_name("heterofl", json!({"server_momentum": 0.5})).unwrap();
    let (mut a, mut b) = (start.clone(), start);
    run(&model, &mut rolling, &mut a);
    run(&model, &mut plain, &mut b);
    assert_eq!(a, model.graph.rolled(&b));
    // Up to rounding.
    let (moved, kept) = (numbers(&rolling), model.graph.rolled(&numbers(&plain)));
    assert_eq!(moved.len(), kept.len());
    assert!(
        moved.iter().zip(&kept).all(|(moved, kept)| (moved - kept).abs() <= 1e-12 * kept.abs().max(1e-3))
    );
    assert_ne!(a, b);
}

#[test]
fn what_cannot_move_on_is_refused() {
    let error = by_name("fedrolex", json!({"varp": true})).unwrap_err().to_string();
    assert!(error.contains("varp") && error.contains("move on"), "{error}");
    let scaled = by_name("fedrolex", json!({"scaler": true})).unwrap();
    assert!(scaled.needs().scaler && scaled.strategy.rolls());
}
