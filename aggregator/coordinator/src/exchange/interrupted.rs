//! What has arrived of uploads that were interrupted, so that they go on where they were.

use std::collections::BTreeMap;

use common::{DeviceId, Instant, message::Offer};

use super::Upload;

#[derive(Clone, Debug, Default)]
pub struct InterruptedUploads(BTreeMap<DeviceId, Upload>);

impl InterruptedUploads {
    /// Keeps at most so many; the one of which least has arrived begins again.
    pub fn park(&mut self, device: DeviceId, mut upload: Upload, most: usize) {
        if upload.bytes.is_empty() {
            return;
        }
        upload.bytes.shrink_to_fit();
        self.0.insert(device, upload);
        if self.0.len() > most {
            let least = self.0.iter().min_by_key(|(_, upload)| upload.bytes.len());
            if let Some(least) = least.map(|(device, _)| device.clone()) {
                self.0.remove(&least);
            }
        }
    }

    /// What is there of this very update; of another one, nothing is worth keeping.
    pub fn take(&mut self, device: &DeviceId, offer: &Offer, now: Instant) -> Option<Upload> {
        self.0.remove(device).filter(|upload| upload.offer == *offer).map(|upload| upload.again(now))
    }

    pub fn forget(&mut self, device: &DeviceId) {
        self.0.remove(device);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
