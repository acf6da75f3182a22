//! Keys of boards behind a bridge, each with its grant.
//!
//! ```text
//! identity/serial/<device>.key   key (hex), expiry (seconds since 1970), tiers (bits) and issue (seconds), a line each
//! ```
//! A file with the key alone never expires and allows all tiers. Earlier versions leave out the issue.

use std::path::Path;

use common::{
    DeviceId, TierSet,
    privacy::Privacy,
    sealed::{BoardIdentity, Key},
};
use ring::rand::{SecureRandom, SystemRandom};

use super::{
    Authority, CaError, Existing, GrantOptions, enrolment::OutFile, grant::seconds_now, tokens::hex,
};

/// Key and grant of a board.
#[derive(Clone, PartialEq, Eq)]
pub struct SerialCredential {
    /// Seals and opens the packets of this board.
    pub key: Key,
    /// Seconds since 1970; never if absent.
    pub expires: Option<u64>,
    /// Tiers that the board may be assigned.
    pub tiers: TierSet,
    /// Seconds since 1970; 0 if unknown.
    pub issued: u64,
}

impl std::fmt::Debug for SerialCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { key: _, expires, tiers, issued } = self;
        let mut shown = f.debug_struct("SerialCredential");
        shown.field("expires", expires).field("tiers", tiers).field("issued", issued).finish_non_exhaustive()
    }
}

impl Authority {
    /// Enrols a board with the default grant and returns its board identity. It has no secret
    /// for noise: `fairtier board flash` adds one that the gateway never sees.
    pub fn enroll_serial(&self, device: &DeviceId) -> Result<Vec<u8>, CaError> {
        self.enroll_serial_with(device, GrantOptions::default())
    }

    /// Enrols a board with this grant. A board cannot renew its key: when it expires, it needs a new board identity.
    pub(crate) fn enroll_serial_with(
        &self,
        device: &DeviceId,
        grant: GrantOptions,
    ) -> Result<Vec<u8>, CaError> {
        self.enroll_serial_as(device, grant, Existing::Refuse, None)
    }

    /// The same for a name that may be a member already; see [`Authority::enroll_as`].
    pub(crate) fn enroll_serial_as(
        &self,
        device: &DeviceId,
        grant: GrantOptions,
        existing: Existing,
        out: Option<&Path>,
    ) -> Result<Vec<u8>, CaError> {
        let mut identity = BoardIdentity {
            device: device.clone(),
            key: [0; 32],
            seed: [0; 16],
            privacy: Privacy::default(),
        };
        let random = SystemRandom::new();
        let filled = random.fill(&mut identity.key).and_then(|()| random.fill(&mut identity.seed));
        filled.map_err(|_| CaError::Random)?;
        let _lock = self.lock()?;
        let admission = self.admission(device, existing)?;
        let out = OutFile::create(out)?;
        let issued = admission.issued;
        let expires = Some(issued.saturating_add(grant.valid_for.as_secs()));
        let member = SerialCredential { key: identity.key, expires, tiers: grant.tiers, issued };
        self.make_dir("serial")?;
        self.admit(device, &key_file(device), &member.encode(), admission)?;
        let identity = identity.encode().to_vec();
        out.commit(&identity)?;
        Ok(identity)
    }

    /// Key and grant of a board, if it is a member now. An error if the files cannot be read.
    pub(crate) fn serial_credential(&self, device: &DeviceId) -> Result<Option<SerialCredential>, CaError> {
        let Some(text) = self.read_bytes_if_there(&key_file(device))? else {
            return self.check_devices().map(|()| None);
        };
        let member = str::from_utf8(&text).ok().and_then(SerialCredential::decode);
        let member = member.filter(|member| member.expires.is_none_or(|expires| seconds_now() < expires));
        match member {
            Some(member) if !self.journal.revokes(device, member.issued)? => Ok(Some(member)),
            _ => Ok(None),
        }
    }
}

impl SerialCredential {
    /// The text of a board's file in `identity/`; [`Self::decode`] reads it.
    pub fn encode(&self) -> String {
        let (tiers, issued) = (self.tiers.bits(), self.issued);
        let grant = self.expires.map_or(String::new(), |seconds| format!("{seconds}\n{tiers}\n{issued}\n"));
        format!("{}\n{grant}", hex(&self.key))
    }

