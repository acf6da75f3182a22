//! Every data set by name: where its files are searched, which are present, and how it is loaded.
//!
//! Files are searched in `--data DIR`, in `$FAIRTIER_DATA` and in `../shared/data`. Each set has its own folder with
//! the file names of its distribution, plain or with `.gz` or `.xz`. Nothing is downloaded.

mod table;

use std::{
    env,
    path::{Path, PathBuf},
};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{DataSet, SetError, source};
pub(crate) use table::ALL;

/// SHA-256 sums of the files that the loaders were tested with.
const SUMS: &str = include_str!("known/SHA256SUMS");

/// A data set that can be asked for by name.
#[derive(Copy, Clone, Debug)]
pub(crate) struct KnownSet {
    pub name: &'static str,
    pub about: &'static str,
    /// Files of the set; empty for sets that are built in or generated.
    pub files: &'static [SetFile],
    /// How to get the files.
    pub how: &'static str,
    /// Training and test samples of sets without files.
    pub drawn: (u32, u32),
    load: fn(&FoundFiles, u64) -> Result<DataSet, SetError>,
}

/// A file, or a directory of files, of a set.
#[derive(Copy, Clone, Debug)]
pub(crate) struct SetFile {
    /// Path below the directory of data sets, without `.gz` or `.xz`.
    pub path: &'static str,
    pub need: FileNeed,
    /// Training and test samples in it, if known. Tables are divided anew, so these are not its rows.
    pub samples: (u32, u32),
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum FileNeed {
    Always,
    /// At least one file with the same number is needed.
    OneOf(u8),
}

/// Directories in which data sets are searched, in this order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DataDirs(pub Vec<PathBuf>);

/// The files of a set that were found.
#[derive(Clone, Debug, Default)]
pub(crate) struct FoundFiles {
    pub place: PathBuf,
    /// In the order of [`KnownSet::files`].
    pub files: Vec<Option<PathBuf>>,
}

/// An entry of `fairtier sim data list`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct SetListing {
    pub name: &'static str,
    pub about: &'static str,
    pub state: Availability,
    /// Training samples in the present files, if known.
    pub train: Option<u32>,
    pub test: Option<u32>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Availability {
    BuiltIn,
    Found { place: PathBuf, absent: Vec<&'static str> },
    Missing { files: Vec<&'static str>, how: &'static str },
}

/// The checksum of a file, and whether it is the known one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct FileDigest {
    pub path: PathBuf,
    pub sha256: String,
    /// `None` if no checksum is known.
    pub matches: Option<bool>,
}

pub(crate) fn by_name(name: &str) -> Result<&'static KnownSet, SetError> {
    ALL.iter().find(|known| known.name == name).ok_or_else(|| SetError::Unknown { name: name.into() })
}

/// Loads or generates a set. The seed determines generated samples, and the division of sets without a test part.
pub fn load(name: &str, places: &DataDirs, seed: u64) -> Result<DataSet, SetError> {
    by_name(name)?.load(places, seed)
}

impl DataDirs {
    /// `dir` (if given), the environment variable, and the project's own directory.
    pub fn usual(dir: Option<&Path>) -> Self {
        let given = dir.map(Path::to_path_buf);
        let set = env::var_os("FAIRTIER_DATA").filter(|value| !value.is_empty()).map(PathBuf::from);
        Self(given.into_iter().chain(set).chain([PathBuf::from("../shared/data")]).collect())
    }
}

impl KnownSet {
    pub fn load(&self, places: &DataDirs, seed: u64) -> Result<DataSet, SetError> {
        let found = self.find(places);
        let missing = self.missing(&found);
        if !missing.is_empty() {
            let looked: Vec<String> = places.0.iter().map(|place| place.display().to_string()).collect();
            let (name, missing, looked) = (self.name, missing.join(", "), looked.join(", "));
            return Err(SetError::Missing { name, missing, looked, how: self.how });
        }
        let set = (self.load)(&found, seed)?;
        Ok(DataSet { name: self.name.into(), ..set })
    }

    pub fn listing(&self, places: &DataDirs) -> SetListing {
        let found = self.find(places);
        let missing = self.missing(&found);
        let absent = || self.files.iter().zip(&found.files).filter(|(_, path)| path.is_none());
        let state = if self.files.is_empty() {
            Availability::BuiltIn
        } else if missing.is_empty() {
            let absent = absent().map(|(file, _)| file.path).collect();
            Availability::Found { place: found.place.clone(), absent }
        } else {
            Availability::Missing { files: missing, how: self.how }
        };
        let present = self.files.iter().zip(&found.files).filter(|(_, path)| path.is_some());
        let files = present.fold((0, 0), |sum, (file, _)| (sum.0 + file.samples.0, sum.1 + file.samples.1));
        let (train, test) = if self.files.is_empty() { self.drawn } else { files };
        let count = |count| (count > 0).then_some(count);
        SetListing { name: self.name, about: self.about, state, train: count(train), test: count(test) }
    }

    /// Checksums of the files that are present.
    pub fn sums(&self, places: &DataDirs) -> Result<Vec<FileDigest>, SetError> {
        let found = self.find(places);
        let files = found.files.iter().flatten().filter(|path| path.is_file());
        files.map(|path| sum(path, &found.place)).collect()
    }

    /// The directory with all files, or else the one with most of them.
    fn find(&self, places: &DataDirs) -> FoundFiles {
        let mut best = FoundFiles { files: vec![None; self.files.len()], ..FoundFiles::default() };
        for place in &places.0 {
            let files = self.files.iter().map(|file| locate(place, file.path)).collect();
            let found = FoundFiles { place: place.clone(), files };
            if self.missing(&found).is_empty() {
                return found;
            }
            if found.count() > best.count() {
                best = found;
            }
        }
        best
    }

