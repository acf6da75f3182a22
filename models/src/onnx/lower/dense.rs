//! Matrix products with constant weights.

use super::{Importer, bias::BiasAxis, float, integer, problem};
use crate::{
    graph::{DimPart, Extent, FileLayout, Param},
    onnx::{
        import::{ImportError, title},
        proto::NodeProto,
        tensor::Floats,
        view::{OnnxValue, TensorView, ViewAxis},
    },
};

/// Weights as the file holds them.
struct Matrix {
    name: String,
    inputs: usize,
    outputs: usize,
    /// `[outputs][inputs]` in the file.
    outputs_first: bool,
    data: Vec<f32>,
    /// The factor that `data` was multiplied by.
    factor: f32,
}

impl<'a> Importer<'a> {
    pub(super) fn gemm(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        if integer(node, "transA").unwrap_or(0) != 0 {
            return Err(problem(node, "transA = 1 is not supported"));
        }
        let view = self.input(node, 0)?;
        if view.axes.len() != 2 {
            return Err(problem(node, "takes [N, features]; put a Flatten before it"));
        }
        let (alpha, beta) = (float(node, "alpha").unwrap_or(1.0), float(node, "beta").unwrap_or(1.0));
        let mut matrix = self.matrix(node, integer(node, "transB").unwrap_or(0) != 0)?;
        scale(node, &mut matrix.data, alpha)?;
        matrix.factor = alpha;
        let bias = match node.input.get(2).filter(|name| !name.is_empty() && beta != 0.0) {
            Some(name) => {
                let bias = self.source.constants.floats(name);
                let bias = bias.ok_or_else(|| problem(node, "the bias is not a constant"))??;
                let (param, mut numbers) = broadcast(node, name, bias, matrix.outputs)?;
                scale(node, &mut numbers, beta)?;
                self.weights.insert(name.clone(), numbers);
                Some(Param { factor: beta, ..param })
            }
            None => None,
        };
        self.dense(node, view, matrix, bias)
    }

    pub(super) fn matmul(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        let matrix = self.matrix(node, false)?;
        let output = node.output.first().map_or("", String::as_str);
        // An Add of a constant is the bias if nothing else reads the product.
        let bias = match self.only_reader(output, "Add").filter(|_| !self.is_output(output)) {
            Some(add) => {
                let other = add.input.iter().find(|name| name.as_str() != output);
                let constant = other.and_then(|name| Some((name, self.source.constants.floats(name)?)));
                match constant {
                    Some((name, floats)) => {
                        let (param, numbers) = broadcast(add, name, floats?, matrix.outputs)?;
                        self.weights.insert(name.clone(), numbers);
                        Some((param, add))
                    }
                    None => None,
                }
            }
            None => None,
        };
        let Some((bias, add)) = bias else {
            let bias = self.late_bias(node, matrix.outputs, BiasAxis::Last)?;
            return self.dense(node, view, matrix, bias);
        };
        let view = self.dense(node, view, matrix, Some(bias))?;
        if let Some(sum) = add.output.first() {
            self.taken.insert(sum);
            self.names.insert(view.value, sum.clone());
            self.values.insert(sum, OnnxValue::Tensor(view.clone()));
        }
        Ok(view)
    }

    fn dense(
        &mut self,
        node: &'a NodeProto,
        view: TensorView,
        matrix: Matrix,
        bias: Option<Param>,
    ) -> Result<TensorView, ImportError> {
        let Matrix { name, inputs, outputs, outputs_first, data, factor } = matrix;
        let (view, stored) = if view.axes == [ViewAxis::Batch, ViewAxis::ChannelLast] {
            // The columns of the weights are reordered instead of the image.
            let pixels = self.builder.sizes(view.value).iter().skip(1).product::<usize>() as u32;
            let columns = [Extent::Pixels { pixels }, Extent::Channels { pixels }];
            let columns = columns.map(|extent| DimPart { dim: 1, extent }).to_vec();
            let rows = vec![DimPart::whole(0)];
            let stored = if outputs_first { vec![rows, columns] } else { vec![columns, rows] };
            let value = self.builder.flatten(&format!("{}.flatten", title(node)), view.value);
            (TensorView::plain(value, 1), FileLayout(stored))
        } else {
            let stored = if outputs_first { FileLayout::default() } else { Param::transposed("").layout };
            (self.plain(node, view)?, stored)
        };
        self.weights.insert(name.clone(), data);
        let weight = Param { factor, ..Param::in_layout(name, stored) };
        let units = u32::try_from(outputs).unwrap_or(u32::MAX);
        let value = self.builder.dense(&title(node), view.value, inputs, units, weight, bias)?;
        Ok(self.named(node, TensorView { value, ..view }))
    }

    /// The second operand as weights; `outputs_first` if the file holds `[outputs][inputs]`.
    fn matrix(&self, node: &NodeProto, outputs_first: bool) -> Result<Matrix, ImportError> {
        let name = node.input.get(1).ok_or_else(|| problem(node, "has no second operand"))?;
        let (name, outputs_first) = match self.values.get(name.as_str()) {
            Some(OnnxValue::Turned(original)) => (original, !outputs_first),
            _ => (name, outputs_first),
        };
        let Some(weights) = self.source.constants.floats(name) else {
            return Err(problem(node, format!("multiplies by '{name}', which is not a constant")));
        };
        let Floats { dims, data } = weights?;
        let [rows, columns] = dims[..] else {
            return Err(problem(node, format!("the weights have shape {dims:?}; expected two dimensions")));
        };
        if data.is_empty() {
            return Err(problem(node, format!("the weights have shape {dims:?} and hold nothing")));
        }
        let (inputs, outputs) = if outputs_first { (columns, rows) } else { (rows, columns) };
        Ok(Matrix { name: name.clone(), inputs, outputs, outputs_first, data, factor: 1.0 })
    }

    pub(super) fn is_output(&self, name: &str) -> bool {
        self.source.graph.output.iter().any(|output| output.name == name)
    }
}

fn scale(node: &NodeProto, numbers: &mut [f32], factor: f32) -> Result<(), ImportError> {
    if factor != 1.0 {
        numbers.iter_mut().for_each(|x| *x *= factor);
    }
    match numbers.iter().all(|x| x.is_finite()) {
        true => Ok(()),
        false => Err(problem(node, format!("the factor {factor} makes weights infinite"))),
    }
}

/// A bias of shape `[n]`, `[1, n]` or of one number as `n` numbers.
fn broadcast(
    node: &NodeProto,
    name: &str,
    bias: Floats,
    outputs: usize,
) -> Result<(Param, Vec<f32>), ImportError> {
    let Floats { dims, data } = bias;
    match (dims.as_slice(), data.as_slice()) {
        ([n], _) if *n == outputs => Ok((Param::plain(name), data)),
        ([ones @ .., n], _) if *n == outputs && ones.iter().all(|&size| size == 1) => {
            let mut stored = vec![vec![]; ones.len()];
            stored.push(vec![DimPart::whole(0)]);
            Ok((Param::in_layout(name, FileLayout(stored)), data))
        }
        (_, [one]) => {
            let spread = Param { spread: Some(dims.clone()), ..Param::plain(name) };
            Ok((spread, vec![*one; outputs]))
        }
        _ => Err(problem(node, format!("the bias has shape {dims:?}; expected [{outputs}]"))),
    }
}
