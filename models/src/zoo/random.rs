//! Random small models for property tests: every operation, residual branches, and values with several readers.

use common::{
    plan::{Activation, ArithmeticKind, PoolKind, RecurrentKind},
    rng::{Rng, derive},
};

use super::initial;
use crate::graph::{Axes, Builder, Graph, GraphError, Groups, Kernel, Param, RecurrentParams, ValueId};

/// A model derived from the seed, with parameters whose gradients are not 0.
pub fn random(seed: u64) -> (Graph, Vec<f32>) {
    // A draw may give a layer that does not fit the one before; then another draw is made.
    let graph = (0..100).find_map(|attempt| Sketch::draw(derive(seed, attempt)).ok());
    let graph = graph.expect("one of a hundred draws fits");
    let mut parameters = initial(&graph, seed);
    let mut rng = Rng::new(derive(seed, u64::MAX));
    parameters.iter_mut().for_each(|x| *x += 0.2 * (rng.unit_f32() - 0.5));
    (graph, parameters)
}

/// Every kind, some with a bound or without.
const ACTIVATIONS: [Activation; 18] = [
    Activation::Relu,
    Activation::LeakyRelu { slope: 0.125 },
    Activation::Sigmoid,
    Activation::Tanh,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Silu,
    Activation::Mish,
    Activation::HardSwish,
    Activation::HardSigmoid { alpha: 0.25, beta: 0.5 },
    Activation::Clip { min: 0.0, max: 6.0 },
    Activation::Clip { min: -0.25, max: f32::INFINITY },
    Activation::Clip { min: f32::NEG_INFINITY, max: 0.5 },
    Activation::Elu { alpha: 0.75 },
    Activation::Selu,
    Activation::Celu { alpha: 1.5 },
    Activation::Softplus,
    Activation::Softsign,
];

struct Sketch {
    builder: Builder,
    rng: Rng,
    at: ValueId,
    layers: usize,
}

impl Sketch {
    fn draw(seed: u64) -> Result<Graph, GraphError> {
        let mut rng = Rng::new(seed);
        let kind = rng.below(4);
        let mut size = |most: u64| 1 + rng.below(most) as u32;
        let shape = match kind {
            0 => vec![size(9)],
            1 => vec![size(3), 4 + size(5), 4 + size(5)],
            2 => vec![size(3), 6 + size(8)],
            _ => vec![2 + size(4)],
        };
        let builder = Builder::new("random", "x", &shape)?;
        let mut sketch = Self { builder, rng, at: ValueId::INPUT, layers: 0 };
        let steps = 2 + sketch.rng.below(8);
        match kind {
            0 => {
                sketch.arithmetic()?;
                sketch.repeat(steps, Self::on_vector)?;
            }
            1 | 2 => sketch.repeat(steps, Self::on_image)?,
            _ => {
                let (name, width) = (sketch.name(), sketch.size(5));
                let (table, sliced) = (Param::plain(format!("{name}.t")), sketch.coin());
                sketch.at = sketch.builder.embed(&name, sketch.at, (7, width), sliced, table)?;
                sketch.repeat(steps, Self::on_sequence)?;
            }
        }
        let per_token = kind == 3 && sketch.coin();
        if !per_token {
            let name = sketch.name();
            sketch.at = sketch.builder.flatten(&name, sketch.at);
            let steps = sketch.rng.below(4);
            sketch.repeat(steps, Self::on_vector)?;
        }
        let classes = 1 + sketch.size(4);
        // With a bias, which learns even where zeros of a Pad are all that is left.
        sketch.dense_with(classes, true)?;
        sketch.builder.finish("y", sketch.at, None)
    }

    fn repeat(
        &mut self,
        steps: u64,
        step: fn(&mut Self) -> Result<(), GraphError>,
    ) -> Result<(), GraphError> {
        (0..steps).try_for_each(|_| match self.builder.shape(self.at).dims.len() {
            1 => self.on_vector(),
            _ => step(self),
        })
    }

