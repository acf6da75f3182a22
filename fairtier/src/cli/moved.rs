//! Commands of earlier programs. Each is refused with its new name.

/// Commands of the programs before `fairtier`, and their new names.
const MOVED: &[(&str, &str)] = &[
    ("attack", "bench attack"),
    ("bridge", "device bridge"),
    ("check", "model check"),
    ("combine", "round combine"),
    ("compare", "sim compare"),
    ("enroll", "gateway enroll` or `fairtier device enroll"),
    ("export", "gateway export` or `fairtier model export"),
    ("figures", "board figures"),
    ("flash", "board flash"),
    ("grad", "model grad"),
    ("history", "gateway history"),
    ("init", "gateway init"),
    ("inspect", "model inspect"),
    ("keep", "sim keep"),
    ("load", "bench load"),
    ("members", "gateway members"),
    ("monitor", "board monitor"),
    ("partition", "sim partition"),
    ("plan", "model plan"),
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

/// The error message if the arguments name an earlier command.
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
                    // A build without tract has no `predict`.
                    if word == "predict" && found.is_none() {
                        continue;
                    }
                    command = found.unwrap_or_else(|| panic!("{old}: there is no `{new}`"));
                }
            }
            assert!(crate::command().find_subcommand(old).is_none(), "{old} is still a command");
        }
        assert_eq!(
            advice(["run".to_owned()].into_iter()).as_deref(),
            Some("`run` is now `fairtier device run` or `fairtier sim run`")
        );
        assert_eq!(advice(["demo".to_owned()].into_iter()), None);
    }

    /// Every row of the first table of CHANGELOG.md is `program command`, `command`, ... | `new name`, or a group with `...`.
    #[test]
    fn every_old_command_of_the_changelog_is_refused_with_its_new_name() {
        let changelog = include_str!("../../../CHANGELOG.md");
        let rows = changelog.lines().skip_while(|line| *line != "|---|---|").skip(1);
        let mut checked = 0;
        for row in rows.take_while(|line| line.starts_with('|')) {
            let [_, old, new, _] = row.split(" | ").flat_map(|cell| cell.split('|')).collect::<Vec<_>>()[..]
            else {
                panic!("{row}");
            };
            let names =
                |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
            let new = names(new);
            for old in names(old) {
                let command = old.split(' ').next_back().unwrap();
                let expected: Vec<String> = new
                    .iter()
                    .filter(|new| new.starts_with("fairtier "))
                    .map(|new| new.replace("...", command))
                    .filter(|new| new.ends_with(command))
                    .collect();
                assert!(!expected.is_empty(), "{row}");
                match advice([command.to_owned()].into_iter()) {
                    Some(said) => {
                        assert!(expected.iter().any(|new| said.contains(&format!("`{new}`"))), "{said}");
                    }
                    // `codes` has kept its name; `data` names another group now.
                    None => {
                        assert!(crate::command().find_subcommand(command).is_some(), "{old} is not refused");
                    }
                }
                checked += 1;
            }
        }
        assert!(checked >= 35, "{checked} commands");
    }

    #[test]
    fn the_command_line_is_sound() {
        crate::command().debug_assert();
    }
}
