//! Stores and configurations that older programs have written.

use std::fs;

use fleet::{gateway::Gateway, process::Process};

/// Round 4 goes on with the updates of `a` and `b` that are in the store: only `c` trains it.
#[test]
fn a_store_of_format_4_goes_on_where_it_was_killed() {
    let gateway = Gateway::of_format_4();
    let before = gateway.look();
    assert_eq!((before.history.len(), &before.exchanges[..]), (3, &[vec!["a".into(), "b".into()]][..]));
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let c = gateway.device(&serving, "c", "2/40", &[]);
    let status = gateway.wait_committed(4);
    let devices: Vec<_> = status["last_round"]["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["device"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(devices, ["a", "b", "c"]);
    drop((c, serving));
    let dir = gateway.text("gw");
    let text = Process::start("verify", "aggregator", &["verify", "--dir", &dir]).succeed();
    assert!(text.contains("4 rounds committed"), "{text}");
}

/// A gateway that is brought up to date starts with the file that its `init` wrote.
#[test]
fn the_configuration_that_init_wrote_before_still_starts() {
    let gateway = Gateway::of_format_4();
    let old = fs::read_to_string(gateway.path("init.toml")).unwrap();
    let gateway = Gateway::new(&old, &["d"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let _device = gateway.device(&serving, "d", "0/40", &[]);
    gateway.wait_committed(1);
}
