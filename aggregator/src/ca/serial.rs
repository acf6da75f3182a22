//! Keys of devices behind a bridge, and under which terms they are good.
//!
//! ```text
//! identity/serial/<device>.key   key (hex), expiry (seconds since 1970) and tiers (bits), a line each
//! ```
//! A file with the key alone is good for ever and for all tiers.

use std::{fs, io};

use common::{
    DeviceId, TierSet,
    privacy::Privacy,
    sealed::{Key, Page},
};
use ring::rand::{SecureRandom, SystemRandom};

use super::{Authority, CaError, Membership, Secrecy, membership::seconds_now, tokens::hex};

/// What makes a serial device a member.
#[derive(Clone, PartialEq, Eq)]
pub struct SerialMember {
    pub key: Key,
    /// Seconds since 1970; never if absent.
    pub expires: Option<u64>,
    pub tiers: TierSet,
}

impl std::fmt::Debug for SerialMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { key: _, expires, tiers } = self;
        f.debug_struct("SerialMember").field("expires", expires).field("tiers", tiers).finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes a serial device a member under the usual terms and returns the page its board needs. Enrolling again
    /// replaces the earlier key. The page has no secret for noise: `edge-client flash` adds one that the gateway never sees.
    pub fn enroll_serial(&self, device: &DeviceId) -> Result<Vec<u8>, CaError> {
        self.enroll_serial_under(device, Membership::default())
    }

    /// The same under other terms. A board can not renew its key: when it expires, it needs a new page.
    pub fn enroll_serial_under(&self, device: &DeviceId, terms: Membership) -> Result<Vec<u8>, CaError> {
        let mut page =
            Page { device: device.clone(), key: [0; 32], seed: [0; 16], privacy: Privacy::default() };
        let random = SystemRandom::new();
        let filled = random.fill(&mut page.key).and_then(|()| random.fill(&mut page.seed));
        filled.map_err(|_| CaError::Random)?;
        let expires = seconds_now().saturating_add(terms.good_for.as_secs());
        let member = SerialMember { key: page.key, expires: Some(expires), tiers: terms.tiers };
        let _lock = self.lock()?;
        self.make_dir("serial")?;
        self.write(&key_file(device), &member.encode(), Secrecy::Secret)?;
        Ok(page.encode().to_vec())
    }

    /// The key and terms of a serial device, if it is a member now. An error if that can not be told.
    pub fn serial_member(&self, device: &DeviceId) -> Result<Option<SerialMember>, CaError> {
        let path = self.path(&key_file(device));
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.check_devices().map(|()| None);
            }
            Err(source) => return Err(CaError::Io { path, source }),
        };
        let member = str::from_utf8(&bytes).ok().and_then(SerialMember::decode);
        Ok(member.filter(|member| member.expires.is_none_or(|expires| seconds_now() < expires)))
    }
}

impl SerialMember {
    pub fn encode(&self) -> String {
        let expires =
            self.expires.map_or(String::new(), |seconds| format!("{seconds}\n{}\n", self.tiers.bits()));
        format!("{}\n{expires}", hex(&self.key))
    }

    /// Terms that can not be read are not taken for none.
    pub fn decode(text: &str) -> Option<Self> {
        let lines: Vec<_> = text.trim_end().lines().collect();
        let (key, expires, tiers) = match lines[..] {
            [key] => (key, None, TierSet::ALL),
            [key, expires, tiers] => {
                (key, Some(expires.parse().ok()?), TierSet::from_bits(tiers.parse().ok()?))
            }
            _ => return None,
        };
        let (pairs, []) = key.as_bytes().as_chunks::<2>() else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let byte = |&[high, low]: &[u8; 2]| u8::try_from(digit(high)? << 4 | digit(low)?).ok();
        let key = pairs.iter().map(byte).collect::<Option<Vec<_>>>()?.try_into().ok()?;
        Some(Self { key, expires, tiers })
    }
}

pub(super) fn key_file(device: &DeviceId) -> String {
    format!("serial/{device}.key")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        let key = || authority.serial_member(&device).unwrap().map(|member| member.key);
        assert_eq!(key(), None);
        let page = Page::decode(&authority.enroll_serial(&device).unwrap()).unwrap();
        assert_eq!((&page.device, Some(page.key)), (&device, key()));
        let again = Page::decode(&authority.enroll_serial(&device).unwrap()).unwrap();
        assert_ne!(again.key, page.key);
        assert_eq!(key(), Some(again.key));
        assert!(authority.revoke(&device).unwrap());
        assert_eq!(key(), None);
        assert!(!authority.revoke(&device).unwrap());
    }

    #[test]
    fn terms_are_kept_with_the_key() {
        let (_dir, authority, device) = authority();
        let tiers = TierSet::EMPTY.with(Tier::new(3).unwrap());
        let terms = |seconds| Membership { good_for: Duration::from_secs(seconds), tiers };
        authority.enroll_serial_under(&device, terms(60)).unwrap();
        let member = authority.serial_member(&device).unwrap().unwrap();
        assert_eq!(member.tiers, tiers);
        assert!(member.expires.unwrap().abs_diff(seconds_now() + 60) < 30);
        authority.enroll_serial_under(&device, terms(0)).unwrap();
        assert_eq!(authority.serial_member(&device).unwrap(), None, "it has expired");
    }

    #[test]
    fn keys_without_terms_are_still_good_and_damaged_ones_are_not() {
        let (dir, authority, device) = authority();
        fs::create_dir(dir.path().join("identity/serial")).unwrap();
        let read = |text: &str| {
            fs::write(dir.path().join("identity/serial/board-1.key"), text).unwrap();
            authority.serial_member(&device).unwrap()
        };
        let key = "0aFf".repeat(16);
        let old = SerialMember {
            key: std::array::from_fn(|at| [0x0a, 0xff][at % 2]),
            expires: None,
            tiers: TierSet::ALL,
        };
        assert_eq!(read(&key), Some(old.clone()));
        assert_eq!(read(&format!("{key}\n")), Some(old));
        let far = u64::MAX;
        assert!(read(&format!("{key}\n{far}\n4\n")).is_some());
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
            &format!("{key}\n{far}\n4\n5\n"),
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_key_that_can_not_be_read_is_no_answer() {
        let (dir, authority, device) = authority();
        fs::create_dir_all(dir.path().join("identity/serial/board-1.key")).unwrap();
        assert!(matches!(authority.serial_member(&device), Err(CaError::Io { .. })));
        assert_eq!(authority.serial_member(&"board-2".parse().unwrap()).unwrap(), None);
    }

    #[test]
    fn a_key_is_shown_by_nothing() {
        let member = SerialMember { key: [0xab; 32], expires: Some(7), tiers: TierSet::ALL };
        let shown = format!("{member:?}");
        assert!(!shown.contains("171") && !shown.contains("ab"), "{shown}");
    }
}
