//! Scores on test samples, which only the report shows.

use common::message::Score;

use super::*;
use crate::report::RoundReport;
use crate::round::{ClosedRound, Purpose};

type Delivered = (DeviceId, Tier, Scalars);

/// Ten devices that have tested fifty samples each, with a loss of about 0.5.
fn delivered() -> Vec<Delivered> {
    let of = |at: u32| {
        let loss = 0.5 + 0.01 * f64::from(at);
        let test = Some(Score { samples: 50, correct: 40, loss });
        let scalars = Scalars { samples: 200, loss_before: 0.4, test, personal: test, ..Scalars::default() };
        (id(&format!("d{at}")), Tier::new(at as usize / 5).unwrap(), scalars)
    };
    (0..10).map(of).collect()
}

fn check(delivered: &mut [Delivered]) -> Vec<GuardLine> {
    let mut lines = vec![];
    Guard::default().check_scores(delivered, 2, &mut lines);
    lines
}

fn report(delivered: Vec<Delivered>) -> RoundReport {
    let closed = ClosedRound { delivered, ..ClosedRound::empty(1, 0.1, common::Instant::ZERO) };
    RoundReport::new(&closed, Purpose::Evaluate, None, 2)
}

#[test]
fn honest_scores_are_left_alone() {
    let mut all = delivered();
    assert_eq!(check(&mut all), []);
    assert_eq!(all, delivered());
    // Who is left behind by the others, with a training loss that says so, is not hidden by the report.
    let test = all[3].2.test.as_mut().unwrap();
    test.loss = 90.0;
    all[3].2.loss_before = 20.0;
    let said = all.clone();
    assert_eq!(check(&mut all), []);
    assert_eq!(all, said);
}

#[test]
fn one_absurd_score_does_not_ruin_the_report() {
    let honest = report(delivered());
    let mut all = delivered();
    let absurd = Some(Score { samples: 4_000_000, correct: 4_000_000, loss: 1e30 });
    all[4].2.test = absurd;
    all[7].2.personal = absurd;
    let lines = check(&mut all);
    let named: Vec<_> = lines.iter().map(|line| (line.device.as_str(), line.what, line.said)).collect();
    let expected = [
        ("d4", "test_loss", 1e30),
        ("d4", "test_samples", 4e6),
        ("d7", "personal_loss", 1e30),
        ("d7", "personal_samples", 4e6),
    ];
    assert_eq!(named, expected);
    let report = report(all);
    assert!((report.loss.mean - honest.loss.mean).abs() < 0.02);
    assert!(report.loss.variance < 2.0 * honest.loss.variance);
    assert_eq!(report.pooled.unwrap().samples, 500);
    let personal = |report: &RoundReport| report.personal.as_ref().unwrap().loss.mean;
    assert!((personal(&report) - personal(&honest)).abs() < 0.02);
    let off = Guard::new(GuardConfig { mode: Mode::Off, ..GuardConfig::default() });
    let mut none = vec![];
    off.check_scores(&mut delivered(), 2, &mut none);
    assert_eq!(none, []);
}

/// Devices without test samples are judged by their training loss, which must be the one that counted.
#[test]
fn the_report_shows_what_counted() {
    let regions = regions();
    let mut fleet = fleet(3);
    fleet[6].loss *= 1e6;
    fleet[2].samples = 20_000;
    let mut cohort = cohort(&regions, &fleet);
    let said = |device: &Device| {
        let scalars = Scalars { samples: device.samples, loss_before: device.loss, ..Scalars::default() };
        (id(&device.name), Tier::new(device.tier).unwrap(), scalars)
    };
    let mut all: Vec<Delivered> = fleet.iter().map(said).collect();
    let verdict = Guard::default().inspect(&mut cohort, Kind::Train);
    count(&mut all, &cohort, &verdict.lines);
    assert_eq!((all[2].2.samples, all[6].2.loss_before), (20, cohort.participants()[6].loss()));
    assert!(report(all).loss.mean < 3.0);
}