    fn missing(&self, found: &FoundFiles) -> Vec<&'static str> {
        let there = |file: &SetFile| {
            let mut same = self.files.iter().zip(&found.files).filter(|(other, _)| match file.need {
                FileNeed::Always => other.path == file.path,
                FileNeed::OneOf(_) => other.need == file.need,
            });
            same.any(|(_, path)| path.is_some())
        };
        self.files.iter().filter(|file| !there(file)).map(|file| file.path).collect()
    }
}

impl FoundFiles {
    fn count(&self) -> usize {
        self.files.iter().flatten().count()
    }

    /// The path of a file by its index in [`KnownSet::files`]; called only if no file is missing.
    fn path(&self, index: usize) -> &Path {
        self.files[index].as_deref().expect("sets are loaded when no file is missing")
    }

    /// Paths of the present files of a range.
    fn some(&self, range: std::ops::Range<usize>) -> Vec<PathBuf> {
        self.files[range].iter().flatten().cloned().collect()
    }
}

fn locate(place: &Path, path: &str) -> Option<PathBuf> {
    ["", ".gz", ".xz"].iter().map(|ending| place.join(format!("{path}{ending}"))).find(|path| path.exists())
}

fn sum(path: &Path, place: &Path) -> Result<FileDigest, SetError> {
    // The checksum is that of the stored file, compressed or not.
    let bytes = source::raw(path)?;
    let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let short = path.strip_prefix(place).unwrap_or(path).to_string_lossy().replace('\\', "/");
    let known = SUMS.lines().filter_map(|line| line.split_once("  ")).find(|(_, name)| *name == short);
    Ok(FileDigest { path: path.into(), matches: known.map(|(sum, _)| sum == sha256), sha256 })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn names_are_unique_and_every_set_says_how_to_get_it() {
        for (index, known) in ALL.iter().enumerate() {
            assert!(ALL.iter().skip(index + 1).all(|other| other.name != known.name), "{}", known.name);
            assert_eq!(known.files.is_empty(), known.how.is_empty(), "{}", known.name);
            assert_eq!(known.files.is_empty(), known.drawn.0 > 0, "{}", known.name);
        }
        assert!(matches!(by_name("imagenet"), Err(SetError::Unknown { .. })));
        let text = load("imagenet", &DataDirs::default(), 0).unwrap_err().to_string();
        assert!(text.contains("fairtier sim data list"), "{text}");
    }

    #[test]
    fn generated_sets_have_the_listed_number_of_samples() {
        for known in ALL.iter().filter(|known| known.files.is_empty()) {
            let set = known.load(&DataDirs::default(), 1).unwrap();
            assert_eq!((set.train.len() as u32, set.test.len() as u32), known.drawn, "{}", known.name);
            assert_eq!(set.name, known.name);
            let listing = known.listing(&DataDirs::default());
            assert_eq!((listing.state, listing.train), (Availability::BuiltIn, Some(known.drawn.0)));
        }
    }

    #[test]
    fn the_first_directory_with_all_files_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
        for place in [&first, &second] {
            fs::create_dir_all(place.join("adult")).unwrap();
            fs::write(place.join("adult/adult.data"), "").unwrap();
        }
        let places = DataDirs(vec![dir.path().join("absent"), first, second.clone()]);
        let adult = by_name("adult").unwrap();
        let Availability::Missing { files, how } = adult.listing(&places).state else {
            panic!("not missing")
        };
        assert_eq!((&*files, how.is_empty()), (&["adult/adult.test"][..], false));
        let error = adult.load(&places, 0).unwrap_err().to_string();
        assert!(error.contains("no adult/adult.test in") && error.contains("archive.ics.uci.edu"), "{error}");
        fs::write(second.join("adult/adult.test.gz"), "").unwrap();
        assert_eq!(
            adult.listing(&places).state,
            Availability::Found { place: second.clone(), absent: vec![] }
        );
        let sums = adult.sums(&places).unwrap();
        assert_eq!((sums.len(), sums[0].matches, sums[1].matches), (2, Some(false), None));
        assert!(sums[0].sha256.starts_with("e3b0c44298fc1c14"), "the checksum of an empty file");
    }

    #[test]
    fn one_batch_is_enough() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("cifar10")).unwrap();
        let places = DataDirs(vec![dir.path().into()]);
        let cifar = by_name("cifar10").unwrap();
        let Availability::Missing { files, .. } = cifar.listing(&places).state else { panic!("not missing") };
        assert_eq!(files.len(), 7);
        fs::write(dir.path().join("cifar10/data_batch_3.bin"), [1; 3073]).unwrap();
        fs::write(dir.path().join("cifar10/test_batch.bin"), [2; 3073]).unwrap();
        let listing = cifar.listing(&places);
        assert_eq!((listing.train, listing.test), (Some(10_000), Some(10_000)));
        let set = cifar.load(&places, 0).unwrap();
        assert_eq!((set.train.labels(), set.test.labels(), &*set.name), (&[1][..], &[2][..], "cifar10"));
    }

    #[test]
    fn the_given_directory_comes_first() {
        let places = DataDirs::usual(Some(Path::new("mine")));
        assert_eq!(places.0.first(), Some(&PathBuf::from("mine")));
        assert_eq!(places.0.last(), Some(&PathBuf::from("../shared/data")));
    }
}
