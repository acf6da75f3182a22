//! The same cases on all stores, and failures of the disk on the durable one.

use std::{
    fs,
    path::{Path, PathBuf},
};

use common::{
    Budget, Code, Codec, DeviceId, RunId, Tier, TierSet,
    message::{DataSummary, Scalars, Ticket},
    region::RegionMap,
};
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use strategies::{
    check::check_encoded, cohort::Cohort, combine::combine, registry::Registry, updates::Updates,
};

mod archives;
mod best;
mod damaged;
mod migration;
#[cfg(feature = "cluster")]
mod postgres;
mod reading;
mod reports;
mod snapshots;
mod validation;

fn id(name: &str) -> DeviceId {
    name.parse().unwrap()
}

fn mark() -> ModelFingerprint {
    ModelFingerprint { digest: 0xabcd, parameters: 3, tiers: vec![3, 2] }
}

fn run() -> RunRecord {
    RunRecord { run: RunId(9), model: mark(), config: "rounds = 3".to_owned() }
}

fn round(number: u32) -> RoundRecord {
    let selected = ["a", "b", "c"].map(|name| DeviceInTier { device: id(name), tier: Tier::new(0).unwrap() });
    RoundRecord {
        round: number,
        attempt: 0,
        selected: selected.to_vec(),
        wanted: vec![],
        exchanges: vec![ExchangeRecord { kind: Kind::Train, digest: 1, asked: vec![] }],
        began: None,
    }
}

fn device(name: &str) -> DeviceRecord {
    let tier = Tier::new(0).unwrap();
    let data =
        DataSummary { train_samples: 10, test_samples: 2, inputs: 3, classes: 2, ..DataSummary::default() };
    DeviceRecord { device: id(name), tier, budget: Budget::UNLIMITED, data }
}

fn header(name: &str, round: u32, attempt: u16) -> UpdateHeader {
    UpdateHeader {
        ticket: Ticket { run: RunId(9), round, exchange: 0, attempt },
        device: id(name),
        tier: Tier::new(0).unwrap(),
        kind: Kind::Train,
        vectors: 1,
        lr: 0.5,
        codec: Codec::F32,
        scalars: Scalars {
            samples: 5,
            loss_before: 0.5,
            loss_after: None,
            test: None,
            steps: 3,
            ..Scalars::default()
        },
        norms: vec![1.0],
    }
}

