//! `fairtier sim report` and `fairtier sim reproduce` on saved results, through the program itself.
//!
//! | module | asks |
//! |---|---|
//! | `made_up` | writes results of no run, some of them missing |
//! | `page` | has every plot its data, and every table the numbers that were saved? |
//! | `browser` | does a real browser show it without complaint? |

#![allow(clippy::unwrap_used, reason = "tests")]

mod browser;
mod made_up;
mod page;
#[path = "../../../tests/src/tools.rs"]
mod tools;

use std::{path::Path, process::Command};

/// What the program prints.
fn sim(args: &[&str], dir: &Path) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_fairtier")).arg("sim").args(args).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
