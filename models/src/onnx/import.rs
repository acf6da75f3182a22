//! Reads an ONNX file as a Graph and its parameters: chooses the output and finds the nodes that it needs. [`super::lower`] then
//! translates each of them.

use std::collections::{HashMap, HashSet};

use prost::Message;

use super::{
    OPSETS,
    constants::{Constants, is_default_domain},
    export::is_filler_name,
    labels::labels,
    lower::lower,
    proto::{GraphProto, ModelProto, NodeProto, StringStringEntryProto, ValueInfoProto, data_type},
    tensor::TensorError,
};
use crate::graph::{Graph, GraphError};

/// Most bytes of metadata that a Graph keeps.
const MAX_METADATA: usize = 16 << 20;
/// Most entries.
const MAX_ENTRIES: usize = 256;

/// A model read from ONNX.
#[derive(Clone, PartialEq, Debug)]
pub struct Import {
    /// The structure of the model.
    pub graph: Graph,
    /// The flat parameter vector.
    pub parameters: Vec<f32>,
    /// What was chosen or left out, one sentence each.
    pub notes: Vec<String>,
    /// The name of the logits in the file: the output itself, or what its softmax or sigmoid reads.
    pub logits: String,
    /// Batch size, if the file fixes it; a Graph takes any.
    pub batch: Option<usize>,
}

/// Why a file cannot be read as a model. Where one node is the reason, `inputs` are the names and shapes of what it reads, and
/// [`ImportError::advice`] says what to do.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum ImportError {
    #[error("this is not an ONNX file, or it is damaged: {0}")]
    Decode(#[from] prost::DecodeError),
    #[error("the file holds no graph; it is not an ONNX model, or it is damaged")]
    NoGraph,
    #[error(
        "the model uses ONNX operator set {0}; versions {first} to {last} are supported (17 is a safe choice for the exporter's opset_version)",
        first = OPSETS.start(),
        last = OPSETS.end()
    )]
    Opset(i64),
    #[error("the model has {0} inputs ({1}); exactly one is supported")]
    Inputs(usize, String),
    #[error("input '{name}' has shape {shape}; expected a batch axis and then fixed sizes, as in [N, 64]")]
    InputShape { name: String, shape: String },
    #[error("the model has no output of floats that depends on its input")]
    NoOutput,
    #[error("{0}")]
    Output(String),
    #[error("node '{node}' uses op '{op}', which is not supported; docs/your-own-model.md lists what is")]
    Op { node: String, op: String, inputs: Vec<String> },
    #[error("node '{node}' ({op}): {problem}")]
    Node { node: String, op: String, problem: String, inputs: Vec<String> },
    #[error("node '{node}' reads '{value}', which nothing before it computes")]
    Undefined { node: String, value: String },
    #[error("node '{node}' computes '{value}' a second time; the file is damaged")]
    Twice { node: String, value: String },
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Reads a model. Only nodes that its float output needs are imported.
pub fn import(bytes: &[u8]) -> Result<Import, ImportError> {
    let model = ModelProto::decode(bytes)?;
    let graph = model.graph.as_ref().ok_or(ImportError::NoGraph)?;
    let default = |domain: &str| matches!(domain, "" | "ai.onnx");
    let opset = model.opset_import.iter().find(|set| default(&set.domain)).map_or(1, |set| set.version);
    if !OPSETS.contains(&opset) {
        // skl2onnx states the lowest operator set that a model needs, so another one would not help.
        let other = graph.node.iter().find(|node| is_of_pipelines(node) && !is_read(node));
        return Err(other.map_or(ImportError::Opset(opset), unsupported));
    }
    let source = SourceModel::new(graph, opset)?;
    let mut refused = None;
    for output in source.outputs() {
        match lower(&source, &output.name) {
            Ok(mut import) => {
                import.graph = import.graph.with_labels(labels(&source, &output.name));
                let kept = import.graph.output().labels.as_ref().and_then(|labels| labels.output.as_deref());
                import.notes.splice(0..0, source.choice(&output.name, kept));
                return Ok(with_metadata(import, &model.metadata_props));
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or(ImportError::NoOutput))
}

/// Keeps metadata within bounds. The first entry of a key counts.
fn with_metadata(mut import: Import, entries: &[StringStringEntryProto]) -> Import {
    let (mut room, mut left_out) = (MAX_METADATA, 0);
    for StringStringEntryProto { key, value } in entries {
        let size = key.len().saturating_add(value.len());
        let graph = &import.graph;
        let fits = graph.metadata().len() < MAX_ENTRIES && size <= room && graph.metadata_of(key).is_none();
        if fits {
            room -= size;
            import.graph = import.graph.with_metadata(key, Some(value.clone()));
        } else {
            left_out += 1;
        }
    }
    let note = || {
        format!(
            "{left_out} entries of metadata are left out: kept are {MAX_ENTRIES} keys, 16 MiB, and no key twice"
        )
    };
    import.notes.extend((left_out > 0).then(note));
    import
}

/// The graph of a file, with lookups for lowering.
#[derive(Debug)]
pub struct SourceModel<'a> {
    pub graph: &'a GraphProto,
    /// Version of the default operator set.
    pub opset: i64,
    pub constants: Constants<'a>,
    pub input: InputInfo<'a>,
    producers: HashMap<&'a str, usize>,
}

#[derive(Debug)]
pub struct InputInfo<'a> {
    pub name: &'a str,
    /// Batch size, if the file fixes it.
    pub batch: Option<i64>,
    /// Per sample.
    pub shape: Vec<u32>,
    /// One of [`data_type`].
    pub elem_type: i32,
}

