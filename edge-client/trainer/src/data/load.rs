//! Samples from files: CSV, NumPy, IDX (the format of MNIST) and folders of images, plain or compressed with gzip.
//!
//! Sizes in headers are not trusted: memory grows with the bytes that are really read, up to [`LIMIT`]. Every error names the
//! file, and the line where there are lines.

use std::{
    io::{self, BufRead, BufReader, Read, Take},
    path::{Path, PathBuf},
};

use common::files::open_regular;
use flate2::bufread::MultiGzDecoder;

use super::DataError;

mod blanks;
mod csv;
#[cfg(feature = "images")]
mod folder;
mod format;
mod idx;
mod numpy;
mod rows;

pub use csv::{BadColumn, CsvColumn, CsvOptions, CsvRowsToPredict, csv, csv_to_predict};
#[cfg(feature = "images")]
pub use folder::{FolderImages, folder, folder_images, images_to_predict};
pub use format::Format;
pub use idx::{IdxImages, idx, idx_images, idx_pixels};
pub use numpy::{npy, npy_array, npz, npz_arrays};
pub use rows::{CsvRow, CsvRows};

/// Without the feature `images`, a folder is refused.
#[cfg(not(feature = "images"))]
pub fn folder(path: &Path) -> Result<super::Samples, LoadError> {
    let problem = "is a folder; this program was built without the feature `images`".into();
    Err(LoadError::Format { path: path.into(), problem })
}

/// Most bytes that are read from one file, after decompression.
pub const LIMIT: u64 = 1 << 30;
/// Most classes; a larger label is assumed to come from a wrong column.
pub const MAX_CLASSES: u32 = 1 << 16;

/// Why a file of samples cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum LoadError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: more than {limit} bytes; divide it into smaller files", path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("{}: {problem}", path.display())]
    Format { path: PathBuf, problem: String },
    #[error("{}:{line}: {problem}", path.display())]
    Line { path: PathBuf, line: usize, problem: String },
    #[error("{}: {source}", path.display())]
    Data { path: PathBuf, source: DataError },
}

/// A file with a size limit. It is decompressed if its content starts like gzip, whatever its name.
///
/// Other crates read their own formats through it, so that all files have the same bounds and errors.
pub struct BoundedFile {
    path: PathBuf,
    reader: Take<Box<dyn BufRead>>,
    limit: u64,
}

impl BoundedFile {
    /// Opens a regular file.
    pub fn open(path: &Path, limit: u64) -> Result<Self, LoadError> {
        let failed = |source| LoadError::Read { path: path.into(), source };
        Self::sniff(path, BufReader::new(open_regular(path).map_err(failed)?), limit)
    }

    /// Standard input.
    pub fn stdin(limit: u64) -> Result<Self, LoadError> {
        Self::sniff(Path::new("standard input"), BufReader::new(io::stdin()), limit)
    }

    fn sniff(path: &Path, mut file: impl BufRead + 'static, limit: u64) -> Result<Self, LoadError> {
        let failed = |source| LoadError::Read { path: path.into(), source };
        let compressed = file.fill_buf().map_err(failed)?.starts_with(&[0x1f, 0x8b]);
        let reader: Box<dyn BufRead> =
            if compressed { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(file) };
        Ok(Self::new(path, reader, limit))
    }

    /// Reads from `reader`; `path` is the name in errors.
    pub fn new(path: &Path, reader: Box<dyn BufRead>, limit: u64) -> Self {
        // One byte more than allowed, so that a file of exactly the limit is not an error.
        Self { path: path.into(), reader: reader.take(limit.saturating_add(1)), limit }
    }

    /// The name in errors.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next line without its end; `None` after the last.
    pub fn line<'a>(&mut self, line: &'a mut String) -> Result<Option<&'a str>, LoadError> {
        line.clear();
        let read = self.reader.read_line(line);
        let read = read.map_err(|source| LoadError::Read { path: self.path.clone(), source })?;
        self.check_limit()?;
        Ok((read > 0).then(|| line.trim_end_matches(['\n', '\r'])))
    }

    /// Appends the next line with its line break; false after the last.
    fn line_bytes(&mut self, bytes: &mut Vec<u8>) -> Result<bool, LoadError> {
        let read = self.reader.read_until(b'\n', bytes);
        let read = read.map_err(|source| LoadError::Read { path: self.path.clone(), source })?;
        self.check_limit().map(|()| read > 0)
    }

    /// The rest of the file.
    pub fn bytes(&mut self) -> Result<Vec<u8>, LoadError> {
        let mut bytes = Vec::new();
        let read = self.reader.read_to_end(&mut bytes);
        read.map_err(|source| LoadError::Read { path: self.path.clone(), source })?;
        self.check_limit()?;
        Ok(bytes)
    }

    /// The first bytes, without consuming them.
    fn start(&mut self) -> Result<&[u8], LoadError> {
        let (path, reader) = (&self.path, &mut self.reader);
        reader.fill_buf().map_err(|source| LoadError::Read { path: path.clone(), source })
    }

    fn check_limit(&self) -> Result<(), LoadError> {
        if self.reader.limit() == 0 {
            return Err(LoadError::TooLarge { path: self.path.clone(), limit: self.limit });
        }
        Ok(())
    }
}

impl std::fmt::Debug for BoundedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoundedFile")
            .field("path", &self.path)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        io::Write,
    };

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    #[test]
    fn gzip_is_recognised_by_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plain-name.csv");
        let mut encoder = GzEncoder::new(File::create(&path).unwrap(), Compression::fast());
        encoder.write_all(b"1,2,0\n3,4,1\n").unwrap();
        encoder.finish().unwrap();
        let samples = csv(&path, &CsvOptions::default()).unwrap();
        assert_eq!((samples.row(1), samples.labels()), (Some(&[3.0, 4.0][..]), &[0, 1][..]));

        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        assert!(matches!(csv(&path, &CsvOptions::default()), Err(LoadError::Read { .. })));
    }

    #[test]
    fn files_end_at_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        fs::write(&path, [7; 100]).unwrap();
        assert_eq!(BoundedFile::open(&path, 100).unwrap().bytes().unwrap(), [7; 100]);
        let error = BoundedFile::open(&path, 99).unwrap().bytes().unwrap_err();
        assert!(matches!(error, LoadError::TooLarge { limit: 99, .. }));
        let error = BoundedFile::open(&path, 99).unwrap().line(&mut String::new()).unwrap_err();
        assert!(matches!(error, LoadError::TooLarge { limit: 99, .. }));
    }

    #[test]
    fn endless_devices_are_refused() {
        for path in ["/dev/zero", "/dev/null"].map(Path::new) {
            let csv = csv(path, &CsvOptions::default()).unwrap_err().to_string();
            let idx = idx(path, path, 1.0).unwrap_err().to_string();
            assert!([&csv, &idx].iter().all(|error| error.contains("not a regular file")), "{csv} {idx}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = csv(Path::new("no/such.csv"), &CsvOptions::default()).unwrap_err();
        assert!(error.to_string().starts_with("no/such.csv: "), "{error}");
    }
}
