//! NumPy files: `.npz` with the arrays `x` and `y`, or a pair of `.npy` files.
//!
//! The first size of an array is the number of samples. Whole numbers in `y` are labels, other numbers are targets.

use std::path::Path;

use common::npy::{Array, read_archive};

use super::{BoundedFile, LIMIT, LoadError, MAX_CLASSES};
use crate::data::Samples;

/// Samples of an `.npz` file.
pub fn npz(path: &Path) -> Result<Samples, LoadError> {
    let wrong = |problem: String| LoadError::Format { path: path.into(), problem };
    let arrays = npz_arrays(path)?;
    let find = |name: &str| {
        let found = arrays.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, array)| array).ok_or_else(|| {
            let names: Vec<&str> = arrays.iter().map(|(key, _)| key.as_str()).collect();
            wrong(format!(
                "has no array `{name}`, only {}; save it with numpy.savez(path, x=.., y=..), or write a schema",
                names.join(", ")
            ))
        })
    };
    samples(find("x")?, find("y")?).map_err(wrong)
}

/// Samples of a pair of `.npy` files.
pub fn npy(x: &Path, y: &Path) -> Result<Samples, LoadError> {
    let arrays = (npy_array(x)?, npy_array(y)?);
    samples(&arrays.0, &arrays.1).map_err(|problem| LoadError::Format { path: x.into(), problem })
}

/// The array of an `.npy` file.
pub fn npy_array(path: &Path) -> Result<Array, LoadError> {
    let wrong =
        |error: common::npy::NpyError| LoadError::Format { path: path.into(), problem: error.to_string() };
    Array::read(&BoundedFile::open(path, LIMIT)?.bytes()?).map_err(wrong)
}

/// The arrays of an `.npz` file, by name.
pub fn npz_arrays(path: &Path) -> Result<Vec<(String, Array)>, LoadError> {
    let wrong =
        |error: common::npy::NpyError| LoadError::Format { path: path.into(), problem: error.to_string() };
    Ok(read_archive(&BoundedFile::open(path, LIMIT)?.bytes()?).map_err(wrong)?.into_iter().collect())
}

fn samples(x: &Array, y: &Array) -> Result<Samples, String> {
    let (&[count, ref sample @ ..], Some(&targets)) = (x.shape.as_slice(), y.shape.first()) else {
        return Err("`x` and `y` need at least one size, the number of samples".into());
    };
    if targets != count {
        return Err(format!(
            "`x` has {count} samples, `y` has {targets}; these arrays do not belong together"
        ));
    }
    if count == 0 {
        return Err("holds no samples".into());
    }
    let inputs = sample.iter().product();
    let per_sample = y.data.len() / count;
    let features = x.data.to_f64().into_iter().map(|value| value as f32).collect();
    let samples = match y.data.to_i64() {
        Some(labels) => {
            let label = |(at, label): (usize, i64)| {
                u32::try_from(label).ok().filter(|label| *label < MAX_CLASSES).ok_or_else(|| {
                    format!("`y` has {label} at {at}, not a whole number from 0 to {}", MAX_CLASSES - 1)
                })
            };
            let labels = labels.into_iter().enumerate().map(label).collect::<Result<_, _>>()?;
            Samples::with_labels(features, labels, inputs, per_sample)
        }
        None => {
            let values = y.data.to_f64().into_iter().map(|value| value as f32).collect();
            Samples::with_values(features, values, inputs, per_sample)
        }
    };
    samples.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use common::npy::{Data, write_archive};

    use super::*;

    fn array(shape: &[usize], data: Data) -> Array {
        Array::new(shape, data).unwrap()
    }

    fn load(arrays: &[(&str, Array)]) -> Result<Samples, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.npz");
        let arrays: Vec<_> = arrays.iter().map(|(name, array)| ((*name).to_owned(), array.clone())).collect();
        fs::write(&path, write_archive(&arrays).unwrap()).unwrap();
        npz(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn labels_and_targets() {
        let x = array(&[2, 1, 2], Data::F64(vec![1.0, 2.0, 3.0, 4.0]));
        let samples = load(&[("X", x.clone()), ("y", array(&[2], Data::I64(vec![3, 0])))]).unwrap();
        assert_eq!(
            (samples.inputs(), samples.row(1), samples.labels()),
            (2, Some(&[3.0, 4.0][..]), &[3, 0][..])
        );
        let samples = load(&[("x", x), ("y", array(&[2, 1], Data::F32(vec![0.5, -1.5])))]).unwrap();
        assert_eq!((samples.labels().len(), samples.values()), (0, &[0.5, -1.5][..]));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let x = || array(&[2, 2], Data::F32(vec![1.0; 4]));
        let error = |y: Array| load(&[("x", x()), ("y", y)]).unwrap_err();
        assert!(error(array(&[3], Data::I32(vec![0; 3]))).contains("`x` has 2 samples, `y` has 3"));
        assert!(error(array(&[2], Data::I32(vec![0, -1]))).contains("`y` has -1 at 1"));
        assert!(error(Array::scalar(1.0)).contains("need at least one size"));
        assert!(load(&[("a", x()), ("b", x())]).unwrap_err().contains("no array `x`, only a, b"));
        let nan = array(&[1, 1], Data::F32(vec![f32::NAN]));
        assert!(
            load(&[("x", nan), ("y", array(&[1], Data::U8(vec![0])))]).unwrap_err().contains("not a finite")
        );
    }

    #[test]
    fn a_pair_of_files() {
        let dir = tempfile::tempdir().unwrap();
        let (x, y) = (dir.path().join("x.npy"), dir.path().join("y.npy"));
        fs::write(&x, array(&[2, 1], Data::U8(vec![7, 8])).write()).unwrap();
        fs::write(&y, array(&[2], Data::U8(vec![1, 0])).write()).unwrap();
        let samples = npy(&x, &y).unwrap();
        assert_eq!((samples.features(), samples.labels()), (&[7.0, 8.0][..], &[1, 0][..]));
        assert!(npz(&x).unwrap_err().to_string().contains("not an .npz file"));
    }
}
