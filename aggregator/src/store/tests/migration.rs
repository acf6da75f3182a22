//! Stores of format 4: read as they are, and brought to the present format when they are opened for writing.

use super::{
    reports::{go_on, in_files},
    *,
};
use crate::store::history::parse_line;

/// Three rounds have left the ledger, three are in it, and the seventh is open.
fn of_format_4() -> TempDir {
    let dir = TempDir::new().unwrap();
    let options = Options { keep_models: 100, keep_reports: 3, ..Options::default() };
    let mut store = DiskStore::open(dir.path(), options).unwrap();
    store.begin_run(&run(), &[0.0; 3]).unwrap();
    go_on(&mut store, 1..=20);
    store.open_round(&round(21)).unwrap();
    append(&mut store, "a", 21, 1.0);
    drop(store);
    let path = dir.path().join("history.jsonl");
    fs::write(&path, plain(&fs::read(&path).unwrap())).unwrap();
    set_format(dir.path(), 4);
    dir
}

/// The lines without their checksums, as format 4 has them.
fn plain(history: &[u8]) -> Vec<u8> {
    let mut lines = Vec::new();
    for line in history.split_inclusive(|&byte| byte == b'\n') {
        let mut line = line.trim_ascii_end().to_vec();
        parse_line(&mut line).unwrap();
        lines.extend_from_slice(&[&line[..], b"\n"].concat());
    }
    lines
}

fn format(dir: &TempDir) -> u32 {
    DiskStore::verify(dir.path()).unwrap().format
}

/// Reads it as it is: nothing is wrong, and everything is there.
fn expect_whole(dir: &TempDir, what: &str) -> u32 {
    let found = DiskStore::verify(dir.path()).unwrap();
    assert_eq!(found.problems, [""; 0], "{what}");
    assert_eq!(
        (found.committed, found.open, found.reports, found.updates),
        (Some(20), Some(21), 20, 1),
        "{what}"
    );
    assert_eq!(in_files(dir), (1..=20).collect::<Vec<_>>(), "{what}");
    found.format
}

/// Opens it for writing, and goes on with it.
fn expect_migrated(dir: &TempDir, what: &str) {
    let mut store = disk(dir);
    assert_eq!(names(&store.updates(21, 0).unwrap()), ["a"], "{what}");
    assert_eq!(store.history().unwrap().len(), 20, "{what}");
    assert!(!dir.path().join("history.jsonl.new").exists(), "{what}");
    for line in fs::read(dir.path().join("history.jsonl")).unwrap().split_inclusive(|&byte| byte == b'\n') {
        assert!(parse_line(&mut line.trim_ascii_end().to_vec()).unwrap().has_checksum, "{what}");
    }
    commit(&mut store, 21);
    drop(store);
    let found = DiskStore::verify(dir.path()).unwrap();
    assert_eq!((found.format, found.reports, found.problems), (6, 21, vec![]), "{what}");
}

#[test]
fn format_4_is_read_without_a_change_and_migrated_when_it_is_opened() {
    let dir = of_format_4();
    let before = fs::read(dir.path().join(ledger::FILE)).unwrap();
    assert_eq!(expect_whole(&dir, "as it was"), 4);
    assert_eq!(DiskStore::committed(dir.path()).unwrap(), Some(20));
    assert!(fs::read(dir.path().join(ledger::FILE)).unwrap() == before);
    assert_eq!(format(&dir), 4);
    fs::write(dir.path().join("fairtier.redb.copy"), "of a program that was killed").unwrap();
    expect_migrated(&dir, "opened");
    assert!(!dir.path().join("fairtier.redb.copy").exists());
    assert_eq!(format(&dir), 6);
}

#[test]
fn a_rollback_migrates_as_well() {
    let dir = of_format_4();
    assert_eq!(DiskStore::rollback(dir.path(), 4).unwrap().from, 20);
    assert_eq!((format(&dir), in_files(&dir)), (6, vec![1, 2, 3, 4]));
    assert_eq!(DiskStore::verify(dir.path()).unwrap().problems, [""; 0]);
}

/// Killed after each step, the store is whole as the format that it says, and the next opening finishes the work.
#[test]
fn a_migration_that_is_killed_leaves_a_whole_store() {
    let half_a_draft = |dir: &Path| {
        let draft = migrate::draft_with_checksums(dir).unwrap().unwrap();
        let bytes = fs::read(&draft.0).unwrap();
        fs::write(&draft.0, &bytes[..bytes.len() / 2]).unwrap();
        std::mem::forget(draft);
    };
    let a_draft = |dir: &Path| std::mem::forget(migrate::draft_with_checksums(dir).unwrap());
    let published =
        |dir: &Path| migrate::publish(dir, &migrate::draft_with_checksums(dir).unwrap().unwrap()).unwrap();
    // An older program has gone on with the file that was published: it appends lines without checksums.
    let then_older = |dir: &Path| {
        published(dir);
        let path = dir.join("history.jsonl");
        let migrated = fs::read(&path).unwrap();
        let middle = migrated.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(9).unwrap().0 + 1;
        fs::write(&path, [&migrated[..middle], &plain(&migrated[middle..])].concat()).unwrap();
    };
    let raised = |dir: &Path| drop(ledger::Ledger::open(dir).unwrap());
    type Until<'a> = &'a dyn Fn(&Path);
    let instants: [(&str, Until<'_>, u32); 5] = [
        ("half of the new file is written", &half_a_draft, 4),
        ("the new file is written", &a_draft, 4),
        ("the new file is in its place", &published, 4),
        ("the ledger is raised", &raised, 6),
        ("an older program went on in between", &then_older, 4),
    ];
    for (what, until, format) in instants {
        let dir = of_format_4();
        until(dir.path());
        if what != "an older program went on in between" {
            assert_eq!(expect_whole(&dir, what), format, "{what}");
        } else {
            assert_eq!(DiskStore::verify(dir.path()).unwrap().problems, [""; 0], "{what}");
        }
        expect_migrated(&dir, what);
    }
}

/// A failed step, here because a directory is in its way, changes nothing and can be repeated.
#[test]
fn a_migration_that_fails_leaves_format_4() {
    let dir = of_format_4();
    let obstacle = dir.path().join("history.jsonl.new");
    fs::create_dir(&obstacle).unwrap();
    let error = DiskStore::open(dir.path(), Options::default()).unwrap_err();
    assert!(error.to_string().contains("history.jsonl.new"), "{error}");
    assert_eq!(expect_whole(&dir, "failed"), 4);
    fs::remove_dir(obstacle).unwrap();
    expect_migrated(&dir, "again");
}

/// A checksum must not make damage look sound.
#[test]
fn damage_that_is_seen_before_a_migration_is_seen_after_it() {
    let dir = of_format_4();
    let path = dir.path().join("history.jsonl");
    let mut bytes = fs::read(&path).unwrap();
    bytes[0] = b'!';
    fs::write(&path, &bytes).unwrap();
    let problems = || DiskStore::verify(dir.path()).unwrap().problems;
    let before = problems();
    assert!(before[0].contains("history.jsonl, line 1: it is not a report"), "{before:?}");
    drop(disk(&dir));
    assert_eq!((problems(), format(&dir)), (before, 6));
}

#[test]
fn a_store_without_reports_is_migrated() {
    let dir = TempDir::new().unwrap();
    started(&mut disk(&dir));
    set_format(dir.path(), 4);
    assert_eq!(names(&disk(&dir).updates(1, 0).unwrap()), ["a", "b", "c"]);
    assert_eq!(format(&dir), 6);
    assert!(!dir.path().join("history.jsonl").exists());
}
