//! The keys of `fairtier.toml` as documentation shows them: read from `default.toml`, where every key has a comment.

/// One key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// As in `round`.
    pub table: String,
    /// Without its table, as in `participation`.
    pub key: String,
    /// As TOML, as in `[1.0, 0.5]`.
    pub default: String,
    /// The comment above it, in one line. Keys without a comment of their own share the one before.
    pub about: String,
}

/// All keys, in the order of the file.
pub fn keys() -> Vec<Key> {
    let (mut table, mut about, mut keys) = (String::new(), vec![], vec![]);
    for line in super::DEFAULT.lines() {
        if let Some(comment) = line.strip_prefix('#') {
            about.push(comment.trim());
        } else if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut table);
            about.clear();
        } else if let Some((key, default)) = line.split_once(" = ") {
            let own = std::mem::take(&mut about).join(" ");
            // Keys that belong together share a comment.
            let shared = keys.last().filter(|last: &&Key| own.is_empty() && last.table == table);
            let about = shared.map_or(own, |last| last.about.clone());
            keys.push(Key { table: table.clone(), key: key.to_owned(), default: default.to_owned(), about });
        } else {
            about.clear();
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_comment() {
        let keys = keys();
        assert!(keys.len() > 40, "{}", keys.len());
        for Key { table, key, about, .. } in keys {
            assert!(!about.is_empty(), "{table}.{key}");
        }
    }
}
