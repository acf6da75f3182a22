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
    graph::{Op, Tail},
    plan::{PlanOptions, compile, default_loss},
    zoo,
};

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
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type }) }
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

#[test]
fn matmul_with_the_bias_on_either_side_is_the_same_layer() {
    let plain = changed(|_| {}).unwrap();
    let original = |i: usize| i as f32 / 8.0;
    // [4][6] laid out as [6][4].
    let turned: Vec<f32> = (0..24).map(|i| original(i % 4 * 6 + i / 4)).collect();
    for operands in [["p", "b1"], ["b1", "p"]] {
        let import = changed(|graph| {
            graph.node[1] = node("fc1", "MatMul", &["f", "w1"], "p", &[]);
            graph.node.insert(2, node("add", "Add", &operands, "h", &[]));
            graph.initializer[0] = float_tensor("w1", &[6, 4], &turned);
        })
        .unwrap();
        assert_eq!(import.parameters, plain.parameters);
        assert_eq!(import.graph.digest(import.graph.full()), plain.graph.digest(plain.graph.full()));
        assert!(!import.graph.params()[0].layout.is_plain() && plain.graph.params()[0].layout.is_plain());
    }
    let bare = changed(|graph| graph.node[3] = node("fc2", "MatMul", &["a", "w2t"], "y", &[]));
    assert!(bare.unwrap_err().to_string().contains("'w2t', which is not a constant"));
    let bare = changed(|graph| {
        graph.node[3] = node("fc2", "MatMul", &["a", "w2"], "y", &[]);
        graph.initializer[2] = float_tensor("w2", &[4, 2], &[0.5; 8]);
    });
    assert!(matches!(bare.unwrap().graph.nodes()[3].op, Op::Dense { bias: None, .. }));
}

#[test]
fn factors_of_gemm_go_into_the_weights() {
    let factor = |name: &str, f: f32| AttributeProto {
        name: name.into(),
        f: Some(f),
        r#type: proto::attribute_type::FLOAT,
        ..AttributeProto::default()
    };
    let plain = changed(|_| {}).unwrap().parameters;
    let scaled = changed(|graph| {
        graph.node[1].attribute.push(factor("alpha", 2.0));
        graph.node[1].attribute.push(factor("beta", 4.0));
    });
    let scaled = scaled.unwrap().parameters;
    assert!(scaled[..24].iter().zip(&plain).all(|(a, b)| *a == 2.0 * b));
    assert!(scaled[24..28].iter().zip(&plain[24..]).all(|(a, b)| *a == 4.0 * b));
    assert_eq!(scaled[28..], plain[28..]);
    let none = changed(|graph| graph.node[1].attribute.push(factor("beta", 0.0))).unwrap();
    assert_eq!(none.parameters.len(), plain.len() - 4);
    // The same initializer in two layers, times different factors.
    let text = refused(|graph| {
        graph.initializer[0] = float_tensor("w1", &[6, 6], &[0.5; 36]);
        graph.node[1] = node("fc1", "Gemm", &["f", "w1"], "h", &[]);
        graph.node[3] = node("fc2", "Gemm", &["a", "w1"], "y", &[]);
        graph.node[3].attribute.push(factor("alpha", 2.0));
    });
    assert!(text.contains("two layers use parameter 'w1' in different ways"), "{text}");
    let text = refused(|graph| graph.node[1].attribute.push(factor("alpha", f32::INFINITY)));
    assert!(text.contains("makes weights infinite"), "{text}");
}

#[test]
fn shapes_of_reshape() {
    let with = |shape: &[i64], batch: Option<i64>| {
        changed(|graph| {
            graph.input[0] = value("x", &[batch, Some(2), Some(3)]);
            graph.node[0] = node("view", "Reshape", &["x", "shape"], "f", &[]);
            graph.initializer.push(integers("shape", shape));
        })
    };
    for shape in [[-1, 6], [0, -1], [0, 6], [1, 6]] {
        assert_eq!(with(&shape, None).unwrap().graph.nodes()[0].op, Op::Flatten, "{shape:?}");
    }
    assert!(with(&[7, -1], Some(7)).is_ok());
    for shape in [&[-1, -1][..], &[-1, 3], &[6], &[3, 2, -1], &[7, -1], &[-6, 6], &[]] {
        let text = with(shape, None).unwrap_err().to_string();
        assert!(text.starts_with("node 'view' (Reshape): reshapes to"), "{text}");
    }
}

