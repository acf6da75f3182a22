//! Element-wise functions. Where the derivative follows from the output, backward reads that, and forward may overwrite its
//! input. Where it does not ([`Activation::needs_input`]), backward reads the input.
//!
//! | kind | y | dy/dx |
//! |---|---|---|
//! | relu | max(x, 0) | 1 where y > 0, else 0 (at 0 as in PyTorch) |
//! | leaky | x or slope * x | 1 where y > 0, else slope |
//! | sigmoid | 1 / (1 + exp(-x)) | y (1 - y) |
//! | tanh | tanh x | 1 - y^2 |
//! | hard sigmoid, clip | a line between two bounds | that of the line where y is between the bounds, else 0 |
//! | elu, selu, celu | x or a (exp(x / b) - 1), times g | g where y > 0, else (y + g a) / b |
//! | softplus | ln(1 + exp(x)) | 1 - exp(-y) |
//! | softsign | x / (1 + abs x) | (1 - abs y)^2 |
//! | gelu, silu, mish, hard swish | x times a gate g(x) | g(x) + x g'(x) |

use common::plan::{Activation, SELU_ALPHA, SELU_GAMMA};

use super::{each, gated, where_built};
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
        Activation::LeakyRelu { slope } => where_built!("LeakyRelu", {
            let slope = T::from_f32(slope);
            for value in values {
                *value = if *value < T::ZERO { slope * *value } else { *value };
            }
        }),
        Activation::Clip { min, max } => where_built!("Clip", {
            let (min, max) = (T::from_f32(min), T::from_f32(max));
            values.iter_mut().for_each(|value| *value = between(*value, min, max));
        }),
        Activation::HardSigmoid { alpha, beta } => where_built!("HardSigmoid", {
            let (alpha, beta) = (T::from_f32(alpha), T::from_f32(beta));
            values.iter_mut().for_each(|value| *value = between(alpha * *value + beta, T::ZERO, T::ONE));
        }),
        Activation::HardSwish => {
            where_built!("HardSwish", values.iter_mut().for_each(|value| *value = gated::hard_swish(*value)));
        }
        Activation::Sigmoid => where_built!("Sigmoid", each(&T::sigmoid, values)),
        Activation::Tanh => where_built!("Tanh", each(&T::tanh, values)),
        Activation::Elu { alpha } => {
            where_built!("Elu", each(&exponential(T::from_f32(alpha), T::ONE, T::ONE), values));
        }
        Activation::Selu => where_built!("Selu", {
            let (alpha, gamma) = (T::from_f32(SELU_ALPHA), T::from_f32(SELU_GAMMA));
            each(&exponential(alpha, T::ONE, gamma), values);
        }),
        Activation::Celu { alpha } => where_built!("Celu", {
            let alpha = T::from_f32(alpha);
            each(&exponential(alpha, alpha, T::ONE), values);
        }),
        Activation::Softplus => where_built!("Softplus", each(&gated::softplus, values)),
        Activation::Softsign => where_built!("Softsign", each(&|x| x / (T::ONE + magnitude(x)), values)),
        Activation::Gelu => where_built!("Gelu", each(&gated::gelu, values)),
        Activation::GeluTanh => where_built!("GeluTanh", each(&gated::gelu_tanh, values)),
        Activation::Silu => where_built!("Silu", each(&gated::silu, values)),
        Activation::Mish => where_built!("Mish", each(&gated::mish, values)),
    }
}

/// `read` is the input of a kind that needs it, else the output.
pub(in crate::train) fn backward<T: Float>(kind: Activation, read: &[T], dy: &[T], add: bool, dx: &mut [T]) {
    chain(kind, Apart { read, dy, add, dx });
}

pub(in crate::train) fn backward_in_place<T: Float>(kind: Activation, read: &[T], gradient: &mut [T]) {
    chain(kind, InPlace { read, gradient });
}

/// Where a gradient is read and written.
trait Places<T> {
    /// Applies the chain rule: `f` gets the gradient of the output, and what backward reads.
    fn run(self, f: impl Fn(T, T) -> T);
}

struct Apart<'a, T> {
    read: &'a [T],
    dy: &'a [T],
    add: bool,
    dx: &'a mut [T],
}

