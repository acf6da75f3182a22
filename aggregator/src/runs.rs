//! The runs of one fleet in a gateway's directory, one after another.
//!
//! ```text
//! DIR/                 the run `default`: fairtier.toml, store/, model.onnx, status.json, scales.json, rounds/
//! DIR/runs/NAME/       another run, with the same files
//! DIR/runs/active      the name of the run that `serve` and all other commands mean; without it, `default`
//! ```
//! Certificates, tokens, revocations and the lock of the server stay in `DIR` and hold for all runs. The active run changes by
//! the replacement of one small file, so a crash leaves the one or the other.

use std::{
    fmt,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    str::FromStr,
};

use common::{
    DeviceId,
    files::{self, MAX_CONFIG, Secrecy},
};
use toml_edit::{DocumentMut, Item, Value};

use crate::status;

const DIR: &str = "runs";
const ACTIVE: &str = "active";
/// Below the gateway's directory: names the active run.
pub(crate) const ACTIVE_FILE: &str = "runs/active";
const DEFAULT: &str = "default";
const CONFIG: &str = "fairtier.toml";
const SCALES: &str = "scales.json";

/// Why runs cannot be listed or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunsError {
    #[error(
        "`{0}` cannot be the name of a run: names have 1 to 32 characters of a-z A-Z 0-9 . _ - and begin with none of . and -; choose another one"
    )]
    Name(String),
    #[error(
        "`{0}` is the name of the run in the directory itself, or of a file beside the runs; choose another one"
    )]
    Reserved(String),
    #[error("there is a run {name} already; `fairtier gateway run switch --dir {dir} {name}` makes it the active one", dir = .dir.display())]
    Exists { name: RunName, dir: PathBuf },
    #[error("there is no run {name}; the runs are {}", list(.known))]
    Unknown { name: RunName, known: Vec<RunName> },
    #[error("a gateway serves {dir}; stop it first, because its devices would be told of another run", dir = .dir.display())]
    Serving { dir: PathBuf },
    #[error("{path} names the run {name}, which has no directory; `fairtier gateway run list` shows the runs, `run switch` chooses one", path = .path.display())]
    Missing { name: RunName, path: PathBuf },
    #[error("{path}: {source}", path = .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: {source}", path = .path.display())]
    Config { path: PathBuf, source: toml_edit::TomlError },
}

fn list(names: &[RunName]) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The name of a run, which is safe as the name of a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RunName(String);

impl RunName {
    /// The run in the directory itself.
    pub fn first() -> Self {
        Self(DEFAULT.to_owned())
    }

    fn is_first(&self) -> bool {
        self.0 == DEFAULT
    }

    /// Of its files' names below the gateway's directory.
    pub(crate) fn prefix(&self) -> String {
        if self.is_first() { String::new() } else { format!("{DIR}/{}/", self.0) }
    }

    /// The directory of its files.
    pub fn dir(&self, gateway: &Path) -> PathBuf {
        if self.is_first() { gateway.to_owned() } else { gateway.join(DIR).join(&self.0) }
    }
}

impl FromStr for RunName {
    type Err = RunsError;

