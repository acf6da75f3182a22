//! Snapshots of a store whose run goes on.

use std::{fs, io::Read};

use super::*;

/// Writes a snapshot as the store of another directory.
fn write(snapshot: &Snapshot, to: &Path) {
    fs::create_dir_all(to.join("spool")).unwrap();
    fs::create_dir_all(to.join("models")).unwrap();
    snapshot.write_ledger(&to.join("fairtier.redb")).unwrap();
    for file in &snapshot.files {
        let mut content = vec![];
        file.open().unwrap().take(file.bytes).read_to_end(&mut content).unwrap();
        assert_eq!(content.len() as u64, file.bytes, "{}", file.name);
        fs::write(to.join(&file.name), content).unwrap();
    }
}

fn spools(dir: &TempDir) -> usize {
    fs::read_dir(dir.path().join("spool")).unwrap().count()
}

/// The spool of a closed round would serve the next one, and an old model would be removed.
#[test]
fn a_snapshot_stays_as_it_was_while_rounds_are_committed() {
    let (dir, copy) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut store = disk(&dir);
    started(&mut store);
    commit(&mut store, 1);
    store.open_round(&round(2)).unwrap();
    append(&mut store, "a", 2, 5.0);
    let snapshot = store.snapshot().unwrap().unwrap();
    let expected = RunInSnapshot { run: RunId(9), committed: 1, open: Some(2) };
    assert_eq!(snapshot.run, Some(expected));
    for number in 2..6 {
        if number > 2 {
            store.open_round(&round(number)).unwrap();
        }
        append(&mut store, "b", number, 9.0);
        commit(&mut store, number);
    }
    write(&snapshot, copy.path());
    drop(snapshot);
    let mut restored = disk(&copy);
    let saved = restored.load(&mark()).unwrap().unwrap();
    assert_eq!((saved.next_round, saved.parameters), (2, vec![1.0; 3]));
    assert_eq!(saved.open.unwrap().record, round(2));
    assert_eq!(payloads(&mut restored, 2).unwrap(), [bytes(5.0)]);
    assert_eq!(restored.history().unwrap().len(), 1);

    // What was kept for the snapshot is removed with the next round.
    store.open_round(&round(6)).unwrap();
    commit(&mut store, 6);
    assert!(spools(&dir) <= 1, "{}", spools(&dir));
    assert_eq!(store.history().unwrap().len(), 6);
}

/// Devices may hold answers to rounds that the backup does not know.
#[test]
fn a_restored_store_has_another_attempt_and_keeps_its_updates() {
    let (dir, copy) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut store = disk(&dir);
    started(&mut store);
    drop(store);
    let snapshot = DiskStore::snapshot_of(dir.path()).unwrap().unwrap();
    assert!(DiskStore::open(dir.path(), Options::default()).is_err(), "a server starts during a backup");
    write(&snapshot, copy.path());
    drop(snapshot);
    disk(&dir);
    DiskStore::mark_restored(copy.path()).unwrap();
    let mut restored = disk(&copy);
    let saved = restored.load(&mark()).unwrap().unwrap();
    assert_eq!((saved.attempt, saved.open.unwrap().record.attempt), (1, 1));
    assert_eq!(payloads(&mut restored, 1).unwrap(), [bytes(1.0), bytes(2.0), bytes(3.0)]);
}
