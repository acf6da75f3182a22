//! Changes one key of a configuration file and keeps everything else in it, also comments.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, chown},
    path::Path,
};

use common::files::{Secrecy, write_file};
use toml_edit::{DocumentMut, Item, Value, value};

use super::{Config, ConfigError};

/// The text of a configuration with another `fairness.target`.
pub(crate) fn with_target(text: &str, target: f64) -> Result<String, ConfigError> {
    let mut file: DocumentMut = text.parse()?;
    let section = file.entry("fairness").or_insert_with(toml_edit::table);
    let shown = || target.to_string();
    let wrong = |why| ConfigError::Value { key: "fairness.target", value: shown(), why };
    let section = section.as_table_like_mut().ok_or_else(|| wrong("`fairness` is not a section"))?;
    match section.get_mut("target").and_then(Item::as_value_mut) {
        Some(old) => {
            // A comment behind the value belongs to the value.
            let decor = old.decor().clone();
            *old = Value::from(target);
            *old.decor_mut() = decor;
        }
        None => _ = section.insert("target", value(target)),
    }
    let text = file.to_string();
    let config = Config::parse(&text)?;
    // Compared, because the next reader sees only the text.
    if config.fairness.target == target { Ok(text) } else { Err(wrong("the key cannot be written")) }
}

/// Replaces a file as a whole and keeps its owner and permissions. A symbolic link stays one.
pub(crate) fn replace_config(path: &Path, text: &str) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let before = fs::metadata(&path)?;
    write_file(&path, text, Secrecy::Secret)?;
    let after = fs::metadata(&path)?;
    if (after.uid(), after.gid()) != (before.uid(), before.gid()) {
        chown(&path, Some(before.uid()), Some(before.gid()))?;
    }
    fs::set_permissions(&path, before.permissions())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::DEFAULT;

    #[test]
    fn everything_but_the_target_stays() {
        let changed = with_target(DEFAULT, 0.25).unwrap();
        let lines = DEFAULT.lines().zip(changed.lines()).filter(|(old, new)| old != new);
        let lines: Vec<_> = lines.collect();
        let [(old, new)] = lines[..] else { panic!("{lines:?}") };
        assert_eq!((old, new), ("target = 0.0", "target = 0.25"));
        assert_eq!(DEFAULT.len() + 1, changed.len());
    }

    #[test]
    fn any_spelling_of_the_section() {
        for text in [
            "",
            "# mine\n[run]\nrounds = 7 # few\n",
            "fairness = { measure = \"spread\", target = 0.5 }\n[run]\nrounds = 7\n",
            "fairness.target = 1 # much\n[run]\nrounds = 7\n",
            "[fairness]\nwarmup = 3\n[run]\nrounds = 7\n",
        ] {
            let changed = with_target(text, 0.3).unwrap();
            let (before, after) = (Config::parse(text).unwrap(), Config::parse(&changed).unwrap());
            assert_eq!(after.fairness.target, 0.3, "{changed}");
            let same = Config { fairness: before.fairness.clone(), ..after.clone() };
            assert_eq!((same, after.fairness.warmup), (before.clone(), before.fairness.warmup));
            let comments = |text: &str| text.matches('#').count();
            assert_eq!(comments(&changed), comments(text), "{changed}");
        }
        for (text, target) in [("[fairness", 0.3), ("fairness = 1", 0.3), ("", f64::NAN)] {
            assert!(with_target(text, target).is_err(), "{text}");
        }
    }

    #[test]
    fn a_replaced_file_keeps_its_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("fairtier.toml"), dir.path().join("link"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        replace_config(&link, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o664);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
