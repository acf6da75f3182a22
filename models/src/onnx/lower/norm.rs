//! Normalisations: as one node, and as the sequences of nodes that older exporters write.

use super::{Importer, float, integer, problem, shape::place};
use crate::{
    graph::{DimPart, FileLayout, Groups, Param},
    onnx::{
        import::{ImportError, title},
        proto::NodeProto,
        view::{OnnxValue, TensorView},
    },
};

impl<'a> Importer<'a> {
    pub(super) fn batch_norm(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        if integer(node, "training_mode").unwrap_or(0) != 0 {
            return Err(problem(node, "was exported in training mode; call model.eval() before the export"));
        }
        let view = self.input(node, 0)?;
        let view = self.plain(node, view)?;
        let epsilon = float(node, "epsilon").unwrap_or(1e-5);
        let channels = self.channels(node, &view)?;
        let params = [self.sized(node, 1, channels)?, self.sized(node, 2, channels)?];
        let mean = self.weight(node, 3)?.1.data;
        let variance = self.weight(node, 4)?.1.data;
        let value =
            self.builder.batch_norm(&title(node), view.value, epsilon, params, Some([mean, variance]))?;
        Ok(self.named(node, TensorView { value, ..view }))
    }

    pub(super) fn layer_norm(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        let view = self.plain(node, view)?;
        let rank = view.axes.len();
        let axis = place(integer(node, "axis").unwrap_or(-1), rank).filter(|&axis| axis > 0);
        let axis = axis.ok_or_else(|| problem(node, "normalises over samples"))?;
        let epsilon = float(node, "epsilon").unwrap_or(1e-5);
        let sizes = self.builder.sizes(view.value);
        let len = sizes.iter().skip(axis - 1).product();
        let params = self.affine(node, len)?;
        let axes = (rank - axis) as u8;
        let value = self.builder.layer_norm(&title(node), view.value, axes, epsilon, params)?;
        Ok(self.named(node, TensorView { value, ..view }))
    }

    /// The operands that are trained. What an exporter wrote for a layer without them is left out.
    fn affine(&mut self, node: &'a NodeProto, len: usize) -> Result<[Option<Param>; 2], ImportError> {
        let bias = match self.is_filler(node, 2, len, 0.0)? {
            true => None,
            false => Some(self.sized(node, 2, len)?),
        };
        let scale = match bias.is_none() && self.is_filler(node, 1, len, 1.0)? {
            true => None,
            false => Some(self.sized(node, 1, len)?),
        };
        Ok([scale, bias])
    }

    /// True for an operand that is absent, or that an exporter filled with one number itself.
    fn is_filler(
        &self,
        node: &NodeProto,
        place: usize,
        len: usize,
        number: f32,
    ) -> Result<bool, ImportError> {
        let name = node.input.get(place).map_or("", String::as_str);
        if name.is_empty() || self.source.is_parameter(name) {
            return Ok(name.is_empty());
        }
        let floats = self.source.constants.floats(name).transpose()?;
        Ok(floats.is_some_and(|floats| floats.data.len() == len && floats.data.iter().all(|&x| x == number)))
    }

    pub(super) fn group_norm(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let groups = integer(node, "num_groups").and_then(|groups| u32::try_from(groups).ok()).unwrap_or(0);
        self.grouped(node, Groups::Count(groups))
    }

    /// Every channel is a group.
    pub(super) fn instance_norm(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        self.grouped(node, Groups::Each)
    }

    fn grouped(&mut self, node: &'a NodeProto, groups: Groups) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        let view = self.plain(node, view)?;
        let channels = self.channels(node, &view)?;
        let epsilon = float(node, "epsilon").unwrap_or(1e-5);
        let params = [self.sized(node, 1, channels)?, self.sized(node, 2, channels)?];
        let value = self.builder.group_norm(&title(node), view.value, groups, epsilon, params)?;
        Ok(self.named(node, TensorView { value, ..view }))
    }

    /// Reshape to groups, InstanceNormalization with neutral scales, Reshape back, Mul, Add.
    pub(super) fn spelled_group_norm(
        &mut self,
        node: &'a NodeProto,
    ) -> Result<Option<TensorView>, ImportError> {
        let Some(chain) = self.chain(node, &["InstanceNormalization", "Reshape", "Mul", "Add"]) else {
            return Ok(None);
        };
        let [norm, back, mul, add] = chain[..] else { return Ok(None) };
        let groups = self.weight(norm, 1)?.1;
        let neutral = self.uniform(&norm.input[1])? == Some(1.0)
            && norm.input.get(2).map(|name| self.uniform(name)).transpose()?.flatten() == Some(0.0);
        if !neutral {
            return Ok(None);
        }
        let view = self.input(node, 0)?;
        let view = self.plain(node, view)?;
        let channels = self.channels(node, &view)?;
        let rank = view.axes.len();
        let before = back.output.first().map_or("", String::as_str);
        let scale = self.per_channel(mul, before, channels, rank)?;
        let bias = self.per_channel(add, mul.output.first().map_or("", String::as_str), channels, rank)?;
        let epsilon = float(norm, "epsilon").unwrap_or(1e-5);
        let groups = Groups::Count(groups.data.len() as u32);
        let value = self.builder.group_norm(&title(norm), view.value, groups, epsilon, [scale, bias])?;
        Ok(Some(self.take(&chain, TensorView { value, ..view })))
    }

