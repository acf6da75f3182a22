use tempfile::TempDir;

use super::*;

fn report(round: u32) -> String {
    format!("{{\"round\": {round}, \"devices\": \"{}\"}}", "x".repeat(round as usize * 30_000))
}

fn read(dir: &TempDir) -> (Vec<u32>, Vec<String>) {
    let mut reader = ReportReader::open(dir.path()).unwrap().unwrap();
    let mut rounds = vec![];
    while let Some(report) = reader.read_next().unwrap() {
        rounds.push(report.round);
    }
    (rounds, reader.faults().named.iter().map(ToString::to_string).collect())
}

fn rounds(dir: &TempDir) -> Vec<u32> {
    let (rounds, faults) = read(dir);
    assert!(faults.is_empty(), "{faults:?}");
    rounds
}

#[test]
fn lines_lost_in_a_crash_are_restored_and_equal_lines_are_not_rewritten() {
    let dir = TempDir::new().unwrap();
    let history = History::of(dir.path());
    assert!(ReportReader::open(dir.path()).unwrap().is_none());
    history.rewrite(1, 0, std::iter::empty()).unwrap();
    history.sync().unwrap();
    assert!(!history.live().exists(), "no report, no file");
    for round in 1..=5 {
        history.append(&report(round)).unwrap();
    }
    let whole = fs::read(history.live()).unwrap();
    let from = |first: u32| (first..=5).map(|round| Some(report(round)));
    let len = |round: u32| with_checksum(&report(round)).len();
    // The ledger has rounds 3 to 5; the file was cut off anywhere behind round 2, or ends in zeroes.
    let kept = len(1) + len(2);
    for cut in [kept, kept + 1, kept + 70_000, kept + len(3) - 1, kept + len(3), whole.len() - 1] {
        for tail in [0, 100_000] {
            let mut left = whole[..cut].to_vec();
            left.resize(cut + tail, 0);
            fs::write(history.live(), left).unwrap();
            history.rewrite(3, 0, from(3)).unwrap();
            assert!(fs::read(history.live()).unwrap() == whole, "cut at {cut}");
        }
    }
    assert_eq!(rounds(&dir), [1, 2, 3, 4, 5]);
    // Rounds after 2 are undone.
    history.cut(2).unwrap();
    assert_eq!(rounds(&dir), [1, 2]);
    // An operator has moved the file away.
    fs::remove_file(history.live()).unwrap();
    history.rewrite(4, 0, from(4)).unwrap();
    assert_eq!(rounds(&dir), [4, 5]);
}

#[test]
fn a_line_whose_report_the_ledger_has_lost_stays() {
    let dir = TempDir::new().unwrap();
    let history = History::of(dir.path());
    (1..=4).for_each(|round| history.append(&report(round)).unwrap());
    let ledger = [Some(report(2)), None, Some(report(4))];
    history.rewrite(2, 0, ledger.into_iter()).unwrap();
    assert_eq!(rounds(&dir), [1, 2, 3, 4]);
}

/// Where the line of a round starts.
fn line_of(text: &[u8], round: u32) -> usize {
    let needle = format!("{{\"round\": {round},").into_bytes();
    text.windows(needle.len()).position(|part| part == needle).unwrap()
}

#[test]
fn a_damaged_line_that_has_left_the_ledger_stays_when_the_file_is_brought_up_to_date() {
    let dir = TempDir::new().unwrap();
    let history = History::of(dir.path());
    (1..=5).for_each(|round| history.append(&report(round)).unwrap());
    let whole = fs::read(history.live()).unwrap();
    // The ledger has rounds 4 and 5; damage is before them, or in them.
    for damaged in [&[3][..], &[2, 3], &[3, 4], &[1, 2, 3, 4, 5], &[4, 5]] {
        let mut bytes = whole.clone();
        damaged.iter().for_each(|&round| bytes[line_of(&whole, round)] = b'!');
        fs::write(history.live(), &bytes).unwrap();
        history.rewrite(4, 0, (4..=5).map(|round| Some(report(round)))).unwrap();
        let (found, faults) = read(&dir);
        let lost: Vec<_> = damaged.iter().copied().filter(|&round| round < 4).collect();
        let expected: Vec<_> = (1..=5).filter(|round| !lost.contains(round)).collect();
        assert_eq!((found, faults.len()), (expected, lost.len()), "{damaged:?}: {faults:?}");
    }
}

#[test]
fn a_reader_skips_lines_that_are_not_reports_and_names_them() {
    let dir = TempDir::new().unwrap();
    let mut wrong = with_checksum(&report(3)).into_bytes();
    wrong[20] ^= 1;
    let wrong = String::from_utf8(wrong).unwrap();
    let lines = [&report(1), "\n{}\nwhat\n\n", &with_checksum(&report(2)), &wrong, &report(4), "\n"].concat();
    let again = [
        lines.as_str(),
        &with_checksum(&report(5)),
        &with_checksum(&report(5)),
        &with_checksum(&report(6)),
        "{\"round\": 7",
    ]
    .concat();
    fs::write(files::live(dir.path()), &again).unwrap();
    let (rounds, faults) = read(&dir);
    assert_eq!(rounds, [1, 2, 5, 6]);
    let expected = [
        "history.jsonl, line 2, after round 1: it is not a report",
        "history.jsonl, line 3, after round 1: it is not a report",
        "history.jsonl, line 6, after round 2: its checksum is wrong",
        "history.jsonl, line 7, after round 2: it has no checksum",
        "history.jsonl, line 9, after round 5: it is of round 5, which is out of order",
    ];
    assert_eq!(faults, expected);
    let found = Reports::parse(again.as_bytes());
    assert_eq!(found.reports.into_keys().collect::<Vec<_>>(), rounds);
    assert_eq!(found.damaged, [2, 3, 6, 7, 9]);
}

