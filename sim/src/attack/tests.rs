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
        rounds: 15,
        shares: vec![0.2],
        inflations: vec![],
        lies: vec![Lie::Flipped],
        seeds: 1,
        ..AttackOptions::default()
    };
    let result = run(&options, |_| {}).unwrap();
    let text = table(&result);
    assert!(text.starts_with("defended: [guard] screen = 0.2, all else as it is by default\n"), "{text}");
    let [row] = &result.rows[..] else { panic!("{text}") };
    assert_eq!((row.case.samples, row.hostile, row.named, row.named_honest), (100, 8, 8, 0), "{text}");
    let AttackRow { reference, undefended, defended, .. } = row;
    assert!(undefended.loss > 2.0 * reference.loss, "{text}");
    assert!(defended.loss < 1.1 * reference.loss, "{text}");
    assert!(defended.variance < 1.1 * reference.variance, "{text}");
}