    /// `None` if a line cannot be read.
    pub fn decode(text: &str) -> Option<Self> {
        let lines: Vec<_> = text.trim_end().lines().collect();
        let bits = |tiers: &str| tiers.parse().ok().map(TierSet::from_bits);
        let (key, expires, tiers, issued) = match lines[..] {
            [key] => (key, None, TierSet::ALL, 0),
            [key, expires, tiers] => (key, Some(expires.parse().ok()?), bits(tiers)?, 0),
            [key, expires, tiers, issued] => {
                (key, Some(expires.parse().ok()?), bits(tiers)?, issued.parse().ok()?)
            }
            _ => return None,
        };
        let (pairs, []) = key.as_bytes().as_chunks::<2>() else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let byte = |&[high, low]: &[u8; 2]| u8::try_from(digit(high)? << 4 | digit(low)?).ok();
        let key = pairs.iter().map(byte).collect::<Option<Vec<_>>>()?.try_into().ok()?;
        Some(Self { key, expires, tiers, issued })
    }
}

pub(super) fn key_file(device: &DeviceId) -> String {
    format!("serial/{device}.key")
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use common::Tier;

    use super::*;

    fn authority() -> (tempfile::TempDir, Authority, DeviceId) {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        (dir, authority, "board-1".parse().unwrap())
    }

    #[test]
    fn a_serial_device_is_known_by_its_key_until_it_is_revoked() {
        let (_dir, authority, device) = authority();
        let key = || authority.serial_credential(&device).unwrap().map(|member| member.key);
        assert_eq!(key(), None);
        let identity = BoardIdentity::decode(&authority.enroll_serial(&device).unwrap()).unwrap();
        assert_eq!((&identity.device, Some(identity.key)), (&device, key()));
        let replace = |how| authority.enroll_serial_as(&device, GrantOptions::default(), how, None);
        assert!(matches!(replace(Existing::Refuse), Err(CaError::Enrolled(_))));
        let again = BoardIdentity::decode(&replace(Existing::Replace).unwrap()).unwrap();
        assert_ne!(again.key, identity.key);
        assert_eq!(key(), Some(again.key));
        assert!(authority.revoke(&device).unwrap());
        assert_eq!(key(), None);
        assert!(!authority.revoke(&device).unwrap());
    }

    #[test]
    fn the_grant_is_kept_with_the_key() {
        let (_dir, authority, device) = authority();
        let tiers = TierSet::EMPTY.with(Tier::new(3).unwrap());
        let grant = |seconds| GrantOptions { valid_for: Duration::from_secs(seconds), tiers };
        authority.enroll_serial_with(&device, grant(60)).unwrap();
        let member = authority.serial_credential(&device).unwrap().unwrap();
        assert_eq!(member.tiers, tiers);
        assert!(member.expires.unwrap().abs_diff(seconds_now() + 60) < 30);
        let other = "board-2".parse().unwrap();
        authority.enroll_serial_with(&other, grant(0)).unwrap();
        assert_eq!(authority.serial_credential(&other).unwrap(), None, "it has expired");
    }

    #[test]
    fn keys_without_a_grant_stay_valid_and_damaged_ones_do_not() {
        let (dir, authority, device) = authority();
        fs::create_dir(dir.path().join("identity/serial")).unwrap();
        let read = |text: &str| {
            fs::write(dir.path().join("identity/serial/board-1.key"), text).unwrap();
            authority.serial_credential(&device).unwrap()
        };
        let key = "0aFf".repeat(16);
        let old = SerialCredential {
            key: std::array::from_fn(|at| [0x0a, 0xff][at % 2]),
            expires: None,
            tiers: TierSet::ALL,
            issued: 0,
        };
        assert_eq!(read(&key), Some(old.clone()));
        assert_eq!(read(&format!("{key}\n")), Some(old));
        let far = u64::MAX;
        assert_eq!(read(&format!("{key}\n{far}\n4\n")).unwrap().issued, 0);
        assert_eq!(read(&format!("{key}\n{far}\n4\n5\n")).unwrap().issued, 5);
        for bad in [
            "",
            &key[1..],
            &key[2..],
            &format!("{key}0"),
            &format!("{key}00"),
            &key.replace('a', "x"),
            &format!("{key}\n{far}\n"),
            &format!("{key}\nsoon\n4\n"),
            &format!("{key}\n{far}\nall\n"),
            &format!("{key}\n{far}\n4\nnow\n"),
            &format!("{key}\n{far}\n4\n5\n6\n"),
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_unreadable_key_is_an_error_and_no_refusal() {
        let (dir, authority, device) = authority();
        fs::create_dir_all(dir.path().join("identity/serial/board-1.key")).unwrap();
        assert!(matches!(authority.serial_credential(&device), Err(CaError::Io { .. })));
        assert_eq!(authority.serial_credential(&"board-2".parse().unwrap()).unwrap(), None);
    }

    #[test]
    fn keys_are_not_printed() {
        let member = SerialCredential { key: [0xab; 32], expires: Some(7), tiers: TierSet::ALL, issued: 5 };
        let shown = format!("{member:?}");
        assert!(!shown.contains("171") && !shown.contains("ab"), "{shown}");
    }
}
