//! Atomic replacement of an identity file: see [`common::files::AtomicFile`].

use std::{
    io,
    path::{Path, PathBuf},
};

use common::files::{AtomicFile, Secrecy};

use super::enrol::EnrolError;

/// A file that only its owner can read. If it is dropped before [`Self::commit`], nothing is left.
#[derive(Debug)]
pub struct PrivateFile {
    file: AtomicFile,
    path: PathBuf,
}

impl PrivateFile {
    /// Fails early if an identity cannot be written, before a token is used up.
    pub fn create(path: &Path) -> Result<Self, EnrolError> {
        let file = AtomicFile::create(path, Secrecy::Secret).map_err(|source| failed(path, source))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Puts the identity into its place, durably: once it is used, the previous one is invalid.
    pub fn commit(self, bundle: &str) -> Result<(), EnrolError> {
        self.file.commit(bundle).map_err(|source| failed(&self.path, source))
    }
}

fn failed(path: &Path, source: io::Error) -> EnrolError {
    EnrolError::Write { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn an_identity_is_replaced_atomically_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cam-1.pem");
        fs::write(&path, "old").unwrap();
        let file = PrivateFile::create(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        file.commit("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(PrivateFile::create(&path).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn an_error_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let error = PrivateFile::create(&dir.path().join("missing/cam-1.pem")).unwrap_err().to_string();
        assert!(error.contains("missing/cam-1.pem"), "{error}");
        assert!(PrivateFile::create(dir.path()).is_err());
    }
}
