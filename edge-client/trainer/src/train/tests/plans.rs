//! Small Plans that together contain every operation.

use common::plan::{Activation, ArithmeticKind, Arrange, Loss, PoolKind, RecurrentKind, Window};

use crate::data::DataError;
use crate::train::{
    Truth,
    test_plan::{Builder, Options, TestPlan, window},
};

/// Made-up targets for every row and position.
pub struct Anything {
    pub classes: u32,
}

impl Truth for Anything {
    fn class(&self, row: usize, position: usize) -> Result<u32, DataError> {
        Ok((row as u32 * 7 + position as u32 * 3 + 1) % self.classes)
    }

    fn value(&self, row: usize, position: usize) -> Result<f32, DataError> {
        Ok(((row * 5 + position * 2) % 3) as f32 / 2.0)
    }

    fn weight(&self, row: usize) -> Result<f32, DataError> {
        Ok([1.0, 0.5, -0.25][row % 3])
    }
}

/// Names and builders; `Options` are those of the layout.
pub type Build = fn(Options) -> TestPlan;
pub const ALL: [(&str, Build); 13] = [
    ("mlp", mlp),
    ("image", image),
    ("residual", residual),
    ("signal", signal),
    ("tokens, reset after", |options| tokens(options, true)),
    ("tokens, reset before", |options| tokens(options, false)),
    ("sequence", sequence),
    ("lstm", lstm),
    ("plain recurrent", plain_recurrent),
    ("numbers", numbers),
    ("standardized", standardized),
    ("branches", branches),
    ("curves", curves),
];

pub const BATCH: u16 = 3;

fn mlp(options: Options) -> TestPlan {
    TestPlan::new(&[7, 9, 6, 4], BATCH, options)
}

fn image(options: Options) -> TestPlan {
    let (mut b, x) = Builder::new(2 * 9 * 8, BATCH);
    let x = b.conv(x, 5, 1, window(9, 8, 3, 1, 1));
    let x = b.relu(x);
    let x = b.pool(x, PoolKind::Max, window(9, 8, 3, 2, 1));
    let x = b.conv(x, 6, 1, Window { pad: [0, 1, 1, 0], ..window(5, 4, 2, 1, 0) });
    let x = b.activate(x, Activation::LeakyRelu { slope: 0.1 });
    let x = b.conv(x, 6, 2, window(5, 4, 3, 2, 1));
    let x = b.activate(x, Activation::Tanh);
    let x = b.conv(x, 6, 6, window(3, 2, 3, 1, 1));
    let x = b.batchnorm(x, 6);
    let x = b.pool(x, PoolKind::AveragePadded, window(3, 2, 2, 1, 1));
    let x = b.dropout(x, 0.3, 5);
    let x = b.dense(x, 1, 4);
    let _ = b.scale(x, 1.5);
    b.finish(Loss::Softmax { classes: 4 }, options)
}

fn residual(options: Options) -> TestPlan {
    let (mut b, x) = Builder::new(3 * 4 * 4, BATCH);
    let stem = b.conv(x, 4, 1, window(4, 4, 3, 1, 1));
    let stem = b.norm(stem, 2, 2, false);
    let stem = b.relu(stem);
    let branch = b.conv(stem, 4, 1, window(4, 4, 1, 1, 0));
    let branch = b.activate(branch, Activation::Sigmoid);
    let branch = b.conv(branch, 4, 1, window(4, 4, 3, 1, 1));
    let sum = b.add(branch, stem);
    let sum = b.relu(sum);
    let again = b.add(sum, stem);
    let x = b.pool(
        again,
        PoolKind::Average,
        Window { kernel: [3, 2], stride: [2, 2], pad: [1, 0, 1, 1], ..window(4, 4, 1, 1, 0) },
    );
    let x = b.pool(x, PoolKind::Max, window(2, 2, 2, 2, 0));
    let _ = b.dense(x, 1, 3);
    b.finish(Loss::Softmax { classes: 3 }, options)
}

/// One-dimensional, as for accelerometer windows.
fn signal(options: Options) -> TestPlan {
    let (mut b, x) = Builder::new(3 * 20, BATCH);
    let line = |width, kernel, stride, pad| Window {
        height: 1,
        width,
        kernel: [1, kernel],
        stride: [1, stride],
        pad: [0, pad, 0, pad],
    };
    let x = b.conv(x, 4, 1, line(20, 5, 2, 2));
    let x = b.relu(x);
    let x = b.pool(x, PoolKind::Average, line(10, 10, 1, 0));
    let _ = b.dense(x, 1, 2);
    b.finish(Loss::Softmax { classes: 2 }, options)
}

fn tokens(options: Options, reset_after: bool) -> TestPlan {
    let (mut b, x) = Builder::new(5, BATCH);
    let x = b.embed(x, 6, 4);
    let x = b.gru(x, 5, 3, reset_after);
    let x = b.norm(x, 5, 3, true);
    let _ = b.dense(x, 5, 6);
    b.finish(Loss::Softmax { classes: 6 }, options)
}

