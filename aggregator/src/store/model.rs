//! Models of closed rounds: one file each, with its parameters as little-endian `f32` and nothing else.
//!
//! The ledger states which of them count, and their checksums. A file is durable before the ledger names it, and is never
//! written again afterwards. Other files are left over from a crash, or no longer kept.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use common::{files, wire::crc32};
use serde::{Deserialize, Serialize};

use super::{
    KeptModel, StoreError,
    spool::{self, sync_dir},
};

/// The ledger's entry of a model.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct ModelRecord {
    bytes: u64,
    pub(super) crc: u32,
}

/// The directory of the models.
#[derive(Debug)]
pub(super) struct Models(PathBuf);

impl Models {
    pub fn of(store: &Path) -> Self {
        Self(store.join("models"))
    }

    pub fn create(&self, store: &Path) -> Result<(), StoreError> {
        files::make_private_dir(&self.0).map_err(|source| StoreError::Io { path: self.0.clone(), source })?;
        sync_dir(store)
    }

    /// Durable when it returns.
    pub fn write(&self, round: u32, parameters: &[f32]) -> Result<ModelRecord, StoreError> {
        let path = self.path(round);
        let bytes = encode(parameters);
        let mut options = files::private();
        let written = options.write(true).create(true).truncate(true).open(&path).and_then(|mut file| {
            file.write_all(&bytes)?;
            file.sync_data()
        });
        if let Err(source) = written {
            // The ledger does not name it, and the disk may be full.
            let _ = fs::remove_file(&path);
            return Err(StoreError::Io { path, source });
        }
        sync_dir(&self.0)?;
        Ok(ModelRecord { bytes: bytes.len() as u64, crc: crc32(&bytes) })
    }

    pub fn read(&self, round: u32, kept: ModelRecord) -> Result<Vec<f32>, StoreError> {
        let path = self.path(round);
        let damaged = |what: &str| StoreError::Damaged { path: path.clone(), what: what.to_owned() };
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged("the file is missing"));
            }
            read => read.map_err(|source| StoreError::Io { path: path.clone(), source })?,
        };
        if bytes.len() as u64 != kept.bytes {
            return Err(damaged(&format!("it has {} bytes instead of {}", bytes.len(), kept.bytes)));
        }
        if crc32(&bytes) != kept.crc {
            return Err(damaged("it has a wrong checksum"));
        }
        decode(&bytes).ok_or_else(|| damaged("it ends inside a number"))
    }

    /// The parameters of a file whose checksum another process has told.
    pub fn read_told(&self, kept: KeptModel) -> Result<Vec<f32>, StoreError> {
        let bytes = fs::metadata(self.path(kept.round)).map_or(0, |file| file.len());
        self.read(kept.round, ModelRecord { bytes, crc: kept.crc })
    }

    /// Removes the files of all rounds that the ledger does not name.
    pub fn sweep(&self, named: impl Fn(u32) -> bool) -> Result<(), StoreError> {
        spool::sweep_files(&self.0, SUFFIX, named)
    }

    pub fn path(&self, round: u32) -> PathBuf {
        spool::file_of(&self.0, round, SUFFIX)
    }
}

const SUFFIX: &str = "model";

pub(super) fn encode(parameters: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; 4 * parameters.len()];
    for (to, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(parameters) {
        *to = value.to_le_bytes();
    }
    bytes
}

/// `None` if the bytes end inside a number.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<f32>> {
    let (values, []) = bytes.as_chunks::<4>() else { return None };
    Some(values.iter().map(|&value| f32::from_le_bytes(value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_restored_bit_for_bit_and_damage_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let models = Models::of(dir.path());
        models.create(dir.path()).unwrap();
        let parameters = [1.5, -0.0, f32::MIN_POSITIVE];
        let record = models.write(7, &parameters).unwrap();
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&models.read(7, record).unwrap()), bits(&parameters));

        let path = models.path(7);
        let whole = fs::read(&path).unwrap();
        let damaged = || {
            let error = models.read(7, record).unwrap_err();
            assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
            assert!(error.to_string().contains("round-000007.model"), "{error}");
        };
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            fs::write(&path, &flipped).unwrap();
            damaged();
            assert_eq!(fs::read(&path).unwrap(), flipped);
        }
        fs::write(&path, &whole[..5]).unwrap();
        damaged();
        fs::remove_file(&path).unwrap();
        damaged();
    }

    #[test]
    fn only_named_models_stay() {
        let dir = tempfile::tempdir().unwrap();
        let models = Models::of(dir.path());
        models.create(dir.path()).unwrap();
        for round in 1..=3 {
            models.write(round, &[0.0]).unwrap();
        }
        fs::write(models.0.join("notes.txt"), "an operator's").unwrap();
        models.sweep(|round| round == 2).unwrap();
        let mut left: Vec<_> =
            fs::read_dir(&models.0).unwrap().map(|file| file.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["notes.txt", "round-000002.model"]);
    }
}
