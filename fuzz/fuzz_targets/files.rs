//! Files that users may have edited: reports of rounds, experiments and partitions.
#![no_main]

use aggregator::store::Reports;
use libfuzzer_sys::fuzz_target;
use sim::{
    experiment::{LoadedExperiment, PROFILES},
    partition::Partition,
};

fuzz_target!(|data: &[u8]| {
    reports(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    for profile in PROFILES {
        if let Ok(loaded) = LoadedExperiment::parse("fuzz", text, profile, &[]) {
            let again = LoadedExperiment::of("fuzz", profile, loaded.table.clone()).expect("own table");
            assert_eq!(again.record().settings.len(), loaded.record().settings.len());
        }
    }
    if let Ok(partition) = text.parse::<Partition>() {
        assert_eq!(partition.to_string().parse::<Partition>().ok(), Some(partition));
    }
});

/// Every line is a report, empty, or reported as damaged; reports that were read can be written and read again.
fn reports(data: &[u8]) {
    let found = Reports::parse(data);
    let lines = data.iter().filter(|&&byte| byte == b'\n').count();
    assert!(found.damaged.iter().all(|&line| (1..=lines).contains(&line)));
    assert!(found.reports.len() + found.damaged.len() <= lines);
    let written: String = found.reports.values().map(|report| format!("{report}\n")).collect();
    let again = Reports::parse(written.as_bytes());
    assert!(again.damaged.is_empty());
    assert_eq!(again.reports, found.reports);
}
