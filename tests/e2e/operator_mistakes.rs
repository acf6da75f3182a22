//! Mistakes of operators: each is reported with its code and a remedy, and nothing is overwritten.

use std::{fs, process::Command};

use aggregator::{
    run,
    store::{DiskStore, Options, Store, StoreError},
};
use common::rng::Rng;
use fleet::{
    gateway::{Gateway, files},
    process::{Process, program},
    raw::{Raw, hello, tls},
};

#[test]
fn a_wrong_configuration_is_reported() {
    let cases = [
        ("[training]\nlearning_rate = 0.1", "E50", "learning_rate"),
        ("[round]\nquorum = 1.5", "E50", "round.quorum = 1.5"),
        ("[training]\nlr = \"fast\"", "E50", "lr"),
        ("[training]\nlr = nan", "E50", "training.lr"),
        ("[wire]\nup = \"int4\"", "E50", "int4"),
        ("[wire]\nup = [\"int8\", \"f32\"]", "E50", "one per tier"),
        ("[server]\nmax_message = 9000", "E50", "tier 0 needs messages of 9640 bytes"),
        (
            "[server]\nmax_downloads = 9223372036854775807",
            "E50",
            "server.max_downloads = 9223372036854775807",
        ),
        ("not toml at all", "E50", "fairtier.toml"),
        ("strategy = { name = \"fedproxy\" }", "E50", "known are fedavg"),
        ("strategy = { params = { qq = 1 } }", "E50", "qq"),
        ("strategy = { params = { q = -1 } }", "E50", "`q`"),
        ("strategy = { params = { q_m = [0.1, 0.2] } }", "E50", "5 tiers"),
        (
            "strategy = { name = \"fedlf\" }\nguard = { bonus = \"agreeing\" }",
            "E50",
            "guard.bonus = \"agreeing\" with strategy fedlf",
        ),
        ("guard = { share = 0.5 }", "E50", "guard.share = 0.5"),
        ("guard = { probe = \"nowhere.csv\" }", "E50", "nowhere.csv"),
        ("guard = { probe = \"garbage.onnx\" }", "E50", "guard.probe"),
        ("devices = { cam-1 = 7 }", "E50", "cam-1"),
        ("model = { tiers = [1.0, 2.0] }", "E51", "tier 1"),
        ("model = { source = \"resnet-50\" }", "E51", "digits-mlp"),
        ("model = { source = \"garbage.onnx\" }", "E51", "garbage.onnx"),
        ("model = { source = \"empty.onnx\" }", "E51", "empty.onnx"),
        ("model = { source = \".\" }", "E51", "directory"),
    ];
    for (config, code, named) in cases {
        let gateway = Gateway::new(config, &[]);
        fs::write(gateway.path("gw/garbage.onnx"), [0xff; 300]).unwrap();
        fs::write(gateway.path("gw/empty.onnx"), []).unwrap();
        let output = gateway.serve_in_vain();
        assert!(output.contains(code) && output.contains(named), "{config}:\n{output}");
        assert!(!gateway.path("gw/store/fairtier.redb").exists(), "{config}: a run was started");
    }
}

#[test]
fn a_directory_without_a_gateway_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().to_str().unwrap();
    let output = Process::start("serve", "gateway", &["serve", "--dir", text]).fail();
    assert!(output.contains("fairtier gateway init"), "{output}");
    let output = Process::start("status", "gateway", &["status", "--dir", text]).fail();
    assert!(output.contains("no round is finished yet"), "{output}");
    assert_eq!(files(dir.path()), []);
    let gateway = Gateway::new("", &[]);
    let before = files(&gateway.path("gw"));
    let output = Process::start("init", "gateway", &["init", &gateway.text("gw")]).fail();
    assert!(output.contains("exists already"), "{output}");
    assert_eq!(files(&gateway.path("gw")), before);
}

