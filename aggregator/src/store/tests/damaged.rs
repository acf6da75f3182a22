//! Missing files, and rollback when that is the only way.

use std::collections::BTreeMap;

use super::*;

/// Every file below a directory and what is in it.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => _ = found.insert(path.clone(), fs::read(&path).unwrap()),
        }
    }
    found
}

/// Three rounds are committed, with their models, and the fourth has two updates.
fn under_way(dir: &TempDir) {
    let options = Options { keep_models: 10, ..Options::default() };
    let mut store = DiskStore::open(dir.path(), options).unwrap();
    store.begin_run(&run(), &[0.0; 3]).unwrap();
    for number in 1..=3 {
        store.open_round(&round(number)).unwrap();
        append(&mut store, "a", number, 1.0);
        commit(&mut store, number);
    }
    store.open_round(&RoundRecord { wanted: vec![2, 1], ..round(4) }).unwrap();
    append(&mut store, "a", 4, 1.0);
    append(&mut store, "b", 4, 2.0);
}

/// A new run would remove the models and updates of the one whose ledger is gone.
#[test]
fn without_its_ledger_nothing_of_a_run_is_touched() {
    for left in ["models", "spool", "history.jsonl"] {
        let dir = TempDir::new().unwrap();
        under_way(&dir);
        for other in ["models", "spool", "history.jsonl"].iter().filter(|other| **other != left) {
            let path = dir.path().join(other);
            if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
        fs::remove_file(dir.path().join(ledger::FILE)).unwrap();
        let before = files(dir.path());
        assert!(!before.is_empty(), "{left}");
        let error = DiskStore::open(dir.path(), Options::default()).unwrap_err();
        assert!(
            error.to_string().contains("fairtier.redb") && error.to_string().contains("missing"),
            "{error}"
        );
        assert_eq!(files(dir.path()), before);
    }
    DiskStore::open(TempDir::new().unwrap().path(), Options::default()).unwrap();
}

#[test]
fn an_open_round_whose_updates_are_gone_can_be_given_up() {
    let dir = TempDir::new().unwrap();
    under_way(&dir);
    fs::remove_file(spool_of(&dir, 4)).unwrap();
    let error = DiskStore::open(dir.path(), Options::default()).unwrap_err().to_string();
    assert!(error.contains("fairtier gateway rollback"), "{error}");
    DiskStore::rollback(dir.path(), 3).unwrap();
    let saved = disk(&dir).load(&mark()).unwrap().unwrap();
    assert_eq!((saved.next_round, saved.open, saved.parameters), (4, None, vec![3.0; 3]));
}

/// An update that a device still trains for an undone round must not count in the round that replaces it.
#[test]
fn a_repeated_round_has_another_attempt() {
    let dir = TempDir::new().unwrap();
    under_way(&dir);
    let attempt = || disk(&dir).load(&mark()).unwrap().unwrap().attempt;
    assert_eq!(attempt(), 0);
    DiskStore::rollback(dir.path(), 3).unwrap();
    assert_eq!(attempt(), 1, "also where only the open round is undone");
    disk(&dir).open_round(&RoundRecord { attempt: 1, ..round(4) }).unwrap();
    DiskStore::rollback(dir.path(), 1).unwrap();
    assert_eq!(attempt(), 2);
}

#[test]
fn wanted_updates_survive_a_restart() {
    let dir = TempDir::new().unwrap();
    under_way(&dir);
    let open = disk(&dir).load(&mark()).unwrap().unwrap().open.unwrap();
    assert_eq!((open.record.wanted, names(&open.updates)), (vec![2, 1], vec!["a", "b"]));
}
