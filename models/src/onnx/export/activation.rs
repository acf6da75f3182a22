//! The ONNX nodes of activations. Operator set 17 lacks some of them; they become the nodes of their formulas, from which import
//! recognises them.

use std::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};

use common::plan::Activation;

use super::nodes::{Writer, float};
use crate::onnx::tensor::float_tensor;

impl Writer<'_> {
    pub(super) fn activation(&mut self, name: &str, kind: Activation, input: String, output: String) {
        let (op, attributes) = match kind {
            Activation::Relu => ("Relu", vec![]),
            Activation::LeakyRelu { slope } => ("LeakyRelu", vec![float("alpha", slope)]),
            Activation::Sigmoid => ("Sigmoid", vec![]),
            Activation::Tanh => ("Tanh", vec![]),
            Activation::HardSwish => ("HardSwish", vec![]),
            Activation::HardSigmoid { alpha, beta } => {
                ("HardSigmoid", vec![float("alpha", alpha), float("beta", beta)])
            }
            Activation::Elu { alpha } => ("Elu", vec![float("alpha", alpha)]),
            Activation::Selu => ("Selu", vec![]),
            Activation::Celu { alpha } => ("Celu", vec![float("alpha", alpha)]),
            Activation::Softplus => ("Softplus", vec![]),
            Activation::Softsign => ("Softsign", vec![]),
            Activation::Clip { min, max } => return self.clip(name, min, max, input, output),
            Activation::Gelu => return self.gelu(name, input, output),
            Activation::GeluTanh => return self.gelu_tanh(name, input, output),
            Activation::Silu => {
                let gate = self.step(name, "sigmoid", "Sigmoid", vec![input.clone()], &output);
                return self.push(name, "Mul", vec![input, gate], output, vec![]);
            }
            Activation::Mish => {
                let soft = self.step(name, "softplus", "Softplus", vec![input.clone()], &output);
                let gate = self.step(name, "tanh", "Tanh", vec![soft], &output);
                return self.push(name, "Mul", vec![input, gate], output, vec![]);
            }
        };
        self.push(name, op, vec![input], output, attributes);
    }

    fn clip(&mut self, name: &str, min: f32, max: f32, input: String, output: String) {
        let mut inputs = vec![input];
        // An empty name stands for an absent bound.
        inputs.push(if min.is_finite() { self.number(&output, "min", min) } else { String::new() });
        if max.is_finite() {
            inputs.push(self.number(&output, "max", max));
        }
        self.push(name, "Clip", inputs, output, vec![]);
    }

    /// `x * (1 + erf(x / sqrt 2)) / 2`.
    fn gelu(&mut self, name: &str, input: String, output: String) {
        let root = self.number(&output, "root", SQRT_2 as f32);
        let scaled = self.step(name, "div", "Div", vec![input.clone(), root], &output);
        let erf = self.step(name, "erf", "Erf", vec![scaled], &output);
        self.half_gate(name, input, erf, output);
    }

    /// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2`.
    fn gelu_tanh(&mut self, name: &str, input: String, output: String) {
        let cubic = self.number(&output, "cubic", 0.044715);
        let width = self.number(&output, "width", (FRAC_2_SQRT_PI / SQRT_2) as f32);
        let square = self.step(name, "square", "Mul", vec![input.clone(), input.clone()], &output);
        let cube = self.step(name, "cube", "Mul", vec![square, input.clone()], &output);
        let small = self.step(name, "small", "Mul", vec![cube, cubic], &output);
        let sum = self.step(name, "sum", "Add", vec![input.clone(), small], &output);
        let scaled = self.step(name, "scaled", "Mul", vec![sum, width], &output);
        let tanh = self.step(name, "tanh", "Tanh", vec![scaled], &output);
        self.half_gate(name, input, tanh, output);
    }

    /// `x * (1 + gate) / 2`.
    fn half_gate(&mut self, name: &str, input: String, gate: String, output: String) {
        let (one, half) = (self.number(&output, "one", 1.0), self.number(&output, "half", 0.5));
        let sum = self.step(name, "add", "Add", vec![gate, one], &output);
        let product = self.step(name, "mul", "Mul", vec![input, sum], &output);
        self.push(name, "Mul", vec![product, half], output, vec![]);
    }

    /// A node on the way to `output`; returns the name of its own.
    fn step(&mut self, name: &str, kind: &str, op: &str, inputs: Vec<String>, output: &str) -> String {
        let own = format!("{output}.{kind}");
        self.push(&format!("{name}/{kind}"), op, inputs, own.clone(), vec![]);
        own
    }

    /// A constant of one number.
    pub(super) fn number(&mut self, output: &str, kind: &str, number: f32) -> String {
        let name = format!("{output}.{kind}");
        self.constants.push(float_tensor(&name, &[], &[number]));
        name
    }
}
