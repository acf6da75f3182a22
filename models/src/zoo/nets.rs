//! The layouts of the zoo's models.

use common::plan::{PoolKind, RecurrentKind};

use crate::graph::{Builder, Graph, GraphError, Groups, Kernel, Param, RecurrentParams, ValueId};

#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Design {
    /// Inputs, hidden units, outputs.
    Mlp(&'static [u32]),
    CifarCnn,
    /// Two convolutions 5x5, each with pooling, then dense layers.
    Lenet {
        image: [u32; 3],
        channels: [u32; 2],
        units: &'static [u32],
        classes: u32,
    },
    CharGru {
        entries: u32,
        width: u32,
        units: u32,
        steps: u32,
    },
    Resnet,
    MotionCnn,
    DigitsCnn,
    DigitsGru,
}

impl Design {
    pub fn graph(&self, name: &str) -> Result<Graph, GraphError> {
        match *self {
            Self::Mlp(widths) => mlp(name, widths),
            Self::CifarCnn => cifar_cnn(name),
            Self::Lenet { image, channels, units, classes } => lenet(name, image, channels, units, classes),
            Self::CharGru { entries, width, units, steps } => {
                let mut net = Net::new(name, &[steps])?;
                let table = Param::plain("embed.weight");
                net.at = net.builder.embed("embed", net.at, (entries, width), false, table)?;
                net.gru("gru", units)?;
                net.dense("fc", entries)?;
                net.finish()
            }
            Self::Resnet => resnet(name),
            Self::MotionCnn => motion_cnn(name),
            Self::DigitsCnn => digits_cnn(name),
            Self::DigitsGru => digits_gru(name),
        }
    }
}

/// A multilayer perceptron: `widths` are inputs, hidden units, outputs.
pub fn mlp(name: &str, widths: &[u32]) -> Result<Graph, GraphError> {
    let [inputs, hidden @ .., outputs] = widths else { return Err(GraphError::NothingToTrain) };
    let mut net = Net::new(name, &[*inputs])?;
    for (index, &units) in hidden.iter().enumerate() {
        net.dense(&format!("fc{}", index + 1), units)?;
        net.relu(&format!("relu{}", index + 1));
    }
    net.dense(&format!("fc{}", hidden.len() + 1), *outputs)?;
    net.finish()
}

/// Convolutions 3x3 of stride 2 with ReLU over square grey images, then one dense layer: `sizes` are the side of
/// an image, channels, classes. Strides in place of pools keep activations small enough for boards.
pub fn cnn(name: &str, sizes: &[u32]) -> Result<Graph, GraphError> {
    let [side, channels @ .., classes] = sizes else { return Err(GraphError::NothingToTrain) };
    if channels.is_empty() {
        return Err(GraphError::NothingToTrain);
    }
    let mut net = Net::new(name, &[1, *side, *side])?;
    for (index, &channels) in (1..).zip(channels) {
        net.conv(&format!("conv{index}"), channels, Kernel::square(3, 2, 1))?;
        net.relu(&format!("relu{index}"));
    }
    net.flatten("flatten");
    net.dense("fc", *classes)?;
    net.finish()
}

fn cifar_cnn(name: &str) -> Result<Graph, GraphError> {
    let mut net = Net::new(name, &[3, 32, 32])?;
    net.conv("conv1", 32, Kernel::square(3, 1, 1))?;
    net.relu("relu1");
    net.conv("conv2", 32, Kernel::square(3, 1, 1))?;
    net.relu("relu2");
    net.pool("pool", Kernel::square(2, 2, 0))?;
    net.dropout("drop1", 0.25)?;
    net.flatten("flatten");
    net.dense("fc1", 128)?;
    net.relu("relu3");
    net.dropout("drop2", 0.5)?;
    net.dense("fc2", 10)?;
    net.finish()
}

fn lenet(
    name: &str,
    image: [u32; 3],
    channels: [u32; 2],
    units: &[u32],
    classes: u32,
) -> Result<Graph, GraphError> {
    let mut net = Net::new(name, &image)?;
    for (index, channels) in (1..).zip(channels) {
        net.conv(&format!("conv{index}"), channels, Kernel::square(5, 1, 0))?;
        net.relu(&format!("relu{index}"));
        net.pool(&format!("pool{index}"), Kernel::square(2, 2, 0))?;
    }
    net.flatten("flatten");
    for (index, &units) in (1..).zip(units) {
        net.dense(&format!("fc{index}"), units)?;
        net.relu(&format!("relu{}", index + 2));
    }
    net.dense(&format!("fc{}", units.len() + 1), classes)?;
    net.finish()
}

