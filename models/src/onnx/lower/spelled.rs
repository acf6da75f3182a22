//! Activations that exporters write as several nodes. The formula is followed from its last node to its input `x`:
//!
//! | activation | formula |
//! |---|---|
//! | Gelu | `x * (1 + erf(x / sqrt 2)) / 2`, or `x * erfc(-x / sqrt 2) / 2` |
//! | Gelu with tanh | `x * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`, also with `x` taken out of the sum |
//! | Silu | `x * sigmoid(x)` |
//! | Mish | `x * tanh(softplus(x))` |
//! | HardSwish | `x * hardsigmoid(x)` with 1/6 and 1/2, or `x * clip(x + 3, 0, 6) / 6` |
//! | Softplus | `ln(exp(x) + 1)`, or `x` above a number, else a Softplus |
//!
//! Factors may come in any order. Values inside a formula have no other reader.

use std::{
    collections::HashMap,
    f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI},
};

use common::plan::Activation;

use super::float;
use crate::onnx::{
    constants::is_default_domain,
    import::{ImportError, SourceModel},
    proto::NodeProto,
};

/// An activation by the names of its values.
pub(super) struct Spelled<'a> {
    pub kind: Activation,
    pub input: &'a str,
    pub output: &'a str,
    /// Outputs of the nodes in between.
    pub inside: Vec<&'a str>,
}

type Readers<'a> = HashMap<&'a str, Vec<&'a NodeProto>>;

/// The activations of a file.
pub(super) fn find<'a>(
    source: &SourceModel<'a>,
    nodes: &[&'a NodeProto],
    readers: &Readers<'a>,
) -> Vec<Spelled<'a>> {
    let producers: HashMap<&str, &NodeProto> =
        nodes.iter().filter_map(|node| Some((node.output.first()?.as_str(), *node))).collect();
    let roots = nodes.iter().filter(|node| matches!(node.op_type.as_str(), "Mul" | "Div" | "Log" | "Where"));
    let spelled = |node: &&&'a NodeProto| {
        let output = node.output.first()?.as_str();
        let mut formula = Formula { source, producers: &producers, readers, inside: vec![] };
        let (kind, input) = formula.activation(output)?;
        let inside = formula.inside.into_iter().filter(|name| *name != output).collect();
        Some(Spelled { kind, input, output, inside })
    };
    roots.filter_map(|node| spelled(&node)).collect()
}

/// A formula that is being followed.
struct Formula<'f, 'a> {
    source: &'f SourceModel<'a>,
    producers: &'f HashMap<&'a str, &'a NodeProto>,
    readers: &'f Readers<'a>,
    inside: Vec<&'a str>,
}

