//! Writes a Graph and its parameters as an ONNX file for any runtime: opset 17, batch axis "N", the nodes of [`nodes`], and the
//! tail. Equal models give equal bytes.

use std::collections::HashSet;

use common::{TensorShape, files::MAX_MODEL, slice::WrongLength};
use prost::Message;

use super::{
    proto::{
        DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
        TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto, data_type,
    },
    tensor::float_tensor,
};
use crate::graph::{Graph, Groups, Op, Param, ParamId, ValueId};

mod activation;
mod nodes;
mod outputs;
use nodes::{ONES, Writer};

const IR_VERSION: i64 = 8;
const OPSET: i64 = 17;
/// Of ZipMap.
const ML_OPSET: i64 = 1;
const ML_DOMAIN: &str = "ai.onnx.ml";
const BATCH: &str = "N";

/// What is written besides structure and parameters.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct ExportOptions<'a> {
    /// End with the softmax or sigmoid that the imported model had; otherwise outputs are logits.
    pub tail: bool,
    /// Written as `metadata_props`, such as tier, widths and round, in place of entries of the Graph with the same keys.
    pub metadata: &'a [(&'a str, String)],
    /// Mean and variance of every batch normalisation; by default those of the Graph.
    pub stats: Option<&'a [f32]>,
}

impl Default for ExportOptions<'_> {
    fn default() -> Self {
        Self { tail: true, metadata: &[], stats: None }
    }
}

/// Why a model cannot be written.
#[derive(Copy, Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum ExportError {
    #[error(transparent)]
    Length(#[from] WrongLength),
    #[error("the model needs {0} bytes, and an ONNX file holds at most {MAX_MODEL}")]
    TooLarge(usize),
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
    let stats = options.stats.unwrap_or(graph.stats());
    let expected = graph.stats().len();
    if stats.len() != expected {
        return Err(WrongLength { expected, got: stats.len() }.into());
    }
    let numbers = graph.constants();
    let mut writer = Writer { graph, names: &names, nodes: vec![], constants: vec![], stats, numbers };
    for (index, node) in graph.nodes().iter().enumerate() {
        writer.node(node, names.of(ValueId(index as u32 + 1)));
    }
    let outputs = writer.outputs();
    let Writer { mut nodes, constants, .. } = writer;
    name_apart(&mut nodes);
    let initializer = initializers(graph, parameters, &names).into_iter().chain(constants).collect();
    let kind = if graph.tokens().is_some() { data_type::INT64 } else { data_type::FLOAT };
    let model = ModelProto {
        ir_version: IR_VERSION,
        producer_name: "fairtier".to_owned(),
        producer_version: String::new(),
        opset_import: opsets(&nodes),
        metadata_props: metadata(graph, options),
        graph: Some(GraphProto {
            node: nodes,
            name: graph.name().to_owned(),
            initializer,
            input: vec![value_info(graph, ValueId::INPUT, &graph.input().name, kind)],
            output: outputs,
        }),
    };
    match model.encoded_len() {
        bytes if bytes as u64 > MAX_MODEL => Err(ExportError::TooLarge(bytes)),
        _ => Ok(model.encode_to_vec()),
    }
}

/// The names of parameters in a file: their own, unless an import would take one for what an exporter has filled in.
fn param_names(graph: &Graph, own: &HashSet<&str>) -> Vec<String> {
    let name = |param: &Param| {
        let mut name = param.name.clone();
        while is_filler_name(&name) || (name != param.name && own.contains(name.as_str())) {
            name.push('_');
        }
        name
    };
    graph.params().iter().map(name).collect()
}

/// Whether exporters give this name to a constant that they fill in themselves, for a layer without parameters.
pub fn is_filler_name(name: &str) -> bool {
    // PyTorch's newer exporter numbers the values that it computes.
    let numbered =
        name.strip_prefix("val_").is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    numbered || name.ends_with(ONES)
}

/// Some runtimes refuse two nodes of one name, and one node of a file can become several of a Graph.
fn name_apart(nodes: &mut [NodeProto]) {
    let mut taken = HashSet::new();
    for node in nodes {
        let name = node.name.clone();
        let mut number = 1;
        while !taken.insert(node.name.clone()) {
            number += 1;
            node.name = format!("{name}.{number}");
        }
    }
}

