use proptest::prelude::*;

use super::*;

const RULE: Rule = Rule { factor: 10.0, losses_tell: true, fleet: 8, last: false };

fn id(index: usize) -> DeviceId {
    format!("d{index}").parse().unwrap()
}

/// Judges a round: a loss for every device that delivers, a code for every one that is refused.
fn judge(watch: &mut LossWatch, rule: Rule, losses: &[(usize, f64)], refused: &[(usize, Code)]) -> Verdict {
    let delivered: Vec<_> = losses.iter().map(|&(device, loss)| (id(device), loss)).collect();
    let refused: Vec<_> = refused.iter().map(|&(device, code)| (id(device), code)).collect();
    let losses = delivered.iter().map(|(device, loss)| (device, *loss)).collect();
    watch.judge(&Answers::new(losses, refused.iter().map(|(device, code)| (device, *code))), rule)
}

fn of(devices: std::ops::Range<usize>, loss: f64) -> Vec<(usize, f64)> {
    devices.map(|device| (device, loss)).collect()
}

fn failing(devices: std::ops::Range<usize>) -> Vec<(usize, Code)> {
    let codes = [Code::NonFiniteLoss, Code::NonFiniteUpdate];
    devices.map(|device| (device, codes[device % 2])).collect()
}

fn is_suspect(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Suspect(_))
}

fn has_ended(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Diverged(_))
}

#[test]
fn a_fleet_that_fails_from_the_first_round_on_has_diverged_in_the_third() {
    let mut watch = LossWatch::default();
    for round in 1..PATIENCE {
        assert!(is_suspect(judge(&mut watch, RULE, &[], &failing(0..8))));
        assert_eq!(watch.suspect_rounds(), round);
    }
    let verdict = judge(&mut watch, RULE, &[], &failing(0..8));
    assert_eq!(verdict, Verdict::Diverged(Divergence::NotFinite { failed: 8 }));
    assert_eq!(watch.suspect_rounds(), 0, "a run that is resumed has as many rounds again");
}

#[test]
fn losses_of_ten_times_the_first_ones_end_a_run_in_the_third_round() {
    let mut watch = LossWatch::default();
    assert_eq!(judge(&mut watch, RULE, &of(0..8, 2.0), &[]), Verdict::Sound);
    assert_eq!(judge(&mut watch, RULE, &of(0..8, 20.0), &[]), Verdict::Sound);
    for _ in 1..PATIENCE {
        assert!(is_suspect(judge(&mut watch, RULE, &of(0..8, 20.5), &[])));
    }
    let why = Divergence::TooLarge { loss: 20.5, first: 2.0 };
    assert_eq!(judge(&mut watch, RULE, &of(0..8, 20.5), &[]), Verdict::Diverged(why));
}

#[test]
fn seven_hostile_of_eight_do_not_end_a_run_while_one_device_delivers() {
    let mut watch = LossWatch::default();
    for _ in 0..100 {
        assert_eq!(judge(&mut watch, RULE, &[(7, 2.3)], &failing(0..7)), Verdict::Sound);
    }
}

#[test]
fn one_acceptable_loss_keeps_refusals_from_confirming_large_ones() {
    let mut watch = LossWatch::default();
    judge(&mut watch, RULE, &of(0..8, 2.0), &[]);
    // Most compared losses are too large. Three devices of eight do not confirm that, and the refused do not count.
    for _ in 1..=4 {
        let verdict = judge(&mut watch, RULE, &[(0, 1e6), (1, 1e6), (2, 1e6), (3, 2.0)], &failing(4..8));
        assert!(is_suspect(verdict), "{verdict:?}");
    }
    // Without the acceptable loss they do.
    assert!(has_ended(judge(&mut watch, RULE, &of(0..3, 1e6), &failing(4..8))));
}

#[test]
fn a_device_alone_in_many_rounds_needs_sixteen_answers() {
    let mut watch = LossWatch::default();
    for round in 1..16 {
        assert!(is_suspect(judge(&mut watch, RULE, &[], &failing(3..4))), "{round}");
    }
    assert!(has_ended(judge(&mut watch, RULE, &[], &failing(3..4))));
}