#[test]
fn wrong_arguments_of_a_device_are_reported() {
    let gateway = Gateway::new("", &["cam-1"]);
    let good = gateway.text("cam-1.pem");
    let plain = |args: &[&str]| Process::start("device", "device", &[&["run"], args].concat()).fail();
    let run = |args: &[&str]| plain(&[args, &["--data", "digits"]].concat());

    let output = plain(&["--identity", &good]);
    assert!(output.contains("no samples are given") && output.contains("--data digits"), "{output}");
    let output = run(&["--identity", &gateway.text("nobody.pem")]);
    assert!(output.contains("nobody.pem"), "{output}");
    fs::write(gateway.path("text.pem"), "no certificate").unwrap();
    let output = run(&["--identity", &gateway.text("text.pem")]);
    assert!(output.contains("fairtier gateway enroll"), "{output}");
    let bundle = fs::read_to_string(gateway.path("cam-1.pem")).unwrap();
    fs::write(gateway.path("cut.pem"), &bundle[..bundle.len() / 2]).unwrap();
    let output = run(&["--identity", &gateway.text("cut.pem")]);
    assert!(output.contains("fairtier gateway enroll"), "{output}");
    let output = run(&["--identity", &good, "--server", "nowhere"]);
    assert!(output.contains("--server nowhere"), "{output}");
    let output = run(&["--identity", &good, "--server", "127.0.0.1:9", "--give-up-after", "1"]);
    assert!(output.contains("check that it is running"), "{output}");
    let output = plain(&["--identity", &good, "--data", &gateway.text("none.csv")]);
    assert!(output.contains("none.csv"), "{output}");
}

/// `| head` closes the pipe early; the command still does its work.
#[test]
fn a_closed_output_pipe_is_not_an_error() {
    let gateway = used_store();
    let [dir, out, shard] = ["gw", "onnx", "m4.shard"].map(|name| gateway.text(name));
    let fresh = gateway.text("fresh");
    let calls = [
        &["gateway", "init", &fresh][..],
        &["gateway", "enroll", "--dir", &dir, "--out", &out, "cam-2", "cam-3"],
        &["gateway", "token", "--dir", &dir, "cam-4"],
        &["gateway", "revoke", "--dir", &dir, "cam-2"],
        &["gateway", "status", "--dir", &dir],
        &["gateway", "status", "--dir", &dir, "--format", "json"],
        &["gateway", "history", "--dir", &dir],
        &["gateway", "verify", "--dir", &dir],
        &["gateway", "verify", "--dir", &dir, "--format", "json"],
        &["gateway", "export", "--dir", &dir, "--out", &out],
        &["gateway", "export", "--dir", &dir, "--out", &out, "--format", "json"],
        &["codes"],
        &["codes", "--format", "json"],
        &["board", "shard", "--data", "digits", "--share", "0/14", "--out", &shard],
        &["model", "zoo"],
        &["sim", "run", "--list"],
        &["sim", "data", "list"],
    ];
    for call in calls {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = Command::new(program()).args(call).stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && !said.contains("panicked"), "{call:?}: {}\n{said}", ended.status);
    }
    assert!(gateway.path("onnx/cam-3.pem").exists() && gateway.path("m4.shard").exists());
}

