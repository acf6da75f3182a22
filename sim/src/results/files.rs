//! Results on disk.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;

use super::{ExperimentRecord, ExperimentResults, UnitResult, pack::unpack};

/// File name of an experiment's record, beside its units.
pub const RECORD: &str = "experiment.json";

/// Extension of kept files.
pub(super) const KEPT: &str = "jsonl";

/// Why results cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum ResultsError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {source}; delete the file and run the experiment again", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
}

/// All experiments under a directory of results, ordered by name. If an experiment exists in both forms, the
/// directory is used, because its curves are longer.
pub fn read_all(dir: &Path) -> Result<Vec<ExperimentResults>, ResultsError> {
    let (dirs, files): (Vec<_>, Vec<_>) = entries(dir)?.into_iter().partition(|path| path.is_dir());
    let mut paths = dirs.iter().map(|dir| entries(dir)).collect::<Result<Vec<_>, _>>()?.concat();
    paths.extend(files);
    let found = paths.iter().filter(|path| is_experiment(path)).map(|path| read_experiment(path));
    let mut all = found.collect::<Result<Vec<_>, _>>()?;
    let name =
        |results: &ExperimentResults| (results.record.experiment.clone(), results.record.profile.clone());
    all.sort_by_key(name);
    all.dedup_by_key(|results| name(results));
    Ok(all)
}

/// Whether a path holds results of an experiment: a directory with a record, or a kept file.
pub fn is_experiment(path: &Path) -> bool {
    path.join(RECORD).is_file() || (path.is_file() && path.extension().is_some_and(|end| end == KEPT))
}

/// Reads one experiment in either form. Units whose setting or seed no longer belongs to it are left out.
pub fn read_experiment(path: &Path) -> Result<ExperimentResults, ResultsError> {
    if !path.is_file() {
        let record = read(&path.join(RECORD))?;
        let units = read_units(path, &record)?;
        return Ok(ExperimentResults { record, units });
    }
    let text = text(path)?;
    let json = |source| ResultsError::Json { path: path.into(), source };
    let mut lines = serde_json::Deserializer::from_str(&text);
    let record = ExperimentRecord::deserialize(&mut lines).map_err(json)?;
    let unit = |line: Result<Value, _>| serde_json::from_value(unpack(line?)).map_err(json);
    let units = lines.into_iter().map(|line| unit(line.map_err(json))).collect::<Result<_, _>>()?;
    Ok(ExperimentResults { record, units })
}

/// Reads the finished units of one experiment from `dir`, ordered by setting and seed.
pub fn read_units(dir: &Path, record: &ExperimentRecord) -> Result<Vec<UnitResult>, ResultsError> {
    let files = record.settings.iter().flat_map(|setting| {
        setting.seeds.iter().map(|seed| dir.join(format!("{}-s{seed}.json", setting.id)))
    });
    files.filter(|path| path.is_file()).map(|path| read(&path)).collect()
}

/// Reads one file.
pub fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, ResultsError> {
    serde_json::from_str(&text(path)?).map_err(|source| ResultsError::Json { path: path.into(), source })
}

fn text(path: &Path) -> Result<String, ResultsError> {
    fs::read_to_string(path).map_err(|source| ResultsError::Io { path: path.into(), source })
}

/// Writes a file atomically.
pub fn write(path: &Path, text: &str) -> Result<(), ResultsError> {
    let io = |source| ResultsError::Io { path: path.into(), source };
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(io)?;
    }
    let part = path.with_extension("part");
    fs::write(&part, text).map_err(io)?;
    fs::rename(&part, path).map_err(io)
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, ResultsError> {
    let io = |source| ResultsError::Io { path: dir.into(), source };
    fs::read_dir(dir).map_err(io)?.map(|entry| Ok(entry.map_err(io)?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::UnitId;

    #[test]
    fn a_file_is_written_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let unit = UnitId { experiment: "e".into(), profile: "quick".into(), setting: "s".into(), seed: 1 };
        let path = dir.path().join(unit.file());
        write(&path, &serde_json::to_string(&unit).unwrap()).unwrap();
        assert_eq!(read::<UnitId>(&path).unwrap(), unit);
        assert!(read_all(dir.path()).unwrap().is_empty());
        write(&path, "{").unwrap();
        assert!(read::<UnitId>(&path).unwrap_err().to_string().contains("s-s1.json"));
    }
}
