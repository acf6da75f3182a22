//! Files on a shared machine: who may read them, and how much of a file is read.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use fleet::{
    gateway::Gateway,
    process::{Process, program},
};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A directory and everything below it.
fn all(dir: &Path) -> Vec<PathBuf> {
    let (mut open, mut found) = (vec![dir.to_owned()], vec![]);
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.push(path);
    }
    found
}

/// Only files for people are readable by others, and then only by the owner's group.
fn expect_private(gateway: &Gateway) -> Vec<String> {
    let gw = gateway.path("gw");
    let mut names = vec![];
    for path in all(&gw) {
        let name = path.strip_prefix(&gw).unwrap().to_str().unwrap().to_owned();
        let wanted = match name.as_str() {
            "" | "fairtier.toml" => continue,
            "model.onnx" | "status.json" => 0o640,
            _ if path.is_dir() => 0o700,
            _ => 0o600,
        };
        assert_eq!(mode(&path), wanted, "{name}");
        names.push(name);
    }
    names
}

#[test]
fn other_users_read_nothing_of_a_gateway_but_its_configuration() {
    let gateway = Gateway::new(
        "run = { rounds = 3, min_devices = 1 }\nstore = { record = true, keep_spool = true }",
        &["cam-1"],
    );
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let device = gateway.device(&serving, "cam-1", "0/40", &[]);
    gateway.wait_committed(3);
    let names = expect_private(&gateway);
    device.succeed();
    serving.process.terminate();
    serving.process.succeed();
    let dir = gateway.text("gw");
    Process::start("rollback", "gateway", &["rollback", "--dir", &dir, "--to", "2"]).succeed();
    Process::start("revoke", "gateway", &["revoke", "--dir", &dir, "cam-1"]).succeed();
    let later = expect_private(&gateway);
    for part in [
        "identity/lock",
        "serving.lock",
        "history.jsonl",
        "fairtier.redb",
        ".spool",
        ".model",
        "rounds/",
        ".npy",
    ] {
        assert!(names.iter().any(|name| name.contains(part)), "{part}: {names:?}");
    }
    for part in ["undone-", "revoked.jsonl"] {
        assert!(later.iter().any(|name| name.contains(part)), "{part}: {later:?}");
    }
}

#[test]
fn the_permissions_of_an_older_gateway_are_tightened() {
    let gateway = Gateway::of_format_4();
    assert_eq!(mode(&gateway.path("gw/store/spool")), 0o755, "the fixture has changed");
    let rounds = gateway.path("gw/rounds");
    fs::create_dir(&rounds).unwrap();
    fs::write(rounds.join("round-000001.json"), "{}").unwrap();
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let names = expect_private(&gateway);
    assert!(names.iter().any(|name| name.ends_with(".spool")), "{names:?}");
    drop(serving);
}

#[test]
fn a_saved_model_follows_no_link_and_is_readable_by_its_owner_only() {
    let gateway = Gateway::new("run = { rounds = 1, min_devices = 1 }", &["cam-1"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let elsewhere = gateway.path("elsewhere");
    fs::write(&elsewhere, "untouched").unwrap();
    for name in ["model.part", "model.onnx~", "model.onnx"] {
        symlink(&elsewhere, gateway.path(name)).unwrap();
    }
    let model = gateway.text("model.onnx");
    gateway.device(&serving, "cam-1", "0/5", &["--save-model", &model]).succeed();
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "untouched");
    assert!(fs::symlink_metadata(&model).unwrap().is_file());
    assert_eq!(mode(Path::new(&model)), 0o600);
    assert!(!fleet::gateway::parameters(Path::new(&model)).is_empty());
    assert!(!gateway.path("model.onnx~").exists(), "a temporary file is left");
}

#[test]
fn a_device_file_in_place_of_a_regular_file_is_refused() {
    let gateway = Gateway::new("model = { source = \"/dev/zero\", tiers = [1.0] }", &["cam-1"]);
    let (dir, good) = (gateway.text("gw"), gateway.text("cam-1.pem"));
    let odd = gateway.text("odd");
    fs::create_dir(&odd).unwrap();
    symlink("/dev/zero", gateway.path("odd/fairtier.toml")).unwrap();
    let run = ["device", "run", "--server", "127.0.0.1:1"];
    let calls = [
        &["gateway", "serve", "--dir", &dir, "--listen", "127.0.0.1:0"][..],
        &["gateway", "serve", "--dir", &odd, "--listen", "127.0.0.1:0"],
        &["round", "combine", "/dev/zero"],
        &["model", "check", "/dev/zero"],
        &["model", "inspect", "/dev/zero"],
        #[cfg(feature = "infer")]
        &["device", "predict", "--model", "/dev/zero"],
        &[&run[..], &["--identity", "/dev/zero", "--device", "cam-1", "--data", "digits"]].concat(),
        &[&run[..], &["--identity", &good, "--csv", "/dev/zero"]].concat(),
    ];
    for call in calls {
        let ended = Command::new(program()).args(call).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && said.contains("not a regular file"), "{call:?}: {said}");
    }
}

#[test]
fn a_file_that_is_far_too_large_is_not_read() {
    let gateway = Gateway::new("", &["cam-1"]);
    let large = gateway.text("large");
    // A sparse file takes no space on the disk.
    fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    let args =
        ["run", "--server", "127.0.0.1:1", "--identity", &large, "--device", "cam-1", "--data", "digits"];
    for (program_name, args) in [("model", &["check", &large][..]), ("device", &args)] {
        let output = Process::start(program_name, program_name, args).fail();
        assert!(output.contains("larger than"), "{output}");
    }
}
