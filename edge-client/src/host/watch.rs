//! Samples that are read again when their files have changed.

use std::{
    error::Error,
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use tracing::{info, warn};

use crate::data::{Shard, VecShard, schema::Schema};

/// How samples were read. A client compares it with the schema of every run that it joins.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub enum ReadBy<'a> {
    /// Not from files, or not known: nothing is compared.
    #[default]
    Unknown,
    /// From files without a schema; a run that has one reads them in another way.
    NoSchema,
    /// By this schema, with the scales of the fleet.
    Schema(&'a Schema),
}

/// The samples of a device while it runs.
pub trait SampleSource {
    /// How the samples are read.
    type Shard: Shard + ?Sized;

    /// The present samples.
    fn shard(&self) -> &Self::Shard;

    /// Reads samples again if they have changed; true if [`shard`](Self::shard) returns others now. Called between rounds, with
    /// the number of classes of the model if it has classes.
    fn refresh(&mut self, classes: Option<u32>) -> bool;

    /// How the samples were read.
    fn read_by(&self) -> ReadBy<'_> {
        ReadBy::Unknown
    }
}

/// Samples that never change.
impl<S: Shard + ?Sized> SampleSource for &S {
    type Shard = S;

    fn shard(&self) -> &S {
        self
    }

    fn refresh(&mut self, _classes: Option<u32>) -> bool {
        false
    }
}

/// Samples of files. A changed file replaces them only if it can be read and has samples of the same shape.
#[derive(Debug)]
pub struct WatchedFiles<'a, L> {
    files: Vec<PathBuf>,
    load: L,
    shard: VecShard,
    read_by: ReadBy<'a>,
    /// The files as they were when they were last read, successfully or not.
    seen: Stamp,
}

/// Why changed samples are not used, although they can be read.
#[derive(Debug, thiserror::Error)]
enum ChangeError {
    #[error("a sample has {now} numbers, before it had {before}; restart the device to change its columns")]
    Inputs { before: u32, now: u32 },
    #[error("a sample has {now} targets, before it had {before}; restart the device to change its columns")]
    Targets { before: u32, now: u32 },
    #[error("there are labels for {now} classes, but the model has {model}")]
    Classes { model: u32, now: u32 },
    #[error("there is no sample to train on")]
    Empty,
}

impl<'a, L, E> WatchedFiles<'a, L>
where
    L: FnMut() -> Result<VecShard, E>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    /// Loads the samples of these files and folders. Without files, they never change.
    pub fn load(files: Vec<PathBuf>, mut load: L) -> Result<Self, E> {
        let seen = Stamp::of(&files);
        Ok(Self { shard: load()?, files, load, read_by: ReadBy::Unknown, seen })
    }

    /// Says how `load` reads the files.
    #[must_use]
    pub fn read_by(self, read_by: ReadBy<'a>) -> Self {
        Self { read_by, ..self }
    }

    fn reload(&mut self, classes: Option<u32>) -> Result<VecShard, Box<dyn Error + Send + Sync>> {
        let shard = (self.load)().map_err(Into::into)?;
        fits(&self.shard, &shard, classes)?;
        Ok(shard)
    }
}

impl<L, E> SampleSource for WatchedFiles<'_, L>
where
    L: FnMut() -> Result<VecShard, E>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    type Shard = VecShard;

    fn shard(&self) -> &VecShard {
        &self.shard
    }

    fn read_by(&self) -> ReadBy<'_> {
        self.read_by
    }

    fn refresh(&mut self, classes: Option<u32>) -> bool {
        let now = Stamp::of(&self.files);
        if now == self.seen {
            return false;
        }
        let changed = self.reload(classes);
        // Another program still writes: the next round looks again.
        if Stamp::of(&self.files) != now {
            return false;
        }
        self.seen = now;
        let train_before = self.shard.train_len();
        match changed {
            Ok(shard) => {
                self.shard = shard;
                let (train, test) = (self.shard.train_len(), self.shard.test_len());
                info!(train, test, train_before, "samples changed and are read again");
                true
            }
            Err(error) => {
                warn!(%error, train = train_before, "samples changed and are refused; the earlier ones stay in use");
                false
            }
        }
    }
}

