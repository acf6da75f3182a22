//! Parts of uploads that were interrupted, so that they can be resumed.

use std::collections::BTreeMap;

use common::{DeviceId, Instant, message::Offer};

use super::Upload;

/// At most one upload per device.
#[derive(Clone, Debug, Default)]
pub struct InterruptedUploads(BTreeMap<DeviceId, Upload>);

impl InterruptedUploads {
    /// Keeps at most `most` uploads: drops the one of which the least has arrived.
    pub fn keep(&mut self, device: DeviceId, mut upload: Upload, most: usize) {
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

    /// The part of this update that has arrived before. Parts of another update are dropped.
    pub fn take(&mut self, device: &DeviceId, offer: &Offer, now: Instant) -> Option<Upload> {
        self.0.remove(device).filter(|upload| upload.offer == *offer).map(|upload| upload.resumed(now))
    }

    /// Drops the upload of a device.
    pub fn forget(&mut self, device: &DeviceId) {
        self.0.remove(device);
    }

    /// Number of uploads.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// No upload is interrupted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
