//! How many units of each hidden axis a tier keeps.

use heapless::Vec;
use serde::{Deserialize, Serialize};

/// Most hidden axes of a model.
pub const MAX_AXES: usize = 32;

/// One hidden axis of the model, such as "the units of the second layer".
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct AxisId(pub u8);

/// One width per hidden axis. A tier keeps a prefix of each axis, so the widths describe it completely.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct WidthMask {
    widths: Vec<u32, MAX_AXES>,
}

/// Why widths do not fit a model.
#[derive(Copy, Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum MaskError {
    #[error("a model has at most {MAX_AXES} hidden axes")]
    TooManyAxes,
    #[error("the model has {expected} hidden axes, but {got} widths are given")]
    AxisCount { expected: usize, got: usize },
    #[error("hidden axis {axis} has {full} units; a tier keeps between 1 and {full} of them, not {width}")]
    Width { axis: usize, full: u32, width: u32 },
    #[error("a width rate must be in (0, 1], not {0}")]
    Rate(f64),
}

impl WidthMask {
    /// The mask that keeps everything of axes with these sizes.
    pub fn full(widths: &[u32]) -> Result<Self, MaskError> {
        if let Some(axis) = widths.iter().position(|&width| width == 0) {
            return Err(MaskError::Width { axis, full: 0, width: 0 });
        }
        Vec::from_slice(widths).map(|widths| Self { widths }).map_err(|_| MaskError::TooManyAxes)
    }

    /// Keeps `floor(h * rate + 1e-9)` units of every axis, at least one.
    pub fn at_rate(&self, rate: f64) -> Result<Self, MaskError> {
        if !(rate > 0.0 && rate <= 1.0) {
            return Err(MaskError::Rate(rate));
        }
        let keep = |&width: &u32| ((f64::from(width) * rate + 1e-9) as u32).max(1);
        Ok(Self { widths: self.widths.iter().map(keep).collect() })
    }

    /// Keeps exactly the given units of every axis.
    pub fn at_widths(&self, widths: &[u32]) -> Result<Self, MaskError> {
        if widths.len() != self.widths.len() {
            return Err(MaskError::AxisCount { expected: self.widths.len(), got: widths.len() });
        }
        for (axis, (&width, &full)) in widths.iter().zip(&self.widths).enumerate() {
            if width == 0 || width > full {
                return Err(MaskError::Width { axis, full, width });
            }
        }
        Self::full(widths)
    }

    /// Units that are kept of each axis, by [`AxisId`].
    pub fn widths(&self) -> &[u32] {
        &self.widths
    }

    /// True if every axis is at least as wide as in `other`.
    pub fn covers(&self, other: &Self) -> bool {
        self.widths.len() == other.widths.len() && self.widths.iter().zip(&other.widths).all(|(a, b)| a >= b)
    }

    /// Width of an axis; 1 where there is none. The mask must be one of the model's.
    pub(crate) fn of(&self, axis: Option<AxisId>) -> usize {
        let Some(AxisId(axis)) = axis else { return 1 };
        let width = self.widths.get(usize::from(axis));
        debug_assert!(width.is_some(), "the mask has no axis {axis}");
        width.map_or(0, |&width| width as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_the_published_models() {
        let full = WidthMask::full(&[200, 100]).unwrap();
        let at = |rate| full.at_rate(rate).unwrap().widths().to_vec();
        assert_eq!(at(1.0), [200, 100]);
        assert_eq!(at(0.7), [140, 70]);
        assert_eq!(at(0.125), [25, 12]);
        assert_eq!(WidthMask::full(&[64]).unwrap().at_rate(0.45).unwrap().widths(), [28]);
        assert_eq!(WidthMask::full(&[3]).unwrap().at_rate(0.01).unwrap().widths(), [1]);
    }

    #[test]
    fn widths_and_rates_out_of_range_are_refused() {
        let full = WidthMask::full(&[8, 4]).unwrap();
        assert_eq!(full.at_rate(0.0), Err(MaskError::Rate(0.0)));
        assert!(full.at_rate(f64::NAN).is_err());
        assert_eq!(full.at_widths(&[8]), Err(MaskError::AxisCount { expected: 2, got: 1 }));
        assert_eq!(full.at_widths(&[8, 5]), Err(MaskError::Width { axis: 1, full: 4, width: 5 }));
        assert!(full.at_widths(&[0, 4]).is_err());
        assert_eq!(WidthMask::full(&[1; MAX_AXES + 1]), Err(MaskError::TooManyAxes));
    }
}
