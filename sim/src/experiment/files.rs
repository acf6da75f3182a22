//! The files that an experiment names: where they are, and a digest of their content.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::{ExperimentError, LoadedExperiment, Setting, spec::Base};

impl LoadedExperiment {
    /// Makes paths relative to `dir` and computes the digests of all files. A changed file changes fingerprints.
    pub fn with_dir(mut self, dir: PathBuf) -> Result<Self, ExperimentError> {
        let mut known = BTreeMap::new();
        self.settings.iter_mut().try_for_each(|setting| setting.place(&dir, &mut known))?;
        self.dir = dir;
        Ok(self)
    }
}

impl Setting {
    fn place(&mut self, dir: &Path, known: &mut BTreeMap<PathBuf, String>) -> Result<(), ExperimentError> {
        let base = &mut self.base;
        base.dir = dir.into();
        let mut files: Vec<PathBuf> = base.data.files().into_iter().map(Path::to_path_buf).collect();
        files.extend(base.model_file().is_some().then(|| PathBuf::from(&base.model)));
        base.digests.clear();
        for file in files {
            let path = dir.join(&file);
            let digest = match known.get(&path) {
                Some(digest) => digest.clone(),
                None => {
                    let mut hash = Sha256::new();
                    let failed = |source| ExperimentError::Read { path: path.clone(), source };
                    add(&mut hash, &path).map_err(failed)?;
                    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
                }
            };
            known.insert(path, digest.clone());
            base.digests.insert(file, digest);
        }
        self.ends.iter_mut().try_for_each(|end| end.place(dir, known))
    }
}

impl Base {
    /// The model's file beside the experiment; `None` for a model by name.
    pub fn model_file(&self) -> Option<PathBuf> {
        let path = self.dir.join(&self.model);
        (self.model.ends_with(".onnx") || path.is_file()).then_some(path)
    }
}

/// Adds a file, or all files of a folder with their names.
fn add(hash: &mut Sha256, path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        let mut file = BufReader::new(common::files::open_regular(path)?);
        loop {
            let bytes = file.fill_buf()?;
            let len = bytes.len();
            if len == 0 {
                return Ok(());
            }
            hash.update(bytes);
            file.consume(len);
        }
    }
    let mut entries =
        std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    entries.sort_unstable();
    for entry in entries {
        hash.update(entry.file_name().unwrap_or_default().as_encoded_bytes());
        hash.update([0]);
        add(hash, &entry)?;
    }
    Ok(())
}