/// The entries of the options, then the others of the Graph.
fn metadata(graph: &Graph, options: &ExportOptions<'_>) -> Vec<StringStringEntryProto> {
    let given = options.metadata.iter().map(|(key, value)| (*key, value));
    let kept = graph.metadata().iter().map(|(key, value)| (key.as_str(), value));
    let kept = kept.filter(|(key, _)| options.metadata.iter().all(|(other, _)| other != key));
    let entry =
        |(key, value): (&str, &String)| StringStringEntryProto { key: key.into(), value: value.clone() };
    given.chain(kept).map(entry).collect()
}

/// The operator sets that these nodes need.
fn opsets(nodes: &[NodeProto]) -> Vec<OperatorSetIdProto> {
    let mut sets = vec![OperatorSetIdProto { domain: String::new(), version: OPSET }];
    if nodes.iter().any(|node| node.domain == ML_DOMAIN) {
        sets.push(OperatorSetIdProto { domain: ML_DOMAIN.to_owned(), version: ML_OPSET });
    }
    sets
}

/// Parameters in our order; recurrent layers, group normalisations and PRelus need extra axes of size 1.
fn initializers(graph: &Graph, parameters: &[f32], names: &Names) -> Vec<TensorProto> {
    let full = graph.full();
    let dims = |id: ParamId, shape: &TensorShape| {
        let node = graph.nodes().iter().find(|node| node.op.params().any(|other| other == id));
        let sizes = shape_sizes(graph, shape);
        let rank = node.map_or(0, |node| node.shape.dims.len());
        match node.map(|node| node.op) {
            Some(op) if op.is_recurrent() => [vec![1], sizes].concat(),
            Some(Op::GroupNorm { groups: Groups::Count(_), .. }) => [sizes, vec![1; rank - 1]].concat(),
            Some(Op::PRelu { axes: Some(axes), .. }) => [sizes, vec![1; axes.after(rank)]].concat(),
            // One slope for all, which import tells from that of a single channel.
            Some(Op::PRelu { axes: None, .. }) => vec![],
            _ => sizes,
        }
    };
    let tensors = graph.param_shapes().iter().zip(graph.offsets(full)).enumerate();
    tensors
        .map(|(index, (shape, at))| {
            let id = ParamId(index as u32);
            float_tensor(&names.param(id), &dims(id, shape), &parameters[at..at + shape.len(full)])
        })
        .collect()
}

fn shape_sizes(graph: &Graph, shape: &TensorShape) -> Vec<usize> {
    shape.dims.iter().map(|dim| dim.size(graph.full())).collect()
}

fn value_info(graph: &Graph, value: ValueId, name: &str, elem_type: i32) -> ValueInfoProto {
    batched(name, elem_type, &shape_sizes(graph, graph.shape(value)))
}

/// A tensor with a batch axis before these.
fn batched(name: &str, elem_type: i32, sample: &[usize]) -> ValueInfoProto {
    let batch = DimensionProto { dim_value: None, dim_param: Some(BATCH.to_owned()) };
    let sizes = sample.iter().map(|&size| DimensionProto { dim_value: Some(size as i64), dim_param: None });
    let shape = Some(TensorShapeProto { dim: std::iter::once(batch).chain(sizes).collect() });
    let tensor_type = Some(TensorTypeProto { elem_type, shape });
    let kind = TypeProto { tensor_type, ..TypeProto::default() };
    ValueInfoProto { name: name.to_owned(), r#type: Some(kind) }
}

/// Unique names of values, which also differ from those of parameters.
struct Names {
    params: Vec<String>,
    values: Vec<String>,
    /// A softmax or sigmoid comes after the logits.
    tail: bool,
}

impl Names {
    fn new(graph: &Graph, tail: bool) -> Self {
        let tail = tail && graph.output().tail.is_some();
        let (input, output) = (&graph.input().name, graph.output());
        let own: HashSet<&str> = graph.params().iter().map(|param| param.name.as_str()).collect();
        let params = param_names(graph, &own);
        let mut taken: HashSet<&str> = own.iter().copied().chain(params.iter().map(String::as_str)).collect();
        taken.extend([input.as_str(), output.name.as_str()]);
        taken.extend(output.labels.as_ref().and_then(|labels| labels.output.as_deref()));
        let mut values = vec![input.clone()];
        for index in 1..=graph.nodes().len() {
            let mut name = format!("value{index}");
            while taken.contains(name.as_str()) {
                name.push('_');
            }
            let is_output = !tail && output.value.index() == index;
            values.push(if is_output { output.name.clone() } else { name });
        }
        Self { params, values, tail }
    }

    fn param(&self, id: ParamId) -> String {
        self.params[id.index()].clone()
    }

    fn of(&self, value: ValueId) -> String {
        self.values[value.index()].clone()
    }
}