    /// ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div; then Mul with the scale and Add of the bias, where it has these.
    pub(super) fn spelled_layer_norm(
        &mut self,
        node: &'a NodeProto,
    ) -> Result<Option<TensorView>, ImportError> {
        let output = |node: &'a NodeProto| node.output.first().map_or("", String::as_str);
        let Some(sub) = self.only_reader(output(node), "Sub") else { return Ok(None) };
        if sub.input.first() != node.input.first() {
            return Ok(None);
        }
        let readers = self.readers.get(output(sub)).cloned().unwrap_or_default();
        let find = |op: &str| readers.iter().copied().find(|reader| reader.op_type == op);
        let (Some(pow), Some(div)) = (find("Pow").or_else(|| find("Mul")), find("Div")) else {
            return Ok(None);
        };
        let Some(root) = self.chain(pow, &["ReduceMean", "Add", "Sqrt", "Div"]) else { return Ok(None) };
        let [mean, epsilon, _, end] = root[..] else { return Ok(None) };
        let axes = self.axes_operand(node)?;
        let view = self.input(node, 0)?;
        let rank = view.axes.len();
        let last: Vec<usize> = (rank - axes.len().min(rank)..rank).collect();
        if output(end) != output(div) || axes != last || mean.attribute.len() != node.attribute.len() {
            return Ok(None);
        }
        let constant = |node: &'a NodeProto, other: &str| {
            let name = node.input.iter().find(|name| name.as_str() != other)?;
            Some((name.clone(), self.source.constants.floats(name)?))
        };
        let number =
            constant(epsilon, output(mean)).and_then(|(_, floats)| floats.ok()?.data.first().copied());
        let exponent = constant(pow, output(sub)).and_then(|(_, floats)| floats.ok()?.data.first().copied());
        let squared = match pow.op_type.as_str() {
            "Pow" => exponent == Some(2.0),
            _ => pow.input.first() == pow.input.get(1),
        };
        let (Some(epsilon), true) = (number, squared) else { return Ok(None) };
        let view = self.plain(node, view)?;
        let len: usize = self.builder.sizes(view.value).iter().rev().take(axes.len()).product();
        let mut parts = [&[sub, pow][..], &root].concat();
        let mut params = [None, None];
        for (op, param) in ["Mul", "Add"].into_iter().zip(&mut params) {
            let last = parts.last().map_or("", |node| output(node));
            let Some((next, place)) = self.spelled_affine(last, op, len) else { break };
            *param = Some(self.sized(next, place, len)?);
            parts.push(next);
        }
        let value = self.builder.layer_norm(&title(node), view.value, axes.len() as u8, epsilon, params)?;
        Ok(Some(self.take(&parts, TensorView { value, ..view })))
    }

    /// The only reader of a value, if it is this operation with `len` constants, and where it has them.
    fn spelled_affine(&self, value: &str, op: &str, len: usize) -> Option<(&'a NodeProto, usize)> {
        let node = self.only_reader(value, op)?;
        let place = node.input.iter().position(|name| name != value)?;
        let sizes = self.source.constants.dims(&node.input[place])?;
        let count = sizes.iter().try_fold(1i64, |product, &size| product.checked_mul(size))?;
        (usize::try_from(count) == Ok(len)).then_some((node, place))
    }

    fn channels(&self, node: &NodeProto, view: &TensorView) -> Result<usize, ImportError> {
        let sizes = self.builder.sizes(view.value);
        sizes.first().copied().ok_or_else(|| problem(node, "has an input without axes"))
    }

    /// The nodes that follow, each the only reader of the one before.
    fn chain(&self, node: &'a NodeProto, ops: &[&str]) -> Option<Vec<&'a NodeProto>> {
        let mut chain: Vec<&NodeProto> = Vec::new();
        for op in ops {
            let last = chain.last().copied().unwrap_or(node);
            chain.push(self.only_reader(last.output.first()?, op)?);
        }
        Some(chain)
    }

    /// Merges nodes; `view` is the output of the last of them.
    fn take(&mut self, nodes: &[&'a NodeProto], view: TensorView) -> TensorView {
        for name in nodes.iter().filter_map(|node| node.output.first()) {
            self.taken.insert(name);
        }
        if let Some(name) = nodes.last().and_then(|node| node.output.first()) {
            self.names.insert(view.value, name.clone());
            self.values.insert(name, OnnxValue::Tensor(view.clone()));
        }
        view
    }

    /// The other operand of a node: one number per channel, shaped to be broadcast over pixels.
    fn per_channel(
        &mut self,
        node: &'a NodeProto,
        value: &str,
        channels: usize,
        rank: usize,
    ) -> Result<Param, ImportError> {
        let place = node.input.iter().position(|name| name != value).unwrap_or(1);
        let (name, floats) = self.weight(node, place)?;
        let pixels = rank - 2;
        let mut dims = floats.dims.as_slice();
        let mut ones = 0;
        while dims.len() > pixels + 1 {
            ones += 1;
            dims = &dims[1..];
        }
        let fits =
            dims.first() == Some(&channels) && dims.len() == pixels + 1 && floats.data.len() == channels;
        if !fits {
            return Err(problem(
                node,
                format!("'{name}' has shape {:?}; expected one number per channel", floats.dims),
            ));
        }
        let mut stored = vec![vec![]; ones];
        stored.push(vec![DimPart::whole(0)]);
        stored.extend(vec![vec![]; pixels]);
        self.weights.insert(name.clone(), floats.data);
        Ok(Param::in_layout(name, FileLayout(stored)))
    }

    fn sized(&mut self, node: &'a NodeProto, place: usize, len: usize) -> Result<Param, ImportError> {
        let (name, floats) = self.weight(node, place)?;
        if floats.data.len() != len {
            return Err(problem(
                node,
                format!("'{name}' has shape {:?}; expected {len} numbers", floats.dims),
            ));
        }
        self.vector(node, place)
    }
}
