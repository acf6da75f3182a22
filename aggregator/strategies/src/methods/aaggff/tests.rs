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

/// The numbers are those of NumPy with the paper's form: no gradient is centred, and a matrix is kept as a sum of products.
#[test]
fn worked_numbers_of_few_clients() {
    let (all, mut method) = (fleet(&ALL), aaggff(json!({"form": "silos"})));
    for expected in [
        [0.318156134013, 0.32952869568, 0.352315170307, 0.0],
        [0.303043003, 0.325740118744, 0.371216878256, 0.0],
        [0.287993249054, 0.321967429242, 0.390039321703, 0.0],
    ] {
        assert_close(&run(&all, 3, &mut method), &expected, 1e-10);
    }
    // A client that is absent counts as the mean of the others, and keeps its place.
    let mut method = aaggff(json!({"form": "silos"}));
    run(&all, 3, &mut method);
    let shares = run(&fleet(&[("a", 0, 0.2), ("b", 1, 1.5)]), 3, &mut method);
    let [a, b] = [0.298389716146, 0.349307944582];
    assert_close(&shares, &[a / (a + b), b / (a + b), 0.0, 0.0], 1e-10);
    let kept = &method.state()["silos"]["decision"];
    assert!((kept[2].as_f64().unwrap() - 0.352302339272).abs() < 1e-10, "{kept}");
}

#[test]
fn few_clients_join_and_states_are_checked() {
    let mut method = aaggff(json!({"form": "silos"}));
    let one = run(&fleet(&[("b", 1, 0.5)]), 1, &mut method);
    assert_close(&one, &[0.0, 1.0, 0.0, 0.0], 1e-12);
    let saved = method.save();
    let both = fleet(&[("a", 0, 2.0), ("b", 1, 0.5)]);
    let two = run(&both, 2, &mut method);
    assert!(two[0] > 0.5 && two[0] < 0.7, "{two:?}");
    method.restore(&saved).unwrap();
    assert_eq!(run(&both, 2, &mut method), two);
    // After many rounds everything goes to the worst client, also where it is absent.
    for _ in 0..300 {
        run(&both, 2, &mut method);
    }
    assert_close(&run(&both, 2, &mut method), &[1.0, 0.0, 0.0, 0.0], 1e-9);
    assert_close(&run(&fleet(&[("b", 1, 0.5)]), 2, &mut method), &[0.0, 1.0, 0.0, 0.0], 1e-9);
    for wrong in [
        json!({"devices": ["a"], "decision": [1.0], "linear": [0.0], "square": []}),
        json!({"devices": ["b", "a"], "decision": [0.5, 0.5], "linear": [0.0, 0.0], "square": [0.0, 0.0, 0.0, 0.0]}),
    ] {
        assert!(method.set_state(json!({"rounds": 1, "silos": wrong})).is_err());
    }
}