fn bytes(value: f32) -> Vec<u8> {
    [value; 3].iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn put_all(store: &mut dyn Store, updates: &[UpdateRecord<'_>]) -> Result<Vec<PutOutcome>, StoreError> {
    let kept = updates.iter().map(|update| store.put(update)).collect();
    store.settle()?;
    kept
}

fn append(store: &mut dyn Store, name: &str, round: u32, value: f32) -> Vec<PutOutcome> {
    let payload = bytes(value);
    put_all(store, &[UpdateRecord { header: header(name, round, 1), payload: &payload }]).unwrap()
}

fn names(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.header.device.as_str()).collect()
}

fn payloads(store: &mut dyn Store, round: u32) -> Result<Vec<Vec<u8>>, StoreError> {
    let entries = store.updates(round, 0)?;
    let mut read = |entry: &Entry| {
        let mut payload = vec![9; 100];
        store.read(entry, &mut payload).map(|()| payload)
    };
    entries.iter().map(&mut read).collect()
}

fn commit(store: &mut dyn Store, round: u32) {
    let report = format!("{{\"round\": {round}}}");
    let parameters = [round as f32; 3];
    let commit = Commit {
        round,
        parameters: &parameters,
        strategy_state: &[7, 8],
        report: &report,
        history: 0,
        ..Commit::default()
    };
    store.commit_round(&commit).unwrap();
}

fn disk(dir: &TempDir) -> DiskStore {
    DiskStore::open(dir.path(), Options::default()).unwrap()
}

fn each(check: impl Fn(&mut dyn Store)) {
    check(&mut MemoryStore::new());
    let dir = TempDir::new().unwrap();
    check(&mut disk(&dir));
    #[cfg(feature = "cluster")]
    postgres::on_new_store(check);
}

/// A store with an open round 1 and updates of b, a, c.
fn started(store: &mut dyn Store) {
    store.begin_run(&run(), &[0.0; 3]).unwrap();
    store.register(&[device("b"), device("a")]).unwrap();
    store.open_round(&round(1)).unwrap();
    for (name, value) in [("b", 2.0), ("a", 1.0), ("c", 3.0)] {
        assert_eq!(append(store, name, 1, value), [PutOutcome::New]);
    }
}

#[test]
fn exchanges_of_a_round_are_kept_apart_and_last_updates_stay_as_long_as_wanted() {
    each(|store| {
        started(store);
        let mut second = round(1);
        second.exchanges.push(ExchangeRecord { kind: Kind::Try, digest: 2, asked: vec![id("a")] });
        store.open_round(&second).unwrap();
        let mut tried = header("a", 1, 1);
        (tried.ticket.exchange, tried.kind, tried.vectors) = (1, Kind::Try, 0);
        let tried = UpdateRecord { header: tried, payload: &[] };
        assert_eq!(put_all(store, std::slice::from_ref(&tried)).unwrap(), [PutOutcome::New]);
        assert_eq!(put_all(store, std::slice::from_ref(&tried)).unwrap(), [PutOutcome::Duplicate]);
        assert_eq!(names(&store.updates(1, 0).unwrap()), ["a", "b", "c"]);
        assert_eq!(names(&store.updates(1, 1).unwrap()), ["a"]);
        assert!(store.past(1).unwrap().is_empty());

        let commit = |store: &mut dyn Store, round, history| {
            let (parameters, strategy_state, report) = (&[0.0; 3], &[], "");
            store
                .commit_round(&Commit {
                    round,
                    parameters,
                    strategy_state,
                    report,
                    history,
                    ..Commit::default()
                })
                .unwrap();
        };
        commit(store, 1, 9);
        assert_eq!(names(&store.past(2).unwrap()), ["a", "b", "c"]);
        store.open_round(&round(2)).unwrap();
        append(store, "b", 2, 7.0);
        let past = store.past(2).unwrap();
        let rounds = |past: &[Entry]| past.iter().map(|entry| entry.header.ticket.round).collect::<Vec<_>>();
        assert_eq!(rounds(&past), [1, 1, 1]);
        let mut payload = vec![];
        store.read(&past[1], &mut payload).unwrap();
        assert_eq!(payload, 2.0f32.to_le_bytes().repeat(3));
        // The latest of two devices: b of round 2, a of round 1.
        commit(store, 2, 2);
        let past = store.past(3).unwrap();
        assert_eq!((names(&past), rounds(&past)), (vec!["a", "b"], vec![1, 2]));
        store.read(&past[1], &mut payload).unwrap();
        assert_eq!(payload, 7.0f32.to_le_bytes().repeat(3));
        store.open_round(&round(3)).unwrap();
        commit(store, 3, 0);
        assert!(store.past(4).unwrap().is_empty());
    });
}

#[test]
fn a_run_from_begin_to_history() {
    each(|store| {
        assert_eq!(store.load(&mark()).unwrap(), None);
        assert!(matches!(store.open_round(&round(1)), Err(StoreError::NotBegun)));
        started(store);
        assert!(matches!(store.begin_run(&run(), &[0.0; 3]), Err(StoreError::AlreadyBegun)));
        assert_eq!(names(&store.updates(1, 0).unwrap()), ["a", "b", "c"]);
        assert_eq!(payloads(store, 1).unwrap(), [bytes(1.0), bytes(2.0), bytes(3.0)]);
        commit(store, 1);
        assert!(matches!(store.open_round(&round(1)), Err(StoreError::NotNext { next: 2, got: 1 })));
        store.open_round(&round(2)).unwrap();
        commit(store, 2);
        let saved = store.load(&mark()).unwrap().unwrap();
        assert_eq!((saved.next_round, saved.parameters, saved.open), (3, vec![2.0; 3], None));
        assert_eq!((saved.run, saved.strategy_state), (run(), vec![7, 8]));
        assert_eq!(saved.devices, [device("a"), device("b")]);
        let history = store.history().unwrap();
        assert_eq!(history, [(1, "{\"round\": 1}".to_owned()), (2, "{\"round\": 2}".to_owned())]);
        // Two versions are kept: the result of rounds 1 and 2.
        assert_eq!(store.parameters(0).unwrap(), None);
        assert_eq!(store.parameters(1).unwrap(), Some(vec![1.0; 3]));
        assert!(store.updates(1, 0).unwrap().is_empty());
    });
}

#[test]
fn a_repeated_update_does_no_harm() {
    each(|store| {
        started(store);
        let payload = bytes(5.0);
        let twice =
            [1, 1, 2].map(|attempt| UpdateRecord { header: header("a", 1, attempt), payload: &payload });
        assert_eq!(put_all(store, &twice).unwrap(), [PutOutcome::Duplicate; 3]);
        let fresh = [1, 1].map(|attempt| UpdateRecord { header: header("d", 1, attempt), payload: &payload });
        assert_eq!(put_all(store, &fresh).unwrap(), [PutOutcome::New, PutOutcome::Duplicate]);
        assert_eq!(payloads(store, 1).unwrap(), [bytes(1.0), bytes(2.0), bytes(3.0), bytes(5.0)]);
    });
}

#[test]
fn a_spared_model_is_kept_as_long_as_it_is_spared() {
    let check = |store: &mut dyn Store| {
        store.begin_run(&run(), &[0.0; 3]).unwrap();
        let kept = |store: &dyn Store| -> Vec<u32> {
            (0..9).filter(|&round| store.parameters(round).unwrap().is_some()).collect()
        };
        for (number, spared, expected) in
            [(1, None, &[0, 1][..]), (2, Some(0), &[0, 1, 2]), (3, Some(0), &[0, 2, 3]), (4, None, &[3, 4])]
        {
            store.open_round(&round(number)).unwrap();
            let (parameters, strategy_state, report, history) = (&[number as f32; 3], &[], "{}", 0);
            let commit = Commit {
                round: number,
                parameters,
                strategy_state,
                report,
                history,
                spared,
                ..Commit::default()
            };
            store.commit_round(&commit).unwrap();
            assert_eq!(kept(store), expected, "after round {number}");
        }
    };
    each(check);
}

#[test]
fn what_does_not_fit_is_refused() {
    each(|store| {
        started(store);
        let payload = bytes(5.0);
        let mut foreign = header("d", 1, 1);
        foreign.ticket.run = RunId(8);
        for header in [header("d", 2, 1), foreign] {
            let error = put_all(store, &[UpdateRecord { header, payload: &payload }]).unwrap_err();
            assert_eq!(error.code(), Code::WrongRound);
        }
        assert_eq!(names(&store.updates(1, 0).unwrap()), ["a", "b", "c"]);
        let other = Commit {
            round: 2,
            parameters: &[0.0; 3],
            strategy_state: &[],
            report: "",
            history: 0,
            ..Commit::default()
        };
        assert_eq!(store.commit_round(&other).unwrap_err().code(), Code::WrongRound);
        let short = Commit { round: 1, parameters: &[0.0; 2], ..other };
        assert!(matches!(store.commit_round(&short), Err(StoreError::WrongLength { expected: 3, got: 2 })));
        let another = ModelFingerprint { digest: 1, ..mark() };
        let error = store.load(&another).unwrap_err();
        assert_eq!(error.code(), Code::WrongModel);
        assert!(error.to_string().contains("0000abcd"), "{error}");
    });
}

#[test]
fn combining_reads_from_the_store() {
    let tier = Tier::new(0).unwrap();
    let map = RegionMap::from_spans(3, 1, [(0, 3, TierSet::EMPTY.with(tier))]);
    each(|store| {
        started(store);
        let entries = store.updates(1, 0).unwrap();
        let mut cohort = Cohort::new(map.clone(), 0.1);
        for entry in &entries {
            let mut payload = Vec::new();
            store.read(entry, &mut payload).unwrap();
            let norms = check_encoded(&payload, entry.header.codec, map.pieces(tier), 1).unwrap();
            let UpdateHeader { device, tier, scalars, .. } = entry.header.clone();
            cohort.admit(device, tier, scalars, &norms).unwrap();
        }
        let mut theta = [1.0f32; 3];
        let mut fedavg = Registry::standard().method("fedavg", Value::Null).unwrap();
        combine(&mut fedavg, &cohort, &[], &mut SpooledUpdates::new(store, entries.clone()), &mut theta)
            .unwrap();
        assert_eq!(theta, [3.0; 3]);
    });
}

#[test]
fn a_restart_resumes_the_open_round() {
    let dir = TempDir::new().unwrap();
    started(&mut disk(&dir));
    let mut store = disk(&dir);
    let saved = store.load(&mark()).unwrap().unwrap();
    let open = saved.open.unwrap();
    assert_eq!((saved.next_round, open.record, names(&open.updates)), (1, round(1), vec!["a", "b", "c"]));
    assert_eq!(append(&mut store, "a", 1, 9.0), [PutOutcome::Duplicate]);
    assert_eq!(append(&mut store, "d", 1, 4.0), [PutOutcome::New]);
    // A selection made after the restart replaces the old one and keeps what arrived.
    store.open_round(&round(1)).unwrap();
    drop(store);
    let mut store = disk(&dir);
    assert_eq!(payloads(&mut store, 1).unwrap(), [bytes(1.0), bytes(2.0), bytes(3.0), bytes(4.0)]);
    commit(&mut store, 1);
    drop(store);
    assert!(!spool_of(&dir, 1).exists());
    let saved = disk(&dir).load(&mark()).unwrap().unwrap();
    assert_eq!((saved.next_round, saved.parameters, saved.open), (2, vec![1.0; 3], None));
}

#[test]
fn spools_are_kept_on_request_and_swept_otherwise() {
    let dir = TempDir::new().unwrap();
    let keep = || {
        DiskStore::open(dir.path(), Options { keep_spool: true, keep_models: 1, ..Options::default() })
            .unwrap()
    };
    let mut store = keep();
    started(&mut store);
    commit(&mut store, 1);
    drop(store);
    // What a crash between commit and removal leaves behind.
    fs::write(spool_of(&dir, 77), b"old").unwrap();
    let mut store = keep();
    assert_eq!(payloads(&mut store, 1).unwrap(), [bytes(1.0), bytes(2.0), bytes(3.0)]);
    assert!(!spool_of(&dir, 77).exists());
    assert_eq!((store.parameters(0).unwrap(), store.parameters(1).unwrap()), (None, Some(vec![1.0; 3])));
}

#[test]
fn the_file_of_a_closed_round_serves_the_next_one() {
    use std::os::unix::fs::MetadataExt;
    let dir = TempDir::new().unwrap();
    let mut store = disk(&dir);
    started(&mut store);
    let before = fs::metadata(spool_of(&dir, 1)).unwrap();
    commit(&mut store, 1);
    store.open_round(&round(2)).unwrap();
    append(&mut store, "b", 2, 7.0);
    assert_eq!(payloads(&mut store, 2).unwrap(), [bytes(7.0)]);
    let after = fs::metadata(spool_of(&dir, 2)).unwrap();
    assert_eq!((after.ino(), after.len()), (before.ino(), before.len()));
    // Bytes that an earlier round has left do not count either.
    drop(store);
    let mut store = disk(&dir);
    assert!(fs::metadata(spool_of(&dir, 2)).unwrap().len() < before.len());
    assert_eq!(payloads(&mut store, 2).unwrap(), [bytes(7.0)]);
    commit(&mut store, 2);
    drop(store);
    assert_eq!(fs::read_dir(dir.path().join("spool")).unwrap().count(), 0);
}

#[test]
fn what_is_not_settled_does_not_count() {
    let dir = TempDir::new().unwrap();
    let mut store = disk(&dir);
    started(&mut store);
    let payload = bytes(4.0);
    let update = UpdateRecord { header: header("d", 1, 1), payload: &payload };
    assert_eq!(store.put(&update).unwrap(), PutOutcome::New);
    assert_eq!(store.put(&update).unwrap(), PutOutcome::Duplicate);
    assert_eq!(names(&store.updates(1, 0).unwrap()), ["a", "b", "c"]);
    drop(store);
    let mut store = disk(&dir);
    assert_eq!(names(&store.updates(1, 0).unwrap()), ["a", "b", "c"]);
    append(&mut store, "d", 1, 4.0);
    assert_eq!(payloads(&mut store, 1).unwrap().len(), 4);
}

#[test]
fn only_one_process_can_open_a_store() {
    let dir = TempDir::new().unwrap();
    let _held = disk(&dir);
    let error = DiskStore::open(dir.path(), Options::default()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    assert!(error.to_string().contains("another process"));
}

#[test]
fn a_torn_tail_is_cut_off() {
    let dir = TempDir::new().unwrap();
    started(&mut disk(&dir));
    let spool = spool_of(&dir, 1);
    let whole = fs::read(&spool).unwrap();
    // Half a record after the last one, as a crash between write and index commit leaves it.
    fs::write(&spool, [&whole[..], &whole[..40]].concat()).unwrap();
    let mut store = disk(&dir);
    assert_eq!(names(&store.updates(1, 0).unwrap()), ["a", "b", "c"]);
    assert_eq!(fs::metadata(&spool).unwrap().len(), whole.len() as u64);
    append(&mut store, "d", 1, 4.0);
    assert_eq!(payloads(&mut store, 1).unwrap().len(), 4);
}

#[test]
fn every_flipped_byte_of_a_spool_is_noticed_and_nothing_is_overwritten() {
    let dir = TempDir::new().unwrap();
    started(&mut disk(&dir));
    let spool = spool_of(&dir, 1);
    let whole = fs::read(&spool).unwrap();
    let mut store = disk(&dir);
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        fs::write(&spool, &flipped).unwrap();
        let error = payloads(&mut store, 1).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{at}: {error}");
        assert_eq!(error.code(), Code::StoreDamaged);
        assert_eq!(fs::read(&spool).unwrap(), flipped);
    }
}

/// A store is read by later versions of the program: a change of these bytes raises the format.
#[test]
fn the_bytes_of_a_spool_are_pinned() {
    let dir = TempDir::new().unwrap();
    started(&mut disk(&dir));
    let spool = fs::read(spool_of(&dir, 1)).unwrap();
    let hex: String = spool[..spool.len() / 3].iter().map(|byte| format!("{byte:02x}")).collect();
    let prefix = "46545532 29000000 0c000000";
    let header = "09 01 00 01 0162 00 03 01 0000003f 00 05 000000000000e03f 00 00 03 00 00 00 00 00 00 01 000000000000f03f";
    let payload_and_checksum = "00000040 00000040 00000040 3c46d54d";
    assert_eq!(hex, [prefix, header, payload_and_checksum].concat().replace(' ', ""));
}

#[test]
fn a_spool_that_is_too_short_or_gone_is_damage() {
    let dir = TempDir::new().unwrap();
    started(&mut disk(&dir));
    let spool = spool_of(&dir, 1);
    let whole = fs::read(&spool).unwrap();
    for len in [0, 1, 50, whole.len() - 1] {
        fs::write(&spool, &whole[..len]).unwrap();
        let error = DiskStore::open(dir.path(), Options::default()).unwrap_err();
        assert!(matches!(&error, StoreError::Damaged { path, .. } if *path == spool), "{error}");
        assert_eq!(fs::read(&spool).unwrap().len(), len);
    }
    fs::remove_file(&spool).unwrap();
    let error = DiskStore::open(dir.path(), Options::default()).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
    assert!(!spool.exists());
    fs::write(&spool, &whole).unwrap();
    assert_eq!(payloads(&mut disk(&dir), 1).unwrap().len(), 3);
}

#[test]
fn garbage_instead_of_a_ledger_is_damage() {
    let garbage: Vec<u8> = (0..9000u32).map(|i| (i * 7) as u8).collect();
    for content in [&garbage[..], &garbage[..10], b""] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join(ledger::FILE);
        fs::write(&path, content).unwrap();
        let error = DiskStore::open(dir.path(), Options::default()).unwrap_err();
        assert_eq!(error.code(), Code::StoreDamaged, "{error}");
        assert_eq!(fs::read(&path).unwrap(), content);
    }
}