#[test]
fn a_shape_from_a_constant_node() {
    let mut constant = node("shape", "Constant", &[], "shape", &[]);
    constant.attribute = vec![AttributeProto {
        name: "value".into(),
        t: Some(integers("", &[-1, 6])),
        r#type: proto::attribute_type::TENSOR,
        ..AttributeProto::default()
    }];
    let import = changed(|graph| {
        graph.node[0] = node("view", "Reshape", &["x", "shape"], "f", &[]);
        graph.node.insert(0, constant);
    });
    assert_eq!(import.unwrap().graph.nodes()[0].op, Op::Flatten);
}

#[test]
fn nodes_that_do_nothing_and_the_tail() {
    let import = changed(|graph| {
        graph.node[2] = node("act", "Relu", &["h"], "r", &[]);
        graph.node[3].output[0] = "z".into();
        graph.node.insert(3, node("drop", "Dropout", &["r"], "a", &[]));
        graph.node.push(node("soft", "LogSoftmax", &["z"], "s", &[("axis", 1)]));
        graph.node.push(node("same", "Identity", &["s"], "y", &[]));
    })
    .unwrap();
    assert_eq!(import.graph.output().tail, Some(Tail::LogSoftmax));
    assert_eq!((import.graph.nodes().len(), import.logits.as_str()), (5, "z"));
    assert_eq!(import.graph.nodes()[3].op, Op::Dropout { rate: 0.5 });
    assert_eq!(import.notes.len(), 1);
}

#[test]
fn a_sigmoid_is_a_tail_only_at_the_end() {
    for same in [None, Some("Identity")] {
        let import = changed(|graph| {
            graph.node[2] = node("act", "Sigmoid", &["h"], "a", &[]);
            graph.node[3].output[0] = "z".into();
            let last = if same.is_some() { "s" } else { "y" };
            graph.node.push(node("sigmoid", "Sigmoid", &["z"], last, &[]));
            graph.node.extend(same.map(|op| node("same", op, &["s"], "y", &[])));
        })
        .unwrap();
        let names: Vec<&str> = import.graph.nodes().iter().map(|node| node.op.name()).collect();
        assert_eq!(names, ["Flatten", "Dense", "Sigmoid", "Dense"]);
        assert_eq!((import.graph.output().tail, import.logits.as_str()), (Some(Tail::Sigmoid), "z"));
        assert_eq!(default_loss(&import.graph), Loss::Sigmoid);
        assert_eq!(import.notes, ["Sigmoid before the output left out in training"]);
        let exported = export(&import.graph, &import.parameters, &ExportOptions::default()).unwrap();
        assert_eq!(Graph::from_onnx(&exported).unwrap(), (import.graph, import.parameters));
        let file = ModelProto::decode(&exported[..]).unwrap().graph.unwrap();
        assert_eq!(file.node.last().unwrap().op_type, "Sigmoid");
    }
}

