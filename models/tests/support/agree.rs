//! Loss and gradients against those of another framework, whose names may differ.

use std::collections::BTreeMap;

use models::{grad::Gradients, npy::Array};

/// Of the largest gradient of the whole model, and of the loss.
const LIMIT: f64 = 1e-4;
/// Arrays that are no gradients.
const OTHERS: [&str; 6] = ["x", "y", "loss", "logits", "outputs", "labels"];

/// The largest error, relative to the largest gradient or to the loss.
///
/// Exporters rename what they precompute (a transposed weight, gates of a GRU). A gradient without a counterpart of the same
/// name must match one of the remaining ones, and every one must be found.
pub fn agree<T: Copy + Into<f64>>(
    got: &Gradients<T>,
    expected: &BTreeMap<String, Array>,
) -> Result<f64, String> {
    let wanted = expected["loss"].data.to_f64()[0];
    let mut worst = (got.loss - wanted).abs() / wanted.abs();
    if worst.is_nan() || worst > LIMIT {
        return Err(format!("the loss is {}, expected {wanted}", got.loss));
    }
    let mut left: BTreeMap<&str, (&[usize], Vec<f64>)> = expected
        .iter()
        .filter(|(name, _)| !OTHERS.contains(&name.as_str()))
        .map(|(name, array)| (name.as_str(), (&array.shape[..], array.data.to_f64())))
        .collect();
    let largest = left.values().flat_map(|(_, values)| values).fold(0.0, |max: f64, x| max.max(x.abs()));
    let (named, renamed): (Vec<_>, Vec<_>) =
        got.tensors.iter().partition(|tensor| left.contains_key(&*tensor.name));
    for tensor in named.into_iter().chain(renamed) {
        let values: Vec<f64> = tensor.values.iter().map(|&x| x.into()).collect();
        assert_eq!(values.len(), tensor.shape.iter().product::<usize>(), "{}", tensor.name);
        let error = |(shape, wanted): &(&[usize], Vec<f64>)| match values.len() == wanted.len() {
            true => difference(&tensor.shape, &values, shape, wanted) / largest,
            false => f64::INFINITY,
        };
        let fits = |wanted: &_| Some(error(wanted)).filter(|&error| error <= LIMIT);
        let found = match left.get_key_value(&*tensor.name) {
            Some((name, wanted)) => fits(wanted).map(|error| (*name, error)),
            None => left.iter().find_map(|(name, wanted)| fits(wanted).map(|error| (*name, error))),
        };
        let Some((name, error)) = found else {
            let left: Vec<_> = left.iter().map(|(name, (shape, _))| format!("{name} {shape:?}")).collect();
            return Err(format!(
                "the gradient of {} {:?} is none of {}",
                tensor.name,
                tensor.shape,
                left.join(", ")
            ));
        };
        worst = worst.max(error);
        left.remove(name);
    }
    match left.is_empty() {
        true => Ok(worst),
        false => Err(format!("{:?} have no gradient", left.keys())),
    }
}

/// The largest difference, where `got` may be the transposed of `wanted`; of a square matrix, the smaller of both.
fn difference(shape: &[usize], got: &[f64], wanted_shape: &[usize], wanted: &[f64]) -> f64 {
    let without_ones = |shape: &[usize]| shape.iter().copied().filter(|&size| size != 1).collect::<Vec<_>>();
    let (a, b) = (without_ones(shape), without_ones(wanted_shape));
    let worst = |wanted: &[f64]| got.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let straight = if a == b { worst(wanted) } else { f64::INFINITY };
    let turned = match (&a[..], &b[..]) {
        (&[rows, columns], &[width, height]) if (rows, columns) == (height, width) => {
            let turned: Vec<f64> =
                (0..wanted.len()).map(|at| wanted[at % columns * height + at / columns]).collect();
            worst(&turned)
        }
        _ => f64::INFINITY,
    };
    straight.min(turned)
}