fn standardized(options: Options) -> TestPlan {
    let (mut b, x) = Builder::new(6, BATCH);
    let x = b.dense(x, 1, 8);
    let x = b.standardize(x, 2, true);
    let x = b.dense(x, 2, 3);
    let x = b.standardize(x, 1, false);
    let _ = b.dense(x, 1, 4);
    b.finish(Loss::Softmax { classes: 4 }, options)
}

fn sequence(options: Options) -> TestPlan {
    let (mut b, x) = Builder::new(4 * 3, BATCH);
    let x = b.gru(x, 4, 4, false);
    let x = b.gru(x, 4, 5, true);
    let x = b.last(x, 4);
    let _ = b.dense(x, 1, 2);
    b.finish(Loss::Sigmoid, options)
}

fn lstm(options: Options) -> TestPlan {
    let (mut b, x) = Builder::new(4 * 3, BATCH);
    let x = b.recurrent(x, 4, 4, RecurrentKind::Lstm);
    let x = b.recurrent(x, 4, 5, RecurrentKind::Lstm);
    let x = b.last(x, 4);
    let _ = b.dense(x, 1, 2);
    b.finish(Loss::Softmax { classes: 2 }, options)
}

/// Every step has a label, and the first layer two readers.
fn plain_recurrent(options: Options) -> TestPlan {
    let (mut b, x) = Builder::new(5 * 3, BATCH);
    let x = b.recurrent(x, 5, 4, RecurrentKind::Tanh);
    let y = b.recurrent(x, 5, 4, RecurrentKind::Tanh);
    let x = b.add(y, x);
    let _ = b.dense(x, 5, 3);
    b.finish(Loss::Softmax { classes: 3 }, options)
}

fn numbers(options: Options) -> TestPlan {
    let (mut b, x) = Builder::new(6, BATCH);
    let x = b.dense(x, 1, 5);
    let x = b.activate(x, Activation::Tanh);
    let _ = b.dense(x, 1, 3);
    b.finish(Loss::Squared, options)
}

/// Branches that are joined, cut, padded, transposed and multiplied.
fn branches(options: Options) -> TestPlan {
    let (mut b, x) = Builder::new(2 * 4 * 3, BATCH);
    let wide = b.arrange(x, Arrange::Pad { rows: 8, width: 3, before: 1, after: 2 });
    let left = b.conv(wide, 3, 1, window(4, 6, 3, 1, 1));
    let right = b.conv(wide, 2, 1, window(4, 6, 1, 1, 0));
    let right = b.activate(right, Activation::Tanh);
    let both = b.concat(left, right, 1);
    let weights = b.pool(both, PoolKind::Average, Window { kernel: [4, 6], ..window(4, 6, 1, 1, 0) });
    let weights = b.dense(weights, 1, 5);
    let weights = b.activate(weights, Activation::Sigmoid);
    let gated = b.gate(both, weights);
    let middle = b.arrange(gated, Arrange::Part { rows: 5, width: 24, start: 7, len: 10 });
    let turned = b.arrange(middle, Arrange::Transpose { rows: 1, height: 5, width: 10 });
    let other = b.dense(turned, 10, 3);
    let rows = b.concat(turned, other, 10);
    let factors = b.dense(rows, 10, 8);
    let factors = b.activate(factors, Activation::Tanh);
    let product = b.gate(rows, factors);
    let _ = b.dense(product, 1, 3);
    b.finish(Loss::Softmax { classes: 3 }, options)
}

/// Activations that read their input in backward, and others that follow them.
fn curves(options: Options) -> TestPlan {
    let (mut b, x) = Builder::new(6, BATCH);
    let x = b.arithmetic(x, ArithmeticKind::Div, 1.5);
    let x = b.dense(x, 1, 8);
    let x = b.activate(x, Activation::Gelu);
    let x = b.prelu(x, 4);
    let x = b.arithmetic(x, ArithmeticKind::Mul, 0.75);
    let x = b.activate(x, Activation::Silu);
    let x = b.dense(x, 1, 6);
    let x = b.activate(x, Activation::GeluTanh);
    let x = b.activate(x, Activation::Mish);
    let x = b.arithmetic(x, ArithmeticKind::Sub, 0.25);
    let x = b.activate(x, Activation::HardSwish);
    let x = b.activate(x, Activation::Elu { alpha: 0.5 });
    let x = b.activate(x, Activation::Softplus);
    let _ = b.dense(x, 1, 3);
    b.finish(Loss::Squared, options)
}

/// Classes of a softmax, or 1.
pub fn anything(plan: &TestPlan) -> Anything {
    match plan.info.loss {
        Loss::Softmax { classes } => Anything { classes },
        Loss::Sigmoid | Loss::Squared => Anything { classes: 1 },
    }
}