#[test]
fn refusals_for_other_reasons_and_silence_say_nothing() {
    let mut watch = LossWatch::default();
    judge(&mut watch, RULE, &[], &failing(0..8));
    let other: Vec<_> = (0..8).map(|device| (device, Code::WrongShape)).collect();
    assert_eq!(judge(&mut watch, RULE, &[], &other), Verdict::Silent);
    assert_eq!(judge(&mut watch, RULE, &[], &[]), Verdict::Silent);
    assert_eq!(judge(&mut watch, RULE, &[], &[&failing(0..4)[..], &other[4..]].concat()), Verdict::Silent);
    assert_eq!(watch.suspect_rounds(), 1, "nor do they end the series");
    assert_eq!(judge(&mut watch, RULE, &of(0..1, 2.0), &other), Verdict::Sound);
    assert_eq!(watch.suspect_rounds(), 0);
}

#[test]
fn fleets_whose_devices_differ_do_not_diverge_by_their_order() {
    let mut watch = LossWatch::default();
    // One device in a round; the losses of half of the fleet are a hundred times those of the others.
    for round in 0..60 {
        let loss = if round % 8 < 4 { 0.05 } else { 5.0 };
        assert_eq!(judge(&mut watch, RULE, &[(round % 8, loss)], &[]), Verdict::Sound, "{round}");
    }
}

#[test]
fn newcomers_are_compared_with_the_largest_first_loss() {
    let mut watch = LossWatch::default();
    let rule = Rule { fleet: 1000, ..RULE };
    assert_eq!(judge(&mut watch, rule, &of(0..8, 2.0), &[]), Verdict::Sound);
    for round in 1..PATIENCE as usize {
        assert!(is_suspect(judge(&mut watch, rule, &of(8 * round..8 * round + 8, 100.0), &[])));
    }
    assert!(has_ended(judge(&mut watch, rule, &of(80..88, 100.0), &[])));
    assert_eq!(judge(&mut LossWatch::default(), rule, &of(0..7, 1e30), &[]), Verdict::Sound);
}

#[test]
fn small_losses_may_grow() {
    let mut watch = LossWatch::default();
    judge(&mut watch, RULE, &of(0..8, 0.001), &[]);
    assert_eq!(judge(&mut watch, RULE, &of(0..8, 0.9), &[]), Verdict::Sound);
    assert!(is_suspect(judge(&mut watch, RULE, &of(0..8, 1.1), &[])));
}

#[test]
fn large_losses_in_the_last_round_need_no_confirmation() {
    let mut watch = LossWatch::default();
    let last = Rule { last: true, ..RULE };
    judge(&mut watch, RULE, &of(0..8, 2.0), &[]);
    let devices: Vec<_> = (0..8).map(id).collect();
    let answers = Answers::new(devices.iter().map(|device| (device, 1e4)).collect(), [].into_iter());
    assert!(watch.judge_final(&answers, last).is_some());
    assert!(watch.judge_final(&answers, Rule { factor: 0.0, ..last }).is_none());
    assert!(watch.judge_final(&Answers::new(vec![], [].into_iter()), last).is_none());
    let large = of(0..8, 1e4);
    assert!(is_suspect(judge(&mut watch, last, &large[..4], &[])), "half of the fleet is not most of it");
    assert!(has_ended(judge(&mut watch, last, &large, &[])));
    assert!(is_suspect(judge(&mut watch, last, &[], &failing(0..8))), "refusals always need it");
}

#[test]
fn what_is_switched_off_says_nothing() {
    let (mut watch, off) = (LossWatch::default(), Rule { factor: 0.0, ..RULE });
    let noisy = Rule { losses_tell: false, ..RULE };
    for _ in 0..5 {
        assert_eq!(judge(&mut watch, off, &of(0..8, 2.0), &[]), Verdict::Silent);
        assert_eq!(judge(&mut watch, off, &[], &failing(0..8)), Verdict::Silent);
        assert_eq!(judge(&mut watch, noisy, &of(0..8, 1.0), &[]), Verdict::Sound);
        assert_eq!(judge(&mut watch, noisy, &of(0..8, 1e9), &[]), Verdict::Sound);
    }
    assert_eq!(watch.save(), b"");
}

