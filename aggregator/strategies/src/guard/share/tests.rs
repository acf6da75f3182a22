use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::methods::fleet::assert_close;

fn bounds() -> Bounds {
    Bounds {
        share: 2.0,
        fifth: 2.0,
        counts: 2.0,
        floor: 0.5,
        trusted: BTreeSet::new(),
        no_bonus: BTreeSet::new(),
    }
}

fn names(count: usize) -> Vec<DeviceId> {
    (0..count).map(|index| format!("d{index:03}").parse().unwrap()).collect()
}

/// Weights and plain weights of any scale.
fn shares(bounds: &Bounds, wanted: &[f64], plain: &[f64]) -> Vec<f64> {
    let names = names(wanted.len());
    let devices: Vec<&DeviceId> = names.iter().collect();
    bounds.shares(&devices, &normalised(wanted).unwrap(), &normalised(plain).unwrap()).counted
}

#[test]
fn worked_numbers() {
    let equal = |wanted: &[f64]| shares(&bounds(), wanted, &vec![1.0; wanted.len()]);
    for loud in [100.0, 1e6] {
        assert_close(&equal(&[1.0, 1.0, 1.0, 1.0, loud]), &[0.15, 0.15, 0.15, 0.15, 0.4], 1e-12);
    }
    assert_eq!(equal(&[7.0]), [1.0]);
    assert_close(&equal(&[1.0, 1e6]), &[0.25, 0.75], 1e-12);
    assert_close(&equal(&[1.0, 2.0, 3.0, 4.0]), &[0.125, 7.0 / 36.0, 10.5 / 36.0, 14.0 / 36.0], 1e-12);
}

#[test]
fn shares_inside_the_box_stay_as_they_are() {
    let wanted = [0.3, 0.2, 0.27, 0.23];
    let (same, scale) = fit_shares(&wanted, &[0.1; 4], &[0.5; 4]);
    assert_eq!((same.as_slice(), scale), (&wanted[..], 1.0));
}

#[test]
fn sample_counts_are_bounded_unless_they_are_trusted() {
    let counts = [60.0, 60.0, 60.0, 60.0, 60.0, 60.0, 60.0, 6000.0];
    let expected = [&[0.75 / 7.0; 7][..], &[0.25]].concat();
    assert_close(&shares(&bounds(), &counts, &counts), &expected, 1e-12);
    // A false loss adds nothing to this.
    let mut loud = counts;
    loud[7] *= 1e6;
    assert_close(&shares(&bounds(), &loud, &counts), &expected, 1e-12);
    let trusted = Bounds { trusted: [names(8)[7].clone()].into(), ..bounds() };
    let expected = [&[60.0 / 6420.0; 7][..], &[6000.0 / 6420.0]].concat();
    assert_close(&shares(&trusted, &counts, &counts), &expected, 1e-12);
    let names = names(8);
    let devices: Vec<&DeviceId> = names.iter().collect();
    let bounded = bounds().counts(&devices, &counts);
    assert_close(&bounded, &[&[60.0; 7][..], &[140.0]].concat(), 1e-9);
}

#[test]
fn a_fifth_of_liars_has_at_most_two_fifths() {
    let wanted: Vec<f64> = (0..20).map(|index| if index < 16 { 1.0 } else { 1e9 }).collect();
    let counts: Vec<f64> = (0..20).map(|index| if index < 16 { 60.0 } else { 6000.0 }).collect();
    let liars = |shares: Vec<f64>, from: usize| shares[from..].iter().sum::<f64>();
    assert_close(&[liars(shares(&bounds(), &wanted, &counts), 16)], &[0.4], 1e-12);
    let half: Vec<f64> = (0..10).map(|index| if index < 5 { 1.0 } else { 1e9 }).collect();
    assert_close(&[liars(shares(&bounds(), &half, &[1.0; 10]), 5)], &[0.75], 1e-12);
}

/// The common cap is the largest possible one: the loudest fifth counts what it may, and one more device would not.
#[test]
fn a_loud_device_counts_what_the_others_leave_of_the_fifth() {
    let bounds = Bounds { share: 8.0, fifth: 3.0, ..bounds() };
    let wanted: Vec<f64> =
        (0..20).map(|index| [1e9, 2.0, 2.0, 2.0].get(index).copied().unwrap_or(1.0)).collect();
    let counted = shares(&bounds, &wanted, &[1.0; 20]);
    assert_close(&[counted[0]], &[0.4], 1e-9);
    let four: Vec<f64> =
        (0..20).map(|index| [1e9, 20.0, 20.0, 20.0].get(index).copied().unwrap_or(1.0)).collect();
    let bounds = Bounds { fifth: 2.5, ..bounds };
    let counted = shares(&bounds, &four, &[1.0; 20]);
    assert_close(&[counted[..4].iter().sum()], &[0.5], 1e-8);
    assert!(counted[0] >= counted[1] && counted[0] < 0.4, "{counted:?}");
    // A trusted device is not counted among the loudest.
    let trusted = Bounds { trusted: [names(20)[0].clone()].into(), ..bounds };
    assert_close(&[shares(&trusted, &four, &[1.0; 20])[0]], &[0.4], 1e-9);
}

#[test]
fn a_device_without_a_bonus_keeps_its_plain_share() {
    let away = Bounds { no_bonus: [names(4)[3].clone()].into(), ..bounds() };
    let shares = shares(&away, &[1.0, 1.0, 1.0, 5.0], &[1.0; 4]);
    assert_close(&shares, &[0.25; 4], 1e-12);
}

#[test]
fn a_device_that_the_strategy_leaves_at_zero_counts_half_its_plain_share() {
    assert_close(&shares(&bounds(), &[0.0, 1.0, 1.0], &[1.0; 3]), &[1.0 / 6.0, 2.5 / 6.0, 2.5 / 6.0], 1e-12);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn every_fleet_keeps_to_the_bounds(
        rows in prop::collection::vec((-300.0..300.0f64, 1.0..1e6f64), 1..60),
        share in 1.0..8.0f64,
        fifth in 1.0..4.0f64,
        counts in 1.0..4.0f64,
        floor in 0.0..=1.0f64,
    ) {
        let wanted: Vec<f64> = rows.iter().map(|(ln, _)| ln.exp()).collect();
        let samples: Vec<f64> = rows.iter().map(|(_, count)| *count).collect();
        let bounds = Bounds { share, fifth, counts, floor, ..bounds() };
        let at_most = |average: f64| (average / rows.len() as f64).min(1.0);
        let (cap, by_samples) = (at_most(share), at_most(counts.min(fifth).min(share)));
        let plain = normalised(&samples).unwrap();
        let (plain, _) = fit_shares(&plain, &vec![0.0; rows.len()], &vec![by_samples; rows.len()]);
        let counted = shares(&bounds, &wanted, &samples);
        let loud = (rows.len() / 5).max(1);
        let mut sorted = counted.clone();
        sorted.sort_unstable_by(|a, b| b.total_cmp(a));
        prop_assert!(sorted[..loud].iter().sum::<f64>() <= loud as f64 * fifth / rows.len() as f64 * (1.0 + 1e-9));
        prop_assert!((counted.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{counted:?}");
        for (counted, plain) in counted.iter().zip(&plain) {
            prop_assert!(*counted >= floor * plain * (1.0 - 1e-9) && *counted <= cap * (1.0 + 1e-9));
        }
    }
}
