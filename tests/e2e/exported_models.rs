//! A model as PyTorch writes it by default, in two files, through a whole run of the real programs.

use std::{fs, path::Path};

use fleet::{
    gateway::{Gateway, parameters},
    process::Process,
};
use models::onnx;

const CONFIG: &str = "run = { rounds = 3, min_devices = 2 }\nround = { quorum = 1.0 }\n\
                      model = { source = \"../two-files.onnx\", tiers = [1.0, 0.5] }\n\
                      training = { lr = 0.1 }\n";

#[test]
fn a_model_in_two_files_is_trained_and_exported_as_one() {
    let gateway = Gateway::new(CONFIG, &["wide", "narrow"]);
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures");
    fs::copy(fixtures.join("two-files.onnx"), gateway.path("two-files.onnx")).unwrap();
    let output = gateway.serve_in_vain();
    assert!(output.contains("E51") && output.contains("'two-files.onnx.data', which is missing"), "{output}");

    fs::copy(fixtures.join("two-files.onnx.data"), gateway.path("two-files.onnx.data")).unwrap();
    let initial = onnx::import(&onnx::read(&gateway.path("two-files.onnx")).unwrap()).unwrap();
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    let narrow = gateway.model().plans[1].info.arena_bytes().to_string();
    let devices = [
        gateway.device(&serving, "wide", "0/2", &[]),
        gateway.device(&serving, "narrow", "1/2", &["--ram", &narrow]),
    ];
    devices.into_iter().for_each(|device| {
        device.succeed();
    });
    serving.process.succeed();

    let history = gateway.history();
    let loss = |round: usize| history[round]["loss"]["mean"].as_f64().unwrap();
    assert!(loss(history.len() - 1) < loss(0), "{history:?}");
    let trained = gateway.parameters();
    assert_eq!(trained.len(), 2410);
    assert_ne!(trained, initial.parameters);

    // Exports need no second file.
    let (dir, out) = (gateway.text("gw"), gateway.text("export"));
    Process::start("export", "gateway", &["export", "--dir", &dir, "--out", &out]).succeed();
    assert_eq!(fs::read_dir(&out).unwrap().count(), 2);
    assert_eq!(parameters(&gateway.path("export/tier-0.onnx")), trained);
    assert_eq!(parameters(&gateway.path("export/tier-1.onnx")).len(), 1210);
}
