//! Images: IDX files of MNIST and related sets, and the binary records of CIFAR-10.
//!
//! ```text
//! CIFAR-10   records of 3,073 bytes: label, 1,024 red, 1,024 green, 1,024 blue, row by row
//! EMNIST     IDX with transposed images; the loader transposes them back
//! ```
//! Pixels stay bytes and are read as `byte / 255`.

use std::path::{Path, PathBuf};

use trainer::data::load;

use super::{DataSet, Features, Records, SetError, source};

const SCALE: f32 = 1.0 / 255.0;
const CIFAR_PIXELS: usize = 3 * 32 * 32;
const CIFAR_CLASSES: u8 = 10;

/// The four files of a set in IDX format.
#[derive(Copy, Clone, Debug)]
pub struct IdxFiles<'a> {
    pub train: [&'a Path; 2],
    pub test: [&'a Path; 2],
}

/// Differences of a set from MNIST.
#[derive(Copy, Clone, Debug, Default)]
pub struct IdxStyle {
    pub classes: u32,
    /// Rows and columns are exchanged.
    pub on_side: bool,
    /// The smallest label.
    pub first_label: u8,
}

pub fn idx(name: &str, files: IdxFiles<'_>, style: IdxStyle) -> Result<DataSet, SetError> {
    let (shape, train) = idx_part(files.train, style)?;
    let (other, test) = idx_part(files.test, style)?;
    if shape != other {
        return Err(SetError::format(
            files.test[0],
            format!("holds images of {other:?}, but the training images are {shape:?}"),
        ));
    }
    DataSet::new(name, shape, style.classes, train, test)
        .map_err(|source| SetError::Data { name: name.into(), source })
}

fn idx_part([images, labels]: [&Path; 2], style: IdxStyle) -> Result<(Vec<usize>, Records), SetError> {
    let mut read = load::idx_images(images, labels)?;
    if style.on_side {
        turn(&mut read.pixels, &read.shape);
    }
    let label = |(index, &label): (usize, &u8)| {
        let number = label.checked_sub(style.first_label).map(u32::from);
        number.filter(|&number| number < style.classes).ok_or_else(|| {
            let problem = format!("label {label} of image {index} is not one of {} classes", style.classes);
            SetError::format(labels, problem)
        })
    };
    let numbers = read.labels.iter().enumerate().map(label).collect::<Result<_, _>>()?;
    let inputs = read.shape.iter().product();
    let records = Records::new(Features::Bytes { data: read.pixels, scale: SCALE }, numbers, inputs, 1);
    let records = records.map_err(|source| load::LoadError::Data { path: images.into(), source })?;
    Ok((read.shape, records))
}

/// Exchanges rows and columns of square images; leaves others unchanged.
fn turn(pixels: &mut [u8], shape: &[usize]) {
    let &[rows, columns] = shape else { return };
    if rows != columns || rows == 0 {
        return;
    }
    for image in pixels.chunks_exact_mut(rows * columns) {
        for row in 0..rows {
            (row + 1..columns).for_each(|column| image.swap(row * columns + column, column * columns + row));
        }
    }
}

/// Loads as many batches as there are.
pub fn cifar10(name: &str, train: &[PathBuf], test: &[PathBuf]) -> Result<DataSet, SetError> {
    let names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];
    let (train, test) = (cifar_part(train)?, cifar_part(test)?);
    let set = DataSet::new(name, vec![3, 32, 32], CIFAR_CLASSES.into(), train, test);
    let set = set.map_err(|source| SetError::Data { name: name.into(), source })?;
    Ok(set.with_class_names(&names))
}