impl<'a> Formula<'_, 'a> {
    fn activation(&mut self, root: &'a str) -> Option<(Activation, &'a str)> {
        if let Some(input) = self.softplus_formula(root).or_else(|| self.softplus_below(root)) {
            return Some((Activation::Softplus, input));
        }
        let (factor, factors) = self.product(root)?;
        let [a, b] = factors[..] else { return None };
        let mark = self.inside.len();
        for (x, gate) in [(a, b), (b, a)] {
            if let Some(kind) = self.gate(factor, x, gate) {
                return Some((kind, x));
            }
            self.inside.truncate(mark);
        }
        None
    }

    /// The activation that is `factor * x * gate`.
    fn gate(&mut self, factor: f64, x: &'a str, gate: &'a str) -> Option<Activation> {
        let node = self.own(gate)?;
        let input = node.input.first()?.as_str();
        match node.op_type.as_str() {
            "Sigmoid" if near(factor, 1.0) && input == x => Some(Activation::Silu),
            "Tanh" if near(factor, 1.0) && self.softplus(input)? == x => Some(Activation::Mish),
            "HardSigmoid" if near(factor, 1.0) && input == x => {
                let (alpha, beta) = (float(node, "alpha").unwrap_or(0.2), float(node, "beta").unwrap_or(0.5));
                (near(alpha.into(), 1.0 / 6.0) && near(beta.into(), 0.5)).then_some(Activation::HardSwish)
            }
            "Clip" if near(factor, 1.0 / 6.0) && self.source.bounds(node).ok()? == (0.0, 6.0) => {
                (self.sum(input, 3.0)? == x).then_some(Activation::HardSwish)
            }
            "Erfc" if near(factor, 0.5) => {
                let (factor, factors) = self.owned_product(input)?;
                (near(factor, -FRAC_1_SQRT_2) && factors == [x]).then_some(Activation::Gelu)
            }
            "Add" if near(factor, 0.5) => self.normal(self.summand(node, 1.0)?, x),
            _ => None,
        }
    }

    /// `erf(x / sqrt 2)` or its approximation.
    fn normal(&mut self, name: &'a str, x: &'a str) -> Option<Activation> {
        let node = self.own(name)?;
        let input = node.input.first()?.as_str();
        let (factor, factors) = self.owned_product(input)?;
        match node.op_type.as_str() {
            "Erf" => (near(factor, FRAC_1_SQRT_2) && factors == [x]).then_some(Activation::Gelu),
            "Tanh" if near(factor, FRAC_2_SQRT_PI * FRAC_1_SQRT_2) => {
                let is_cubic = match factors[..] {
                    [sum] => {
                        let node = self.own(sum).filter(|node| node.op_type == "Add")?;
                        let other = node.input.iter().find(|name| *name != x)?;
                        node.input.iter().any(|name| name == x) && self.power(other, x, 3)?
                    }
                    [a, b] => {
                        let sum = if a == x { b } else { a };
                        let other = self.sum(sum, 1.0)?;
                        (a == x || b == x) && self.power(other, x, 2)?
                    }
                    _ => false,
                };
                is_cubic.then_some(Activation::GeluTanh)
            }
            _ => None,
        }
    }

    /// True for `0.044715 x^exponent`.
    fn power(&mut self, name: &'a str, x: &str, exponent: usize) -> Option<bool> {
        let (factor, factors) = self.owned_product(name)?;
        let is_power = match factors[..] {
            [one] if one != x => {
                let node = self.own(one).filter(|node| node.op_type == "Pow")?;
                let [base, power] = &node.input[..] else { return None };
                base == x && self.source.number(power)? == exponent as f64
            }
            _ => factors.len() == exponent && factors.iter().all(|factor| *factor == x),
        };
        Some(near(factor, 0.044715) && is_power)
    }

    /// The input of a Softplus, as one node or as a formula.
    fn softplus(&mut self, name: &'a str) -> Option<&'a str> {
        let node = self.own(name)?;
        match node.op_type.as_str() {
            "Softplus" => node.input.first().map(String::as_str),
            _ => self.softplus_formula(name),
        }
    }

    /// `ln(exp(x) + 1)`.
    fn softplus_formula(&mut self, name: &'a str) -> Option<&'a str> {
        let node = self.producers.get(name).filter(|node| node.op_type == "Log")?;
        let exp = self.sum(node.input.first()?, 1.0)?;
        let node = self.own(exp).filter(|node| node.op_type == "Exp")?;
        node.input.first().map(String::as_str)
    }

    /// A Softplus that is the identity above a threshold.
    fn softplus_below(&mut self, name: &'a str) -> Option<&'a str> {
        let node = self.producers.get(name).filter(|node| node.op_type == "Where")?;
        let [above, x, soft] = &node.input[..] else { return None };
        let greater = self.own(above).filter(|node| node.op_type == "Greater")?;
        let [compared, threshold] = &greater.input[..] else { return None };
        let exact = self.source.number(threshold)? >= 15.0;
        (exact && compared == x && self.softplus(soft)? == x).then_some(x)
    }

    /// What is added to a number.
    fn sum(&mut self, name: &'a str, number: f64) -> Option<&'a str> {
        let node = self.own(name).filter(|node| node.op_type == "Add")?;
        self.summand(node, number)
    }

    fn summand(&self, node: &'a NodeProto, number: f64) -> Option<&'a str> {
        let [a, b] = &node.input[..] else { return None };
        let is = |name: &str| self.source.number(name).is_some_and(|known| near(known, number));
        match (is(a), is(b)) {
            (false, true) => Some(a),
            (true, false) => Some(b),
            _ => None,
        }
    }

    /// As [`Self::product`], for a value that has no other reader, or is itself a factor.
    fn owned_product(&mut self, name: &'a str) -> Option<(f64, Vec<&'a str>)> {
        match self.is_own(name) {
            true => self.product(name),
            false => Some((1.0, vec![name])),
        }
    }

    /// A number and the values whose product this is.
    fn product(&mut self, name: &'a str) -> Option<(f64, Vec<&'a str>)> {
        let node = self.producers.get(name).copied().filter(|node| is_default_domain(node));
        let (mut factor, mut factors) = (1.0, vec![]);
        match node {
            Some(node) if node.op_type == "Mul" && node.input.len() == 2 => {
                self.inside.push(name);
                for input in &node.input {
                    if let Some(number) = self.source.number(input) {
                        factor *= number;
                        continue;
                    }
                    let (part, parts) = self.owned_product(input)?;
                    factor *= part;
                    factors.extend(parts);
                }
            }
            Some(node) if node.op_type == "Div" && node.input.len() == 2 => {
                match self.source.number(&node.input[1]).filter(|number| *number != 0.0) {
                    Some(number) => {
                        self.inside.push(name);
                        (factor, factors) = self.owned_product(&node.input[0])?;
                        factor /= number;
                    }
                    None => factors.push(name),
                }
            }
            Some(node) if node.op_type == "Neg" && node.input.len() == 1 => {
                self.inside.push(name);
                (factor, factors) = self.owned_product(&node.input[0])?;
                factor = -factor;
            }
            _ => factors.push(name),
        }
        // Formulas have few factors, and a damaged file may have cycles.
        (self.inside.len() <= 16 && factors.len() <= 4).then_some((factor, factors))
    }

    /// The node of a value that only the formula reads.
    fn own(&mut self, name: &'a str) -> Option<&'a NodeProto> {
        let node = self.producers.get(name).copied().filter(|node| is_default_domain(node))?;
        if !self.is_own(name) || self.inside.len() > 16 {
            return None;
        }
        self.inside.push(name);
        Some(node)
    }

    fn is_own(&self, name: &str) -> bool {
        let output = self.source.graph.output.iter().any(|output| output.name == name);
        !output && self.readers.get(name).is_some_and(|readers| readers.len() == 1)
    }
}

impl SourceModel<'_> {
    /// A constant of one number.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        match self.constants.floats(name)?.ok()?.data[..] {
            [number] => Some(number.into()),
            _ => None,
        }
    }

    /// The bounds of a Clip: attributes, or since operator set 11 operands. An absent one is infinite.
    pub(super) fn bounds(&self, node: &NodeProto) -> Result<(f32, f32), ImportError> {
        let bound = |place: usize, name: &str, default: f32| {
            let operand = node.input.get(place).filter(|name| !name.is_empty());
            match operand.map(|operand| self.number(operand)) {
                Some(Some(number)) => Ok(number as f32),
                Some(None) => Err(super::problem(node, "has a bound that is not one constant number")),
                None => Ok(float(node, name).unwrap_or(default)),
            }
        };
        let (min, max) = (bound(1, "min", f32::NEG_INFINITY)?, bound(2, "max", f32::INFINITY)?);
        // The largest numbers are the defaults of old operator sets.
        let min = if min == f32::MIN { f32::NEG_INFINITY } else { min };
        Ok((min, if max == f32::MAX { f32::INFINITY } else { max }))
    }
}

/// Equal up to the rounding of a half-precision constant.
pub(super) fn near(number: f64, expected: f64) -> bool {
    (number - expected).abs() <= 2.5e-4 * expected.abs()
}
