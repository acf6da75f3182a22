//! Where the updates of a cohort are read from.

use common::{DeviceId, Tier};

use crate::{
    cohort::{Absent, Cohort, Participant},
    kernel::Scalar,
};

mod packed;

pub use packed::{Packed, STRETCH, Vector};

/// A vector that a cohort's devices have sent.
#[derive(Copy, Clone, Debug)]
pub enum Row<'a> {
    /// What a participant has sent in this exchange.
    Update(usize, &'a Participant),
    /// The update of a participant's first step.
    First(usize, &'a Participant),
    /// The last update of an absent device.
    Absent(usize, &'a Absent),
}

impl<'a> Row<'a> {
    /// The row of this number: participants in DeviceId order, then absent devices.
    pub(crate) fn of(cohort: &'a Cohort, row: usize) -> Option<(Self, Tier, &'a DeviceId)> {
        if let Some(participant) = cohort.participants().get(row) {
            return Some((Self::Update(row, participant), participant.tier, &participant.device));
        }
        let number = row - cohort.participants().len();
        let absent = cohort.absent().get(number)?;
        Some((Self::Absent(number, absent), absent.tier, &absent.device))
    }
}

/// Where the updates of a cohort are read from, one at a time.
pub trait Updates: Send {
    /// `f32` on the wire, `f64` in round files.
    type Value: Scalar;
    type Error: Send;
    /// Reading takes long enough to read the next update while one is in use.
    const AHEAD: bool = false;

    /// A packed vector: either borrowed from the source, or read into `buffer`.
    fn read<'a>(
        &'a mut self,
        row: Row<'_>,
        buffer: &'a mut Vec<Self::Value>,
    ) -> Result<&'a [Self::Value], Self::Error>;

    /// The same as [`Updates::read`], always into `packed`, and as it is kept.
    fn load(&mut self, row: Row<'_>, packed: &mut Packed<Self::Value>) -> Result<(), Self::Error> {
        let mut raw = Vec::new();
        let update = self.read(row, &mut raw)?;
        let numbers = packed.numbers();
        numbers.clear();
        numbers.extend_from_slice(update);
        Ok(())
    }

    /// Part of a packed vector, from `start` on. Returns how many numbers the whole vector has; where it has
    /// fewer than asked for, the rest of `out` stays as it is.
    fn part(&mut self, row: Row<'_>, start: usize, out: &mut [f64]) -> Result<usize, Self::Error> {
        let mut buffer = Vec::new();
        let whole = self.read(row, &mut buffer)?;
        let part = whole.get(start..).unwrap_or(&[]);
        out.iter_mut().zip(part).for_each(|(out, value)| *out = value.wide());
        Ok(whole.len())
    }
}

/// Updates held in memory, in DeviceId order.
impl<T: Scalar> Updates for &[Vec<T>] {
    type Value = T;
    type Error = std::convert::Infallible;

    fn read<'a>(&'a mut self, row: Row<'_>, _: &'a mut Vec<T>) -> Result<&'a [T], Self::Error> {
        match row {
            Row::Update(index, _) => Ok(self.get(index).map_or(&[], Vec::as_slice)),
            Row::First(..) | Row::Absent(..) => Ok(&[]),
        }
    }
}