fn resnet(name: &str) -> Result<Graph, GraphError> {
    let mut net = Net::new(name, &[3, 32, 32])?;
    net.conv("stem", 16, Kernel::square(3, 1, 1))?;
    net.norm("stem.norm", 4)?;
    net.relu("stem.relu");
    for (block, (channels, stride)) in (1..).zip([(16, 1), (32, 2), (64, 2)]) {
        let block = format!("block{block}");
        let before = net.at;
        net.conv(&format!("{block}.conv1"), channels, Kernel::square(3, stride, 1))?;
        net.norm(&format!("{block}.norm1"), 4)?;
        net.relu(&format!("{block}.relu1"));
        net.conv(&format!("{block}.conv2"), channels, Kernel::square(3, 1, 1))?;
        net.norm(&format!("{block}.norm2"), 4)?;
        let branch = std::mem::replace(&mut net.at, before);
        if stride > 1 {
            net.conv(&format!("{block}.skip"), channels, Kernel::square(1, stride, 0))?;
        }
        net.at = net.builder.add(&format!("{block}.add"), branch, net.at)?;
        net.relu(&format!("{block}.relu2"));
    }
    net.at = net.builder.global_pool("pool", net.at)?;
    net.flatten("flatten");
    net.dense("fc", 10)?;
    net.finish()
}

fn motion_cnn(name: &str) -> Result<Graph, GraphError> {
    let mut net = Net::new(name, &[3, 128])?;
    net.conv("conv1", 16, Kernel::line(5, 2, 2))?;
    net.relu("relu1");
    net.grouped("depth", 16, 16, Kernel::line(5, 1, 2))?;
    net.conv("point", 32, Kernel::line(1, 1, 0))?;
    net.relu("relu2");
    net.pool("pool1", Kernel::line(2, 2, 0))?;
    net.conv("conv2", 32, Kernel::line(3, 1, 1))?;
    net.relu("relu3");
    net.at = net.builder.global_pool("pool2", net.at)?;
    net.flatten("flatten");
    net.dense("fc", 6)?;
    net.finish()
}

fn digits_cnn(name: &str) -> Result<Graph, GraphError> {
    let mut net = Net::new(name, &[1, 8, 8])?;
    net.conv("conv", 8, Kernel::square(3, 1, 1))?;
    net.relu("relu");
    net.pool("pool", Kernel::square(2, 2, 0))?;
    net.flatten("flatten");
    net.dense("fc", 10)?;
    net.finish()
}

/// An LSTM over sequences of numbers and one dense layer on its last step: `sizes` are steps, numbers per step, units, classes.
pub fn lstm(name: &str, sizes: &[u32]) -> Result<Graph, GraphError> {
    let &[steps, numbers, units, classes] = sizes else { return Err(GraphError::NothingToTrain) };
    let mut net = Net::new(name, &[steps, numbers])?;
    let (layer, params) = ("lstm", RecurrentParams::named("lstm", true));
    net.at = net.builder.recurrent(layer, net.at, units, RecurrentKind::Lstm, params)?;
    net.at = net.builder.last("last", net.at)?;
    net.dense("fc", classes)?;
    net.finish()
}

fn digits_gru(name: &str) -> Result<Graph, GraphError> {
    let mut net = Net::new(name, &[8, 8])?;
    net.gru("gru", 16)?;
    net.at = net.builder.last("last", net.at)?;
    net.dense("fc", 10)?;
    net.finish()
}

/// Builds a chain of layers.
struct Net {
    builder: Builder,
    at: ValueId,
}

impl Net {
    fn new(name: &str, shape: &[u32]) -> Result<Self, GraphError> {
        Ok(Self { builder: Builder::new(name, "input", shape)?, at: ValueId::INPUT })
    }

    fn finish(self) -> Result<Graph, GraphError> {
        self.builder.finish("logits", self.at, None)
    }

    fn dense(&mut self, name: &str, units: u32) -> Result<(), GraphError> {
        let inputs = self.builder.width(self.at);
        let [weight, bias] = parameters(name);
        self.at = self.builder.dense(name, self.at, inputs, units, weight, Some(bias))?;
        Ok(())
    }

    fn conv(&mut self, name: &str, channels: u32, window: Kernel) -> Result<(), GraphError> {
        self.grouped(name, channels, 1, window)
    }

    fn grouped(&mut self, name: &str, channels: u32, groups: u32, window: Kernel) -> Result<(), GraphError> {
        let [weight, bias] = parameters(name);
        self.at = self.builder.conv(name, self.at, channels, groups, window, weight, Some(bias))?;
        Ok(())
    }

    /// The variant with two biases, as in PyTorch and Keras.
    fn gru(&mut self, name: &str, units: u32) -> Result<(), GraphError> {
        self.at = self.builder.gru(name, self.at, units, true, RecurrentParams::named(name, true))?;
        Ok(())
    }

    fn norm(&mut self, name: &str, groups: u32) -> Result<(), GraphError> {
        self.at = self.builder.group_norm(name, self.at, Groups::Count(groups), 1e-5, parameters(name))?;
        Ok(())
    }

    fn relu(&mut self, name: &str) {
        self.at = self.builder.relu(name, self.at);
    }

    fn pool(&mut self, name: &str, window: Kernel) -> Result<(), GraphError> {
        self.at = self.builder.pool(name, self.at, PoolKind::Max, window)?;
        Ok(())
    }

    fn dropout(&mut self, name: &str, rate: f32) -> Result<(), GraphError> {
        self.at = self.builder.dropout(name, self.at, rate)?;
        Ok(())
    }

    fn flatten(&mut self, name: &str) {
        self.at = self.builder.flatten(name, self.at);
    }
}

fn parameters(layer: &str) -> [Param; 2] {
    ["weight", "bias"].map(|kind| Param::plain(format!("{layer}.{kind}")))
}