    /// The rules are those of a device's name, and no name begins with a dash: it would look like an option.
    fn from_str(text: &str) -> Result<Self, RunsError> {
        match text.parse::<DeviceId>() {
            Ok(name) if !text.starts_with('-') => Ok(Self(name.to_string())),
            _ => Err(RunsError::Name(text.to_owned())),
        }
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The run that commands mean.
pub fn active(gateway: &Path) -> Result<RunName, RunsError> {
    let path = gateway.join(DIR).join(ACTIVE);
    let name = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(RunName::first()),
        read => read.map_err(|source| RunsError::Io { path: path.clone(), source })?,
    };
    let name: RunName = name.trim().parse()?;
    if name.dir(gateway).is_dir() { Ok(name) } else { Err(RunsError::Missing { name, path }) }
}

/// The directory with the files of the active run.
pub fn active_dir(gateway: &Path) -> Result<PathBuf, RunsError> {
    Ok(active(gateway)?.dir(gateway))
}

/// All runs by name, that of the directory itself first.
pub fn all(gateway: &Path) -> Result<Vec<RunName>, RunsError> {
    let path = gateway.join(DIR);
    let mut names = vec![];
    match fs::read_dir(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => {
            for entry in read.map_err(|source| RunsError::Io { path: path.clone(), source })? {
                let entry = entry.map_err(|source| RunsError::Io { path: path.clone(), source })?;
                let name = entry.file_name().to_str().and_then(|name| name.parse::<RunName>().ok());
                // A directory without a configuration is left over from a `new` that was killed.
                names.extend(name.filter(|_| entry.path().join(CONFIG).is_file()));
            }
        }
    }
    names.sort();
    names.insert(0, RunName::first());
    Ok(names)
}

/// Adds a run with the configuration of the active one and makes it the active one.
pub fn create(gateway: &Path, name: &RunName) -> Result<PathBuf, RunsError> {
    if name.is_first() || name.0 == ACTIVE {
        return Err(RunsError::Reserved(name.0.clone()));
    }
    let _stopped = refuse_served(gateway)?;
    let (from, to) = (active_dir(gateway)?, name.dir(gateway));
    if to.join(CONFIG).exists() {
        return Err(RunsError::Exists { name: name.clone(), dir: gateway.to_owned() });
    }
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| RunsError::Io { path, source }
    };
    fs::create_dir_all(&to).map_err(failed(&to))?;
    let config = from.join(CONFIG);
    let text = files::read_text(&config, MAX_CONFIG).map_err(failed(&config))?;
    let text = moved(&text, &from, &to).map_err(|source| RunsError::Config { path: config, source })?;
    let scales = from.join(SCALES);
    // Devices that stay connected have scaled their samples by it.
    if scales.is_file() {
        let text = files::read_text(&scales, MAX_CONFIG).map_err(failed(&scales))?;
        let copy = to.join(SCALES);
        files::write_file(&copy, text, Secrecy::Group).map_err(failed(&copy))?;
    }
    // Last, because a run without it does not exist.
    let copy = to.join(CONFIG);
    files::write_file(&copy, text, Secrecy::Public).map_err(failed(&copy))?;
    activate(gateway, name)?;
    Ok(to)
}

/// Makes a run the active one.
pub fn switch(gateway: &Path, name: &RunName) -> Result<(), RunsError> {
    let _stopped = refuse_served(gateway)?;
    let known = all(gateway)?;
    if !known.contains(name) {
        return Err(RunsError::Unknown { name: name.clone(), known });
    }
    activate(gateway, name)
}

fn activate(gateway: &Path, name: &RunName) -> Result<(), RunsError> {
    let dir = gateway.join(DIR);
    fs::create_dir_all(&dir).map_err(|source| RunsError::Io { path: dir.clone(), source })?;
    let path = dir.join(ACTIVE);
    let written = files::write_file(&path, format!("{name}\n"), Secrecy::Public);
    written.map_err(|source| RunsError::Io { path, source })
}

/// No server starts while the result is held. One that waits for it looks at the active run again.
fn refuse_served(gateway: &Path) -> Result<File, RunsError> {
    let stopped = status::hold_stopped(gateway);
    let stopped = stopped.map_err(|source| RunsError::Io { path: gateway.to_owned(), source })?;
    stopped.ok_or_else(|| RunsError::Serving { dir: gateway.to_owned() })
}

