//! IDX, the format of MNIST and its relatives.
//!
//! ```text
//! 0, 0, type (8 = unsigned byte), rank, rank sizes (u32, big-endian), data
//! ```
//! The first size is the number of samples, the product of the others is the length of one.

use std::path::Path;

use super::{BoundedFile, LIMIT, LoadError};
use crate::data::Samples;

/// Images and labels from two files; `feature = scale * byte` (1/255 is usual).
pub fn idx(images: &Path, labels: &Path, scale: f32) -> Result<Samples, LoadError> {
    let read = idx_images(images, labels)?;
    let features = read.pixels.iter().map(|&byte| scale * f32::from(byte)).collect();
    let labels = read.labels.iter().map(|&byte| byte.into()).collect();
    let inputs = read.shape.iter().product();
    Samples::new(features, labels, inputs).map_err(|source| LoadError::Data { path: images.into(), source })
}

/// Images as bytes, which take a quarter of the memory of `f32`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdxImages {
    /// Sizes of one image; their product times the number of labels is the number of pixels.
    pub shape: Vec<usize>,
    /// All pixels, image after image.
    pub pixels: Vec<u8>,
    /// One label per image.
    pub labels: Vec<u8>,
}

/// Images and labels from two files, not scaled.
pub fn idx_images(images: &Path, labels: &Path) -> Result<IdxImages, LoadError> {
    let pixels = IdxArray::read(images)?;
    let classes = IdxArray::read(labels)?;
    let wrong = |path: &Path, problem: String| LoadError::Format { path: path.into(), problem };
    let (count, shape) = match pixels.sizes.split_first() {
        Some((&count, shape)) if !shape.is_empty() => (count, shape.to_vec()),
        _ => return Err(wrong(images, "holds labels, not images; the two files may be swapped".into())),
    };
    let [got] = classes.sizes[..] else {
        return Err(wrong(labels, "holds images, not labels; the two files may be swapped".into()));
    };
    if got != count {
        return Err(wrong(
            labels,
            format!("{got} labels for {count} images; these files do not belong together"),
        ));
    }
    Ok(IdxImages { shape, pixels: pixels.data, labels: classes.data })
}

/// The pixels of an IDX file without labels, and how many one image has.
pub fn idx_pixels(images: &Path) -> Result<(Vec<u8>, usize), LoadError> {
    let found = IdxArray::read(images)?;
    let inputs = found.sizes.iter().skip(1).product();
    Ok((found.data, inputs))
}

struct IdxArray {
    sizes: Vec<usize>,
    data: Vec<u8>,
}

impl IdxArray {
    fn read(path: &Path) -> Result<Self, LoadError> {
        let bytes = BoundedFile::open(path, LIMIT)?.bytes()?;
        Self::parse(bytes).map_err(|problem| LoadError::Format { path: path.into(), problem })
    }

    fn parse(mut bytes: Vec<u8>) -> Result<Self, String> {
        let &[0, 0, kind, rank @ 1..=4, ref rest @ ..] = bytes.as_slice() else {
            return Err("is not an IDX file of 1 to 4 dimensions".into());
        };
        if kind != 8 {
            return Err(format!("has IDX type {kind}; only 8 (unsigned byte) is supported"));
        }
        let sizes = rest.as_chunks::<4>().0.iter().take(rank.into());
        let sizes: Vec<usize> = sizes.map(|size| u32::from_be_bytes(*size) as usize).collect();
        let data = rest.len().checked_sub(4 * usize::from(rank)).ok_or("ends inside its header")?;
        let need = sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        if need != Some(data) {
            return Err(format!(
                "announces sizes {sizes:?} but holds {data} bytes; it is damaged or incomplete"
            ));
        }
        bytes.drain(..bytes.len() - data);
        Ok(Self { sizes, data: bytes })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn file(kind: u8, sizes: &[u32], data: &[u8]) -> Vec<u8> {
        let header = [0, 0, kind, sizes.len() as u8].into_iter();
        header.chain(sizes.iter().flat_map(|size| size.to_be_bytes())).chain(data.iter().copied()).collect()
    }

    fn load(images: &[u8], labels: &[u8]) -> Result<Samples, String> {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("images"), dir.path().join("labels")];
        fs::write(&paths[0], images).unwrap();
        fs::write(&paths[1], labels).unwrap();
        idx(&paths[0], &paths[1], 0.25).map_err(|error| error.to_string())
    }

    #[test]
    fn images_and_labels() {
        let images = file(8, &[2, 1, 3], &[0, 51, 255, 102, 0, 0]);
        let samples = load(&images, &file(8, &[2], &[9, 4])).unwrap();
        assert_eq!((samples.inputs(), samples.labels(), samples.classes()), (3, &[9, 4][..], 10));
        assert_eq!(samples.row(0), Some(&[0.0, 12.75, 63.75][..]));
    }

    #[test]
    fn damaged_files_are_named_with_the_reason() {
        let (images, labels) = (file(8, &[2, 1, 3], &[0; 6]), file(8, &[2], &[0, 1]));
        let text = |images: &[u8], labels: &[u8]| load(images, labels).unwrap_err();
        assert!(text(&images[..15], &labels).contains("images: ends inside its header"));
        assert!(text(&images[..21], &labels).contains("announces sizes [2, 1, 3] but holds 5 bytes"));
        assert!(text(&images, &file(8, &[3], &[0; 3])).contains("labels: 3 labels for 2 images"));
        assert!(text(&labels, &images).contains("swapped"));
        assert!(text(&images, &images).contains("swapped"));
        assert!(text(&file(13, &[2, 1, 3], &[0; 24]), &labels).contains("IDX type 13"));
        assert!(text(b"P5 28 28", &labels).contains("not an IDX file"));
        let huge = file(8, &[u32::MAX, u32::MAX, u32::MAX], &[0; 6]);
        assert!(text(&huge, &labels).contains("damaged or incomplete"));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(mut bytes: Vec<u8>, rank in 0u8..6) {
            bytes.splice(0..0, [0, 0, 8, rank]);
            let _ = IdxArray::parse(bytes).map(|array| array.data.len());
        }
    }
}
