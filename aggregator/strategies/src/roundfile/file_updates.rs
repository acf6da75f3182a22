//! Reads the vectors of a round file for combining.

use std::collections::BTreeMap;

use common::DeviceId;

use super::{PastGradient, RecordedDevice, RoundFile, RoundFileError};
use crate::updates::{UpdateRef, Updates};

/// Which vector of a device counts as sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum SentVector {
    Update,
    Gradient,
}

impl SentVector {
    pub fn key(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Gradient => "gradient",
        }
    }

    pub fn of(self, device: &RecordedDevice) -> Option<&Vec<f64>> {
        match self {
            Self::Update => device.update.as_ref(),
            Self::Gradient => device.gradient.as_ref(),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct FileUpdates<'f> {
    file: &'f RoundFile,
    sent: SentVector,
    places: BTreeMap<&'f DeviceId, usize>,
    past: BTreeMap<(&'f DeviceId, u32), &'f PastGradient>,
}

impl<'f> FileUpdates<'f> {
    pub fn new(file: &'f RoundFile, sent: SentVector) -> Self {
        let places = file.devices.iter().enumerate().map(|(at, device)| (&device.id, at)).collect();
        let past = file.history.iter().map(|past| ((&past.id, past.round), past)).collect();
        Self { file, sent, places, past }
    }

    fn device(&self, id: &DeviceId) -> Option<(usize, &'f RecordedDevice)> {
        let at = *self.places.get(id)?;
        self.file.devices.get(at).map(|device| (at, device))
    }
}

impl Updates for FileUpdates<'_> {
    type Value = f64;
    type Error = RoundFileError;

    fn read<'a>(
        &'a mut self,
        which: UpdateRef<'_>,
        buffer: &'a mut Vec<f64>,
    ) -> Result<&'a [f64], RoundFileError> {
        let (participant, first) = match which {
            UpdateRef::Update(_, participant) => (participant, false),
            UpdateRef::FirstStep(_, participant) => (participant, true),
            UpdateRef::Absent(_, absent) => {
                let past = self.past.get(&(&absent.device, absent.round));
                buffer.clear();
                buffer.extend(past.iter().flat_map(|past| &past.gradient).map(|value| -value));
                return Ok(buffer);
            }
        };
        let Some((at, device)) = self.device(&participant.device) else { return Ok(&[]) };
        let (key, vector) = match first {
            true => ("first_update", device.first_update.as_ref()),
            false => (self.sent.key(), self.sent.of(device)),
        };
        let missing =
            || RoundFileError::key(format!("devices[{at}].{key}"), "is missing; the strategy needs it");
        vector.map(Vec::as_slice).ok_or_else(missing)
    }
}
