//! Devices that report false sample counts, starting with their first Hello.

use std::fs;

use common::{
    Code,
    message::{DataSummary, Offer, Scalars, Score},
};
use fleet::{
    gateway::Gateway,
    raw::{Raw, hello, honest, tls},
};

/// Name, training samples, and whether it reports more test samples than its Hello announced.
const DEVICES: [(&str, u32, bool); 7] = [
    ("a", 154, false),
    ("b", 151, false),
    ("boasts", 48_008, false),
    ("c", 158, false),
    ("d", 150, false),
    ("e", 155, false),
    ("tests-too-many", 152, true),
];

#[test]
fn a_sample_count_300_times_too_large_weighs_two_average_devices() {
    let config = "run = { rounds = 2, min_devices = 7 }\nround = { quorum = 0.25 }\n\
                  strategy = { name = \"heterofl\" }";
    let gateway = Gateway::new(config, &DEVICES.map(|(name, ..)| name));
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let round = runtime.block_on(async {
        let mut joined = vec![];
        for (name, samples, tests) in DEVICES {
            let identity = fs::read(gateway.identity(name)).unwrap();
            let mut raw = Raw::connect(&serving.address, tls(&identity, false)).await.unwrap();
            let mut greeting = hello(name);
            let data = greeting.data;
            greeting.data = DataSummary { train_samples: samples, test_samples: 20, ..data };
            let welcome = raw.join(greeting).await;
            joined.push((samples, tests, raw, welcome));
        }
        for (samples, tests, mut raw, welcome) in joined {
            let assignment = raw.assignment().await;
            let (offer, update) = honest(&assignment, &welcome);
            let test = Some(Score { samples: if tests { 21 } else { 20 }, correct: 10, loss: 2.0 });
            let offer = Offer { scalars: Scalars { samples, test, ..offer.scalars.clone() }, ..offer };
            let expected = tests.then_some(Code::ImplausibleSamples);
            assert_eq!(raw.deliver(&offer, &update).await, expected);
            raw.leave().await;
        }
        gateway.wait_committed(1)["last_round"].clone()
    });
    let lines = |key: &str| round[key].as_array().unwrap().clone();
    let [line] = &lines("guard")[..] else { panic!("{round}") };
    assert_eq!((&line["device"], &line["what"]), (&"boasts".into(), &"share".into()), "{round}");
    assert!(line["said"].as_f64() > Some(0.98), "{round}");
    let mut weights: Vec<_> = lines("devices").iter().map(|line| line["weight"].as_f64().unwrap()).collect();
    let boaster = weights.remove(2);
    assert!((boaster - 2.0 / 6.0).abs() < 1e-9, "{round}");
    assert!(weights.len() == 5 && weights.iter().all(|weight| *weight > 0.12), "{round}");
    let refused = lines("refused");
    assert_eq!((refused.len(), &refused[0]["device"]), (1, &"tests-too-many".into()), "{round}");
}