#[test]
fn unsupported_models_are_refused_with_a_reason() {
    let text = refused(|graph| graph.node[2].op_type = "Erf".into());
    assert!(
        text.starts_with("node 'act' uses op 'Erf', which is not supported; supported are Gemm"),
        "{text}"
    );
    let text = refused(|graph| graph.node[2].domain = "com.example".into());
    assert!(text.starts_with("node 'act' uses op 'com.example.Relu'"), "{text}");
    let text = refused(|graph| graph.node[1].input[1] = "w9".into());
    assert_eq!(text, "node 'fc1' (Gemm): multiplies by 'w9', which is not a constant");
    let text = refused(|graph| graph.node[2].input[0] = "q".into());
    assert_eq!(text, "the model has no output of floats that depends on its input");
    let text = refused(|graph| graph.node.swap(1, 2));
    assert_eq!(text, "node 'act' reads 'h', which nothing before it computes");
    let text = refused(|graph| graph.node[3] = node("res", "Add", &["a", "f"], "y", &[]));
    assert!(text.contains("'res' adds shapes [4] and [6]"), "{text}");
    let text = refused(|graph| graph.node[3] = node("res", "Add", &["a", "a"], "y", &[]));
    assert!(text.contains("'res' adds a value to itself"), "{text}");
    let text = refused(|graph| graph.node[3] = node("cat", "Concat", &["a", "f"], "y", &[("axis", 0)]));
    assert_eq!(text, "node 'cat' (Concat): works on the batch, which would mix samples");
    let text = refused(|graph| graph.node[3] = node("cat", "Concat", &["a", "a"], "y", &[("axis", 1)]));
    assert!(text.contains("'cat' joins a value to itself"), "{text}");
    let text = refused(|graph| graph.node[3] = node("gate", "Mul", &["a", "f"], "y", &[]));
    assert!(text.contains("'gate' multiplies shapes [6] and [4]"), "{text}");
    let text = refused(|graph| {
        graph.node[3] = node("pad", "Pad", &["a"], "y", &[]);
        let (name, ints) = ("pads".into(), vec![0, i64::from(u32::MAX), 0, 0]);
        graph.node[3].attribute.push(AttributeProto { name, ints, ..AttributeProto::default() });
    });
    assert!(text.contains("at most 2^31"), "{text}");
    let text = refused(|graph| {
        graph.node[1].attribute.extend(node("", "", &[], "", &[("transA", 1)]).attribute);
    });
    assert!(text.contains("transA"), "{text}");
    let text = refused(|graph| graph.initializer[0].data_location = 1);
    assert!(text.contains("another file"), "{text}");
    let text = refused(|graph| graph.initializer[1] = float_tensor("b1", &[3], &[0.0; 3]));
    assert_eq!(text, "node 'fc1' (Gemm): the bias has shape [3]; expected [4]");
    let text = refused(|graph| graph.initializer[2] = float_tensor("w2", &[2, 5], &[0.0; 10]));
    assert!(text.contains("'fc2' takes 5 numbers per sample, but its input has shape [4]"), "{text}");
    let text = refused(|graph| graph.initializer[2] = float_tensor("w2", &[2, 4], &[f32::NAN; 8]));
    assert_eq!(text, "tensor 'w2' holds NaN or infinity, so the model cannot be trained");
    let text = refused(|graph| graph.input[0] = value("x", &[None, None, Some(3)]));
    assert!(text.contains("has shape [?, ?, 3]"), "{text}");
    let text = refused(|graph| graph.input.push(value("x2", &[None, Some(3)])));
    assert_eq!(text, "the model has 2 inputs (x, x2); exactly one is supported");
    let text = refused(|graph| graph.node[2].output[0] = "h".into());
    assert_eq!(text, "node 'act' computes 'h' a second time; the file is damaged");
    let text = refused(|graph| graph.output.clear());
    assert!(text.contains("no output"), "{text}");
    let text = refused(|graph| {
        graph.node[3].output[0] = "z".into();
        graph.node.push(node("soft", "Softmax", &["z"], "s", &[]));
        graph.node.push(node("act2", "Relu", &["s"], "y", &[]));
    });
    assert!(text.contains("follows a softmax"), "{text}");
    let text = refused(|graph| {
        graph.initializer[0] = float_tensor("w1", &[6, 6], &[0.0; 36]);
        graph.node[1] = node("fc1", "Gemm", &["f", "w1"], "h", &[("transB", 1)]);
        graph.node[3] = node("fc2", "Gemm", &["a", "w1"], "y", &[]);
    });
    assert!(text.contains("two layers use parameter 'w1' in different ways"), "{text}");
}

#[test]
fn a_shared_weight_is_one_parameter() {
    let import = changed(|graph| {
        graph.initializer[0] = float_tensor("w1", &[6, 6], &[0.5; 36]);
        graph.initializer.push(float_tensor("w3", &[2, 6], &[0.5; 12]));
        graph.node[1] = node("fc1", "Gemm", &["f", "w1"], "h", &[]);
        graph.node[3] = node("fc2", "Gemm", &["a", "w1"], "z", &[]);
        graph.node.push(node("fc3", "Gemm", &["z", "w3"], "y", &[("transB", 1)]));
    })
    .unwrap();
    // The weight is square and its inputs are the model's, so its units cannot be cut.
    assert_eq!((import.parameters.len(), import.graph.full().widths()), (48, &[][..]));
    let fused = PlanOptions { fused: true, ..PlanOptions::train(1) };
    assert!(compile(&import.graph, import.graph.full(), &fused).is_err());
}

#[test]
fn other_operator_sets_are_refused() {
    for version in [-1, 9, 10, 26] {
        let opset_import = vec![OperatorSetIdProto { domain: "ai.onnx".into(), version }];
        let model = ModelProto { opset_import, ..model() };
        assert_eq!(import(&model.encode_to_vec()), Err(ImportError::Opset(version)));
    }
    assert_eq!(import(&[]), Err(ImportError::NoGraph));
    assert!(matches!(import(b"not a model"), Err(ImportError::Decode(_))));
}

#[test]
fn export_comes_back_the_same() {
    for entry in zoo::ALL {
        let (graph, parameters) = entry.build(3);
        for &rate in entry.rates {
            let mask = graph.full().at_rate(rate).unwrap();
            let (slice, packed) = (graph.slice(&mask).unwrap(), graph.gather(&mask, &parameters).unwrap());
            let bytes = export(&slice, &packed, &ExportOptions::default()).unwrap();
            same(&Graph::from_onnx(&bytes).unwrap(), &(slice, packed));
        }
    }
}