struct InPlace<'a, T> {
    read: &'a [T],
    gradient: &'a mut [T],
}

impl<T: Float> Places<T> for Apart<'_, T> {
    fn run(self, f: impl Fn(T, T) -> T) {
        each(self.dx, self.dy, self.read, self.add, f);
    }
}

impl<T: Float> Places<T> for InPlace<'_, T> {
    fn run(self, f: impl Fn(T, T) -> T) {
        self.gradient.iter_mut().zip(self.read).for_each(|(gradient, &read)| *gradient = f(*gradient, read));
    }
}

fn chain<T: Float>(kind: Activation, places: impl Places<T>) {
    match kind {
        Activation::Relu => places.run(gate(T::ZERO)),
        Activation::LeakyRelu { slope } => where_built!("LeakyRelu", places.run(gate(T::from_f32(slope)))),
        Activation::Sigmoid => where_built!("Sigmoid", places.run(|dy, y| dy * (y * (T::ONE - y)))),
        Activation::Tanh => where_built!("Tanh", places.run(|dy, y| dy * (T::ONE - y * y))),
        Activation::Clip { min, max } => {
            where_built!("Clip", places.run(line(T::ONE, T::from_f32(min), T::from_f32(max))));
        }
        Activation::HardSigmoid { alpha, .. } => {
            where_built!("HardSigmoid", places.run(line(T::from_f32(alpha), T::ZERO, T::ONE)));
        }
        Activation::Elu { alpha } => {
            where_built!("Elu", places.run(exponential_grad(T::from_f32(alpha), T::ONE, T::ONE)));
        }
        Activation::Selu => where_built!("Selu", {
            let (alpha, gamma) = (T::from_f32(SELU_ALPHA), T::from_f32(SELU_GAMMA));
            places.run(exponential_grad(alpha, T::ONE, gamma));
        }),
        Activation::Celu { alpha } => where_built!("Celu", {
            let alpha = T::from_f32(alpha);
            places.run(exponential_grad(alpha, alpha, T::ONE));
        }),
        Activation::Softplus => where_built!("Softplus", places.run(|dy, y: T| dy * -(-y).exp_m1())),
        Activation::Softsign => where_built!(
            "Softsign",
            places.run(|dy, y| {
                let rest = T::ONE - magnitude(y);
                dy * (rest * rest)
            })
        ),
        Activation::Gelu => where_built!("Gelu", places.run(|dy, x| dy * gated::gelu_slope(x))),
        Activation::GeluTanh => where_built!("GeluTanh", places.run(|dy, x| dy * gated::gelu_tanh_slope(x))),
        Activation::Silu => where_built!("Silu", places.run(|dy, x| dy * gated::silu_slope(x))),
        Activation::Mish => where_built!("Mish", places.run(|dy, x| dy * gated::mish_slope(x))),
        Activation::HardSwish => {
            where_built!("HardSwish", places.run(|dy, x| dy * gated::hard_swish_slope(x)));
        }
    }
}

/// A selection and not a product with 0, so that a NaN gradient becomes 0 as in PyTorch.
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

/// Of a line with this slope between two bounds.
fn line<T: Float>(slope: T, min: T, max: T) -> impl Fn(T, T) -> T {
    move |dy, y| if y > min && y < max { slope * dy } else { T::ZERO }
}

/// `gamma * x` where positive, else `gamma * alpha * (exp(x / width) - 1)`.
fn exponential<T: Float>(alpha: T, width: T, gamma: T) -> impl Fn(T) -> T {
    move |x| if x > T::ZERO { gamma * x } else { gamma * (alpha * (x / width).exp_m1()) }
}

fn exponential_grad<T: Float>(alpha: T, width: T, gamma: T) -> impl Fn(T, T) -> T {
    move |dy, y| if y > T::ZERO { gamma * dy } else { dy * ((y + gamma * alpha) / width) }
}

/// The nearest number between two bounds; NaN stays NaN.
pub(super) fn between<T: Float>(x: T, min: T, max: T) -> T {
    if x < min {
        min
    } else if x > max {
        max
    } else {
        x
    }
}

