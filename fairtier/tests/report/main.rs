//! `fairtier sim report` and `fairtier sim reproduce` on saved results, and the page of `fairtier demo`, run as a program.
//!
//! | module | does |
//! |---|---|
//! | `made_up` | writes synthetic results, some of them missing |
//! | `page` | checks that plots and tables show the saved numbers |
//! | `browser` | checks that a real browser shows the page without errors |

#![allow(clippy::unwrap_used, reason = "tests")]

mod browser;
mod made_up;
mod page;
#[path = "../../../tests/src/tools.rs"]
mod tools;

use std::{path::Path, process::Command};

/// Output of the program.
fn sim(args: &[&str], dir: &Path) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_fairtier")).arg("sim").args(args).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
