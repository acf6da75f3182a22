//! How often a device gets a new certificate: signing costs more than asking.

use std::{collections::HashMap, sync::Mutex, time::Instant};

use common::DeviceId;

use super::{RENEWAL_INTERVAL, lock};

/// When devices got their last certificate. Older entries are removed.
#[derive(Debug, Default)]
pub struct Renewals(Mutex<HashMap<DeviceId, Instant>>);

impl Renewals {
    /// Whether this enrolled device gets a certificate now.
    pub fn allow(&self, device: &DeviceId, now: Instant) -> bool {
        let mut renewed = lock(&self.0);
        renewed.retain(|_, at| now.saturating_duration_since(*at) < RENEWAL_INTERVAL);
        let allowed = !renewed.contains_key(device);
        if allowed {
            renewed.insert(device.clone(), now);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_gets_one_certificate_per_interval_and_is_then_forgotten() {
        let (renewals, start) = (Renewals::default(), Instant::now());
        let [one, other]: [DeviceId; 2] = ["cam-1", "cam-2"].map(|name| name.parse().unwrap());
        assert!(renewals.allow(&one, start) && renewals.allow(&other, start));
        assert!(!renewals.allow(&one, start + RENEWAL_INTERVAL / 2));
        let later = start + RENEWAL_INTERVAL;
        assert!(renewals.allow(&one, later), "asking too soon does not make it longer");
        assert_eq!(lock(&renewals.0).len(), 1);
    }
}