    fn on_vector(&mut self) -> Result<(), GraphError> {
        match self.rng.below(10) {
            0 | 1 => {
                let units = self.size(8);
                self.dense(units)
            }
            2 => self.activate(),
            3 => self.dropout(),
            4 => self.layer_norm(1),
            5 => {
                let units = self.size(5);
                self.joined(0, |net| net.dense(units))
            }
            6 => self.part(0),
            7 => self.pad(0),
            8 => {
                let width = self.builder.size(self.at) as u32;
                self.gated(|net| net.dense(width))
            }
            _ => {
                let width = self.builder.size(self.at) as u32;
                self.residual(|net| {
                    net.dense(width)?;
                    net.activate()
                })
            }
        }
    }

    fn on_sequence(&mut self) -> Result<(), GraphError> {
        match self.rng.below(14) {
            0 | 1 => {
                let (name, units, after) = (self.name(), self.size(5), self.coin());
                let params = RecurrentParams::named(&name, self.coin());
                self.at = self.builder.gru(&name, self.at, units, after, params)?;
                Ok(())
            }
            11 => self.recurrent(RecurrentKind::Lstm),
            12 => self.recurrent(RecurrentKind::Tanh),
            2 => {
                let units = self.size(6);
                self.dense(units)
            }
            3 => self.activate(),
            4 => self.layer_norm(1),
            5 => {
                let name = self.name();
                self.at = self.builder.last(&name, self.at)?;
                Ok(())
            }
            6 => {
                let (name, max) = (self.name(), self.coin());
                let kind = if max { PoolKind::Max } else { PoolKind::Average };
                self.at = self.builder.step_pool(&name, self.at, kind)?;
                Ok(())
            }
            7 => {
                let units = self.size(4);
                self.joined(1, |net| net.dense(units))
            }
            8 => {
                let axis = self.rng.below(2) as u8;
                if self.coin() { self.part(axis) } else { self.pad(axis) }
            }
            9 => self.transposed(),
            10 => {
                let width = self.builder.width(self.at) as u32;
                self.gated(|net| net.dense(width))
            }
            _ => {
                let width = self.builder.width(self.at) as u32;
                self.residual(|net| net.dense(width))
            }
        }
    }

    fn on_image(&mut self) -> Result<(), GraphError> {
        let channels = self.builder.sizes(self.at)[0] as u32;
        let name = self.name();
        match self.rng.below(19) {
            0 | 1 => {
                let (outputs, window) = (self.size(5), self.window());
                self.conv(outputs, 1, window)
            }
            2 => {
                let (outputs, window) = (channels * self.size(2), self.window());
                self.conv(outputs, channels, window)
            }
            10 => {
                let (outputs, window) = (2 * self.size(3), self.window());
                self.conv(outputs, if channels.is_multiple_of(2) { 2 } else { 1 }, window)
            }
            3 => self.activate(),
            4 | 17 => {
                let kinds = [PoolKind::Max, PoolKind::Average, PoolKind::AveragePadded];
                let kind = kinds[self.rng.below(3) as usize];
                let window = self.window();
                self.at = self.builder.pool(&name, self.at, kind, window)?;
                Ok(())
            }
            5 => {
                let groups = [Groups::Count(1), Groups::Each, Groups::Count(2)][self.rng.below(3) as usize];
                let params = self.params(&name);
                self.at = self.builder.group_norm(&name, self.at, groups, 1e-2, params)?;
                Ok(())
            }
            6 => {
                let params = self.params(&name);
                let mut draw =
                    |low: f32| (0..channels).map(|_| low + self.rng.unit_f32()).collect::<Vec<_>>();
                let stats = Some([draw(-0.5), draw(0.5)]);
                self.at = self.builder.batch_norm(&name, self.at, 1e-2, params, stats)?;
                Ok(())
            }
            7 => {
                let axes = self.builder.shape(self.at).dims.len() as u8;
                self.layer_norm(axes)
            }
            8 => {
                self.at = match self.coin() {
                    true => self.builder.global_pool(&name, self.at)?,
                    false => self.builder.global_max_pool(&name, self.at)?,
                };
                self.at = self.builder.flatten(&format!("{name}.flat"), self.at);
                Ok(())
            }
            11 | 12 => {
                let outputs = self.size(4);
                self.joined(0, |net| {
                    let window = net.kernel(3, 1, 1);
                    net.conv(outputs, 1, window)?;
                    if net.coin() { net.activate() } else { Ok(()) }
                })
            }
            13 => self.part(0),
            14 => {
                let axis = self.rng.below(self.builder.shape(self.at).dims.len() as u64) as u8;
                self.pad(axis)
            }
            15 => self.transposed(),
            16 => self.gated(|net| {
                net.at = net.builder.global_pool(&format!("{name}.mean"), net.at)?;
                let window = net.kernel(1, 1, 0);
                net.conv(channels, 1, window)
            }),
            _ => self.residual(|net| {
                let window = net.kernel(3, 1, 1);
                net.conv(channels, 1, window)?;
                if net.coin() { net.activate() } else { Ok(()) }
            }),
        }
    }