/// A configuration for another directory: files that it names relative to itself are the same ones.
fn moved(text: &str, from: &Path, to: &Path) -> Result<String, toml_edit::TomlError> {
    let mut document: DocumentMut = text.parse()?;
    for (table, key) in [("model", "source"), ("guard", "probe")] {
        let item =
            document.get_mut(table).and_then(Item::as_table_like_mut).and_then(|table| table.get_mut(key));
        let Some(value) = item.and_then(Item::as_value_mut) else { continue };
        let Some(name) = value.as_str().map(Path::new).filter(|name| !name.as_os_str().is_empty()) else {
            continue;
        };
        if name.is_absolute() || !from.join(name).is_file() {
            continue;
        }
        // Runs are two levels below the directory itself, and beside each other.
        let up = if from.join(DIR).is_dir() && to.starts_with(from.join(DIR)) {
            PathBuf::from("../..")
        } else {
            Path::new("..").join(from.file_name().unwrap_or_default())
        };
        let decor = value.decor().clone();
        *value = Value::from(up.join(name).to_string_lossy().into_owned());
        *value.decor_mut() = decor;
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Config};

    fn name(text: &str) -> RunName {
        text.parse().unwrap()
    }

    fn gateway(config: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(CONFIG), config).unwrap();
        dir
    }

    #[test]
    fn names_that_leave_the_directory_or_hide_in_it_are_refused() {
        for text in
            ["", ".", "..", "../x", "a/b", "/etc", ".hidden", "-x", "a b", "a\\b", "ä", &"x".repeat(33)]
        {
            assert!(matches!(text.parse::<RunName>(), Err(RunsError::Name(_))), "{text}");
        }
        let dir = gateway("");
        for reserved in ["default", "active"] {
            assert!(matches!(create(dir.path(), &name(reserved)), Err(RunsError::Reserved(_))), "{reserved}");
        }
        assert!(!dir.path().join(DIR).exists(), "nothing is written");
    }

    #[test]
    fn a_new_run_is_active_has_the_configuration_and_names_the_same_files() {
        let dir = gateway("# mine\n[model]\nsource = \"net.onnx\" # the net\n[run]\nrounds = 7\n");
        fs::write(dir.path().join("net.onnx"), "").unwrap();
        fs::write(dir.path().join(SCALES), "{}").unwrap();
        assert_eq!(active(dir.path()).unwrap(), RunName::first());
        for (run, expected) in [("b", "../../net.onnx"), ("c", "../b/../../net.onnx")] {
            let own = create(dir.path(), &name(run)).unwrap();
            assert_eq!(
                (active(dir.path()).unwrap(), active_dir(dir.path()).unwrap()),
                (name(run), own.clone())
            );
            let text = fs::read_to_string(own.join(CONFIG)).unwrap();
            assert!(
                text.contains(&format!("source = \"{expected}\" # the net")) && text.contains("# mine"),
                "{text}"
            );
            let config = Config::load(&own.join(CONFIG)).unwrap();
            assert!(Path::new(&config.model.source).is_file() && config.run.rounds == 7);
            assert!(own.join(SCALES).is_file());
        }
        assert!(matches!(create(dir.path(), &name("b")), Err(RunsError::Exists { .. })));
        assert_eq!(all(dir.path()).unwrap(), [RunName::first(), name("b"), name("c")]);
        switch(dir.path(), &RunName::first()).unwrap();
        assert_eq!(active_dir(dir.path()).unwrap(), dir.path());
        let unknown = switch(dir.path(), &name("d")).unwrap_err().to_string();
        assert_eq!(unknown, "there is no run d; the runs are default, b, c");
        assert_eq!(active(dir.path()).unwrap(), RunName::first());
    }

    #[test]
    fn nothing_changes_while_a_gateway_serves() {
        let dir = gateway(config::DEFAULT);
        create(dir.path(), &name("b")).unwrap();
        let held = status::mark_serving(dir.path()).unwrap();
        for refused in [create(dir.path(), &name("c")).map(drop), switch(dir.path(), &RunName::first())] {
            assert!(matches!(refused, Err(RunsError::Serving { .. })), "{refused:?}");
        }
        assert_eq!((active(dir.path()).unwrap(), all(dir.path()).unwrap().len()), (name("b"), 2));
        drop(held);
        switch(dir.path(), &RunName::first()).unwrap();
    }

    #[test]
    fn what_a_killed_command_left_is_not_a_run() {
        let dir = gateway("");
        fs::create_dir_all(dir.path().join("runs/half")).unwrap();
        assert_eq!(all(dir.path()).unwrap(), [RunName::first()]);
        create(dir.path(), &name("half")).unwrap();
        fs::remove_dir_all(dir.path().join("runs/half")).unwrap();
        let error = active(dir.path()).unwrap_err().to_string();
        assert!(error.contains("the run half, which has no directory"), "{error}");
        switch(dir.path(), &RunName::first()).unwrap();
        fs::write(dir.path().join("runs/active"), "../../etc\n").unwrap();
        assert!(matches!(active(dir.path()), Err(RunsError::Name(_))));
    }
}
