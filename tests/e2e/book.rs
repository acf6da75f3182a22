//! Runs the console blocks of `docs/` as a reader would type them.
//!
//! All `console` blocks of a page run in order, in one bash in an empty directory. `$ ` starts a command; it
//! continues after a `\` at the end of a line and in lines that start with `> `. Other lines are the expected output:
//! `...` stands for any lines, `[..]` for any text inside one, and `? N` for the exit code N. If a block shows no
//! output, the output is not compared. A command that ends in `&` writes to its own file, and is killed at the end of
//! the page. Port 4433 becomes a free port.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use fleet::{
    gateway::lasting_address,
    process::{beside, program},
};

/// No command of the book takes this long.
const LIMIT: Duration = Duration::from_secs(300);
/// Prefix of the lines that separate the output of commands.
const MARK: &str = "\u{1}book ";

macro_rules! pages {
    ($($name:ident: $file:literal),* $(,)?) => {
        /// Pages that are run.
        const RUN: &[&str] = &[$($file),*];
        $(#[test]
        fn $name() {
            run_page($file);
        })*
    };
}

pages! {
    quick_start: "quick-start.md",
    gateway: "gateway.md",
    service: "service.md",
    devices: "devices.md",
    boards: "boards.md",
    your_own_model: "your-own-model.md",
    your_own_data: "your-own-data.md",
    your_own_strategy: "your-own-strategy.md",
    choosing_a_strategy: "choosing-a-strategy.md",
    fairness_target: "fairness-target.md",
    experiments: "experiments.md",
    benchmarks: "benchmarks.md",
}

/// Pages with console blocks that need a fleet the test does not have.
const NOT_RUN: &[&str] = &["PRIVACY.md"];

#[derive(Debug, Default, PartialEq)]
struct Step {
    line: usize,
    command: String,
    expected: Vec<String>,
    code: i32,
}

impl Step {
    fn is_background(&self) -> bool {
        self.command.ends_with(" &")
    }
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs")
}

fn page(name: &str) -> String {
    fs::read_to_string(docs().join(name)).unwrap_or_else(|error| panic!("docs/{name}: {error}"))
}

/// The commands of all console blocks of a page.
fn steps(page: &str) -> Vec<Step> {
    let (mut steps, mut inside, mut open) = (Vec::<Step>::new(), false, false);
    for (number, line) in page.lines().enumerate() {
        if line.starts_with("```") {
            (inside, open) = (line == "```console", false);
        } else if !inside {
        } else if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { line: number + 1, command: command.to_owned(), ..Step::default() });
            open = command.ends_with('\\');
        } else if let Some(step) = steps.last_mut() {
            if let Some(rest) =
                line.strip_prefix("> ").or_else(|| (line == ">").then_some("")).or(open.then_some(line))
            {
                step.command += &format!("\n{rest}");
                open = rest.ends_with('\\');
            } else if let Some(code) = line.strip_prefix("? ") {
                step.code = code.parse().unwrap();
            } else {
                step.expected.push(line.to_owned());
            }
        }
    }
    steps
}

/// The script for bash. Marks around every command separate its output and exit code.
fn script(steps: &[Step]) -> String {
    let mut text = "exec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n".to_owned();
    for (index, step) in steps.iter().enumerate() {
        let command = match step.command.strip_suffix(" &") {
            Some(command) => format!("{command} > background-{index}.log 2>&1 &"),
            None => step.command.clone(),
        };
        // A page ends at its first unexpected exit code.
        let check = format!("[ $code -eq {} ] || exit", step.code);
        let _ = writeln!(
            text,
            "printf '{MARK}{index}\\n'\n{command}\ncode=$?; printf '\\n{MARK}code %d\\n' $code; {check}"
        );
    }
    text
}

fn run_page(name: &str) {
    let port = lasting_address().rsplit_once(':').unwrap().1.to_owned();
    let steps = steps(&page(name).replace("4433", &port));
    assert!(!steps.is_empty(), "docs/{name} has no console block");
    let dir = tempfile::tempdir().unwrap();
    let (file, home) = (dir.path().join(".script"), dir.path().to_str().unwrap().to_owned());
    fs::write(&file, script(&steps)).unwrap();
    let programs = program().parent().unwrap().to_owned();
    beside("fairtier-client");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("timeout");
    shell.args(["--kill-after=5", &LIMIT.as_secs().to_string(), "bash", "--noprofile", "--norc"]).arg(&file);
    shell.env("PATH", path).env("HOME", &home).env("NO_COLOR", "1").env("BOOK", docs().parent().unwrap());
    let output = shell.current_dir(&dir).stdin(Stdio::null()).output().unwrap();
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    for (index, step) in steps.iter().enumerate() {
        let found = output.split(&format!("{MARK}{index}\n")).nth(1);
        let part = found.and_then(|rest| rest.split_once(&format!("\n{MARK}code ")));
        let (text, code) = part.unwrap_or((found.unwrap_or_default(), "missing"));
        let code = code.lines().next().unwrap_or_default();
        let failed = code != step.code.to_string();
        let different =
            !step.is_background() && !step.expected.is_empty() && !matches(&step.expected, &lines(text));
        assert!(
            !failed && !different,
            "docs/{name}:{}: $ {}\nexit code {code}, expected {}\n---- expected\n{}\n---- printed\n{text}\n{}",
            step.line,
            step.command,
            step.code,
            step.expected.join("\n"),
            backgrounds(dir.path()),
        );
    }
}

