//! Computations on shapes, folded with the batch size as a symbol.

use super::{Importer, integer, integers, problem, shape::place};
use crate::onnx::{
    import::ImportError,
    proto::{NodeProto, data_type},
    tensor::{self, Floats},
    view::{OnnxValue, SymbolicSize},
};

impl<'a> Importer<'a> {
    /// The result of a node that computes with shapes and constants only.
    pub(super) fn fold(&mut self, node: &'a NodeProto) -> Result<Option<OnnxValue>, ImportError> {
        let first = node.input.first().map_or("", String::as_str);
        let op = node.op_type.as_str();
        match op {
            "Shape" => return self.shape_of(node).map(Some),
            "ConstantOfShape" => return self.filled(node).map(Some),
            "Transpose" if self.source.constants.contains(first) => {
                let square = integers(node, "perm").is_none_or(|perm| perm == [1, 0]);
                return match square {
                    true => Ok(Some(OnnxValue::Turned(first.to_owned()))),
                    false => Err(problem(node, "transposes a constant of more than two axes")),
                };
            }
            "Expand" => {
                if let Some(number) = self.uniform(first)? {
                    return Ok(Some(OnnxValue::Filled(number)));
                }
            }
            _ => {}
        }
        let same =
            matches!(op, "Identity" | "Cast" | "Unsqueeze" | "Squeeze" | "Slice" | "Concat" | "Reshape");
        match self.values.get(first) {
            Some(OnnxValue::Filled(number)) if same => return Ok(Some(OnnxValue::Filled(*number))),
            Some(turned @ OnnxValue::Turned(_)) if op == "Identity" => return Ok(Some(turned.clone())),
            _ => {}
        }
        if let Some(value) = self.pads_of_pairs(node)? {
            return Ok(Some(value));
        }
        if let Some(value) = self.stacked(node)? {
            return Ok(Some(value));
        }
        // A part of a sample may have computed ends.
        if matches!(op, "Slice" | "Gather") && matches!(self.values.get(first), Some(OnnxValue::Tensor(_))) {
            return Ok(None);
        }
        let computed = |name: &String| matches!(self.values.get(name.as_str()), Some(OnnxValue::Sizes(_)));
        let constant = |name: &String| matches!(self.source.constants.integers(name), Some(Ok(_)));
        let on_sizes =
            node.input.iter().any(computed) || (!node.input.is_empty() && node.input.iter().all(constant));
        if !on_sizes || !self.is_on_sizes(node) {
            return Ok(None);
        }
        let operand = |place: usize| {
            let name = node.input.get(place).map_or("", String::as_str);
            self.sizes_of(name)?.ok_or_else(|| problem(node, format!("needs '{name}' to be known")))
        };
        let sizes = match op {
            "Identity" | "Cast" | "Unsqueeze" | "Squeeze" => operand(0)?,
            "Concat" => {
                let parts: Result<Vec<Vec<SymbolicSize>>, _> = (0..node.input.len()).map(operand).collect();
                parts?.concat()
            }
            "Gather" => {
                let (data, at) = (operand(0)?, self.fixed_of(node, &node.input[1])?);
                let pick = |&at: &i64| data.get(place(at, data.len())?).copied();
                let picked: Option<Vec<SymbolicSize>> = at.iter().map(pick).collect();
                picked.ok_or_else(|| problem(node, "takes a size that the shape does not have"))?
            }
            "Slice" => {
                let data = operand(0)?;
                let (starts, ends) =
                    (self.fixed_of(node, &node.input[1])?, self.fixed_of(node, &node.input[2])?);
                let ([start, ..], [end, ..]) = (&starts[..], &ends[..]) else {
                    return Err(problem(node, "has no start or no end"));
                };
                let clamp = |at: i64| {
                    let at = if at < 0 { at + data.len() as i64 } else { at };
                    at.clamp(0, data.len() as i64) as usize
                };
                let (start, end) = (clamp(*start), clamp(*end));
                data[start..end.max(start)].to_vec()
            }
            _ => self.arithmetic(node, &operand(0)?, &operand(1)?)?,
        };
        Ok(Some(OnnxValue::Sizes(sizes)))
    }

    /// PyTorch's older exporter lists pads as pairs, the last axis first: Reshape to `[-1, 2]`, Slice with step -1, Transpose,
    /// Reshape to `[-1]`.
    fn pads_of_pairs(&self, node: &NodeProto) -> Result<Option<OnnxValue>, ImportError> {
        let operand = |place: usize| node.input.get(place).map_or("", String::as_str);
        Ok(match (node.op_type.as_str(), self.values.get(operand(0))) {
            ("Reshape", Some(OnnxValue::Sizes(sizes))) => match self.fixed_of(node, operand(1))?[..] {
                [-1] => Some(OnnxValue::Sizes(sizes.clone())),
                [-1, 2] if sizes.len().is_multiple_of(2) => {
                    let pairs = sizes.chunks_exact(2).filter_map(|pair| pair.try_into().ok());
                    Some(OnnxValue::Pairs(pairs.collect()))
                }
                _ => None,
            },
            ("Slice", Some(OnnxValue::Pairs(pairs))) if self.fixed_of(node, operand(4))? == [-1] => {
                Some(OnnxValue::Pairs(pairs.iter().rev().copied().collect()))
            }
            ("Transpose", Some(OnnxValue::Pairs(pairs))) => {
                let [first, second] = [0, 1].map(|side| pairs.iter().map(move |pair| pair[side]));
                Some(OnnxValue::Sizes(first.chain(second).collect()))
            }
            _ => None,
        })
    }