#[test]
fn the_last_lines_are_found_from_the_end_and_over_files() {
    let dir = TempDir::new().unwrap();
    let history = History::of(dir.path());
    for round in 1..=7 {
        history.append(&report(round)).unwrap();
        if round % 3 == 0 {
            history.archive(round).unwrap();
        }
    }
    // A line that is being written.
    let live = fs::read(history.live()).unwrap();
    fs::write(history.live(), [&live[..], &live[..40_000]].concat()).unwrap();
    for count in 0..=9 {
        let mut reader = ReportReader::last(dir.path(), count).unwrap().unwrap();
        let mut found = vec![];
        while let Some(report) = reader.read_next().unwrap() {
            assert_eq!(report.text, self::report(report.round));
            found.push(report.round);
        }
        let expected: Vec<u32> = (1..=7).skip(7usize.saturating_sub(count)).collect();
        assert_eq!((found, reader.faults().is_empty()), (expected, true), "{count}");
    }
}

#[test]
fn a_file_that_becomes_full_while_it_is_read_is_read_once() {
    let dir = TempDir::new().unwrap();
    let history = History::of(dir.path());
    (1..=2).for_each(|round| history.append(&report(round)).unwrap());
    history.archive(2).unwrap();
    (3..=4).for_each(|round| history.append(&report(round)).unwrap());
    let mut before = ReportReader::open(dir.path()).unwrap().unwrap();
    // As if the directory were listed after the renaming: the open file is among the full ones.
    let live = fs::File::open(history.live()).unwrap();
    history.archive(4).unwrap();
    history.append(&report(5)).unwrap();
    let mut found = vec![];
    while let Some(report) = before.read_next().unwrap() {
        found.push(report.round);
    }
    assert_eq!(found, [1, 2, 3, 4]);
    let mut between = ReportReader::with_live(dir.path(), Some(live), ChecksumRule::None).unwrap().unwrap();
    let mut found = vec![];
    while let Some(report) = between.read_next().unwrap() {
        found.push(report.round);
    }
    assert_eq!((found, between.faults().is_empty()), (vec![1, 2, 3, 4], true));
}

/// A reader that reaches the end of the file inside a line stops there: the rest alone is not a line.
#[test]
fn a_line_that_is_being_written_is_left_for_later() {
    let dir = TempDir::new().unwrap();
    let history = History::of(dir.path());
    history.append(&report(1)).unwrap();
    let next = with_checksum(&report(2));
    let (begin, end) = next.split_at(next.len() / 2);
    let add = |text: &str| {
        let mut file = File::options().append(true).open(history.live()).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    add(begin);
    let mut reader = ReportReader::open(dir.path()).unwrap().unwrap();
    assert_eq!(reader.read_next().unwrap().unwrap().round, 1);
    assert_eq!(reader.read_next().unwrap(), None);
    add(end);
    assert_eq!(reader.read_next().unwrap(), None);
    assert!(reader.faults().is_empty(), "{:?}", reader.faults());
    assert_eq!(rounds(&dir), [1, 2]);
}

#[test]
fn a_full_file_that_is_cut_off_is_damaged() {
    let dir = TempDir::new().unwrap();
    let history = History::of(dir.path());
    (1..=2).for_each(|round| history.append(&report(round)).unwrap());
    history.archive(2).unwrap();
    let path = files::archive(dir.path(), 1, 2);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let (rounds, faults) = read(&dir);
    assert_eq!(rounds, [1]);
    assert_eq!(faults, ["history-000001-000002.jsonl, line 2, after round 1: the file ends inside it"]);
}

/// Tens of thousands of rounds take the memory of one line.
#[test]
fn memory_does_not_grow_with_the_number_of_rounds() {
    let dir = TempDir::new().unwrap();
    let text = |round: u32| format!("{{\"round\":{round},\"devices\":\"{}\"}}", "x".repeat(300));
    let lines: String = (1..=50_000).map(|round| with_checksum(&text(round))).collect();
    fs::write(files::live(dir.path()), lines).unwrap();
    let mut reader = ReportReader::open(dir.path()).unwrap().unwrap();
    let (mut count, mut most) = (0, 0);
    while let Some(report) = reader.read_next().unwrap() {
        count += usize::from(report.text.len() > 300);
        most = most.max(reader.held());
    }
    assert_eq!(count, 50_000);
    assert!(most < 2000, "{most} bytes are held for lines of 350");
}
