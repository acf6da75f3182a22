//! The layout of a parameter tensor in the file that it came from.
//!
//! The flat vector holds every tensor in our own order (dense weights `[out][in]`, and so on); an
//! initializer may hold the same numbers transposed, with extra axes of size 1, or with the pixels of a
//! flattened image before its channels. Each dimension of the file is a product of dimensions of ours, or
//! of channels and pixels of one that was flattened.

use common::{TensorShape, WidthMask};

/// A parameter tensor and how the file stores it.
#[derive(Clone, PartialEq, Debug)]
pub struct Param {
    /// Name of the ONNX initializer.
    pub name: String,
    /// The order of dimensions in the file.
    pub layout: FileLayout,
    /// Our parameter is that of the file times this (alpha or beta of a Gemm).
    pub factor: f32,
    /// The dimensions of an initializer that holds one number for all of ours.
    pub spread: Option<Vec<usize>>,
}

impl Param {
    /// A parameter whose initializer has the order of the flat vector.
    pub fn plain(name: impl Into<String>) -> Self {
        Self::in_layout(name, FileLayout::default())
    }

    /// A parameter that the file stores in another order.
    pub fn in_layout(name: impl Into<String>, layout: FileLayout) -> Self {
        Self { name: name.into(), layout, factor: 1.0, spread: None }
    }

    /// Recurrent layers keep a first axis of size 1 for the direction.
    pub(super) fn directed(self, rank: u8) -> Self {
        let parts = (0..rank).map(|dim| vec![DimPart::whole(dim)]);
        Self { layout: FileLayout(std::iter::once(vec![]).chain(parts).collect()), ..self }
    }

    /// A matrix whose initializer is `[in][out]`.
    pub fn transposed(name: impl Into<String>) -> Self {
        Self::in_layout(name, FileLayout(vec![vec![DimPart::whole(1)], vec![DimPart::whole(0)]]))
    }

    /// True if both parameters read the initializer in the same way.
    pub(super) fn agrees(&self, other: &Self) -> bool {
        (&self.layout, self.factor, &self.spread) == (&other.layout, other.factor, &other.spread)
    }

    /// Sizes of the initializer.
    pub fn dims(&self, shape: &TensorShape, mask: &WidthMask) -> Vec<usize> {
        self.spread.clone().unwrap_or_else(|| self.layout.dims(shape, mask))
    }
}

/// The dimensions of an initializer, each a product of parts of ours. Empty if they are the same.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileLayout(pub Vec<Vec<DimPart>>);

/// A part of one of our dimensions.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DimPart {
    /// Number of the dimension.
    pub dim: u8,
    /// Which part of it.
    pub extent: Extent,
}

/// A part of a [`common::Dim`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Extent {
    /// All indices.
    Whole,
    /// The channels of a flattened image: all but the innermost indices.
    Channels {
        /// Number of the innermost indices.
        pixels: u32,
    },
    /// The innermost indices of a flattened image.
    Pixels {
        /// Their number.
        pixels: u32,
    },
}

impl DimPart {
    /// All of a dimension.
    pub fn whole(dim: u8) -> Self {
        Self { dim, extent: Extent::Whole }
    }
}

impl FileLayout {
    /// True if the file has our order.
    pub fn is_plain(&self) -> bool {
        self.0.is_empty()
    }

    /// Sizes of the initializer.
    pub fn dims(&self, shape: &TensorShape, mask: &WidthMask) -> Vec<usize> {
        if self.is_plain() {
            return shape.dims.iter().map(|dim| dim.size(mask)).collect();
        }
        let size =
            |parts: &Vec<DimPart>| parts.iter().map(|part| size_and_stride(shape, mask, *part).0).product();
        self.0.iter().map(size).collect()
    }

    /// Converts our order to that of the file.
    pub fn to_file<T: Copy>(&self, shape: &TensorShape, mask: &WidthMask, ours: &[T]) -> Vec<T> {
        if self.is_plain() {
            return ours.to_vec();
        }
        self.places(shape, mask).into_iter().map(|place| ours[place]).collect()
    }

    /// Converts the file's order to ours.
    pub fn from_file(&self, shape: &TensorShape, mask: &WidthMask, file: &[f32]) -> Vec<f32> {
        if self.is_plain() {
            return file.to_vec();
        }
        let mut ours = vec![0.0; file.len()];
        for (place, &x) in self.places(shape, mask).into_iter().zip(file) {
            ours[place] = x;
        }
        ours
    }

    /// The index in our order of every number of the file, in order.
    fn places(&self, shape: &TensorShape, mask: &WidthMask) -> Vec<usize> {
        let mut places = vec![0];
        for &part in self.0.iter().flatten() {
            let (size, stride) = size_and_stride(shape, mask, part);
            places = places.iter().flat_map(|at| (0..size).map(move |i| at + i * stride)).collect();
        }
        places
    }
}

/// Size of a part, and its stride in our order.
fn size_and_stride(shape: &TensorShape, mask: &WidthMask, part: DimPart) -> (usize, usize) {
    let at = usize::from(part.dim);
    let after: usize = shape.dims.iter().skip(at + 1).map(|dim| dim.size(mask)).product();
    let dim = &shape.dims[at];
    match part.extent {
        Extent::Whole => (dim.size(mask), after),
        Extent::Channels { pixels } => {
            let pixels = pixels as usize;
            (dim.size(mask) / pixels.max(1), pixels * after)
        }
        Extent::Pixels { pixels } => (pixels as usize, after),
    }
}

#[cfg(test)]
mod tests {
    use common::{AxisId, Dim};

    use super::*;

    #[test]
    fn there_and_back() {
        let mask = WidthMask::full(&[2]).unwrap();
        let channels = Dim::new(1, Some(AxisId(0)), 3);
        let shape = TensorShape::new(&[Dim::fixed(2), channels]).unwrap();
        let ours: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let turned = Param::transposed("w").layout;
        assert_eq!(turned.dims(&shape, &mask), [6, 2]);
        assert_eq!(turned.to_file(&shape, &mask, &ours)[..4], [0.0, 6.0, 1.0, 7.0]);
        // Pixels before channels, and an extra axis.
        let part = |extent| DimPart { dim: 1, extent };
        let last = FileLayout(vec![
            vec![],
            vec![DimPart::whole(0)],
            vec![part(Extent::Pixels { pixels: 3 }), part(Extent::Channels { pixels: 3 })],
        ]);
        assert_eq!(last.dims(&shape, &mask), [1, 2, 6]);
        assert_eq!(last.to_file(&shape, &mask, &ours)[..6], [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        // Of 2 x 2 concatenated channels of 3 pixels, a file may hold the pixels first as well.
        let both = Dim::units(AxisId(0)).then(&Dim::fixed(2)).unwrap();
        let shape_of_both = TensorShape::new(&[Dim::fixed(1), both.spread(3)]).unwrap();
        assert_eq!(last.to_file(&shape_of_both, &mask, &ours)[..5], [0.0, 3.0, 6.0, 9.0, 1.0]);
        for stored in [turned, last, FileLayout::default()] {
            let file = stored.to_file(&shape, &mask, &ours);
            assert_eq!(stored.from_file(&shape, &mask, &file), ours);
        }
    }
}
