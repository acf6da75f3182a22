//! How a parameter tensor lies in the file it came from.
//!
//! The flat vector holds every tensor in our own order (dense weights `[out][in]`, and so on); an
//! initializer may hold the same numbers transposed, with extra axes of size 1, or with the pixels of a
//! flattened image before its channels. Each dimension of ours is `blocks x units x inner`
//! ([`common::Dim`]); each dimension of the file is a product of such parts.

use common::{TensorShape, WidthMask};

#[derive(Clone, PartialEq, Debug)]
pub struct Param {
    /// Of the ONNX initializer.
    pub name: String,
    pub stored: Stored,
    /// Ours is the file's times this (alpha or beta of a Gemm).
    pub factor: f32,
    /// The dimensions of the initializer where it holds one number for all of ours.
    pub spread: Option<Vec<usize>>,
}

impl Param {
    /// A parameter whose initializer has the order of the flat vector.
    pub fn plain(name: impl Into<String>) -> Self {
        Self::stored(name, Stored::default())
    }

    pub fn stored(name: impl Into<String>, stored: Stored) -> Self {
        Self { name: name.into(), stored, factor: 1.0, spread: None }
    }

    /// Recurrent layers keep a first axis of size 1 for the direction.
    pub(super) fn directed(self, rank: u8) -> Self {
        let parts = (0..rank).map(|dim| vec![Part::whole(dim)]);
        Self { stored: Stored(std::iter::once(vec![]).chain(parts).collect()), ..self }
    }

    /// A matrix whose initializer is `[in][out]`.
    pub fn transposed(name: impl Into<String>) -> Self {
        Self::stored(name, Stored(vec![vec![Part::whole(1)], vec![Part::whole(0)]]))
    }

    /// True if the file says of both in the same way where their numbers come from.
    pub(super) fn agrees(&self, other: &Self) -> bool {
        (&self.stored, self.factor, &self.spread) == (&other.stored, other.factor, &other.spread)
    }

    /// Sizes of the initializer.
    pub fn dims(&self, shape: &TensorShape, mask: &WidthMask) -> Vec<usize> {
        self.spread.clone().unwrap_or_else(|| self.stored.dims(shape, mask))
    }
}

/// The dimensions of an initializer, each a product of parts of ours; no dimensions: as ours.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stored(pub Vec<Vec<Part>>);

/// A part of one of our dimensions.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Part {
    pub dim: u8,
    pub which: Which,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Which {
    Whole,
    /// Blocks and units.
    Outer,
    Inner,
}

impl Part {
    pub fn whole(dim: u8) -> Self {
        Self { dim, which: Which::Whole }
    }
}

impl Stored {
    pub fn is_plain(&self) -> bool {
        self.0.is_empty()
    }

    /// Sizes of the initializer.
    pub fn dims(&self, shape: &TensorShape, mask: &WidthMask) -> Vec<usize> {
        if self.is_plain() {
            return shape.dims.iter().map(|dim| dim.size(mask)).collect();
        }
        let size = |parts: &Vec<Part>| parts.iter().map(|part| extent(shape, mask, *part).0).product();
        self.0.iter().map(size).collect()
    }

    /// Our order to the file's.
    pub fn to_file<T: Copy>(&self, shape: &TensorShape, mask: &WidthMask, ours: &[T]) -> Vec<T> {
        if self.is_plain() {
            return ours.to_vec();
        }
        self.places(shape, mask).into_iter().filter_map(|place| ours.get(place)).copied().collect()
    }

    /// The file's order to ours.
    pub fn from_file(&self, shape: &TensorShape, mask: &WidthMask, file: &[f32]) -> Vec<f32> {
        if self.is_plain() {
            return file.to_vec();
        }
        let mut ours = vec![0.0; file.len()];
        for (place, &x) in self.places(shape, mask).into_iter().zip(file) {
            if let Some(slot) = ours.get_mut(place) {
                *slot = x;
            }
        }
        ours
    }

    /// For every number of the file, in order, its place in ours.
    fn places(&self, shape: &TensorShape, mask: &WidthMask) -> Vec<usize> {
        let mut places = vec![0];
        for &part in self.0.iter().flatten() {
            let (size, stride) = extent(shape, mask, part);
            places = places.iter().flat_map(|at| (0..size).map(move |i| at + i * stride)).collect();
        }
        places
    }
}

/// Size of a part, and how far apart its neighbours lie in our order.
fn extent(shape: &TensorShape, mask: &WidthMask, part: Part) -> (usize, usize) {
    let at = usize::from(part.dim);
    let after: usize = shape.dims.iter().skip(at + 1).map(|dim| dim.size(mask)).product();
    let Some(dim) = shape.dims.get(at) else { return (1, 0) };
    let inner = dim.inner as usize;
    match part.which {
        Which::Whole => (dim.size(mask), after),
        Which::Outer => (dim.size(mask) / inner.max(1), inner * after),
        Which::Inner => (inner, after),
    }
}

#[cfg(test)]
mod tests {
    use common::{AxisId, Dim};

    use super::*;

    #[test]
    fn there_and_back() {
        let mask = WidthMask::full(&[2]).unwrap();
        let channels = Dim { blocks: 1, axis: Some(AxisId(0)), inner: 3 };
        let shape = TensorShape::new(&[Dim::fixed(2), channels]).unwrap();
        let ours: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let turned = Param::transposed("w").stored;
        assert_eq!(turned.dims(&shape, &mask), [6, 2]);
        assert_eq!(turned.to_file(&shape, &mask, &ours)[..4], [0.0, 6.0, 1.0, 7.0]);
        // Pixels before channels, and an extra axis.
        let part = |which| Part { dim: 1, which };
        let last = Stored(vec![vec![], vec![Part::whole(0)], vec![part(Which::Inner), part(Which::Outer)]]);
        assert_eq!(last.dims(&shape, &mask), [1, 2, 6]);
        assert_eq!(last.to_file(&shape, &mask, &ours)[..6], [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        for stored in [turned, last, Stored::default()] {
            let file = stored.to_file(&shape, &mask, &ours);
            assert_eq!(stored.from_file(&shape, &mask, &file), ours);
        }
    }
}
