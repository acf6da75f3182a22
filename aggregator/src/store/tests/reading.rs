//! Reading a store without leaving a trace, also if no disk can be written to.

use std::time::SystemTime;

use super::*;

/// Every file and directory with its length and the time of its last change.
fn traces(dir: &Path) -> Vec<(PathBuf, u64, SystemTime)> {
    let mut found = vec![];
    let mut open = vec![dir.to_owned()];
    while let Some(path) = open.pop() {
        let about = fs::metadata(&path).unwrap();
        if about.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.push((path, about.len(), about.modified().unwrap()));
    }
    found.sort();
    found
}

/// A store as a killed process leaves it: the database has to be repaired when it is opened.
fn killed(dir: &TempDir) -> TempDir {
    let mut store = disk(dir);
    started(&mut store);
    commit(&mut store, 1);
    store.open_round(&round(2)).unwrap();
    append(&mut store, "a", 2, 1.0);
    let copy = TempDir::new().unwrap();
    for below in ["", "spool", "models"] {
        fs::create_dir_all(copy.path().join(below)).unwrap();
        for entry in fs::read_dir(dir.path().join(below)).unwrap().map(Result::unwrap) {
            if entry.path().is_file() {
                fs::copy(entry.path(), copy.path().join(below).join(entry.file_name())).unwrap();
            }
        }
    }
    copy
}

#[test]
fn verify_creates_and_changes_no_file() {
    let dir = TempDir::new().unwrap();
    let dir = killed(&dir);
    let before = traces(dir.path());
    for _ in 0..2 {
        let found = DiskStore::verify(dir.path()).unwrap();
        assert_eq!((found.committed, found.open, found.updates, found.format), (Some(1), Some(2), 1, 6));
        assert_eq!(found.problems, [""; 0]);
        assert_eq!(DiskStore::committed(dir.path()).unwrap(), Some(1));
    }
    // A directory in which a file was created or removed has another time.
    assert_eq!(traces(dir.path()), before);
    // Damage that is found while opening leaves no trace either.
    let ledger = dir.path().join(ledger::FILE);
    let whole = fs::read(&ledger).unwrap();
    fs::write(&ledger, &whole[..whole.len() / 2]).unwrap();
    let before = traces(dir.path());
    assert_eq!(DiskStore::verify(dir.path()).unwrap_err().code(), Code::StoreDamaged);
    assert_eq!(DiskStore::open(dir.path(), Options::default()).unwrap_err().code(), Code::StoreDamaged);
    assert_eq!(traces(dir.path()), before);
}

#[test]
fn a_store_that_is_read_is_in_use_for_a_server_and_not_for_another_reader() {
    let dir = TempDir::new().unwrap();
    started(&mut disk(&dir));
    let reading = ledger::Ledger::look(dir.path()).unwrap();
    assert_eq!(DiskStore::verify(dir.path()).unwrap().updates, 3);
    let error = DiskStore::open(dir.path(), Options::default()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    drop(reading);
    let _held = disk(&dir);
    let error = DiskStore::verify(dir.path()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
}

/// An error about damage states only effects that are known.
#[test]
fn damage_says_what_is_affected_and_which_remedy_keeps_what() {
    let text = |name: &str| {
        StoreError::Damaged { path: name.into(), what: "the file is missing".to_owned() }.to_string()
    };
    let spool = text("round-000004.spool");
    assert!(spool.starts_with("round-000004.spool is damaged: the file is missing. "), "{spool}");
    assert!(
        spool.contains("updates that were acknowledged, and at least one of them cannot be used"),
        "{spool}"
    );
    assert!(
        spool.contains("`fairtier gateway rollback` to the last finished round keeps all finished rounds"),
        "{spool}"
    );
    let model = text("round-000004.model");
    assert!(model.contains("acknowledged updates are in other files"), "{model}");
    let ledger = text("fairtier.redb");
    assert!(ledger.contains("acknowledged updates cannot be used without it"), "{ledger}");
    for text in [spool, model, ledger] {
        assert!(!text.contains("nothing") && text.contains("backup"), "{text}");
    }
}