/// The gateway would refuse samples of another shape, and with them the device.
fn fits(before: &VecShard, now: &VecShard, classes: Option<u32>) -> Result<(), ChangeError> {
    if now.inputs() != before.inputs() {
        return Err(ChangeError::Inputs { before: before.inputs(), now: now.inputs() });
    }
    if now.targets() != before.targets() {
        return Err(ChangeError::Targets { before: before.targets(), now: now.targets() });
    }
    if let Some(model) = classes.filter(|model| now.classes() > *model) {
        return Err(ChangeError::Classes { model, now: now.classes() });
    }
    if now.train_len() == 0 { Err(ChangeError::Empty) } else { Ok(()) }
}

/// Identifies the state of files without reading them. A missing file is a state, too.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Stamp(Vec<(PathBuf, FileStamp)>);

/// Length, inode, and the times of the last change of content and of metadata.
type FileStamp = (u64, u64, [i64; 4]);

impl Stamp {
    fn of(files: &[PathBuf]) -> Self {
        let mut stamp = Self::default();
        files.iter().for_each(|file| stamp.add(file, FOLDERS));
        stamp
    }

    fn add(&mut self, path: &Path, folders: u32) {
        let Ok(found) = fs::metadata(path) else { return };
        self.0.push((path.into(), of_file(&found)));
        if !found.is_dir() || folders == 0 {
            return;
        }
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut inside: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        inside.sort_unstable();
        inside.iter().for_each(|path| self.add(path, folders - 1));
    }
}

/// A folder of images has one folder for each class.
const FOLDERS: u32 = 2;

fn of_file(found: &Metadata) -> FileStamp {
    (found.len(), found.ino(), [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::load::{CsvOptions, csv};

    fn watch(
        file: &Path,
    ) -> WatchedFiles<'static, impl FnMut() -> Result<VecShard, Box<dyn Error + Send + Sync>>> {
        let path = file.to_owned();
        let load = move || Ok(csv(&path, &CsvOptions::default())?.split(0.25, 0)?);
        WatchedFiles::load(vec![file.into()], load).unwrap()
    }

    #[test]
    fn changed_files_are_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("samples.csv");
        fs::write(&file, "1,0\n2,1\n3,0\n4,1\n").unwrap();
        let mut source = watch(&file);
        assert!(!source.refresh(Some(2)));
        assert_eq!((source.shard().train_len(), source.shard().test_len()), (3, 1));
        fs::write(&file, "1,0\n2,1\n3,0\n4,1\n5,1\n6,0\n7,1\n8,0\n").unwrap();
        assert!(source.refresh(Some(2)));
        assert_eq!((source.shard().train_len(), source.shard().test_len()), (6, 2));
        assert!(!source.refresh(Some(2)));
        // A file of the same length takes its place, as programs do that write a copy first.
        let copy = dir.path().join("copy");
        fs::write(&copy, "1,0\n2,1\n3,0\n4,1\n5,1\n6,0\n7,1\n9,0\n").unwrap();
        fs::rename(&copy, &file).unwrap();
        assert!(source.refresh(Some(2)));
    }

    #[test]
    fn broken_files_keep_the_earlier_samples() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("samples.csv");
        fs::write(&file, "1,0\n2,1\n3,0\n4,1\n").unwrap();
        let mut source = watch(&file);
        let before = source.shard().clone();
        for (broken, reason) in [
            ("1,0\n2,?\n", "samples.csv:2: column 2"),
            ("1,2,0\n3,4,1\n", "a sample has 2 numbers, before it had 1"),
            ("1,0\n2,7\n", "labels for 8 classes, but the model has 2"),
            ("", "samples.csv"),
        ] {
            fs::write(&file, broken).unwrap();
            let error = source.reload(Some(2)).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
            assert!(!source.refresh(Some(2)));
            assert_eq!(*source.shard(), before);
        }
        fs::remove_file(&file).unwrap();
        assert!(!source.refresh(Some(2)));
        fs::write(&file, "1,0\n2,1\n3,0\n").unwrap();
        assert!(source.refresh(Some(2)));
        assert_eq!(source.shard().train_len(), 2);
    }

    #[test]
    fn images_in_folders_are_watched() {
        let dir = tempfile::tempdir().unwrap();
        let (class, files) = (dir.path().join("cat"), [dir.path().to_owned()]);
        fs::create_dir(&class).unwrap();
        fs::write(class.join("a.png"), "1").unwrap();
        let mut before = Stamp::of(&files);
        for (name, content) in [("b.png", "2"), ("a.png", "33")] {
            fs::write(class.join(name), content).unwrap();
            let now = Stamp::of(&files);
            assert_ne!(now, before, "{name}");
            before = now;
        }
        assert_eq!(Stamp::of(&files), before);
    }
}
