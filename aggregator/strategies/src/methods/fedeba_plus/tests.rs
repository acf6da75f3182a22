use common::brief::{Brief, Product};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    combine::weighted_mean,
    method::{Method, by_name},
    methods::{
        fedeba_plus::angle,
        fleet::{Fleet, assert_close},
    },
    strategy::{Ask, Exchange, Kind},
};

fn plus(params: Value) -> Method {
    by_name("fedeba_plus", params).unwrap()
}

/// Losses of the worked example; updates stand for gradients.
fn worked() -> Fleet {
    let mut fleet = Fleet::new(&[0.0, 0.0], 0.1, &[&[0, 1]]);
    fleet.add("a", 0, 1, 0.5, &[1.0, 0.0]);
    fleet.add("b", 0, 2, 1.0, &[0.0, 2.0]);
    fleet.add("c", 0, 3, 2.0, &[-1.0, 1.0]);
    fleet
}

fn made(fleet: &Fleet, kinds: &[Kind]) -> Vec<Exchange> {
    kinds.iter().map(|&kind| Exchange { kind, cohort: fleet.cohort() }).collect()
}

/// Kinds of all exchanges of a round.
fn kinds(method: &Method, fleet: &Fleet) -> Vec<Kind> {
    let mut kinds = Vec::new();
    while let Some(ask) = method.strategy.next(&made(fleet, &kinds), &[]) {
        kinds.push(ask.kind());
        assert!(kinds.len() < 5);
    }
    kinds
}

fn align(method: &Method, fleet: &Fleet, kinds: &[Kind]) -> f32 {
    let mut brief = Brief::sgd(1, 10, 0.1, 0);
    method.brief(&"a".parse().unwrap(), &made(fleet, kinds), &mut brief);
    brief.objective.align
}

#[test]
fn worked_numbers() {
    let fleet = worked();
    assert!((angle(&fleet.cohort()) - 28.1255).abs() < 5e-5, "{}", angle(&fleet.cohort()));
    let method = plus(json!({"tau": 1}));
    let ask = method.strategy.next(&made(&fleet, &[Kind::Gradients]), &[]);
    let Some(Ask::Train { guide: Some(guide) }) = ask else { panic!("{ask:?}") };
    let fair = weighted_mean(&*method.strategy, &guide, &fleet.cohort(), &mut fleet.updates()).unwrap();
    assert_close(&fair, &[-0.4882873360, 1.0909795145], 1e-10);
}

#[test]
fn angles() {
    let mut fleet = worked();
    for (losses, expected) in
        [([1.0; 3], 0.0), ([0.0; 3], 0.0), ([1e300; 3], 0.0), ([0.0, 0.0, 1e300], 54.735610317245346)]
    {
        fleet.devices.iter_mut().zip(losses).for_each(|(member, loss)| member.loss = loss);
        // The arccos is steep at 1.
        assert!((angle(&fleet.cohort()) - expected).abs() < 1e-5, "{losses:?}");
    }
    fleet.devices.clear();
    assert_eq!(angle(&fleet.cohort()), 0.0);
}

#[test]
fn exchanges_of_a_round() {
    use Kind::{Gradients, Losses, Train};
    let fleet = worked();
    let of = |params: Value| kinds(&plus(params), &fleet);
    assert_eq!(of(Value::Null), [Gradients, Train]);
    assert_eq!(of(json!({"Theta": 15})), [Losses, Gradients, Train]);
    assert_eq!(of(json!({"Theta": 28.1})), [Losses, Gradients, Train]);
    assert_eq!(of(json!({"Theta": 28.2})), [Losses, Train]);
    assert_eq!(of(json!({"Theta": 90})), [Train]);
    assert_eq!(of(json!({"align": "model"})), [Train]);
    assert_eq!(of(json!({"align": "model", "Theta": 15})), [Train]);
}

#[test]
fn devices_are_guided_only_with_a_guide() {
    use Kind::{Gradients, Losses};
    let fleet = worked();
    let method = plus(Value::Null);
    assert_eq!(align(&method, &fleet, &[Gradients]), 0.9);
    assert_eq!(align(&plus(json!({"alpha": 0.5, "Theta": 15})), &fleet, &[Losses, Gradients]), 0.5);
    assert_eq!(align(&plus(json!({"Theta": 30})), &fleet, &[Losses]), 0.0);
    assert_eq!(align(&plus(json!({"align": "model"})), &fleet, &[]), 0.0);
    let mut empty = fleet.clone();
    empty.devices.clear();
    assert_eq!(align(&method, &empty, &[Gradients]), 0.0);
    let ask = method.strategy.next(&made(&empty, &[Gradients]), &[]);
    assert_eq!(ask, Some(Ask::train()));
}

