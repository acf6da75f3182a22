//! Every command that a page shows exists, with its options.

use std::{fs, path::Path};

use clap::Command;

/// Pages that show commands. Console blocks of the book are also executed, by `tests/e2e/book.rs`.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut names: Vec<String> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md"]
            .map(str::to_owned)
            .into();
    for entry in fs::read_dir(root.join("docs")).expect("docs/ is readable") {
        let name = entry.expect("an entry").file_name().into_string().expect("text");
        names.extend(name.ends_with(".md").then(|| format!("docs/{name}")));
    }
    let read = |name: String| (fs::read_to_string(root.join(&name)).expect("a page"), name);
    names.into_iter().map(read).map(|(text, name)| (name, text)).collect()
}

/// The code of a page: the commands of its blocks, each with its continuation, and its inline code.
fn code(page: &str) -> Vec<String> {
    let mut found = vec![];
    for (index, part) in page.split("```").enumerate() {
        if index % 2 == 1 {
            let block = part.replace("\\\n", " ");
            let commands = block.lines().skip(1).map(|line| line.trim_start().trim_start_matches("$ "));
            found.extend(commands.map(str::to_owned));
        } else {
            found.extend(part.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " ")));
        }
    }
    found
}

/// The words of the command that a line of code begins with, without what a shell reads behind it.
fn words(code: &str) -> Option<Vec<&str>> {
    let end = [" #", " |", " >", " <", " &", ";"].iter().filter_map(|mark| code.find(mark)).min();
    let mut words = code[..end.unwrap_or(code.len())].split_whitespace();
    match words.next()? {
        "fairtier" => Some(words.collect()),
        // The program of devices has the commands of `fairtier device`.
        "fairtier-client" => {
            Some([words.next().map(|first| vec!["device", first])?, words.collect()].concat())
        }
        _ => None,
    }
}

fn has_option(command: &Command, option: &str) -> bool {
    let long = option.trim_start_matches('-').split(['=', ',', ')', ']', '.']).next();
    let known = ["help", "version"];
    known.iter().any(|known| Some(*known) == long)
        || command.get_arguments().any(|argument| argument.get_long() == long)
}

/// What is wrong with a command line.
fn problem(program: &Command, words: &[&str]) -> Option<String> {
    let (mut command, mut parents) = (program, vec![]);
    for &word in words {
        if word.starts_with("--") {
            let known = parents.iter().copied().chain([command]).any(|command| has_option(command, word));
            if !known && word.len() > 2 {
                return Some(format!("`{}` has no option {word}", command.get_name()));
            }
        } else if command.has_subcommands() {
            // Such as `=`: not a command line.
            if !word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-') {
                return None;
            }
            let Some(next) = command.find_subcommand(word) else {
                return Some(format!("`{}` has no command {word}", command.get_name()));
            };
            parents.push(command);
            command = next;
        }
    }
    None
}

#[test]
fn every_command_of_a_page_exists() {
    let program = fairtier::command();
    let (mut count, mut wrong) = (0, vec![]);
    for (name, text) in pages() {
        for line in code(&text) {
            let Some(words) = words(&line) else { continue };
            count += 1;
            wrong.extend(problem(&program, &words).map(|what| format!("{name}: {line}: {what}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 100, "{count} commands");
}

#[test]
fn a_command_that_does_not_exist_is_found() {
    let program = fairtier::command();
    let problem = |line: &str| problem(&program, &words(line).expect("a command"));
    assert_eq!(problem("fairtier gateway serve --dir gateway --listen 0.0.0.0:4433 &"), None);
    assert_eq!(problem("fairtier-client run --server gateway:4433 # on the device"), None);
    for wrong in ["fairtier serve", "fairtier gateway begin", "fairtier-client run --csvs a.csv"] {
        assert!(problem(wrong).is_some(), "{wrong}");
    }
}
