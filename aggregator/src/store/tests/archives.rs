//! A history that goes on in new files.

use super::{
    reports::{go_on, in_files},
    *,
};

const OPTIONS: Options =
    Options { keep_models: 1000, keep_spool: false, keep_reports: 3, history_rounds: 10 };

fn open(dir: &TempDir) -> DiskStore {
    DiskStore::open(dir.path(), OPTIONS).unwrap()
}

fn after(rounds: u32) -> TempDir {
    let dir = TempDir::new().unwrap();
    let mut store = open(&dir);
    store.begin_run(&run(), &[0.0; 3]).unwrap();
    go_on(&mut store, 1..=rounds);
    dir
}

/// Names of the files with lines, in order.
fn files(dir: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap());
    let filled = entries.filter(|entry| entry.metadata().unwrap().len() > 0);
    let mut names: Vec<_> = filled.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.retain(|name| name.starts_with("history"));
    names.sort();
    names
}

fn problems(dir: &TempDir) -> Vec<String> {
    DiskStore::verify(dir.path()).unwrap().problems
}

#[test]
fn a_full_file_gets_a_name_of_its_own_and_all_of_them_are_read_in_order() {
    let dir = after(35);
    let expected = [
        "history-000001-000010.jsonl",
        "history-000011-000020.jsonl",
        "history-000021-000030.jsonl",
        "history.jsonl",
    ];
    assert_eq!(files(&dir), expected);
    assert_eq!(in_files(&dir), (1..=35).collect::<Vec<_>>());
    assert_eq!((problems(&dir), DiskStore::verify(dir.path()).unwrap().reports), (vec![], 35));
    assert_eq!(open(&dir).history().unwrap().len(), 35);
    let mut store = open(&dir);
    go_on(&mut store, 36..=40);
    drop(store);
    assert_eq!((files(&dir).len(), in_files(&dir).len()), (4, 40), "the live file is full as well");
    drop(open(&dir));
    assert_eq!((files(&dir).len(), problems(&dir)), (4, vec![]));

    // The new limit applies from now on.
    let mut store = DiskStore::open(dir.path(), Options { history_rounds: 7, ..OPTIONS }).unwrap();
    go_on(&mut store, 41..=45);
    drop(store);
    assert_eq!(files(&dir)[4..], ["history-000041-000042.jsonl", "history.jsonl"]);

    // A missing file is reported.
    fs::remove_file(dir.path().join("history-000011-000020.jsonl")).unwrap();
    assert_eq!(problems(&dir), ["10 reports of rounds 11 to 20 are missing in the history"]);
    drop(open(&dir));
    assert_eq!(in_files(&dir).len(), 35);
}

#[test]
fn a_flipped_bit_in_a_line_is_found_also_if_the_line_has_left_the_ledger() {
    let dir = after(35);
    for (name, number) in [("history-000011-000020.jsonl", 14), ("history.jsonl", 31)] {
        let path = dir.path().join(name);
        let whole = fs::read_to_string(&path).unwrap();
        let at = whole.find(&format!("{{\"round\":{number},")).unwrap();
        for offset in [0, 9, 100, 20_010] {
            let mut bytes = whole.clone().into_bytes();
            bytes[at + offset] ^= 1;
            fs::write(&path, &bytes).unwrap();
            let problems = problems(&dir);
            let found = problems.iter().find(|problem| problem.contains(name));
            let line = if name == "history.jsonl" { 1 } else { 4 };
            let place = format!("{name}, line {line}, after round {}: its checksum is wrong", number - 1);
            assert!(found.is_some_and(|problem| problem.contains(&place)), "{problems:?}");
            // A line that the ledger still has is written again on opening. Another one stays as it is.
            drop(open(&dir));
            let repaired = name == "history.jsonl";
            let expected = if repaired { whole.as_bytes() } else { &bytes[..] };
            assert!(fs::read(&path).unwrap() == expected, "{name} {offset}");
        }
        fs::write(&path, whole).unwrap();
        assert_eq!(problems(&dir), [""; 0]);
    }
}

/// Killed after the commit of a full file's last round, before the line is there, or before the file has its name.
#[test]
fn a_file_that_did_not_get_its_name_gets_it_on_opening() {
    let dir = after(20);
    let (full, live) = (dir.path().join("history-000011-000020.jsonl"), dir.path().join("history.jsonl"));
    let whole = fs::read(&full).unwrap();
    for lost in [0, 1, 1000, 30_000] {
        fs::remove_file(&full).unwrap();
        fs::write(&live, &whole[..whole.len() - lost]).unwrap();
        assert_eq!(problems(&dir), [""; 0], "{lost}");
        drop(open(&dir));
        assert!(fs::read(&full).unwrap() == whole && !live.exists(), "{lost}");
    }
}