#[test]
fn needs_follow_the_exchanges() {
    let needs = |params: Value| plus(params).needs();
    let gradient = needs(Value::Null);
    assert!(gradient.guide && gradient.gradients && gradient.sgd && gradient.loss_after);
    assert_eq!(gradient.product, Product::Update);
    let model = needs(json!({"align": "model"}));
    assert!(model.guide && !model.gradients && model.sgd && model.loss_after);
    assert_eq!(model.product, Product::Both);
    let never = needs(json!({"Theta": 90, "reweight": false}));
    assert!(!never.guide && !never.gradients && never.sgd && !never.loss_after);
}

#[test]
fn parameters_are_checked() {
    let why = |params: Value| by_name("fedeba_plus", params).unwrap_err().to_string();
    assert!(why(json!({"Theta": 91})).contains("`Theta` must lie in [0, 90] degrees"));
    assert!(why(json!({"Theta": -1})).contains("`Theta`"));
    assert!(why(json!({"alpha": 2})).contains("`alpha`"));
    assert!(why(json!({"align": "loss"})).contains("gradient"));
    assert!(why(json!({"align": "model", "varp": true})).contains("varp"));
}

proptest! {
    /// With `align = gradient`, the server's part is FedEBA; the rest happens on devices.
    #[test]
    fn aggregation_is_that_of_fedeba(seed: u64, tiers in 1usize..5, nested: bool, theta in 0.0..90.0f64) {
        let fleet = Fleet::random(seed, tiers, nested);
        let plain = fleet.combine(&mut by_name("fedeba", Value::Null).unwrap());
        prop_assert_eq!(fleet.combine(&mut plus(json!({"Theta": theta}))), plain);
    }

    /// The fair gradient of a parameter is a mean over the devices that hold it.
    #[test]
    fn the_guide_on_tiers(seed: u64, tiers in 1usize..5, nested: bool, tau in 0.3..5.0f64) {
        let fleet = Fleet::random(seed, tiers, nested);
        let method = plus(json!({"tau": tau, "eps_p": 0}));
        let ask = method.strategy.next(&made(&fleet, &[Kind::Gradients]), &[]);
        let Some(Ask::Train { guide: Some(guide) }) = ask else { panic!("{ask:?}") };
        let fair = weighted_mean(&*method.strategy, &guide, &fleet.cohort(), &mut fleet.updates()).unwrap();
        let moved = fleet.weighted_mean(|member| (member.loss / tau).exp());
        let expected: Vec<f64> = moved.iter().zip(&fleet.theta).map(|(new, old)| new - old).collect();
        assert_close(&fair, &expected, 1e-12);
    }

    #[test]
    fn model_alignment_adds_first_steps(
        seed: u64, tiers in 1usize..5, nested: bool, tau in 0.3..5.0f64, alpha in 0.0..1.0f64
    ) {
        let mut fleet = Fleet::random(seed, tiers, nested);
        let mut rng = common::rng::Rng::new(seed ^ 1);
        for member in &mut fleet.devices {
            member.first.iter_mut().for_each(|value| *value = rng.normal());
        }
        let fair = fleet.weighted_mean(|member| (member.loss_after / tau).exp());
        let mut first = fleet.clone();
        first.devices.iter_mut().for_each(|member| member.update = member.first.clone());
        let plain = first.weighted_mean(|member| f64::from(member.samples));
        for alpha in [0.0, alpha, 1.0] {
            let params = json!({"align": "model", "tau": tau, "alpha": alpha, "eps_p": 0});
            let (theta, outcome) = fleet.combine(&mut plus(params));
            let both = fair.iter().zip(&plain);
            let expected: Vec<f64> = both.map(|(fair, plain)| (1.0 - alpha) * fair + alpha * plain).collect();
            assert_close(&theta, &expected, 1e-12);
            prop_assert!(outcome.regions.iter().all(|region| region.moved));
        }
    }

    #[test]
    fn angles_do_not_depend_on_the_scale(seed: u64, scale in 1e-8..1e8f64) {
        let mut fleet = Fleet::random(seed, 2, true);
        let before = angle(&fleet.cohort());
        fleet.devices.iter_mut().for_each(|member| member.loss *= scale);
        prop_assert!((angle(&fleet.cohort()) - before).abs() < 1e-5);
        prop_assert!((0.0..90.0).contains(&before));
    }
}