fn lines(text: &str) -> Vec<String> {
    text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Output of the commands that end in `&`.
fn backgrounds(dir: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("background-") {
            let log = fs::read_to_string(entry.path()).unwrap_or_default();
            let _ = write!(text, "---- {}\n{log}", entry.file_name().display());
        }
    }
    text
}

/// `...` matches any number of lines.
fn matches(expected: &[String], printed: &[String]) -> bool {
    match (expected.split_first(), printed.split_first()) {
        (None, printed) => printed.is_none(),
        (Some((first, rest)), _) if first == "..." => {
            (0..=printed.len()).any(|skip| matches(rest, &printed[skip..]))
        }
        (Some((first, rest)), Some((line, others))) => {
            line_matches(first.trim_end(), line) && matches(rest, others)
        }
        (Some(_), None) => false,
    }
}

/// `[..]` matches any text.
fn line_matches(expected: &str, line: &str) -> bool {
    match expected.split_once("[..]") {
        None => expected == line,
        Some((before, rest)) => line.strip_prefix(before).is_some_and(|line| {
            let ends = line.char_indices().map(|(at, _)| at).chain([line.len()]);
            ends.into_iter().any(|at| line_matches(rest, &line[at..]))
        }),
    }
}

/// Paths of all Markdown files below `docs/`.
fn all_pages() -> Vec<String> {
    markdown(&docs())
}

/// Paths of all Markdown files below a folder, except in hidden folders and build results.
fn markdown(root: &Path) -> Vec<String> {
    let (mut found, mut open) = (vec![], vec![root.to_owned()]);
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                let skipped = name == "target" || name.as_encoded_bytes().starts_with(b".");
                open.extend((!skipped).then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// Targets of the links of a page, except links to other sites.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    targets.filter(|target| !target.contains("://"))
}

/// The anchor that mdBook and GitHub give a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|&letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// The anchors of a page. A heading that is repeated gets a number.
fn anchors(text: &str) -> Vec<String> {
    let (mut anchors, mut in_block) = (Vec::<String>::new(), false);
    for line in text.lines() {
        in_block ^= line.trim_start().starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !in_block) else { continue };
        let first = anchor(heading.trim_start_matches('#'));
        let numbered = (1..).map(|number| format!("{first}-{number}"));
        anchors.extend([first.clone()].into_iter().chain(numbered).find(|new| !anchors.contains(new)));
    }
    anchors
}

#[test]
fn a_comment_in_a_block_is_no_heading_and_repeated_headings_are_numbered() {
    assert_eq!(anchors("# A b!\n```sh\n# c\n```\n## `A` b\n"), ["a-b", "a-b-1"]);
}

#[test]
fn every_link_has_a_target() {
    let root = docs().join("..");
    let pages = markdown(&root);
    assert!(pages.len() > 60, "{} pages", pages.len());
    for name in pages {
        let here = root.join(&name);
        for link in links(&fs::read_to_string(&here).unwrap()) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { here.clone() } else { here.parent().unwrap().join(file) };
            assert!(target.exists(), "{name}: {link} does not exist");
            let text = fs::read_to_string(&target).unwrap_or_default();
            let found = heading.is_empty() || anchors(&text).iter().any(|anchor| anchor == heading);
            assert!(found, "{name}: {file} has no heading {heading}");
        }
    }
}

#[test]
fn the_summary_has_every_page() {
    let summary = page("SUMMARY.md");
    let listed: Vec<&str> = links(&summary).collect();
    for name in all_pages() {
        assert!(name == "SUMMARY.md" || listed.contains(&&*name), "docs/SUMMARY.md lacks {name}");
    }
}

#[test]
fn every_page_with_console_blocks_is_run() {
    for name in all_pages() {
        let known = RUN.contains(&&*name) || NOT_RUN.contains(&&*name);
        assert!(
            known || steps(&page(&name)).is_empty(),
            "docs/{name} has console blocks: add it to `pages!`"
        );
    }
}

#[test]
fn the_strategy_of_the_book_matches_the_example() {
    let example = fs::read_to_string(docs().join("../examples/custom-strategy/src/main.rs")).unwrap();
    let page = page("your-own-strategy.md");
    let blocks: Vec<&str> =
        page.split("```rust\n").skip(1).map(|rest| rest.split_once("\n```").unwrap().0).collect();
    assert!(blocks.len() > 2, "the page shows the parts of the example");
    for block in blocks {
        assert!(
            example.contains(block),
            "docs/your-own-strategy.md: the example has no such lines:\n{block}"
        );
    }
}

#[test]
fn console_blocks_are_parsed() {
    let text = "```sh\n$ no\n```\n```console\n$ a \\\n    b &\n$ cat <<END\n> x\n>\n> END\nx\n? 3\n```\n";
    let step = |line, command: &str, expected: &[&str], code| Step {
        line,
        command: command.to_owned(),
        expected: expected.iter().map(|&line| line.to_owned()).collect(),
        code,
    };
    assert_eq!(steps(text), [step(5, "a \\\n    b &", &[], 0), step(7, "cat <<END\nx\n\nEND", &["x"], 3)]);
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(matches(&lines("...\nb [..] d\n..."), &lines("a\nb c d\ne")));
    assert!(!matches(&lines("...\nb"), &lines("a\nb\nc")));
}
