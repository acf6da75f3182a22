use super::*;

/// A fifth of the devices lie as loudly as they can and pull the other way.
#[test]
fn the_guard_keeps_a_fifth_of_liars_from_hurting_the_others() {
    let options = AttackOptions {
        rounds: 25,
        shares: vec![0.0, 0.2],
        inflations: vec![1e6],
        boasts: vec![],
        lies: vec![Lie::Flipped],
        tactics: vec![],
        seeds: 1,
        ..AttackOptions::default()
    };
    let result = run(&options, |_| {}).unwrap();
    let text = table(&result);
    let [calm, attacked] = &result.rows[..] else { panic!("{text}") };
    // Nobody lies: the guard finds nobody and changes nothing.
    assert_eq!((calm.hostile, calm.named, calm.named_honest), (0, 0, 0), "{text}");
    assert_eq!(calm.undefended, calm.defended, "{text}");
    assert_eq!((attacked.hostile, attacked.named), (8, 8), "{text}");
    let AttackRow { reference, undefended, defended, .. } = attacked;
    assert!(undefended.loss > 1.5 * reference.loss, "{text}");
    assert!(defended.loss < 1.1 * reference.loss, "{text}");
    assert!(defended.variance < 1.1 * reference.variance, "{text}");
}

/// The same fifth says, from its first Hello on, that it has a hundred times as many samples.
#[test]
fn the_guard_keeps_boasters_from_deciding_alone() {
    let options = AttackOptions {
        rounds: 25,
        shares: vec![0.2],
        inflations: vec![],
        boasts: vec![100],
        lies: vec![Lie::Flipped],
        tactics: vec![],
        seeds: 1,
        ..AttackOptions::default()
    };
    let result = run(&options, |_| {}).unwrap();
    let text = table(&result);
    assert!(text.starts_with("defended: [guard] as it is by default\n"), "{text}");
    let [row] = &result.rows[..] else { panic!("{text}") };
    assert_eq!((row.case.samples, row.hostile, row.named, row.named_honest), (100, 8, 8, 0), "{text}");
    let AttackRow { reference, undefended, defended, .. } = row;
    assert!(undefended.loss > 2.0 * reference.loss, "{text}");
    assert!(defended.loss < 1.1 * reference.loss, "{text}");
    assert!(defended.variance < 1.1 * reference.variance, "{text}");
}

/// Liars who want to be believed first.
#[test]
fn quiet_liars_are_kept_from_hurting_the_others_too() {
    let options = AttackOptions {
        rounds: 25,
        shares: vec![0.2],
        inflations: vec![],
        boasts: vec![],
        seeds: 1,
        ..AttackOptions::default()
    };
    let result = run(&options, |_| {}).unwrap();
    let text = table(&result);
    assert_eq!(result.rows.iter().map(|row| row.case.tactic).collect::<Vec<_>>(), Tactic::QUIET);
    for AttackRow { case, reference, undefended, defended, .. } in &result.rows {
        assert!(undefended.loss > 1.05 * reference.loss, "{case:?}\n{text}");
        assert!(defended.loss < undefended.loss, "{case:?}\n{text}");
    }
}

#[test]
fn liars_in_a_hurry_and_patient_ones() {
    let case = |tactic| Case { inflation: 1e6, samples: 1, updates: Lie::Flipped, tactic };
    let inflations = |tactic| [1, 2, 10, 11, 40].map(|round| case(tactic).in_round(round, 40).inflation);
    assert_eq!(inflations(Tactic::Loud), [1e6; 5]);
    assert_eq!(inflations(Tactic::Turncoat), [1.0, 1.0, 1.0, 1e6, 1e6]);
    let ramp = inflations(Tactic::Ramp);
    assert!(ramp[0] == 1.0 && ramp[1] == 3.9 && ramp[4] == 1e6 && ramp.is_sorted());
    assert_eq!(case(Tactic::Turncoat).in_round(1, 40).updates, Lie::Honest);
}