/// Equal except for the axes of size 1 that operator set 17 needs for the scales of a group normalisation.
fn same((a, a_parameters): &(Graph, Vec<f32>), (b, b_parameters): &(Graph, Vec<f32>)) {
    assert_eq!((a.name(), a.input(), a.nodes(), a.output()), (b.name(), b.input(), b.nodes(), b.output()));
    assert_eq!((a.param_shapes(), a.full(), a.stats()), (b.param_shapes(), b.full(), b.stats()));
    let names = |graph: &Graph| graph.params().iter().map(|param| param.name.clone()).collect::<Vec<_>>();
    assert_eq!((names(a), a_parameters), (names(b), b_parameters));
}

#[test]
fn export_keeps_metadata_and_checks_lengths() {
    let (graph, parameters) = zoo::by_name("digits-mlp").unwrap().build(0);
    let metadata = [("round", "7".to_owned())];
    let bytes =
        export(&graph, &parameters, &ExportOptions { metadata: &metadata, ..ExportOptions::default() })
            .unwrap();
    let model = ModelProto::decode(&bytes[..]).unwrap();
    assert_eq!(
        (model.metadata_props[0].key.as_str(), model.metadata_props[0].value.as_str()),
        ("round", "7")
    );
    assert!(export(&graph, &parameters[1..], &ExportOptions::default()).is_err());
}

#[test]
fn export_names_do_not_clash() {
    let import = changed(|graph| {
        graph.initializer[0].name = "value2".into();
        graph.node[1].input[1] = "value2".into();
        graph.node.push(node("soft", "Softmax", &["y"], "value1", &[]));
        graph.output[0].name = "value1".into();
    })
    .unwrap();
    let again = |tail| {
        let bytes =
            export(&import.graph, &import.parameters, &ExportOptions { tail, ..ExportOptions::default() })
                .unwrap();
        Graph::from_onnx(&bytes).unwrap()
    };
    assert_eq!(again(true), (import.graph.clone(), import.parameters.clone()));
    let (logits, parameters) = again(false);
    assert_eq!((logits.output().tail, parameters), (None, import.parameters.clone()));
}

proptest! {
    #[test]
    fn random_models_come_back_the_same(seed: u64) {
        let (graph, parameters) = zoo::random(seed);
        let bytes = export(&graph, &parameters, &ExportOptions::default()).unwrap();
        let (again, back) = Graph::from_onnx(&bytes).unwrap();
        prop_assert_eq!(back, parameters);
        prop_assert_eq!((again.inputs(), again.outputs(), again.stats()), (graph.inputs(), graph.outputs(), graph.stats()));
        // A file does not say which embeddings are cut, so what is before a part is compared by its size.
        let op = |graph: &Graph, op: Op| match op {
            Op::Part { axis, before } => {
                Op::Part { axis, before: Dim::fixed(before.size(graph.full()) as u32) }
            }
            op => op,
        };
        let ops = |graph: &Graph| graph.nodes().iter().map(|node| op(graph, node.op)).collect::<Vec<_>>();
        prop_assert_eq!(ops(&again), ops(&graph));
    }

    #[test]
    fn damaged_files_never_panic(
        which in 0usize..9,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        keep in any::<prop::sample::Index>(),
        truncate: bool,
    ) {
        let files: [&[u8]; 9] = [
            include_bytes!("../../tests/fixtures/mlp.graph.onnx"),
            include_bytes!("../../tests/fixtures/sklearn-mlp.onnx"),
            include_bytes!("../../tests/fixtures/gru.torchscript.onnx"),
            include_bytes!("../../tests/fixtures/gru-last.graph.onnx"),
            include_bytes!("../../tests/fixtures/group-norm.torchscript.onnx"),
            include_bytes!("../../tests/fixtures/layer-norm.torchscript.onnx"),
            include_bytes!("../../tests/fixtures/pools.graph.onnx"),
            include_bytes!("../../tests/fixtures/keras-cnn.onnx"),
            &model().encode_to_vec(),
        ];
        let mut bytes = files[which].to_vec();
        for (index, byte) in changes {
            // Structure is at both ends of the files, weights in the middle.
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if truncate {
            bytes.truncate(keep.index(bytes.len()));
        }
        if let Ok((graph, parameters)) = Graph::from_onnx(&bytes) {
            prop_assert_eq!(graph.layout().len(), parameters.len());
            prop_assert!(parameters.iter().all(|x| x.is_finite()));
            let exported = export(&graph, &parameters, &ExportOptions::default()).unwrap();
            let (again, same) = Graph::from_onnx(&exported).unwrap();
            prop_assert_eq!(again.digest(again.full()), graph.digest(graph.full()));
            prop_assert_eq!(same, parameters);
            let options = PlanOptions::train(1);
            prop_assert!(compile(&graph, graph.full(), &options).is_ok());
        }
    }
}
