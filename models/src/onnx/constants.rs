//! Constants of an ONNX graph by name: initializers, Constant nodes, and Identities of either.

use std::{borrow::Cow, collections::HashMap};

use super::{
    import::ImportError,
    labels,
    proto::{GraphProto, NodeProto, TensorProto, attribute_type, data_type},
    tensor::{Floats, integers},
};
use crate::graph::Classes;

/// Tensors by name. Those that a node states itself (`value_ints`, `value_float`, ...) are owned.
#[derive(Clone, Debug, Default)]
pub struct Constants<'a>(HashMap<&'a str, Cow<'a, TensorProto>>);

impl<'a> Constants<'a> {
    pub fn of(graph: &'a GraphProto) -> Self {
        let tensors = graph.initializer.iter();
        let mut constants = Self(tensors.map(|t| (t.name.as_str(), Cow::Borrowed(t))).collect());
        for node in graph.node.iter().filter(|node| is_default_domain(node)) {
            let Some(output) = node.output.first() else { continue };
            let constant = match node.op_type.as_str() {
                "Constant" => in_node(node),
                "Identity" => node.input.first().and_then(|name| constants.0.get(name.as_str()).cloned()),
                _ => None,
            };
            if let Some(constant) = constant {
                constants.0.insert(output, constant);
            }
        }
        // An empty name stands for an absent operand.
        constants.0.remove("");
        constants
    }

    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// A constant of floating-point numbers; `None` if there is no constant of this name.
    pub fn floats(&self, name: &str) -> Option<Result<Floats, ImportError>> {
        self.tensor(name).map(|tensor| Ok(Floats::read(tensor)?))
    }

    /// A constant of integers; `None` if there is no constant of this name.
    pub fn integers(&self, name: &str) -> Option<Result<Vec<i64>, ImportError>> {
        self.tensor(name).map(|tensor| Ok(integers(tensor)?))
    }

    /// A constant list of names or numbers of classes.
    pub fn classes(&self, name: &str) -> Option<Classes> {
        let tensor = self.tensor(name).filter(|tensor| !tensor.is_external() && tensor.dims.len() == 1)?;
        match tensor.data_type {
            data_type::STRING => labels::text(&tensor.string_data),
            _ => integers(tensor).ok().map(Classes::Numbers),
        }
    }

    /// Sizes of the axes; `None` if there is no constant of this name.
    pub fn dims(&self, name: &str) -> Option<&[i64]> {
        self.tensor(name).map(|tensor| tensor.dims.as_slice())
    }

    /// Number of axes; `None` if there is no constant of this name.
    pub fn rank(&self, name: &str) -> Option<usize> {
        self.dims(name).map(<[i64]>::len)
    }

    /// One of [`data_type`]; `None` if there is no constant of this name.
    pub fn kind(&self, name: &str) -> Option<i32> {
        self.tensor(name).map(|tensor| tensor.data_type)
    }

    /// Sizes of the axes; `None` if there is no constant of this name.
    pub fn sizes(&self, name: &str) -> Option<Vec<i64>> {
        self.tensor(name).map(|tensor| tensor.dims.clone())
    }

    fn tensor(&self, name: &str) -> Option<&TensorProto> {
        self.0.get(name).map(Cow::as_ref)
    }
}

/// The default domain has two spellings.
pub fn is_default_domain(node: &NodeProto) -> bool {
    matches!(node.domain.as_str(), "" | "ai.onnx")
}

fn in_node(node: &NodeProto) -> Option<Cow<'_, TensorProto>> {
    let attribute = node.attribute.first()?;
    let name = node.output.first()?.clone();
    let floats = |dims: Vec<i64>, float_data: Vec<f32>| {
        let data_type = data_type::FLOAT;
        TensorProto { name: name.clone(), dims, data_type, float_data, ..TensorProto::default() }
    };
    let integers = |dims: Vec<i64>, int64_data: Vec<i64>| {
        let data_type = data_type::INT64;
        TensorProto { name: name.clone(), dims, data_type, int64_data, ..TensorProto::default() }
    };
    let inline = match attribute.name.as_str() {
        "value" if attribute.r#type == attribute_type::TENSOR => {
            return attribute.t.as_ref().map(Cow::Borrowed);
        }
        "value_float" => floats(vec![], vec![attribute.f?]),
        "value_floats" => floats(vec![attribute.floats.len() as i64], attribute.floats.clone()),
        "value_int" => integers(vec![], vec![attribute.i?]),
        "value_ints" => integers(vec![attribute.ints.len() as i64], attribute.ints.clone()),
        _ => return None,
    };
    Some(Cow::Owned(inline))
}
