//! From a Graph and its parameters to an ONNX file that any runtime loads: opset 17, batch axis "N",
//! Flatten, Gemm with `transB = 1`, Relu, and the tail. Equal models give equal bytes.

use std::collections::HashSet;

use common::slice::WrongLength;
use prost::Message;

use super::{
    proto::{
        AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
        StringStringEntryProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto, attribute_type,
        data_type,
    },
    tensor::float_tensor,
};
use crate::graph::{Graph, Op, ParamId, ValueId};

const IR_VERSION: i64 = 8;
const OPSET: i64 = 17;
const BATCH: &str = "N";

#[derive(Copy, Clone, PartialEq, Debug)]
pub struct ExportOptions<'a> {
    /// End with the softmax that the imported model had; otherwise outputs are logits.
    pub tail: bool,
    /// Kept in the file as `metadata_props`, such as tier, widths and round.
    pub metadata: &'a [(&'a str, String)],
}

impl Default for ExportOptions<'_> {
    fn default() -> Self {
        Self { tail: true, metadata: &[] }
    }
}

#[derive(Copy, Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    #[error(transparent)]
    Length(#[from] WrongLength),
}

/// The model as the bytes of an ONNX file.
pub fn export(
    graph: &Graph,
    parameters: &[f32],
    options: &ExportOptions<'_>,
) -> Result<Vec<u8>, ExportError> {
    let expected = graph.layout().len();
    if parameters.len() != expected {
        return Err(WrongLength { expected, got: parameters.len() }.into());
    }
    let names = Names::new(graph, options.tail);
    let full = graph.full();
    let offsets = graph.offsets(full);
    let tensors = graph.params().iter().zip(graph.param_shapes()).zip(offsets);
    let initializer = tensors
        .map(|((param, shape), at)| {
            let dims: Vec<usize> = shape.dims.iter().map(|dim| dim.size(full)).collect();
            float_tensor(&param.name, &dims, &parameters[at..at + shape.len(full)])
        })
        .collect();
    let model = ModelProto {
        ir_version: IR_VERSION,
        producer_name: "fairtier".to_owned(),
        producer_version: String::new(),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: OPSET }],
        metadata_props: options
            .metadata
            .iter()
            .map(|(key, value)| StringStringEntryProto { key: (*key).to_owned(), value: value.clone() })
            .collect(),
        graph: Some(GraphProto {
            node: nodes(graph, &names),
            name: graph.name().to_owned(),
            initializer,
            input: vec![value_info(graph, ValueId::INPUT, &graph.input().name)],
            output: vec![value_info(graph, graph.output().value, &graph.output().name)],
        }),
    };
    Ok(model.encode_to_vec())
}

fn nodes(graph: &Graph, names: &Names) -> Vec<NodeProto> {
    let param =
        |id: ParamId| graph.params().get(id.index()).map_or_else(String::new, |param| param.name.clone());
    let mut nodes = Vec::with_capacity(graph.nodes().len() + 1);
    for (index, node) in graph.nodes().iter().enumerate() {
        let values = node.inputs.iter().map(|&value| names.of(value));
        let (op_type, attribute) = match node.op {
            Op::Dense { .. } => ("Gemm", vec![integer("transB", 1)]),
            Op::Activate(_) => ("Relu", vec![]),
            _ => ("Flatten", vec![integer("axis", 1)]),
        };
        nodes.push(NodeProto {
            input: values.chain(node.op.params().map(param)).collect(),
            output: vec![names.of(ValueId(index as u32 + 1))],
            name: node.name.clone(),
            op_type: op_type.to_owned(),
            attribute,
            domain: String::new(),
        });
    }
    if let Some(tail) = graph.output().tail.filter(|_| names.tail) {
        nodes.push(NodeProto {
            input: vec![names.of(graph.output().value)],
            output: vec![graph.output().name.clone()],
            name: "tail".to_owned(),
            op_type: tail.op_type().to_owned(),
            attribute: vec![integer("axis", -1)],
            domain: String::new(),
        });
    }
    nodes
}

fn integer(name: &str, value: i64) -> AttributeProto {
    let (name, i) = (name.to_owned(), Some(value));
    AttributeProto { name, i, r#type: attribute_type::INT, ..AttributeProto::default() }
}

fn value_info(graph: &Graph, value: ValueId, name: &str) -> ValueInfoProto {
    let batch = DimensionProto { dim_value: None, dim_param: Some(BATCH.to_owned()) };
    let sizes = graph.shape(value).dims.iter().map(|dim| dim.size(graph.full()) as i64);
    let sizes = sizes.map(|size| DimensionProto { dim_value: Some(size), dim_param: None });
    let shape = Some(TensorShapeProto { dim: std::iter::once(batch).chain(sizes).collect() });
    let tensor_type = Some(TensorTypeProto { elem_type: data_type::FLOAT, shape });
    ValueInfoProto { name: name.to_owned(), r#type: Some(TypeProto { tensor_type }) }
}

/// Names of values, all different and different from those of parameters.
struct Names {
    values: Vec<String>,
    /// A softmax comes after the logits.
    tail: bool,
}

impl Names {
    fn new(graph: &Graph, tail: bool) -> Self {
        let tail = tail && graph.output().tail.is_some();
        let (input, output) = (&graph.input().name, graph.output());
        let mut taken: HashSet<&str> = graph.params().iter().map(|param| param.name.as_str()).collect();
        taken.extend([input.as_str(), output.name.as_str()]);
        let mut values = vec![input.clone()];
        for index in 1..=graph.nodes().len() {
            let mut name = format!("value{index}");
            while taken.contains(name.as_str()) {
                name.push('_');
            }
            let is_output = !tail && output.value.index() == index;
            values.push(if is_output { output.name.clone() } else { name });
        }
        Self { values, tail }
    }

    fn of(&self, value: ValueId) -> String {
        self.values.get(value.index()).cloned().unwrap_or_default()
    }
}
