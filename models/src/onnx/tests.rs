use common::{Dim, plan::Loss};
use proptest::prelude::*;
use prost::Message;

use super::{
    proto::{
        AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
        TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto, data_type,
    },
    tensor::float_tensor,
    *,
};
use crate::{
    graph::{Classes, Labels, Op, Tail},
    plan::{PlanOptions, compile, default_loss},
    zoo,
};

mod columns;
mod elementwise;
mod filler_names;
mod labels;
mod layers;
mod recurrent;
mod refusals;
mod versions;
mod written;

/// A model that tests change: x[N, 2, 3] -> Flatten -> Gemm 6x4 -> Relu -> Gemm 4x2 -> y.
fn model() -> ModelProto {
    let numbers = |len: usize| (0..len).map(|i| i as f32 / 8.0).collect::<Vec<_>>();
    ModelProto {
        ir_version: 8,
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 13 }],
        graph: Some(GraphProto {
            name: "m".into(),
            node: vec![
                node("flat", "Flatten", &["x"], "f", &[]),
                node("fc1", "Gemm", &["f", "w1", "b1"], "h", &[("transB", 1)]),
                node("act", "Relu", &["h"], "a", &[]),
                node("fc2", "Gemm", &["a", "w2", "b2"], "y", &[("transB", 1)]),
            ],
            initializer: vec![
                float_tensor("w1", &[4, 6], &numbers(24)),
                float_tensor("b1", &[4], &numbers(4)),
                float_tensor("w2", &[2, 4], &numbers(8)),
                float_tensor("b2", &[2], &numbers(2)),
            ],
            input: vec![value("x", &[None, Some(2), Some(3)])],
            output: vec![value("y", &[None, Some(2)])],
        }),
        ..ModelProto::default()
    }
}

fn node(name: &str, op_type: &str, input: &[&str], output: &str, integers: &[(&str, i64)]) -> NodeProto {
    let integer = |&(name, value): &(&str, i64)| AttributeProto {
        name: name.into(),
        i: Some(value),
        r#type: proto::attribute_type::INT,
        ..AttributeProto::default()
    };
    NodeProto {
        name: name.into(),
        op_type: op_type.into(),
        input: input.iter().map(|&name| name.to_owned()).collect(),
        output: vec![output.into()],
        attribute: integers.iter().map(integer).collect(),
        domain: String::new(),
    }
}

fn value(name: &str, dims: &[Option<i64>]) -> ValueInfoProto {
    let dim = dims.iter().map(|&dim_value| DimensionProto { dim_value, dim_param: None }).collect();
    let tensor_type =
        Some(TensorTypeProto { elem_type: data_type::FLOAT, shape: Some(TensorShapeProto { dim }) });
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type, ..TypeProto::default() }) }
}

fn integers(name: &str, numbers: &[i64]) -> TensorProto {
    TensorProto {
        name: name.into(),
        dims: vec![numbers.len() as i64],
        data_type: data_type::INT64,
        int64_data: numbers.to_vec(),
        ..TensorProto::default()
    }
}

fn changed(change: impl FnOnce(&mut GraphProto)) -> Result<Import, ImportError> {
    let mut model = model();
    change(model.graph.as_mut().unwrap());
    import(&model.encode_to_vec())
}

fn refused(change: impl FnOnce(&mut GraphProto)) -> String {
    changed(change).unwrap_err().to_string()
}

#[test]
fn the_plain_model() {
    let import = changed(|_| {}).unwrap();
    let names: Vec<&str> = import.graph.nodes().iter().map(|node| node.op.name()).collect();
    assert_eq!(names, ["Flatten", "Dense", "Relu", "Dense"]);
    assert_eq!(import.graph.full().widths(), [4]);
    assert_eq!((import.graph.inputs(), import.graph.outputs()), (6, 2));
    assert_eq!(import.graph.layers(), [0..28, 28..38]);
    assert_eq!(import.parameters[24..28], [0.0, 0.125, 0.25, 0.375]);
    assert_eq!((import.notes.len(), import.logits.as_str()), (0, "y"));
}