#[test]
fn a_truncated_ledger_is_damage() {
    let dir = TempDir::new().unwrap();
    started(&mut disk(&dir));
    let path = dir.path().join(ledger::FILE);
    let whole = fs::read(&path).unwrap();
    for len in [1, 100, 4096, whole.len() / 2, whole.len() - 4096] {
        fs::write(&path, &whole[..len]).unwrap();
        let error = open_and_load(dir.path()).unwrap_err();
        assert_eq!(error.code(), Code::StoreDamaged, "{len} of {}: {error}", whole.len());
    }
}

/// Writes another format number into a ledger.
fn set_format(dir: &Path, format: u32) {
    let db = redb::Database::open(dir.join(ledger::FILE)).unwrap();
    let txn = db.begin_write().unwrap();
    let value = ledger::encode("format", &format).unwrap();
    txn.open_table(ledger::META).unwrap().insert("format", value.as_slice()).unwrap();
    txn.commit().unwrap();
}

#[test]
fn a_format_that_is_too_old_or_too_new_is_refused_and_left_as_it_is() {
    let newer = "written by a newer version of this program; use that version";
    let older = "open it once with a version in between";
    for (found, next) in [(migrate::OLDEST - 1, older), (migrate::FORMAT + 1, newer)] {
        let dir = TempDir::new().unwrap();
        started(&mut disk(&dir));
        set_format(dir.path(), found);
        let path = dir.path().join(ledger::FILE);
        let before = (fs::read(&path).unwrap(), fs::read(spool_of(&dir, 1)).unwrap());
        let errors = [
            DiskStore::open(dir.path(), Options::default()).map(drop).unwrap_err(),
            DiskStore::verify(dir.path()).map(drop).unwrap_err(),
            DiskStore::committed(dir.path()).map(drop).unwrap_err(),
            DiskStore::rollback(dir.path(), 0).map(drop).unwrap_err(),
        ];
        for error in errors {
            assert!(
                matches!(error, StoreError::Format { found: it, known: migrate::FORMAT, .. } if it == found),
                "{error}"
            );
            assert!(error.to_string().contains(next), "{error}");
        }
        let after = (fs::read(&path).unwrap(), fs::read(spool_of(&dir, 1)).unwrap());
        assert!(before == after, "format {found}: a file has changed");
    }
}

