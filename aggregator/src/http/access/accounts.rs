//! The accounts of a dashboard: a private file in the gateway's directory.
//!
//! ```text
//! dashboard-users.json   [{"name":"ann","role":"operator","hash":"$argon2id$.."}]
//! ```
//! Passwords are hashed with argon2id; the file never holds one.

use std::{
    io,
    path::{Path, PathBuf},
};

use argon2::{
    Argon2,
    password_hash::{PasswordHasher, PasswordVerifier},
};
use clap::ValueEnum;
use common::files::{MAX_CONFIG, Secrecy, read_text, write_file};
use serde::{Deserialize, Serialize};

pub const FILE: &str = "dashboard-users.json";
/// Letters of a name, and of a password.
const NAME: usize = 64;
pub const PASSWORD: std::ops::RangeInclusive<usize> = 12..=256;

/// What an account may do.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look at all pages
    Read,
    /// Also change the run: revoke, issue tokens, pause, resume, export
    Operator,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operator => "operator",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    pub name: String,
    pub role: Role,
    hash: String,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccountError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is damaged: {source}; remove it and add the accounts again")]
    Damaged { path: PathBuf, source: serde_json::Error },
    #[error("{0:?} cannot be a name: use 1 to {NAME} of a-z A-Z 0-9 . _ - @")]
    Name(String),
    #[error("the password has {0} bytes; use 12 to 256")]
    Password(usize),
    #[error("{0} has an account already; remove it first with `fairtier gateway dashboard user remove`")]
    Exists(String),
    #[error("{0} has no account; `fairtier gateway dashboard user list` names them")]
    Missing(String),
    #[error("the password cannot be hashed: {0}")]
    Hash(argon2::password_hash::Error),
}

/// The file of one directory.
#[derive(Clone, Debug)]
pub struct Accounts {
    path: PathBuf,
}

impl Accounts {
    pub fn of(dir: &Path) -> Self {
        Self { path: dir.join(FILE) }
    }

    /// By name; none if there is no file.
    pub fn list(&self) -> Result<Vec<Account>, AccountError> {
        let failed = |source| AccountError::Io { path: self.path.clone(), source };
        let text = match read_text(&self.path, MAX_CONFIG) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            text => text.map_err(failed)?,
        };
        serde_json::from_str(&text)
            .map_err(|source| AccountError::Damaged { path: self.path.clone(), source })
    }

    pub fn add(&self, name: &str, role: Role, password: &str) -> Result<(), AccountError> {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
        if name.is_empty() || name.len() > NAME || !name.bytes().all(letter) {
            return Err(AccountError::Name(name.to_owned()));
        }
        if !PASSWORD.contains(&password.len()) {
            return Err(AccountError::Password(password.len()));
        }
        let mut all = self.list()?;
        if all.iter().any(|account| account.name == name) {
            return Err(AccountError::Exists(name.to_owned()));
        }
        let hash =
            Argon2::default().hash_password(password.as_bytes()).map_err(AccountError::Hash)?.to_string();
        all.push(Account { name: name.to_owned(), role, hash });
        all.sort_by(|a, b| a.name.cmp(&b.name));
        self.write(&all)
    }

    pub fn remove(&self, name: &str) -> Result<(), AccountError> {
        let mut all = self.list()?;
        let before = all.len();
        all.retain(|account| account.name != name);
        if all.len() == before {
            return Err(AccountError::Missing(name.to_owned()));
        }
        self.write(&all)
    }

    /// The account, if name and password are right. It takes as long for a name that has none.
    pub fn check(&self, name: &str, password: &str) -> Result<Option<Account>, AccountError> {
        let found = self.list()?.into_iter().find(|account| account.name == name);
        let right = match &found {
            Some(account) => {
                Argon2::default().verify_password(password.as_bytes(), account.hash.as_str()).is_ok()
            }
            None => {
                let _: Result<argon2::password_hash::phc::PasswordHash, _> =
                    Argon2::default().hash_password(password.as_bytes());
                false
            }
        };
        Ok(found.filter(|_| right))
    }

    /// The role that a name has now.
    pub fn role(&self, name: &str) -> Result<Option<Role>, AccountError> {
        Ok(self.list()?.into_iter().find(|account| account.name == name).map(|account| account.role))
    }

    fn write(&self, all: &[Account]) -> Result<(), AccountError> {
        let failed = |source| AccountError::Io { path: self.path.clone(), source };
        let text = serde_json::to_string(all).map_err(|error| failed(error.into()))?;
        write_file(&self.path, text + "\n", Secrecy::Secret).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn only_the_right_password_opens_an_account_and_the_file_holds_none() {
        let dir = tempfile::tempdir().unwrap();
        let accounts = Accounts::of(dir.path());
        assert_eq!(accounts.list().unwrap(), []);
        accounts.add("ann", Role::Operator, "correct horse battery").unwrap();
        let opened = |name, password| accounts.check(name, password).unwrap().map(|account| account.role);
        assert_eq!(opened("ann", "correct horse battery"), Some(Role::Operator));
        for (name, password) in
            [("ann", "correct horse batterx"), ("ann", ""), ("bob", "correct horse battery")]
        {
            assert_eq!(opened(name, password), None, "{name} {password}");
        }
        let path = dir.path().join(FILE);
        assert!(!fs::read_to_string(&path).unwrap().contains("horse"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(accounts.add("ann", Role::Read, "another password"), Err(AccountError::Exists(_))));
        accounts.remove("ann").unwrap();
        assert_eq!(accounts.role("ann").unwrap(), None);
        assert!(matches!(accounts.remove("ann"), Err(AccountError::Missing(_))));
    }

    #[test]
    fn weak_passwords_odd_names_and_damaged_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let accounts = Accounts::of(dir.path());
        assert!(matches!(accounts.add("ann", Role::Read, "short"), Err(AccountError::Password(5))));
        for name in ["", "a b", "<b>", "a\n", &"x".repeat(65)] {
            assert!(matches!(
                accounts.add(name, Role::Read, "long enough it is"),
                Err(AccountError::Name(_))
            ));
        }
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(matches!(accounts.check("ann", "x"), Err(AccountError::Damaged { .. })));
    }
}