/// The directory of an aggregator that was killed after a few rounds with one device.
fn used_store() -> Gateway {
    let config =
        "run = { rounds = 40, min_devices = 1 }\nround = { quorum = 1.0 }\nstore = { keep_spool = true }";
    let gateway = Gateway::new(config, &["cam-1"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let device = gateway.device(&serving, "cam-1", "0/20", &[]);
    gateway.wait_committed(2);
    serving.process.kill();
    device.kill();
    gateway
}

#[test]
fn a_damaged_store_is_reported_and_not_changed() {
    let refuse = |what: &str, gateway: &Gateway, codes: &[&str]| {
        let store = gateway.path("gw/store");
        let model = fs::read(gateway.path("gw/model.onnx")).unwrap();
        let before = files(&store);
        let output = gateway.serve_in_vain();
        assert!(codes.iter().any(|code| output.contains(code)), "{what}:\n{output}");
        assert!(output.contains("store"), "{what} does not say where:\n{output}");
        assert!(!output.contains("panicked"), "{what}:\n{output}");
        assert!(files(&store) == before, "{what}: the store was changed");
        assert!(fs::read(gateway.path("gw/model.onnx")).unwrap() == model, "{what}: the model was changed");
    };

    let gateway = used_store();
    fs::write(gateway.path("gw/store/fairtier.redb"), [0x5a; 4096]).unwrap();
    refuse("garbage instead of the ledger", &gateway, &["E52", "E53"]);
    fs::write(gateway.path("gw/store/fairtier.redb"), []).unwrap();
    refuse("an empty ledger", &gateway, &["E52", "E53"]);

    let gateway = used_store();
    let ledger = gateway.path("gw/store/fairtier.redb");
    let whole = fs::read(&ledger).unwrap();
    fs::write(&ledger, &whole[..whole.len() / 3]).unwrap();
    refuse("a ledger that is cut off", &gateway, &["E52", "E53"]);

    // The aggregator was killed, so a round is open. Its spool is shorter than the ledger says.
    let gateway = half_a_round();
    for spool in fs::read_dir(gateway.path("gw/store/spool")).unwrap() {
        let path = spool.unwrap().path();
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    }
    refuse("a spool that is cut off", &gateway, &["E52"]);
}

#[test]
fn a_run_does_not_continue_with_another_model() {
    let gateway = used_store();
    let config = fs::read(gateway.path("gw/fairtier.toml")).unwrap();
    let (model, parameters) = (run::fingerprint(&gateway.model()), gateway.parameters());
    fs::write(gateway.path("gw/fairtier.toml"), "model = { tiers = [1.0, 0.5] }").unwrap();
    let output = gateway.serve_in_vain();
    assert!(output.contains("E16") && output.contains("another directory"), "{output}");
    assert_eq!(gateway.parameters(), parameters);
    fs::write(gateway.path("gw/fairtier.toml"), config).unwrap();
    let mut store = DiskStore::open(&gateway.path("gw/store"), Options::default()).unwrap();
    assert!(store.load(&model).unwrap().unwrap().next_round > 2);
}

/// A round with two devices, one of which has delivered.
fn half_a_round() -> Gateway {
    let gateway = Gateway::new("run = { rounds = 5, min_devices = 2 }", &["cam-1", "mute"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let mut device = gateway.device(&serving, "cam-1", "0/20", &[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let identity = fs::read(gateway.identity("mute")).unwrap();
        let mut mute = Raw::connect(&serving.address, tls(&identity, false)).await.unwrap();
        mute.join(hello("mute")).await;
        mute.assignment().await;
        device.wait_line("update accepted");
    });
    serving.process.kill();
    device.kill();
    gateway
}

/// An acknowledged update that is damaged while the server runs must not be reported as safe.
#[test]
fn a_spool_damaged_during_a_run_is_reported_with_its_consequences() {
    let gateway = Gateway::new("run = { rounds = 5, min_devices = 2 }", &["cam-1", "mute"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let mut device = gateway.device(&serving, "cam-1", "0/20", &[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let identity = fs::read(gateway.identity("mute")).unwrap();
        let mut mute = Raw::connect(&serving.address, tls(&identity, false)).await.unwrap();
        mute.join(hello("mute")).await;
        mute.assignment().await;
        device.wait_line("update accepted");
    });
    let spool = gateway.path("gw/store/spool/round-000001.spool");
    let mut bytes = fs::read(&spool).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&spool, bytes).unwrap();
    let _mute = gateway.device(&serving, "mute", "1/20", &[]);
    let output = serving.process.fail();
    assert!(output.contains("E52") && output.contains("round-000001.spool is damaged"), "{output}");
    assert!(output.contains("at least one of them cannot be used"), "{output}");
    assert!(!output.contains("is lost") && !output.contains("nothing was changed"), "{output}");
}

/// Damage anywhere in the ledger is either detected without changing anything, or harmless.
#[test]
fn flipped_bytes_in_the_ledger_do_no_harm() {
    let gateway = half_a_round();
    let store = gateway.path("gw/store");
    let before = files(&store);
    let ledger = store.join("fairtier.redb");
    let whole = fs::read(&ledger).unwrap();
    let expected = gateway.parameters();
    let model = run::fingerprint(&gateway.model());
    let mut noticed = 0;
    let mut rng = Rng::new(5);
    for _ in 0..160 {
        // Pages in use are those that are not empty. Most of them belong to earlier transactions, so several bytes
        // are flipped at a time.
        let mut damaged = whole.clone();
        for _ in 0..20 {
            let places = std::iter::repeat_with(|| rng.below(whole.len() as u64) as usize);
            let at = places.take(1 << 16).find(|&at| whole[at] != 0).unwrap();
            damaged[at] = whole[at] ^ 0x41;
        }
        for (path, content) in &before {
            fs::write(path, content).unwrap();
        }
        fs::write(&ledger, &damaged).unwrap();
        let opened = DiskStore::open(&store, Options::default());
        match opened.and_then(|mut store| store.load(&model)) {
            Ok(saved) => assert_eq!(saved.unwrap().parameters, expected),
            Err(StoreError::Damaged { .. } | StoreError::Database { .. } | StoreError::Format { .. }) => {
                noticed += 1;
                assert!(fs::read(&ledger).unwrap() == damaged, "the damaged ledger was changed");
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(noticed > 10, "{noticed}");
}
