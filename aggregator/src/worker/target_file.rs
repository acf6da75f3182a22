//! `fairness.target` in the configuration file of a running gateway. Only this key may change while it runs.

use std::{
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::PathBuf,
};

use common::files::{MAX_CONFIG, read_text};
use tracing::{info, warn};

use super::RoundWorker;
use crate::config::Config;

/// See the module.
#[derive(Debug)]
pub struct TargetFile {
    path: PathBuf,
    /// Of the file as it was read last.
    stamp: Option<FileStamp>,
    /// The target that it stated then.
    target: Option<f64>,
}

/// Changes whenever the file does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct FileStamp {
    inode: u64,
    len: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

impl FileStamp {
    fn of(file: &Metadata) -> Self {
        Self { inode: file.ino(), len: file.len(), modified: (file.mtime(), file.mtime_nsec()) }
    }
}

impl TargetFile {
    /// Takes note of what the file states now; a gateway without one never changes its target.
    pub fn watch(path: PathBuf) -> Self {
        let mut file = Self { path, stamp: None, target: None };
        let _ = file.changed();
        file
    }

    /// The target, if the file states another one than before. A file that cannot be read changes nothing.
    fn changed(&mut self) -> Option<f64> {
        let stamp = fs::metadata(&self.path).ok().map(|file| FileStamp::of(&file));
        if stamp == self.stamp {
            return None;
        }
        self.stamp = stamp;
        // A file that is moved away for a moment is no news.
        stamp?;
        let read = read_text(&self.path, MAX_CONFIG).map_err(|error| error.to_string());
        match read.and_then(|text| Config::parse(&text).map_err(|error| error.to_string())) {
            Ok(config) => {
                let target = Some(config.fairness.target);
                let before = std::mem::replace(&mut self.target, target);
                target.filter(|_| before.is_some() && before != target)
            }
            Err(error) => {
                warn!(
                    file = %self.path.display(),
                    error = error.trim(),
                    "cannot read the changed configuration; the fairness target stays"
                );
                None
            }
        }
    }
}

impl RoundWorker {
    /// Before a round: takes up a target that the configuration file states since.
    pub(super) fn follow_target(&mut self, round: u32) {
        let Some(target) = self.target_file.as_mut().and_then(TargetFile::changed) else { return };
        let method = &mut self.conductor.run.method;
        let before = method.fairness.as_ref().map(|fairness| fairness.settings().target);
        if before.is_none() || target == 0.0 {
            let what = "a fairness target is set or removed when the gateway starts; restart it";
            return warn!(round, target, "{what}");
        }
        match method.retarget(target) {
            Ok(()) => {
                self.config_log.set_target(target);
                info!(round, before, target, "fairness target changed");
            }
            Err(error) => warn!(round, target, %error, "the fairness target stays"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_target_in_a_sound_file_is_news() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fairtier.toml");
        let write = |text: &str| fs::write(&path, text).unwrap();
        write("fairness = { target = 0.3 }");
        let mut file = TargetFile::watch(path.clone());
        assert_eq!(file.changed(), None);
        for (text, news) in [
            ("fairness = { target = 0.25 }", Some(0.25)),
            ("fairness = { target = 0.25 }\nrun = { rounds = 7 }", None),
            ("fairness = { target = ", None),
            ("fairness = { target = 0.5, colour = 1 }", None),
            ("fairness = { target = 0.25 } ", None),
            ("fairness = { target = 0.5 } # half", Some(0.5)),
            ("", Some(0.0)),
        ] {
            write(text);
            assert_eq!(file.changed(), news, "{text}");
            assert_eq!(file.changed(), None, "{text}");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(file.changed(), None);
        write("fairness.target = 0.125");
        assert_eq!(file.changed(), Some(0.125));
        assert_eq!(TargetFile::watch(dir.path().join("none")).changed(), None);
    }
}