pub(super) fn magnitude<T: Float>(x: T) -> T {
    if x < T::ZERO { -x } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Activation; 17] = [
        Activation::Relu,
        Activation::LeakyRelu { slope: 0.1 },
        Activation::Sigmoid,
        Activation::Tanh,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Silu,
        Activation::Mish,
        Activation::HardSwish,
        Activation::HardSigmoid { alpha: 0.2, beta: 0.5 },
        Activation::Clip { min: 0.0, max: 6.0 },
        Activation::Clip { min: -1.0, max: f32::INFINITY },
        Activation::Elu { alpha: 1.5 },
        Activation::Selu,
        Activation::Celu { alpha: 0.7 },
        Activation::Softplus,
        Activation::Softsign,
    ];

    fn at<T: Float>(kind: Activation, x: T) -> T {
        let mut values = [x];
        forward(kind, &mut values);
        values[0]
    }

    #[test]
    fn in_place_gives_the_same() {
        for kind in KINDS {
            let x = [-1.5f32, 0.0, 2.5, 40.0];
            let mut y = x;
            forward(kind, &mut y);
            let read = if kind.needs_input() { x } else { y };
            let (mut dx, mut gradient) = ([9.0; 4], [1.0f32, 2.0, 3.0, 4.0]);
            backward(kind, &read, &gradient, false, &mut dx);
            let mut added = dx;
            backward(kind, &read, &gradient, true, &mut added);
            backward_in_place(kind, &read, &mut gradient);
            assert_eq!(gradient, dx);
            assert_eq!(added, dx.map(|dx| dx + dx));
        }
    }

    #[test]
    fn derivatives_are_those_of_the_function() {
        for kind in KINDS {
            for step in -60..=60 {
                // Not at corners.
                let (x, h) = (f64::from(step) * 0.1307 + 0.01, 1e-6);
                let expected = (at(kind, x + h) - at(kind, x - h)) / (2.0 * h);
                let read = if kind.needs_input() { x } else { at(kind, x) };
                let mut gradient = [1.0];
                backward_in_place(kind, &[read], &mut gradient);
                let error = (gradient[0] - expected).abs();
                assert!(error < 1e-8, "{kind:?} at {x}: {} and not {expected}", gradient[0]);
            }
        }
    }

    /// Values of PyTorch 2.15 in f64.
    #[test]
    fn values_are_those_of_pytorch() {
        use Activation as A;
        for (kind, below, above) in [
            (A::Gelu, -0.100_210_801_903_287, 1.845_438_536_349_596_6),
            (A::GeluTanh, -0.100_428_423_019_767, 1.845_451_234_455_332_7),
            (A::Silu, -0.273_638_285_709_534_5, 1.652_793_898_710_304),
            (A::Mish, -0.298_099_742_166_806_7, 1.836_743_600_552_315),
            (A::HardSwish, -0.375, 1.551_666_666_666_666_7),
            (A::Elu { alpha: 1.0 }, -0.776_869_839_851_570_2, 1.9),
            (A::Selu, -1.365_814_353_367_252_7, 1.996_331_875_975_412_7),
            (A::Softplus, 0.201_413_277_982_752_4, 2.039_386_758_282_960_3),
            (A::Softsign, -0.6, 0.655_172_413_793_103_4),
        ] {
            for (x, expected) in [(-1.5f64, below), (1.9, above)] {
                assert!((at(kind, x) - expected).abs() < 2e-7, "{kind:?} at {x}: {}", at(kind, x));
            }
        }
    }

    #[test]
    fn nan_is_not_hidden() {
        for kind in KINDS {
            assert!(at(kind, f32::NAN).is_nan(), "{kind:?}");
        }
    }

    #[test]
    fn large_numbers_stay_finite() {
        for kind in KINDS {
            for x in [-1000.0f32, 1000.0] {
                let read = if kind.needs_input() { x } else { at(kind, x) };
                let mut gradient = [1.0];
                backward_in_place(kind, &[read], &mut gradient);
                assert!(at(kind, x).is_finite() && gradient[0].is_finite(), "{kind:?} at {x}");
            }
        }
    }
}