impl<'a> SourceModel<'a> {
    fn new(graph: &'a GraphProto, opset: i64) -> Result<Self, ImportError> {
        let constants = Constants::of(graph);
        // Before IR version 4, initializers were listed among the inputs.
        let inputs: Vec<_> = graph
            .input
            .iter()
            .filter(|input| !input.name.is_empty() && !constants.contains(&input.name))
            .collect();
        let [input] = inputs.as_slice() else {
            let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
            return Err(ImportError::Inputs(inputs.len(), names.join(", ")));
        };
        let input = InputInfo::of(input)?;
        let mut producers = HashMap::new();
        for (index, node) in graph.node.iter().enumerate() {
            for output in node.output.iter().filter(|name| !name.is_empty()) {
                if output == input.name || producers.insert(output.as_str(), index).is_some() {
                    return Err(ImportError::Twice { node: title(node), value: output.clone() });
                }
            }
        }
        Ok(Self { graph, opset, constants, input, producers })
    }

    /// True for a constant that is trained in the model's framework: an initializer that the exporter has not named itself.
    pub fn is_parameter(&self, name: &str) -> bool {
        !is_filler_name(name) && self.graph.initializer.iter().any(|tensor| tensor.name == name)
    }

    /// The node that computes a value.
    pub fn producer(&self, value: &str) -> Option<&'a NodeProto> {
        self.producers.get(value).map(|&index| &self.graph.node[index])
    }

    /// The nodes that a value needs, in the order of the file.
    pub fn needed(&self, value: &str) -> Vec<&'a NodeProto> {
        let mut needed = HashSet::new();
        let mut open: Vec<&str> = vec![value];
        while let Some(name) = open.pop() {
            let producer = self.producers.get(name).filter(|_| !self.constants.contains(name));
            if let Some(&index) = producer.filter(|&&index| needed.insert(index)) {
                open.extend(self.graph.node[index].input.iter().map(String::as_str));
            }
        }
        let nodes = self.graph.node.iter().enumerate();
        nodes.filter(|(index, _)| needed.contains(index)).map(|(_, node)| node).collect()
    }

    /// Outputs of floats that depend on the input, in the order of the file. scikit-learn's probabilities may be wrapped into a
    /// list of maps (ZipMap), which is not a tensor.
    fn outputs(&self) -> impl Iterator<Item = &'a ValueInfoProto> {
        self.graph.output.iter().filter(|output| {
            let tensor = output.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref());
            let of_floats = match tensor {
                Some(tensor) => tensor.elem_type == 0 || data_type::is_float(tensor.elem_type),
                None => true,
            };
            // The body of a loop reads values without naming them as inputs of the node.
            let reads = |node: &&NodeProto| {
                let has_body = matches!(node.op_type.as_str(), "If" | "Loop" | "Scan");
                has_body || node.input.iter().any(|name| name == self.input.name)
            };
            of_floats && self.needed(&output.name).iter().any(reads)
        })
    }

    fn choice(&self, chosen: &str, kept: Option<&str>) -> Option<String> {
        let others = self.graph.output.iter().map(|output| output.name.as_str());
        let others = others.filter(|&other| other != chosen && Some(other) != kept);
        let others: Vec<String> = others.map(|other| format!("'{other}'")).collect();
        let text = || format!("of the outputs, '{chosen}' is used; {} ignored", others.join(", "));
        (!others.is_empty()).then(text)
    }
}

impl<'a> InputInfo<'a> {
    fn of(input: &'a ValueInfoProto) -> Result<Self, ImportError> {
        let tensor = input.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref());
        let dims = tensor.and_then(|tensor| tensor.shape.as_ref()).map_or(&[][..], |shape| &shape.dim);
        let size =
            |value: Option<i64>| value.and_then(|size| u32::try_from(size).ok()).filter(|&size| size > 0);
        let refused = || {
            let text = |value: Option<i64>| value.map_or_else(|| "?".to_owned(), |size| size.to_string());
            let sizes: Vec<String> = dims.iter().map(|dim| text(dim.dim_value)).collect();
            ImportError::InputShape { name: input.name.clone(), shape: format!("[{}]", sizes.join(", ")) }
        };
        let [batch, sample @ ..] = dims else { return Err(refused()) };
        let shape: Option<Vec<u32>> = sample.iter().map(|dim| size(dim.dim_value)).collect();
        let shape = shape.filter(|shape| !shape.is_empty()).ok_or_else(refused)?;
        let elem_type = tensor.map_or(0, |tensor| tensor.elem_type);
        Ok(Self { name: &input.name, batch: batch.dim_value.filter(|&size| size > 0), shape, elem_type })
    }
}

/// The name of a node in messages: its own, or that of its output.
pub fn title(node: &NodeProto) -> String {
    match (node.name.as_str(), node.output.first()) {
        ("", Some(output)) => output.clone(),
        (name, _) => name.to_owned(),
    }
}

/// An operation of scikit-learn's pipelines.
fn is_of_pipelines(node: &NodeProto) -> bool {
    node.domain == "ai.onnx.ml"
}

/// Whether the domain of an operation is one that is read.
pub fn is_read(node: &NodeProto) -> bool {
    let read = ["Scaler", "ArrayFeatureExtractor", "ZipMap"];
    is_default_domain(node) || (is_of_pipelines(node) && read.contains(&node.op_type.as_str()))
}

pub fn unsupported(node: &NodeProto) -> ImportError {
    let domain = if is_default_domain(node) { String::new() } else { format!("{}.", node.domain) };
    ImportError::Op { node: title(node), op: format!("{domain}{}", node.op_type), inputs: vec![] }
}
