//! The owner's files next to the identity of a device or board. The gateway never sees them.
//!
//! ```text
//! cam-1.secret    the secret of the noise: 64 hexadecimal digits
//! cam-1.spent     `answers N`, then question and answer of the last ones, if the owner limits them
//! ```
//! Both are readable by their owner only, and are replaced as a whole. Without its secret a device would answer a repeated
//! question differently. Without its count it would start from zero.

use std::{
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
};

use common::privacy::{SECRET, Secret};
use ring::rand::{SecureRandom, SystemRandom};

use super::{enrol::EnrolError, private_file::PrivateFile};
use crate::{session::Spent, train::Charge};

/// Why the owner's files cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum PrivacyError {
    #[error("{path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{0} holds no secret; restore it from a backup, or remove it to create a new secret")]
    NoSecret(PathBuf),
    #[error("{0} holds no count of answers; restore it from a backup, or remove it to start from zero")]
    NoCount(PathBuf),
    #[error(transparent)]
    Write(#[from] EnrolError),
    #[error("the operating system gives no random numbers")]
    Random,
}

/// Path of the secret of a device's or board's identity.
pub fn secret_file(identity: &Path) -> PathBuf {
    identity.with_extension("secret")
}

/// Path of the count of answers with noise.
pub fn spent_file(identity: &Path) -> PathBuf {
    identity.with_extension("spent")
}

/// Reads the secret in a file, or creates one.
pub fn secret(path: &Path) -> Result<Secret, PrivacyError> {
    if let Some(text) = read(path)? {
        let bytes = hex(text.trim_end()).and_then(|bytes| bytes.try_into().ok());
        return bytes.map(Secret::new).ok_or_else(|| PrivacyError::NoSecret(path.to_owned()));
    }
    let mut bytes = [0; SECRET];
    SystemRandom::new().fill(&mut bytes).map_err(|_| PrivacyError::Random)?;
    let text = bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    PrivateFile::create(path)?.commit(&format!("{text}\n"))?;
    Ok(Secret::new(bytes))
}

/// Reads the count of earlier answers; zero if there is no file.
pub fn load_spent(path: &Path) -> Result<Spent, PrivacyError> {
    let Some(text) = read(path)? else { return Ok(Spent::default()) };
    parse_spent(&text).ok_or_else(|| PrivacyError::NoCount(path.to_owned()))
}

/// Writes the count, durably.
pub fn save_spent(path: &Path, spent: &Spent) -> Result<(), PrivacyError> {
    let mut text = format!("answers {}\n", spent.answers());
    for Charge { question, answer } in spent.last() {
        let _ = writeln!(text, "{question:016x} {answer:016x}");
    }
    Ok(PrivateFile::create(path)?.commit(&text)?)
}

fn parse_spent(text: &str) -> Option<Spent> {
    let mut lines = text.strip_suffix('\n')?.split('\n');
    let answers = lines.next()?.strip_prefix("answers ")?.parse().ok()?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
    let charge = |line: &str| {
        let (question, answer) = line.split_once(' ')?;
        Some(Charge { question: number(question)?, answer: number(answer)? })
    };
    let last = lines.map(charge).collect::<Option<Vec<_>>>()?;
    Some(Spent::new(answers, &last))
}

fn read(path: &Path) -> Result<Option<String>, PrivacyError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PrivacyError::Read { path: path.to_owned(), source }),
    }
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_created_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = secret_file(&dir.path().join("cam-1.pem"));
        assert!(path.ends_with("cam-1.secret"));
        let made = secret(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(secret(&path).unwrap(), made, "after a restart");
        assert_ne!(secret(&dir.path().join("cam-2.secret")).unwrap(), made);
        for damaged in ["", "ab", &"0g".repeat(32), &"ab".repeat(33), &format!("{}a", "ab".repeat(31))] {
            fs::write(&path, damaged).unwrap();
            let error = secret(&path).unwrap_err().to_string();
            assert!(error.contains("cam-1.secret holds no secret"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), damaged, "it is not replaced silently");
        }
    }

    #[test]
    fn the_count_survives_and_damage_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = spent_file(&dir.path().join("cam-1.pem"));
        assert_eq!(load_spent(&path).unwrap(), Spent::default());
        let spent =
            Spent::new(7, &[Charge { question: 1, answer: u64::MAX }, Charge { question: 2, answer: 3 }]);
        save_spent(&path, &spent).unwrap();
        assert_eq!(load_spent(&path).unwrap(), spent);
        for damaged in ["", "answers", "answers 7", "answers -1\n", "answers 7\n1 2\n", "7\n"] {
            fs::write(&path, damaged).unwrap();
            assert!(matches!(load_spent(&path), Err(PrivacyError::NoCount(_))), "{damaged:?}");
        }
        assert!(save_spent(&dir.path().join("missing/cam-1.spent"), &spent).is_err());
    }
}
