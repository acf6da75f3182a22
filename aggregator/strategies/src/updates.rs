//! Where the updates of a cohort are read from.

use common::{DeviceId, Tier, region::RegionMap};

use crate::{
    cohort::{Absent, Cohort, Participant},
    error::UpdateLength,
    kernel::Scalar,
};

mod vector;

pub(crate) use vector::STRETCH;
pub use vector::{Vector, VectorBuffer};

/// A vector that a cohort's devices have sent.
#[derive(Copy, Clone, Debug)]
pub enum UpdateRef<'a> {
    /// What a participant has sent in this exchange.
    Update(usize, &'a Participant),
    /// The update of a participant's first step.
    FirstStep(usize, &'a Participant),
    /// The last update of an absent device.
    Absent(usize, &'a Absent),
}

impl<'a> UpdateRef<'a> {
    /// The rows of inner products: updates of participants in DeviceId order, then those of absent devices.
    pub(crate) fn rows(cohort: &'a Cohort) -> impl Iterator<Item = Self> {
        let participants = cohort.participants().iter().enumerate();
        let absent = cohort.absent().iter().enumerate();
        participants
            .map(|(index, participant)| Self::Update(index, participant))
            .chain(absent.map(|(number, absent)| Self::Absent(number, absent)))
    }

    /// The device that has sent the vector.
    pub fn device(&self) -> &'a DeviceId {
        match self {
            Self::Update(_, participant) | Self::FirstStep(_, participant) => &participant.device,
            Self::Absent(_, absent) => &absent.device,
        }
    }

    /// The tier whose slice the vector covers.
    pub fn tier(&self) -> Tier {
        match self {
            Self::Update(_, participant) | Self::FirstStep(_, participant) => participant.tier,
            Self::Absent(_, absent) => absent.tier,
        }
    }

    /// Whether a vector of `got` numbers covers the device's slice.
    pub(crate) fn check_len(&self, regions: &RegionMap, got: usize) -> Result<(), UpdateLength> {
        let expected = regions.slice_len(self.tier());
        if got == expected {
            Ok(())
        } else {
            Err(UpdateLength { device: self.device().clone(), expected, got })
        }
    }
}

/// Where the updates of a cohort are read from, one at a time.
pub trait Updates: Send {
    /// `f32` on the wire, `f64` in round files.
    type Value: Scalar;
    /// Why an update cannot be read.
    type Error: Send;
    /// Whether reading is slow enough to read the next update while one is in use.
    const READ_AHEAD: bool = false;

    /// A packed vector: either borrowed from the source, or read into `buffer`.
    fn read<'a>(
        &'a mut self,
        which: UpdateRef<'_>,
        buffer: &'a mut Vec<Self::Value>,
    ) -> Result<&'a [Self::Value], Self::Error>;

    /// The same as [`Updates::read`], always into `packed`, and encoded as the source keeps it.
    fn load(
        &mut self,
        which: UpdateRef<'_>,
        packed: &mut VectorBuffer<Self::Value>,
    ) -> Result<(), Self::Error> {
        let mut raw = Vec::new();
        let update = self.read(which, &mut raw)?;
        let numbers = packed.numbers();
        numbers.clear();
        numbers.extend_from_slice(update);
        Ok(())
    }

    /// Part of a packed vector, from `start` on. Returns the length of the whole vector. If it ends early, the rest of `out` is
    /// unchanged.
    fn read_part(
        &mut self,
        which: UpdateRef<'_>,
        start: usize,
        out: &mut [f64],
    ) -> Result<usize, Self::Error> {
        let mut buffer = Vec::new();
        let whole = self.read(which, &mut buffer)?;
        out.iter_mut().zip(whole.iter().skip(start)).for_each(|(out, value)| *out = value.wide());
        Ok(whole.len())
    }
}

/// Updates held in memory, in DeviceId order.
impl<T: Scalar> Updates for &[Vec<T>] {
    type Value = T;
    type Error = std::convert::Infallible;

    fn read<'a>(&'a mut self, which: UpdateRef<'_>, _: &'a mut Vec<T>) -> Result<&'a [T], Self::Error> {
        match which {
            UpdateRef::Update(index, _) => Ok(self.get(index).map_or(&[], Vec::as_slice)),
            UpdateRef::FirstStep(..) | UpdateRef::Absent(..) => Ok(&[]),
        }
    }
}
