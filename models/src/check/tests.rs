use super::*;
use crate::zoo;

const WHOLE: TierSpec = TierSpec::Rate(1.0);

#[test]
fn small_models_are_right() {
    for name in ["digits-mlp", "fairness-mlp", "motion-cnn"] {
        let (graph, parameters) = zoo::by_name(name).unwrap().build(2);
        for loss in [None, Some(Loss::Squared), Some(Loss::Sigmoid)] {
            let options = CheckOptions { loss, ..CheckOptions::default() };
            let found = check(&graph, &parameters, None, &TierSpec::Rate(0.5), &options);
            assert!(found.is_right(), "{name}: {found:?}");
            assert_eq!(found.forward.is_some(), has_tract());
        }
    }
}

#[test]
fn a_wrong_gradient_is_found() {
    let (graph, parameters) = zoo::by_name("digits-mlp").unwrap().build(2);
    let samples = ModelSamples::random(&graph, default_loss(&graph), 3, 0).unwrap();
    let mut runner =
        Runner::new(&graph, &parameters, graph.full(), samples.loss(), 3, Fast::<f64>::new()).unwrap();
    let right = runner.flat_gradients(&samples).unwrap().1;
    let options = CheckOptions::default();
    assert!(differences(&mut runner, &samples, &right, &options).unwrap().is_right());
    // One number of 2,410 is off by a fiftieth of its tensor's norm, which the random direction detects.
    let mut wrong = right.clone();
    wrong[100] += 0.02 * norm(&right[..2_048]);
    let found = differences(&mut runner, &samples, &wrong, &CheckOptions { probes: 0, ..options }).unwrap();
    assert!(!found.is_right(), "{found:?}");
    assert_eq!(found.at, "fc1.weight");
    let rounded: Vec<f32> = wrong.iter().map(|&x| x as f32).collect();
    assert_eq!(arithmetic(&runner.params(), &rounded, &right).at, "fc1.weight[100]");
}

#[test]
fn problems_are_reported() {
    let (graph, mut parameters) = zoo::by_name("digits-mlp").unwrap().build(2);
    let problem = |spec: &TierSpec, parameters: &[f32]| {
        let found = check(&graph, parameters, None, spec, &CheckOptions::default());
        assert!(!found.is_right());
        found.problem.unwrap()
    };
    let wide = TierSpec::widths(&[99]);
    assert!(problem(&wide, &parameters).contains("cannot be sliced: hidden axis 0 has 32 units"));
    assert!(problem(&WHOLE, &parameters[1..]).contains("2410"));
    parameters[0] = f32::INFINITY;
    assert!(problem(&WHOLE, &parameters).contains("finite"));
}

#[test]
fn an_agreement_keeps_its_largest_error() {
    let mut agreement = Agreement::new(0.5);
    agreement.note(0.25, || "a".into());
    agreement.note(0.125, || "b".into());
    assert_eq!((agreement.is_right(), agreement.at.as_str()), (true, "a"));
    agreement.note(f64::NAN, || "c".into());
    assert_eq!((agreement.is_right(), agreement.at.as_str()), (false, "c"));
}