    /// Adds the output of `branch` to its input.
    fn residual(&mut self, branch: impl Fn(&mut Self) -> Result<(), GraphError>) -> Result<(), GraphError> {
        let before = self.at;
        branch(self)?;
        let name = self.name();
        let (a, b) = if self.coin() { (before, self.at) } else { (self.at, before) };
        self.at = self.builder.add(&name, a, b)?;
        Ok(())
    }

    fn recurrent(&mut self, kind: RecurrentKind) -> Result<(), GraphError> {
        let (name, units) = (self.name(), self.size(5));
        let params = RecurrentParams::named(&name, self.coin());
        self.at = self.builder.recurrent(&name, self.at, units, kind, params)?;
        Ok(())
    }

    /// Joins the output of `branch` and its input.
    fn joined(
        &mut self,
        axis: u8,
        branch: impl Fn(&mut Self) -> Result<(), GraphError>,
    ) -> Result<(), GraphError> {
        let before = self.at;
        branch(self)?;
        let name = self.name();
        let (a, b) = if self.coin() { (before, self.at) } else { (self.at, before) };
        self.at = self.builder.concat(&name, a, b, axis)?;
        Ok(())
    }

    /// Multiplies a value by the sigmoid of `branch`.
    fn gated(&mut self, branch: impl Fn(&mut Self) -> Result<(), GraphError>) -> Result<(), GraphError> {
        let before = self.at;
        branch(self)?;
        let (open, name) = (self.name(), self.name());
        let gate = self.builder.activate(&open, self.at, Activation::Sigmoid);
        self.at = self.builder.mul(&name, before, gate)?;
        Ok(())
    }

    /// A random part of an axis.
    fn part(&mut self, axis: u8) -> Result<(), GraphError> {
        let size = self.builder.sizes(self.at)[usize::from(axis)] as u64;
        // The last step alone is another operation.
        let (name, start) = (self.name(), self.rng.below(size).min(size.saturating_sub(2)));
        let len = 1 + self.rng.below(size - start);
        self.at = self.builder.part(&name, self.at, axis, start as u32, len as u32)?;
        Ok(())
    }

    /// The activation behind it keeps a convolution from doing it.
    fn pad(&mut self, axis: u8) -> Result<(), GraphError> {
        let (name, before, after) = (self.name(), self.size(3) - 1, self.size(2));
        self.at = self.builder.pad(&name, self.at, axis, before, after)?;
        self.activate()
    }

    /// A dense layer over what was another axis. Without axes of size 1, which do not move.
    fn transposed(&mut self) -> Result<(), GraphError> {
        let sizes = self.builder.sizes(self.at);
        if sizes.contains(&1) {
            return self.activate();
        }
        let (name, moved) = (self.name(), 1 + self.rng.below(sizes.len() as u64 - 1));
        self.at = self.builder.transpose(&name, self.at, 0, moved as u8)?;
        let units = self.size(6);
        self.dense(units)
    }

    fn dense(&mut self, units: u32) -> Result<(), GraphError> {
        let bias = self.coin();
        self.dense_with(units, bias)
    }

