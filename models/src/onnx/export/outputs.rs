//! What follows the logits: softmax or sigmoid, and the label of a classifier.

use super::{
    ML_DOMAIN, Writer, batched,
    nodes::{integer, integer_tensor, list},
};
use crate::{
    graph::{Classes, Labels, Tail},
    onnx::{
        proto::{
            AttributeProto, MapTypeProto, NodeProto, SequenceTypeProto, TensorProto, TensorTypeProto,
            TypeProto, ValueInfoProto, attribute_type, data_type,
        },
        tensor::float_tensor,
    },
};

impl Writer<'_> {
    /// Writes the nodes after the logits, and returns the outputs of the model.
    pub fn outputs(&mut self) -> Vec<ValueInfoProto> {
        let (graph, output) = (self.graph, self.graph.output());
        let name = output.name.clone();
        let tensor = |name: &str, sizes: &[usize]| batched(name, data_type::FLOAT, sizes);
        let logits = super::shape_sizes(graph, graph.shape(output.value));
        let Some(tail) = output.tail.filter(|_| self.names.tail) else { return vec![tensor(&name, &logits)] };
        let sizes = if tail == Tail::TwoClasses { vec![2] } else { logits };
        let Some(labels) = &output.labels else {
            self.tail(tail, name.clone());
            return vec![tensor(&name, &sizes)];
        };
        let probabilities = if labels.mapped { format!("{name}.tensor") } else { name.clone() };
        self.tail(tail, probabilities.clone());
        let label = labels.output.as_ref().map(|label| self.label(labels, &probabilities, label));
        let first = match labels.mapped {
            true => self.map(labels, probabilities, name),
            false => tensor(&name, &sizes),
        };
        // scikit-learn has the label first.
        label.into_iter().chain([first]).collect()
    }

    fn tail(&mut self, tail: Tail, to: String) {
        let from = self.names.of(self.graph.output().value);
        match tail {
            Tail::Softmax | Tail::LogSoftmax => {
                self.push("tail", tail.op_type(), vec![from], to, vec![integer("axis", -1)]);
            }
            Tail::Sigmoid => self.push("tail", "Sigmoid", vec![from], to, vec![]),
            Tail::TwoClasses => {
                let [one, second, first] = ["one", "second", "first"].map(|kind| format!("{to}.{kind}"));
                self.constants.push(float_tensor(&one, &[], &[1.0]));
                self.push("tail", "Sigmoid", vec![from], second.clone(), vec![]);
                self.push("tail/first", "Sub", vec![one, second.clone()], first.clone(), vec![]);
                self.push("tail/both", "Concat", vec![first, second], to, vec![integer("axis", 1)]);
            }
        }
    }

    /// The most likely class.
    fn label(&mut self, labels: &Labels, probabilities: &str, output: &str) -> ValueInfoProto {
        let [index, classes] = ["index", "classes"].map(|kind| format!("{output}.{kind}"));
        let attributes = vec![integer("axis", 1), integer("keepdims", 0)];
        self.push("label/index", "ArgMax", vec![probabilities.to_owned()], index.clone(), attributes);
        let (constant, kind) = match &labels.classes {
            Classes::Numbers(numbers) => {
                (integer_tensor(&classes, &[numbers.len()], numbers), data_type::INT64)
            }
            Classes::Names(names) => (string_tensor(&classes, names), data_type::STRING),
        };
        self.constants.push(constant);
        self.push("label", "Gather", vec![classes, index], output.to_owned(), vec![integer("axis", 0)]);
        batched(output, kind, &[])
    }

    /// A map from classes to probabilities for every sample.
    fn map(&mut self, labels: &Labels, probabilities: String, output: String) -> ValueInfoProto {
        let (attribute, key_type) = match &labels.classes {
            Classes::Numbers(numbers) => (list("classlabels_int64s", numbers), data_type::INT64),
            Classes::Names(names) => (strings("classlabels_strings", names), data_type::STRING),
        };
        self.nodes.push(NodeProto {
            input: vec![probabilities],
            output: vec![output.clone()],
            name: "map".to_owned(),
            op_type: "ZipMap".to_owned(),
            attribute: vec![attribute],
            domain: ML_DOMAIN.to_owned(),
        });
        let tensor_type = Some(TensorTypeProto { elem_type: data_type::FLOAT, shape: None });
        let value_type = Some(Box::new(TypeProto { tensor_type, ..TypeProto::default() }));
        let map_type = Some(Box::new(MapTypeProto { key_type, value_type }));
        let elem_type = Some(Box::new(TypeProto { map_type, ..TypeProto::default() }));
        let sequence_type = Some(Box::new(SequenceTypeProto { elem_type }));
        let kind = TypeProto { sequence_type, ..TypeProto::default() };
        ValueInfoProto { name: output, r#type: Some(kind) }
    }
}

fn bytes(names: &[String]) -> Vec<Vec<u8>> {
    names.iter().map(|name| name.clone().into_bytes()).collect()
}

fn strings(name: &str, values: &[String]) -> AttributeProto {
    let (name, strings) = (name.to_owned(), bytes(values));
    AttributeProto { name, strings, r#type: attribute_type::STRINGS, ..AttributeProto::default() }
}

fn string_tensor(name: &str, values: &[String]) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: vec![values.len() as i64],
        data_type: data_type::STRING,
        string_data: bytes(values),
        ..TensorProto::default()
    }
}
