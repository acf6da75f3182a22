//! Convolutional and recurrent models from the zoo to the devices and back: sliced, compiled, trained in
//! arenas of exactly the tier's size, and combined.

use fleet::memory::{Outcome, Setup};
use models::zoo;

const RATES: [f64; 3] = [1.0, 0.5, 0.25];

fn setup(model: &str, training: &str) -> Setup {
    let mut setup = Setup::new(&format!(
        "run = {{ rounds = 3 }}\nmodel = {{ source = \"{model}\", tiers = [1.0, 0.5, 0.25] }}\n\
         training = {{ batch = 8, epochs = 4, {training} }}\nstrategy = {{ name = \"heterofl\" }}"
    ));
    setup.samples = 120;
    setup
}

fn assert_learned(name: &str, outcome: &Outcome) {
    let losses: Vec<f64> = outcome.reports.iter().map(|report| report.loss.mean).collect();
    println!("{name}: {losses:?}");
    assert_eq!(losses.len(), 4, "{name}: three rounds and the last evaluation");
    assert!(losses.windows(2).all(|pair| pair[1] < pair[0]), "{name}: {losses:?}");
    assert!(losses[3] < 0.8 * losses[0], "{name}: {losses:?}");
    for report in &outcome.reports {
        assert_eq!(report.devices.len(), 5, "{name}");
        assert!(report.refused.is_empty() && report.silent.is_empty(), "{name}");
    }
}

#[test]
fn every_tier_of_a_cnn_and_of_a_gru_learns_and_gets_its_slice() {
    let adam = "lr = 0.01, optimizer = \"adam\"";
    for (name, training) in
        [("digits-cnn", "lr = 0.1"), ("digits-cnn", adam), ("digits-gru", "lr = 0.5"), ("digits-gru", adam)]
    {
        let outcome = setup(name, training).run();
        assert_learned(&format!("{name}, {training}"), &outcome);
        let (graph, initial) = zoo::by_name(name).unwrap().build(0);
        assert_ne!(outcome.parameters, initial);
        for (slice, rate) in outcome.slices.iter().zip(RATES.iter().cycle()) {
            let mask = graph.full().at_rate(*rate).unwrap();
            assert_eq!(*slice, graph.gather(&mask, &outcome.parameters).unwrap(), "{name} at {rate}");
        }
    }
}

#[test]
fn a_bad_link_changes_nothing_in_a_cnn() {
    let calm = setup("digits-cnn", "lr = 0.1");
    let expected = calm.run();
    for seed in 0..3 {
        assert_eq!(calm.disturbed(seed).run().parameters, expected.parameters, "seed {seed}");
    }
}
