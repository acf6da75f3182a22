//! An identity file on its way to its place: only its owner can read it, and it is there whole or not at all, also
//! after a power cut.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::enrol::EnrolError;

/// Written beside its place and then renamed. Dropped before that, nothing is left.
#[derive(Debug)]
pub struct Draft {
    file: File,
    part: PathBuf,
    path: PathBuf,
}

impl Draft {
    /// Fails where an identity could not be written, before a token is spent on it.
    pub fn open(path: &Path) -> Result<Self, EnrolError> {
        let mut part = path.as_os_str().to_owned();
        part.push("~");
        let part = PathBuf::from(part);
        let open = || {
            if path.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            // What was left there may be readable by others, or lead elsewhere.
            let _ = fs::remove_file(&part);
            let mut options = fs::OpenOptions::new();
            options.write(true).create_new(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            options.open(&part)
        };
        let file = open().map_err(|source| failed(path, source))?;
        Ok(Self { file, part, path: path.to_owned() })
    }

    /// Puts the identity into its place, for good: once it is used, the one before is worth nothing.
    pub fn keep(mut self, bundle: &str) -> Result<(), EnrolError> {
        let keep = |draft: &mut Self| {
            draft.file.write_all(bundle.as_bytes())?;
            draft.file.sync_all()?;
            fs::rename(&draft.part, &draft.path)?;
            let dir = draft.path.parent().filter(|dir| !dir.as_os_str().is_empty());
            File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
        };
        keep(&mut self).map_err(|source| failed(&self.path, source))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Once it is in its place, there is none.
        let _ = fs::remove_file(&self.part);
    }
}

fn failed(path: &Path, source: io::Error) -> EnrolError {
    EnrolError::Write { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_identity_is_replaced_as_a_whole_and_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cam-1.pem");
        fs::write(&path, "old").unwrap();
        let draft = Draft::open(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        draft.keep("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(Draft::open(&path).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left of what was not kept");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_place_that_can_not_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = Draft::open(&dir.path().join("missing/cam-1.pem")).unwrap_err().to_string();
        assert!(error.contains("missing/cam-1.pem"), "{error}");
        assert!(Draft::open(dir.path()).is_err());
    }
}
