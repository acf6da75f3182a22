//! The load generator against the real aggregator: what it counts is what happened.

use fleet::process::Process;
use serde_json::Value;

#[test]
fn devices_without_data_take_part_in_every_round() {
    let args = ["load", "--devices", "20", "--rounds", "2", "--reference", "--format", "json", "--quiet"];
    let output = Process::start("load", "sim", &args).succeed();
    let line = output.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{output}"));
    let result: Value = serde_json::from_str(line).unwrap();
    assert_eq!(result["parameters"], 178_110);
    assert_eq!((&result["accepted"], &result["refused"]), (&60.into(), &0.into()), "{result}");
    assert_eq!(result["connect"]["devices"], 20);
    let rounds = result["rounds"].as_array().unwrap();
    // The first of the turn does not count.
    let counted = |rounds: &[Value]| rounds.iter().map(|round| round["counted"] == true).collect::<Vec<_>>();
    assert_eq!(counted(rounds), [false, true, true]);
    for round in rounds {
        assert_eq!(round["accepted"], 20, "{round}");
        assert!(round["peak_rss_kb"].as_u64() > Some(4096), "{round}");
        assert!(round["seconds"].as_f64() >= round["collecting_s"].as_f64(), "{round}");
    }
    assert_eq!(counted(result["reference"]["rounds"].as_array().unwrap()), [false, true, true]);
    assert!(result["reference"]["ratio"].as_f64() > Some(0.0), "{result}");
}