    fn dense_with(&mut self, units: u32, bias: bool) -> Result<(), GraphError> {
        let name = self.name();
        let inputs = self.builder.width(self.at);
        let [weight, shift] = self.params(&name);
        let bias = bias.then_some(shift);
        self.at = self.builder.dense(&name, self.at, inputs, units, weight, bias)?;
        Ok(())
    }

    fn conv(&mut self, outputs: u32, groups: u32, window: Kernel) -> Result<(), GraphError> {
        let name = self.name();
        let [weight, bias] = self.params(&name);
        let bias = Some(bias).filter(|_| self.coin());
        self.at = self.builder.conv(&name, self.at, outputs, groups, window, weight, bias)?;
        Ok(())
    }

    fn activate(&mut self) -> Result<(), GraphError> {
        let (name, kind) = (self.name(), ACTIVATIONS[self.rng.below(ACTIVATIONS.len() as u64) as usize]);
        self.at = self.builder.activate(&name, self.at, kind);
        match self.rng.below(6) {
            0 | 1 => self.activate(),
            2 => self.prelu(),
            3 => self.arithmetic(),
            _ => Ok(()),
        }
    }

    fn prelu(&mut self) -> Result<(), GraphError> {
        let (name, axes) = (self.name(), Some(self.axes()).filter(|_| self.coin()));
        self.at = self.builder.prelu(&name, self.at, axes, Param::plain(format!("{name}.slope")))?;
        Ok(())
    }

    fn arithmetic(&mut self) -> Result<(), GraphError> {
        let kinds = [ArithmeticKind::Add, ArithmeticKind::Sub, ArithmeticKind::Mul, ArithmeticKind::Div];
        let (name, kind, axes) = (self.name(), kinds[self.rng.below(4) as usize], self.axes());
        self.at = match self.coin() {
            true => self.builder.with_number(&name, self.at, kind, 0.5 + self.rng.unit_f32())?,
            false => {
                let sizes = self.builder.sizes(self.at);
                let count: usize = sizes.iter().skip(axes.first.into()).take(axes.count.into()).product();
                let numbers = (0..count).map(|_| 0.5 + self.rng.unit_f32()).collect();
                self.builder.with_constants(&name, self.at, kind, axes, numbers)?
            }
        };
        Ok(())
    }

    /// The first axis, or the last.
    fn axes(&mut self) -> Axes {
        let rank = self.builder.shape(self.at).dims.len() as u8;
        Axes { first: if self.coin() { 0 } else { rank - 1 }, count: 1 }
    }

    fn dropout(&mut self) -> Result<(), GraphError> {
        let name = self.name();
        self.at = self.builder.dropout(&name, self.at, 0.25)?;
        Ok(())
    }

    fn layer_norm(&mut self, axes: u8) -> Result<(), GraphError> {
        let name = self.name();
        let params = self.params(&name);
        // Half of them have both.
        let [scale, bias] = params.map(Some);
        let params = match self.rng.below(4) {
            0 => [None, None],
            1 => [scale, None],
            _ => [scale, bias],
        };
        self.at = self.builder.layer_norm(&name, self.at, axes, 1e-2, params)?;
        Ok(())
    }

    fn window(&mut self) -> Kernel {
        let size = 1 + self.rng.below(3) as u16;
        let (stride, pad) = (1 + self.rng.below(2) as u16, self.rng.below(u64::from(size)) as u16);
        self.kernel(size, stride, pad)
    }

    fn kernel(&self, size: u16, stride: u16, pad: u16) -> Kernel {
        match self.builder.shape(self.at).dims.len() {
            2 => Kernel::line(size, stride, pad),
            _ => Kernel::square(size, stride, pad),
        }
    }

    fn params(&mut self, name: &str) -> [Param; 2] {
        ["w", "b"].map(|kind| Param::plain(format!("{name}.{kind}")))
    }

    fn name(&mut self) -> String {
        self.layers += 1;
        format!("n{}", self.layers)
    }

    fn size(&mut self, most: u64) -> u32 {
        1 + self.rng.below(most) as u32
    }

    fn coin(&mut self) -> bool {
        self.rng.below(2) == 0
    }
}
