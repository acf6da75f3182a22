//! `fairtier sim new`.

use std::{fs::OpenOptions, io::Write, path::PathBuf};

use clap::Args;

use super::{CommandError, Format};
use crate::experiment::ExperimentError;

pub const EXAMPLES: &str = "\
Examples:
  fairtier sim new wine            writes wine.toml, which runs as it is
  fairtier sim run wine.toml";

/// An experiment with comments on its keys.
pub const TEMPLATE: &str = include_str!("../../experiments/template.toml");

#[derive(Args, Debug)]
pub struct NewArgs {
    /// Name of the experiment; the file is NAME.toml
    #[arg(value_name = "NAME")]
    name: PathBuf,
    /// How to print which file was written
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub fn run(args: &NewArgs) -> Result<String, CommandError> {
    let path = match args.name.extension() {
        Some(ending) if ending == "toml" => args.name.clone(),
        _ => PathBuf::from(format!("{}.toml", args.name.display())),
    };
    let failed = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::AlreadyExists => ExperimentError::Exists(path.clone()),
        _ => ExperimentError::Write { path: path.clone(), source },
    };
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
    file.write_all(TEMPLATE.as_bytes()).map_err(failed)?;
    let path = path.display().to_string();
    Ok(match args.format {
        Format::Table => format!("wrote {path}\nrun it: fairtier sim run {path}\n"),
        Format::Json => serde_json::to_string(&[path])? + "\n",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{self, LoadedExperiment, RunOptions};

    #[test]
    fn a_template_is_written_once_and_runs() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("mine");
        let said = run(&NewArgs { name: name.clone(), format: Format::Table }).unwrap();
        assert!(said.contains("fairtier sim run"), "{said}");
        let path = name.with_extension("toml");
        std::fs::write(&path, format!("{TEMPLATE}\n# mine\n")).unwrap();
        let error = run(&NewArgs { name, format: Format::Json }).unwrap_err().to_string();
        assert!(error.contains("mine.toml is there already"), "{error}");
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("# mine\n"));
        let open = LoadedExperiment::open(&path.to_string_lossy(), "quick", &["rounds=1".into()]);
        assert_eq!(open.unwrap().settings.len(), 2);
    }

    #[test]
    fn the_template_runs_as_written() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("mine");
        super::run(&NewArgs { name: name.clone(), format: Format::Table }).unwrap();
        let path = name.with_extension("toml");
        let loaded = LoadedExperiment::open(&path.to_string_lossy(), "quick", &[]).unwrap();
        let options = RunOptions {
            out: dir.path().join("results"),
            data: None,
            threads: 1,
            registry: strategies::Registry::standard(),
            twin: false,
            runs: None,
        };
        let ran = experiment::run(&loaded, &options, &mut |_| {}).unwrap();
        assert_eq!(ran.units.len(), 2);
        assert!(
            ran.units
                .iter()
                .all(|unit| unit.last.accuracy.is_some_and(|all| all.mean > 0.3) && !unit.diverged())
        );
    }
}