#[test]
fn flipped_bytes_of_the_ledger_never_pass_as_data() {
    let dir = TempDir::new().unwrap();
    started(&mut disk(&dir));
    let path = dir.path().join(ledger::FILE);
    let whole = fs::read(&path).unwrap();
    let expected = open_and_load(dir.path()).unwrap();
    let used: Vec<usize> = (0..whole.len()).filter(|&at| whole[at] != 0).step_by(101).collect();
    for at in used {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x04;
        fs::write(&path, &flipped).unwrap();
        // Either the damage is reported, or it hit nothing that counts.
        match open_and_load(dir.path()) {
            Ok(saved) => assert_eq!(saved, expected, "byte {at}"),
            Err(error) => assert_eq!(error.code(), Code::StoreDamaged, "byte {at}: {error}"),
        }
    }
}

fn open_and_load(dir: &Path) -> Result<Option<SavedRun>, StoreError> {
    DiskStore::open(dir, Options::default())?.load(&mark())
}

fn spool_of(dir: &TempDir, round: u32) -> PathBuf {
    spool::path_of(&dir.path().join("spool"), round)
}

#[test]
fn parts_of_updates_are_those_of_the_whole() {
    let dir = TempDir::new().unwrap();
    let mut disk = DiskStore::open(dir.path(), Options::default()).unwrap();
    let mut memory = MemoryStore::new();
    let stores: [&mut dyn Store; 2] = [&mut disk, &mut memory];
    let count = 1000;
    let regions = RegionMap::from_spans(count, 1, [(0, count, TierSet::first(1))]);
    let values: Vec<f32> = (0..count).map(|i| (i as f32).sin()).collect();
    for store in stores {
        store.begin_run(&run(), &[0.0; 3]).unwrap();
        store.open_round(&round(1)).unwrap();
        let mut cohort = Cohort::new(regions.clone(), 0.1);
        for (name, codec) in ["a", "b", "c"].into_iter().zip(Codec::ALL) {
            let mut payload = vec![0; codec.encoded_len(count).unwrap() as usize];
            codec.encode(&values, 0, 7, &mut payload).unwrap();
            let header = UpdateHeader { codec, ..header(name, 1, 1) };
            put_all(store, &[UpdateRecord { header, payload: &payload }]).unwrap();
            let scalars = Scalars { samples: 1, loss_before: 1.0, ..Scalars::default() };
            cohort.admit(id(name), Tier::new(0).unwrap(), scalars, &[1.0]).unwrap();
        }
        let entries = store.updates(1, 0).unwrap();
        let mut spooled = SpooledUpdates::new(store, entries.clone());
        for (index, participant) in cohort.participants().iter().enumerate() {
            let row = strategies::updates::UpdateRef::Update(index, participant);
            let mut buffer = Vec::new();
            let whole: Vec<f64> =
                spooled.read(row, &mut buffer).unwrap().iter().map(|&value| f64::from(value)).collect();
            for (start, len) in
                [(0, 1000), (0, 1), (63, 2), (64, 64), (1, 998), (960, 40), (999, 1), (500, 0)]
            {
                let mut out = vec![9.0; len];
                assert_eq!(spooled.read_part(row, start, &mut out).unwrap(), count);
                assert_eq!(out, whole[start..start + len], "{start} {len}");
            }
            let mut beyond = [9.0; 4];
            assert_eq!(spooled.read_part(row, 998, &mut beyond).unwrap(), count);
            assert_eq!(beyond, [whole[998], whole[999], 9.0, 9.0]);
        }
    }
}
