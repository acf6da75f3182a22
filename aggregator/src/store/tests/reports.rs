//! Reports in the ledger and in their file.

use redb::ReadableTableMetadata;

use super::*;
use crate::store::ledger::{FILE, REPORTS};

const OPTIONS: Options =
    Options { keep_models: 1000, keep_spool: false, keep_reports: 3, history_rounds: 10_000 };

fn open(dir: &TempDir) -> DiskStore {
    DiskStore::open(dir.path(), OPTIONS).unwrap()
}

/// Rounds that the files have, without the ledger.
pub(super) fn in_files(dir: &TempDir) -> Vec<u32> {
    let mut reader = ReportReader::open(dir.path()).unwrap().unwrap();
    let mut rounds = vec![];
    while let Some(report) = reader.read_next().unwrap() {
        rounds.push(report.round);
    }
    assert!(reader.faults().is_empty(), "{:?}", reader.faults());
    rounds
}

/// Rounds with reports as long as those of some dozens of devices.
pub(super) fn go_on(store: &mut dyn Store, rounds: std::ops::RangeInclusive<u32>) {
    for number in rounds {
        store.open_round(&round(number)).unwrap();
        let report = format!("{{\"round\":{number},\"devices\":\"{}\"}}", "x".repeat(20_000));
        let (parameters, report) = (&[number as f32; 3], &report);
        let commit = Commit {
            round: number,
            parameters,
            strategy_state: &[],
            report,
            history: 0,
            ..Commit::default()
        };
        store.commit_round(&commit).unwrap();
    }
}

fn in_ledger(store: &DiskStore) -> u64 {
    store.ledger.read(|txn| Ok(txn.open_table(REPORTS)?.len()?)).unwrap()
}

fn rounds(store: &DiskStore) -> Vec<u32> {
    store.history().unwrap().into_iter().map(|(round, _)| round).collect()
}

#[test]
fn old_reports_leave_the_ledger_and_stay_in_the_file() {
    let dir = TempDir::new().unwrap();
    let mut store = open(&dir);
    store.begin_run(&run(), &[0.0; 3]).unwrap();
    go_on(&mut store, 1..=40);
    assert!(in_ledger(&store) < 3 + 16, "{}", in_ledger(&store));
    let bytes = fs::metadata(dir.path().join(FILE)).unwrap().len();
    go_on(&mut store, 41..=120);
    assert_eq!(rounds(&store), (1..=120).collect::<Vec<_>>());
    // While a server has the ledger open.
    assert_eq!(in_files(&dir).len(), 120);
    drop(store);
    let after = fs::metadata(dir.path().join(FILE)).unwrap().len();
    assert!(after <= bytes, "the ledger has grown from {bytes} to {after} bytes");
    let verified = DiskStore::verify(dir.path()).unwrap();
    assert_eq!((verified.reports, verified.problems), (120, vec![]));
    assert_eq!(rounds(&open(&dir)).len(), 120);

    // Reports without another copy are reported as missing; a run continues nevertheless.
    fs::remove_file(dir.path().join("history.jsonl")).unwrap();
    let mut store = open(&dir);
    go_on(&mut store, 121..=122);
    drop(store);
    let verified = DiskStore::verify(dir.path()).unwrap();
    assert_eq!(verified.problems.len(), 1, "{:?}", verified.problems);
    assert!(verified.problems[0].contains("are missing"), "{:?}", verified.problems);
}

#[test]
fn a_report_that_did_not_reach_the_file_is_added_on_opening() {
    let dir = TempDir::new().unwrap();
    let mut store = open(&dir);
    store.begin_run(&run(), &[0.0; 3]).unwrap();
    go_on(&mut store, 1..=20);
    drop(store);
    let path = dir.path().join("history.jsonl");
    let whole = fs::read(&path).unwrap();
    // Round 16 was the last one after which the file had to be durable.
    let durable = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(15).unwrap().0 + 1;
    for left in [durable, durable + 7, whole.len() - 1, whole.len()] {
        fs::write(&path, &whole[..left]).unwrap();
        let verified = DiskStore::verify(dir.path()).unwrap();
        assert_eq!((verified.reports, verified.problems), (20, vec![]), "verify also reads the ledger");
        assert_eq!(fs::read(&path).unwrap().len(), left, "verify changes nothing");
        drop(open(&dir));
        assert!(fs::read(&path).unwrap() == whole, "{left}");
    }
}

#[test]
fn a_rollback_takes_undone_rounds_out_of_the_file_and_keeps_them() {
    let dir = TempDir::new().unwrap();
    let mut store = open(&dir);
    store.begin_run(&run(), &[0.0; 3]).unwrap();
    go_on(&mut store, 1..=40);
    drop(store);
    // Most of the undone reports have left the ledger.
    let done = DiskStore::rollback(dir.path(), 10).unwrap();
    assert!(done.last.unwrap().starts_with("{\"round\":10,"));
    let undone = fs::read_to_string(done.reports.unwrap()).unwrap();
    assert_eq!(undone.lines().count(), 30);
    assert!(undone.starts_with("{\"round\":11,"));
    let left = || in_files(&dir);
    assert_eq!(left(), (1..=10).collect::<Vec<_>>());
    assert_eq!(DiskStore::verify(dir.path()).unwrap().problems, [""; 0]);
    let mut store = open(&dir);
    go_on(&mut store, 11..=20);
    assert_eq!((rounds(&store), left()), ((1..=20).collect(), (1..=20).collect()));
    drop(store);
    let done = DiskStore::rollback(dir.path(), 0).unwrap();
    assert_eq!((done.last, left()), (None, vec![]));
}