fn cifar_part(files: &[PathBuf]) -> Result<Records, SetError> {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for path in files {
        let bytes = source::open(path)?.bytes()?;
        let (records, rest) = bytes.as_chunks::<{ CIFAR_PIXELS + 1 }>();
        if !rest.is_empty() || records.is_empty() {
            let problem = format!(
                "{} bytes are not whole records of {} bytes; it is damaged, incomplete or not CIFAR-10 binary",
                bytes.len(),
                CIFAR_PIXELS + 1
            );
            return Err(SetError::format(path, problem));
        }
        for (index, [label, image @ ..]) in records.iter().enumerate() {
            if *label >= CIFAR_CLASSES {
                let offset = index * (CIFAR_PIXELS + 1);
                let problem = format!("label {label} at offset {offset} is not one of 10 classes");
                return Err(SetError::format(path, problem));
            }
            labels.push(u32::from(*label));
            pixels.extend_from_slice(image);
        }
    }
    Records::new(Features::Bytes { data: pixels, scale: SCALE }, labels, CIFAR_PIXELS, 1)
        .map_err(|source| SetError::Data { name: "cifar10".into(), source })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::data::source::tests::xz;

    fn idx_file(sizes: &[u32], data: &[u8]) -> Vec<u8> {
        let header = [0, 0, 8, sizes.len() as u8].into_iter();
        header.chain(sizes.iter().flat_map(|size| size.to_be_bytes())).chain(data.iter().copied()).collect()
    }

    fn load_idx(style: IdxStyle, test_side: u32) -> Result<DataSet, String> {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let images = write("images", &idx_file(&[2, 2, 2], &[0, 51, 102, 255, 1, 2, 3, 4]));
        let labels = write("labels", &idx_file(&[2], &[1, 2]));
        let size = (test_side * test_side) as usize;
        let other = write("other", &idx_file(&[1, test_side, test_side], &vec![9; size]));
        let one = write("one", &idx_file(&[1], &[1]));
        let files = IdxFiles { train: [&images, &labels], test: [&other, &one] };
        idx("x", files, style).map_err(|error| error.to_string())
    }

    #[test]
    fn idx_is_kept_as_bytes() {
        let set = load_idx(IdxStyle { classes: 3, ..IdxStyle::default() }, 2).unwrap();
        assert_eq!((&*set.shape, set.train.labels(), set.test.len()), (&[2, 2][..], &[1, 2][..], 1));
        let mut row = [0.0; 4];
        set.train.read(0, &mut row).unwrap();
        assert_eq!(row, [0.0, 51.0 * SCALE, 102.0 * SCALE, 255.0 * SCALE]);
        assert_eq!(set.train.features().bytes(), 8);
    }

    #[test]
    fn transposed_images_are_restored_and_labels_start_at_zero() {
        let set = load_idx(IdxStyle { classes: 2, on_side: true, first_label: 1 }, 2).unwrap();
        assert_eq!(set.train.labels(), [0, 1]);
        let mut row = [0.0; 4];
        set.train.read(1, &mut row).unwrap();
        assert_eq!(row.map(|x| (x * 255.0).round()), [1.0, 3.0, 2.0, 4.0]);
    }

    #[test]
    fn inconsistent_idx_files_are_reported() {
        let error = load_idx(IdxStyle { classes: 2, ..IdxStyle::default() }, 2).unwrap_err();
        assert!(error.contains("labels: label 2 of image 1 is not one of 2 classes"), "{error}");
        let error = load_idx(IdxStyle { classes: 3, ..IdxStyle::default() }, 3).unwrap_err();
        assert!(error.contains("other: holds images of [3, 3]"), "{error}");
    }

    fn load_cifar(train: &[u8]) -> Result<DataSet, String> {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("batch"), dir.path().join("test")];
        fs::write(&paths[0], train).unwrap();
        fs::write(&paths[1], xz(&[3; 3073])).unwrap();
        cifar10("x", &paths[..1], &paths[1..]).map_err(|error| error.to_string())
    }

    #[test]
    fn cifar_records_plain_and_xz() {
        let mut record = vec![7; 1 + CIFAR_PIXELS];
        record[1] = 255;
        record.extend([1; 1 + CIFAR_PIXELS]);
        let set = load_cifar(&record).unwrap();
        assert_eq!((set.train.labels(), set.test.labels()), (&[7, 1][..], &[3][..]));
        assert_eq!((&*set.shape, set.class_name(7)), (&[3, 32, 32][..], "horse".into()));
        let mut row = vec![0.0; CIFAR_PIXELS];
        set.train.read(0, &mut row).unwrap();
        assert_eq!(row[..2], [1.0, 7.0 * SCALE]);
    }

    #[test]
    fn damaged_cifar_is_reported_with_its_offset() {
        assert!(load_cifar(&[0; 3072]).unwrap_err().contains("batch: 3072 bytes are not whole records"));
        assert!(load_cifar(&[]).unwrap_err().contains("batch: 0 bytes"));
        let mut two = vec![0; 2 * 3073];
        two[3073] = 10;
        assert!(load_cifar(&two).unwrap_err().contains("label 10 at offset 3073"));
    }
}
