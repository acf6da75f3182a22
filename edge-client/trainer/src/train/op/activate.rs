//! Element-wise functions. Backward reads the output, never the input, so forward may overwrite its input.
//!
//! | kind | y | dy/dx from y |
//! |---|---|---|
//! | relu | max(x, 0) | 1 where y > 0, else 0 (at 0 as in PyTorch) |
//! | leaky | x or slope * x | 1 where y > 0, else slope |
//! | sigmoid | 1 / (1 + exp(-x)) | y (1 - y) |
//! | tanh | tanh x | 1 - y^2 |

use common::plan::Activation;

use super::each;
use crate::train::Float;

/// NaN stays NaN, so that divergence is detected.
pub(in crate::train) fn forward<T: Float>(kind: Activation, values: &mut [T]) {
    let each = |f: &dyn Fn(T) -> T, values: &mut [T]| values.iter_mut().for_each(|value| *value = f(*value));
    match kind {
        Activation::Relu => {
            for value in values {
                *value = if *value < T::ZERO { T::ZERO } else { *value };
            }
        }
        Activation::LeakyRelu { slope } => {
            let slope = T::from_f32(slope);
            for value in values {
                *value = if *value < T::ZERO { slope * *value } else { *value };
            }
        }
        Activation::Sigmoid => each(&T::sigmoid, values),
        Activation::Tanh => each(&T::tanh, values),
    }
}

pub(in crate::train) fn backward<T: Float>(kind: Activation, y: &[T], dy: &[T], add: bool, dx: &mut [T]) {
    match kind {
        Activation::Relu => each(dx, dy, y, add, gate(T::ZERO)),
        Activation::LeakyRelu { slope } => each(dx, dy, y, add, gate(T::from_f32(slope))),
        Activation::Sigmoid => each(dx, dy, y, add, sigmoid),
        Activation::Tanh => each(dx, dy, y, add, tanh),
    }
}

pub(in crate::train) fn backward_in_place<T: Float>(kind: Activation, y: &[T], gradient: &mut [T]) {
    let places = gradient.iter_mut().zip(y);
    match kind {
        // A selection and not a product with 0, so that a NaN gradient becomes 0 as in PyTorch.
        Activation::Relu => places.for_each(|(g, &y)| *g = if y > T::ZERO { *g } else { T::ZERO }),
        Activation::LeakyRelu { slope } => {
            let gate = gate(T::from_f32(slope));
            places.for_each(|(g, &y)| *g = gate(*g, y));
        }
        Activation::Sigmoid => places.for_each(|(g, &y)| *g = sigmoid(*g, y)),
        Activation::Tanh => places.for_each(|(g, &y)| *g = tanh(*g, y)),
    }
}

fn gate<T: Float>(slope: T) -> impl Fn(T, T) -> T {
    move |dy, y| {
        if y > T::ZERO {
            dy
        } else if slope == T::ZERO {
            T::ZERO
        } else {
            slope * dy
        }
    }
}

fn sigmoid<T: Float>(dy: T, y: T) -> T {
    dy * (y * (T::ONE - y))
}

fn tanh<T: Float>(dy: T, y: T) -> T {
    dy * (T::ONE - y * y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_place_gives_the_same() {
        let kinds =
            [Activation::Relu, Activation::LeakyRelu { slope: 0.1 }, Activation::Sigmoid, Activation::Tanh];
        for kind in kinds {
            let mut y = [-1.5f32, 0.0, 2.5, 40.0];
            forward(kind, &mut y);
            let (mut dx, mut gradient) = ([9.0; 4], [1.0f32, 2.0, 3.0, 4.0]);
            backward(kind, &y, &gradient, false, &mut dx);
            let mut added = dx;
            backward(kind, &y, &gradient, true, &mut added);
            backward_in_place(kind, &y, &mut gradient);
            assert_eq!(gradient, dx);
            assert_eq!(added, dx.map(|dx| dx + dx));
        }
    }

    #[test]
    fn nan_is_not_hidden() {
        for kind in [Activation::Relu, Activation::Sigmoid, Activation::Tanh] {
            let mut values = [f32::NAN];
            forward(kind, &mut values);
            assert!(values[0].is_nan());
        }
    }
}
