use serde_json::{Value, json};

use crate::{
    combine::combine,
    method::{Method, by_name},
    methods::{
        aaggff::*,
        fleet::{Fleet, assert_close},
    },
};

fn aaggff(params: Value) -> Method {
    by_name("aaggff", params).unwrap()
}

/// Updates are unit vectors, so the model is the weights.
fn fleet(devices: &[(&str, usize, f64)]) -> Fleet {
    let mut fleet = Fleet::new(&[0.0; 4], 0.1, &[&[0, 1, 2, 3]]);
    for &(name, at, loss) in devices {
        let mut update = [0.0; 4];
        update[at] = 1.0;
        fleet.add(name, 0, 1 + at as u32, loss, &update);
    }
    fleet
}

/// Combines with a stated size of the fleet.
fn run(fleet: &Fleet, clients: usize, method: &mut Method) -> Vec<f64> {
    let mut cohort = fleet.cohort();
    cohort.set_clients(clients);
    let mut theta = fleet.theta.clone();
    combine(method, &cohort, &[], &mut fleet.updates(), &mut theta).unwrap();
    theta
}

const ALL: [(&str, usize, f64); 3] = [("a", 0, 0.5), ("b", 1, 1.0), ("c", 2, 2.0)];

#[test]
fn worked_numbers() {
    let (fleet, mut method) = (fleet(&ALL), aaggff(Value::Null));
    let first = [0.3216599828, 0.3302337505, 0.3481062668, 0.0];
    assert_close(&run(&fleet, 3, &mut method), &first, 1e-10);
    let sums = [-0.1421010569, -0.0356220552, 0.1777231120];
    let state = method.state();
    let named: Vec<f64> =
        state["sums"].as_object().unwrap().values().map(|sum| sum.as_f64().unwrap()).collect();
    assert_close(&named, &sums, 1e-10);
    assert_close(&run(&fleet, 3, &mut method), &[0.3143058609, 0.3281017020, 0.3575924371, 0.0], 1e-10);
}

/// The numbers are from the gradient over all six clients; what is common to all cancels.
#[test]
fn clients_that_take_part_in_turn() {
    let mut method = aaggff(Value::Null);
    let first = run(&fleet(&ALL), 6, &mut method);
    assert_close(&first, &[0.3119392574, 0.3273858393, 0.3606749033, 0.0], 1e-10);
    let second = run(&fleet(&[("b", 1, 0.4), ("c", 2, 1.5), ("d", 3, 0.9)]), 6, &mut method);
    assert_close(&second, &[0.0, 0.3055125486, 0.3690603811, 0.3254270702], 1e-10);
}

#[test]
fn responses_rise_with_the_loss_for_every_distribution() {
    use ResponseCdf::{Exponential, Frechet, Gumbel, Logistic, Normal, Weibull};
    for cdf in [Normal, Weibull, Exponential, Frechet, Gumbel, Logistic] {
        let values = [0.0, 1e-300, 0.5, 1.0, 2.0, 20.0].map(|x| cdf.at(x));
        assert!(
            values.is_sorted() && values.iter().all(|value| (0.0..=1.0).contains(value)),
            "{cdf:?} {values:?}"
        );
        assert!(values[3] < values[4], "{cdf:?}");
    }
    assert!((Normal.at(1.0) - 0.5).abs() < 1e-15 && (Normal.at(2.0) - 0.8413447460685429).abs() < 1e-12);
    assert!(by_name("aaggff", json!({"cdf": "cauchy"})).is_err());
}

#[test]
fn equal_losses_and_a_single_client_count_alike() {
    let same = fleet(&[("a", 0, 0.7), ("b", 1, 0.7)]);
    assert_close(&run(&same, 2, &mut aaggff(Value::Null)), &[0.5, 0.5, 0.0, 0.0], 1e-12);
    let zero = fleet(&[("a", 0, 0.0), ("b", 1, 0.0)]);
    assert_close(&run(&zero, 2, &mut aaggff(Value::Null)), &[0.5, 0.5, 0.0, 0.0], 1e-12);
    let one = fleet(&[("a", 0, 0.7)]);
    assert_close(&run(&one, 1, &mut aaggff(Value::Null)), &[1.0, 0.0, 0.0, 0.0], 1e-12);
}

#[test]
fn impossible_states_are_refused() {
    let mut method = aaggff(Value::Null);
    assert!(method.set_state(json!({"sums": {"a": null}, "rounds": 1})).is_err());
    assert!(method.set_state(json!({"sum": {}})).is_err());
    method.set_state(json!({"sums": {"a": 3.0}, "rounds": 4})).unwrap();
    assert!(run(&fleet(&ALL), 3, &mut method)[0] > 0.4);
}
