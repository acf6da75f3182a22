//! Which format a file has.

use std::path::Path;

use super::{BoundedFile, LIMIT, LoadError};

/// A format of samples.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Format {
    /// Lines of fields.
    Csv,
    /// NumPy arrays with names.
    Npz,
    /// One NumPy array.
    Npy,
    /// The format of MNIST.
    Idx,
    /// A folder of images, one folder inside for each class.
    Folder,
}

impl Format {
    /// By the extension of the name (`.gz` aside); by the first bytes where there is no extension that is known.
    pub fn of(path: &Path) -> Result<Self, LoadError> {
        if path.is_dir() {
            return Ok(Self::Folder);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("csv" | "tsv" | "txt" | "data") => return Ok(Self::Csv),
            Some("npz") => return Ok(Self::Npz),
            Some("npy") => return Ok(Self::Npy),
            Some("idx" | "idx1-ubyte" | "idx3-ubyte") => return Ok(Self::Idx),
            _ => {}
        }
        match BoundedFile::open(path, LIMIT)?.start()? {
            [b'P', b'K', ..] => Ok(Self::Npz),
            [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Ok(Self::Npy),
            [0, 0, 8, 1..=4, ..] => Ok(Self::Idx),
            _ => {
                let problem = "has no known extension: .csv, .npz, .npy, .idx, or a folder of images; rename it, or use --csv";
                Err(LoadError::Format { path: path.into(), problem: problem.into() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn extensions_then_content() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str, content: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, content).unwrap();
            Format::of(&path).map_err(|error| error.to_string())
        };
        assert_eq!(of("a.csv", b""), Ok(Format::Csv));
        assert_eq!(of("a.CSV.gz", b""), Ok(Format::Csv));
        assert_eq!(of("a.npz", b""), Ok(Format::Npz));
        assert_eq!(of("train-images-idx3-ubyte", &[0, 0, 8, 3, 0]), Ok(Format::Idx));
        assert_eq!(of("x", b"\x93NUMPY"), Ok(Format::Npy));
        assert!(of("a.parquet", b"PAR1").unwrap_err().contains("no known extension"));
        assert!(of("empty", b"").is_err());
        assert_eq!(Format::of(dir.path()).ok(), Some(Format::Folder));
    }
}
