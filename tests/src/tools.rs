//! Programs that some tests need beside Rust: a browser, an emulator, a tracer.

use std::{
    env,
    io::{self, Write},
    path::PathBuf,
    thread,
};

/// The first of `names` on PATH. If there is none, the test is skipped with a message on standard error, past the
/// harness, which hides the output of passing tests. Under `./test`, which sets `FAIRTIER_TEST_ALL`, it fails.
pub fn find(names: &[&str], package: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").expect("PATH is set");
    let found = names
        .iter()
        .flat_map(|name| env::split_paths(&path).map(move |dir| dir.join(name)))
        .find(|file| file.is_file());
    if found.is_none() {
        leave_out(&format!("{} is not on PATH; install {package}, or run ./test", names[0]));
    }
    found
}

/// Reports that the running test is skipped, and why. Under `./test` it fails instead.
pub fn leave_out(reason: &str) {
    let thread = thread::current();
    let test = thread.name().unwrap_or("test");
    assert!(env::var_os("FAIRTIER_TEST_ALL").is_none(), "{reason}");
    // In one write, because the harness prints at the same time.
    let line = format!("left out: {test}: {reason}\n");
    io::stderr().write_all(line.as_bytes()).expect("standard error is open");
}