#[test]
fn a_restart_in_a_series_keeps_the_count_and_the_model_before() {
    let mut watch = LossWatch::default();
    judge(&mut watch, RULE, &of(0..8, 2.0), &[]);
    watch.note_sound(4, vec![1.0, 2.0]);
    for _ in 1..PATIENCE {
        judge(&mut watch, RULE, &of(0..8, 50.0), &[]);
        let known = |round| Ok::<_, ()>((round == 4).then(|| vec![1.0, 2.0]));
        let restored = LossWatch::restore(&watch.save(), known).unwrap();
        assert_eq!(restored, watch);
        watch = restored;
    }
    assert!(has_ended(judge(&mut watch, RULE, &of(0..8, 50.0), &[])));
    assert_eq!(watch.take_before(), Some((4, vec![1.0, 2.0])));
    let lost = LossWatch::restore(&[0xff; 9], |_| Ok::<_, ()>(None)).unwrap();
    assert_eq!(lost, LossWatch::default(), "a state that does not decode counts as none");
}

/// What a device of a drawn fleet does in a round.
#[derive(Copy, Clone, Debug)]
enum Act {
    Delivers(f64),
    Fails(Code),
    Stays,
}

fn act() -> impl Strategy<Value = Act> {
    let loss = prop_oneof![0.0..3.0, Just(1e30), Just(f64::from(f32::MAX)), 0.0..1e4];
    let code = prop_oneof![
        Just(Code::NonFiniteLoss),
        Just(Code::NonFiniteUpdate),
        Just(Code::WrongShape),
        Just(Code::WrongModel)
    ];
    prop_oneof![loss.prop_map(Act::Delivers), code.prop_map(Act::Fails), Just(Act::Stays)]
}

/// Losses of devices that deliver, and codes of those that are refused, from this device on.
fn drawn(first: usize, acts: &[Act]) -> (Vec<(usize, f64)>, Vec<(usize, Code)>) {
    let (mut losses, mut refused) = (vec![], vec![]);
    for (device, act) in (first..).zip(acts) {
        match act {
            Act::Delivers(loss) => losses.push((device, *loss)),
            Act::Fails(code) => refused.push((device, *code)),
            Act::Stays => {}
        }
    }
    (losses, refused)
}

proptest! {
    #[test]
    fn refused_updates_never_count_against_an_accepted_one(
        rounds in prop::collection::vec(prop::collection::vec(act(), 1..20), 1..40),
    ) {
        let mut watch = LossWatch::default();
        for acts in rounds {
            let (_, refused) = drawn(1, &acts);
            let rule = Rule { fleet: acts.len() + 1, ..RULE };
            prop_assert_eq!(judge(&mut watch, rule, &[(0, 2.0)], &refused), Verdict::Sound);
        }
    }

    /// Three devices of seven, which deliver or fail as they like.
    #[test]
    fn a_minority_never_ends_a_run(rounds in prop::collection::vec(prop::collection::vec(act(), 3), 1..60)) {
        let mut watch = LossWatch::default();
        for acts in rounds {
            let (losses, refused) = drawn(4, &acts);
            let losses = [of(0..4, 2.0), losses].concat();
            let verdict = judge(&mut watch, Rule { fleet: 7, ..RULE }, &losses, &refused);
            prop_assert_eq!(verdict, Verdict::Sound);
        }
    }

    #[test]
    fn a_fleet_whose_losses_grow_is_ended(devices in 1usize..40, growth in 11.0..1e6, first in 0.1..100.0) {
        let (mut watch, rule) = (LossWatch::default(), Rule { fleet: devices, ..RULE });
        judge(&mut watch, rule, &of(0..devices, first), &[]);
        for _ in 1..PATIENCE {
            prop_assert!(is_suspect(judge(&mut watch, rule, &of(0..devices, first * growth), &[])));
            watch = LossWatch::restore(&watch.save(), |_| Ok::<_, ()>(None)).unwrap();
        }
        prop_assert!(has_ended(judge(&mut watch, rule, &of(0..devices, first * growth), &[])));
    }

    #[test]
    fn damaged_states_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut watch = LossWatch::restore(&bytes, |_| Ok::<_, ()>(None)).unwrap();
        judge(&mut watch, RULE, &of(0..8, 2.0), &failing(8..12));
    }
}
