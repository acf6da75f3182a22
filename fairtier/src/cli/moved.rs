//! Commands of earlier programs: each is refused with its present name.

/// Earlier commands at the top of `fairtier`'s forerunners, and where they are now.
const MOVED: &[(&str, &str)] = &[
    ("attack", "bench attack"),
    ("bridge", "device bridge"),
    ("combine", "round combine"),
    ("compare", "sim compare"),
    ("data", "sim data"),
    ("enroll", "gateway enroll` or `fairtier device enroll"),
    ("export", "gateway export` or `fairtier model export"),
    ("flash", "board flash"),
    ("history", "gateway history"),
    ("init", "gateway init"),
    ("inspect", "model inspect"),
    ("keep", "sim keep"),
    ("load", "bench load"),
    ("members", "gateway members"),
    ("monitor", "board monitor"),
    ("partition", "sim partition"),
    ("predict", "device predict"),
    ("provision", "board provision"),
    ("renew", "device renew"),
    ("report", "sim report"),
    ("reproduce", "sim reproduce"),
    ("resume", "gateway resume"),
    ("revoke", "gateway revoke"),
    ("rollback", "gateway rollback"),
    ("rotate-server-key", "gateway rotate-server-key"),
    ("run", "device run` or `fairtier sim run"),
    ("serve", "gateway serve"),
    ("shard", "board shard"),
    ("slice", "model slice"),
    ("status", "gateway status"),
    ("sweep", "sim sweep"),
    ("token", "gateway token"),
    ("verify", "gateway verify"),
    ("zoo", "model zoo"),
];

/// What to say to these arguments, if they name an earlier command.
pub(super) fn advice(mut arguments: impl Iterator<Item = String>) -> Option<String> {
    let first = arguments.next()?;
    let (old, new) = MOVED.iter().find(|(old, _)| *old == first)?;
    Some(format!("`{old}` is now `fairtier {new}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_present_name_is_a_command() {
        for (old, new) in MOVED {
            for new in new.split("` or `fairtier ") {
                let mut command = crate::command();
                for word in new.split(' ') {
                    let found = command.find_subcommand(word).cloned();
                    // Without tract there is no `predict`.
                    if word == "predict" && found.is_none() {
                        continue;
                    }
                    command = found.unwrap_or_else(|| panic!("{old}: no `{new}`"));
                }
            }
            assert!(crate::command().find_subcommand(old).is_none(), "{old} is a command of its own");
        }
        assert_eq!(
            advice(["run".to_owned()].into_iter()).as_deref(),
            Some("`run` is now `fairtier device run` or `fairtier sim run`")
        );
        assert_eq!(advice(["demo".to_owned()].into_iter()), None);
    }

    #[test]
    fn the_command_line_is_sound() {
        crate::command().debug_assert();
    }
}