/// If the name is taken, the run continues with one long file.
#[test]
fn a_taken_name_does_not_stop_the_run() {
    let dir = after(15);
    fs::create_dir(dir.path().join("history-000011-000020.jsonl")).unwrap();
    let mut store = open(&dir);
    go_on(&mut store, 16..=22);
    drop(store);
    fs::remove_dir(dir.path().join("history-000011-000020.jsonl")).unwrap();
    assert_eq!((in_files(&dir), problems(&dir)), ((1..=22).collect(), vec![]));
}

#[test]
fn a_rollback_goes_back_over_full_files() {
    for to in [34, 30, 29, 21, 20, 15, 10, 3, 0] {
        let dir = after(35);
        let done = DiskStore::rollback(dir.path(), to).unwrap();
        let undone = fs::read_to_string(done.reports.unwrap()).unwrap();
        let found = Reports::parse(undone.as_bytes());
        assert_eq!(found.reports.into_keys().collect::<Vec<_>>(), (to + 1..=35).collect::<Vec<_>>());
        assert_eq!(found.damaged, [0; 0]);
        assert_eq!(done.last.is_some(), to > 0);
        assert!(done.last.is_none_or(|last| last.starts_with(&format!("{{\"round\":{to},"))));
        if to > 0 {
            assert_eq!(in_files(&dir), (1..=to).collect::<Vec<_>>(), "{to}");
        }
        assert_eq!(problems(&dir), [""; 0], "{to}");
        let mut store = open(&dir);
        go_on(&mut store, to + 1..=41);
        drop(store);
        assert_eq!((in_files(&dir), problems(&dir)), ((1..=41).collect(), vec![]), "{to}");
        assert_eq!(files(&dir).len(), 5, "{to}");
    }
}

/// The ledger has gone back, and nothing else has yet: lines of rounds after it are set aside, and the run goes on.
#[test]
fn lines_that_the_ledger_does_not_know_are_set_aside() {
    let dir = after(35);
    let lines = || {
        let mut found: Vec<_> = files(&dir).into_iter().map(|name| dir.path().join(name)).collect();
        found.retain(|path| path.exists());
        found.into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect::<Vec<_>>()
    };
    let before = lines();
    let ledger = |dir: &Path| fs::read(dir.join(ledger::FILE)).unwrap();
    DiskStore::rollback(dir.path(), 15).unwrap();
    let rolled_back = ledger(dir.path());
    // Killed while the lines are removed: the first files are cut already.
    for cut in 0..=2 {
        for (bytes, path) in &before {
            fs::write(path, bytes).unwrap();
        }
        fs::write(dir.path().join(ledger::FILE), &rolled_back).unwrap();
        let path = |name: &str| dir.path().join(name);
        if cut > 0 {
            fs::write(path("history.jsonl"), "").unwrap();
        }
        if cut > 1 {
            fs::rename(path("history-000021-000030.jsonl"), path("history.jsonl")).unwrap();
        }
        let mut store = open(&dir);
        assert_eq!(in_files(&dir), (1..=15).collect::<Vec<_>>(), "{cut}");
        go_on(&mut store, 16..=18);
        drop(store);
        assert_eq!((in_files(&dir).len(), problems(&dir)), (18, vec![]), "{cut}");
    }
    let aside = fs::read_to_string(dir.path().join("undone-000035-to-000015.1.jsonl")).unwrap();
    assert_eq!(Reports::parse(aside.as_bytes()).reports.len(), 20);
}

#[test]
fn full_files_without_a_ledger_are_not_taken_for_an_empty_directory() {
    let dir = after(10);
    for path in ["models", "spool"] {
        fs::remove_dir_all(dir.path().join(path)).unwrap();
    }
    fs::remove_file(dir.path().join(ledger::FILE)).unwrap();
    assert_eq!(files(&dir), ["history-000001-000010.jsonl"]);
    let error = DiskStore::open(dir.path(), OPTIONS).unwrap_err().to_string();
    assert!(error.contains("history-000001-000010.jsonl of a run exists"), "{error}");
}