    /// Known integers; the batch size is a symbol.
    pub(super) fn sizes_of(&self, name: &str) -> Result<Option<Vec<SymbolicSize>>, ImportError> {
        match self.values.get(name) {
            Some(OnnxValue::Sizes(sizes)) => Ok(Some(sizes.clone())),
            Some(_) => Ok(None),
            None => {
                let constant = self.source.constants.integers(name).transpose()?;
                Ok(constant.map(|numbers| numbers.into_iter().map(SymbolicSize::Fixed).collect()))
            }
        }
    }

    /// Integers that do not depend on the batch size.
    pub(super) fn fixed_of(&self, node: &NodeProto, name: &str) -> Result<Vec<i64>, ImportError> {
        let sizes =
            self.sizes_of(name)?.ok_or_else(|| problem(node, format!("needs '{name}' to be a constant")))?;
        let fixed: Option<Vec<i64>> = sizes
            .into_iter()
            .map(|size| match size {
                SymbolicSize::Fixed(size) => Some(size),
                SymbolicSize::Batch => None,
            })
            .collect();
        fixed.ok_or_else(|| problem(node, "depends on the batch size"))
    }

    /// The number that all elements of a tensor have.
    pub(super) fn uniform(&self, name: &str) -> Result<Option<f32>, ImportError> {
        if let Some(OnnxValue::Filled(number)) = self.values.get(name) {
            return Ok(Some(*number));
        }
        let Some(Ok(Floats { data, .. })) = self.source.constants.floats(name) else { return Ok(None) };
        Ok(data.first().copied().filter(|first| data.iter().all(|x| x == first)))
    }

    fn is_on_sizes(&self, node: &NodeProto) -> bool {
        matches!(
            node.op_type.as_str(),
            "Identity"
                | "Cast"
                | "Unsqueeze"
                | "Squeeze"
                | "Concat"
                | "Gather"
                | "Slice"
                | "Add"
                | "Sub"
                | "Mul"
                | "Div"
        )
    }

    fn shape_of(&self, node: &NodeProto) -> Result<OnnxValue, ImportError> {
        let view = self.input(node, 0)?;
        let sizes: Vec<SymbolicSize> = view.axes.iter().map(|axis| self.size(&view, axis)).collect();
        let rank = sizes.len() as i64;
        let clamp = |at: i64| (if at < 0 { at + rank } else { at }).clamp(0, rank) as usize;
        let start = clamp(integer(node, "start").unwrap_or(0));
        let end = clamp(integer(node, "end").unwrap_or(rank));
        Ok(OnnxValue::Sizes(sizes[start..end.max(start)].to_vec()))
    }

    fn filled(&self, node: &NodeProto) -> Result<OnnxValue, ImportError> {
        let value = node.attribute.iter().find(|attribute| attribute.name == "value");
        let Some(value) = value.and_then(|attribute| attribute.t.as_ref()) else {
            return Ok(OnnxValue::Filled(0.0));
        };
        let empty = || problem(node, "has a value without a number");
        if value.data_type == data_type::INT64 {
            let number = *tensor::integers(value)?.first().ok_or_else(empty)?;
            let count = self.fixed_of(node, node.input.first().map_or("", String::as_str))?;
            // No sizes: a single number.
            let count = count.first().copied().unwrap_or(1).clamp(0, 8) as usize;
            return Ok(OnnxValue::Sizes(vec![SymbolicSize::Fixed(number); count]));
        }
        Ok(OnnxValue::Filled(*Floats::read(value)?.data.first().ok_or_else(empty)?))
    }

    fn arithmetic(
        &self,
        node: &NodeProto,
        a: &[SymbolicSize],
        b: &[SymbolicSize],
    ) -> Result<Vec<SymbolicSize>, ImportError> {
        let unknown = || problem(node, "computes with the batch size in a way that is not supported");
        let len = a.len().max(b.len());
        let at = |sizes: &[SymbolicSize], place: usize| match sizes {
            [one] => Some(*one),
            _ => sizes.get(place).copied(),
        };
        let one = |place: usize| match (node.op_type.as_str(), at(a, place)?, at(b, place)?) {
            ("Add", SymbolicSize::Fixed(a), SymbolicSize::Fixed(b)) => {
                a.checked_add(b).map(SymbolicSize::Fixed)
            }
            ("Sub", SymbolicSize::Fixed(a), SymbolicSize::Fixed(b)) => {
                a.checked_sub(b).map(SymbolicSize::Fixed)
            }
            ("Mul", SymbolicSize::Fixed(a), SymbolicSize::Fixed(b)) => {
                a.checked_mul(b).map(SymbolicSize::Fixed)
            }
            ("Div", SymbolicSize::Fixed(a), SymbolicSize::Fixed(b)) => {
                a.checked_div(b).map(SymbolicSize::Fixed)
            }
            ("Mul" | "Div", SymbolicSize::Batch, SymbolicSize::Fixed(1))
            | ("Mul", SymbolicSize::Fixed(1), SymbolicSize::Batch) => Some(SymbolicSize::Batch),
            _ => None,
        };
        (0..len).map(one).collect::<Option<Vec<_>>>().ok_or_else(unknown)
    }
}
