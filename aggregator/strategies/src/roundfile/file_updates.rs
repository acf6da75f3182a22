//! The vectors of a round file, as combining asks for them.

use std::collections::BTreeMap;

use common::DeviceId;

use super::{Device, Past, RoundFile, RoundFileError};
use crate::updates::{Row, Updates};

/// Which vector of a device stands for what it has sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    Update,
    Gradient,
}

impl Sent {
    pub fn key(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Gradient => "gradient",
        }
    }

    pub fn of(self, device: &Device) -> Option<&Vec<f64>> {
        match self {
            Self::Update => device.update.as_ref(),
            Self::Gradient => device.gradient.as_ref(),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Vectors<'f> {
    file: &'f RoundFile,
    sent: Sent,
    places: BTreeMap<&'f DeviceId, usize>,
    past: BTreeMap<(&'f DeviceId, u32), &'f Past>,
}

impl<'f> Vectors<'f> {
    pub fn new(file: &'f RoundFile, sent: Sent) -> Self {
        let places = file.devices.iter().enumerate().map(|(at, device)| (&device.id, at)).collect();
        let past = file.history.iter().map(|past| ((&past.id, past.round), past)).collect();
        Self { file, sent, places, past }
    }

    fn device(&self, id: &DeviceId) -> Option<(usize, &'f Device)> {
        let at = *self.places.get(id)?;
        self.file.devices.get(at).map(|device| (at, device))
    }
}

impl Updates for Vectors<'_> {
    type Value = f64;
    type Error = RoundFileError;

    fn read<'a>(&'a mut self, row: Row<'_>, buffer: &'a mut Vec<f64>) -> Result<&'a [f64], RoundFileError> {
        let (participant, first) = match row {
            Row::Update(_, participant) => (participant, false),
            Row::First(_, participant) => (participant, true),
            Row::Absent(_, absent) => {
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
