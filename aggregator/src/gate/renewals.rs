//! How often a device may have a new certificate: signing costs more than asking.

use std::{
    collections::HashMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use common::DeviceId;

use super::lock;

/// On one connection or on several.
pub const BETWEEN_RENEWALS: Duration = Duration::from_secs(2);

/// Who has asked just now; older entries are forgotten.
#[derive(Debug, Default)]
pub struct Renewals(Mutex<HashMap<DeviceId, Instant>>);

impl Renewals {
    /// Whether this device, which is enrolled, may have a certificate now.
    pub fn may(&self, device: &DeviceId, now: Instant) -> bool {
        let mut lately = lock(&self.0);
        lately.retain(|_, asked| now.saturating_duration_since(*asked) < BETWEEN_RENEWALS);
        let may = !lately.contains_key(device);
        if may {
            lately.insert(device.clone(), now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_a_new_certificate_now_and_then_and_nobody_is_remembered() {
        let (renewals, start) = (Renewals::default(), Instant::now());
        let [one, other]: [DeviceId; 2] = ["cam-1", "cam-2"].map(|name| name.parse().unwrap());
        assert!(renewals.may(&one, start) && renewals.may(&other, start));
        let soon = start + BETWEEN_RENEWALS / 2;
        assert!(!renewals.may(&one, soon));
        let later = start + BETWEEN_RENEWALS;
        assert!(renewals.may(&one, later), "asking too soon does not make it longer");
        assert_eq!(lock(&renewals.0).len(), 1);
    }
}
