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

mod elementwise;
mod recurrent;

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
        text.starts_with("node 'act' uses op 'Erf', which is not supported; docs/your-own-model.md"),
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
    for version in [-1, 9, 10, 29] {
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

fn names(names: &[&str]) -> TensorProto {
    TensorProto {
        name: "classes".into(),
        dims: vec![names.len() as i64],
        data_type: data_type::STRING,
        string_data: names.iter().map(|name| name.as_bytes().to_vec()).collect(),
        ..TensorProto::default()
    }
}

/// Adds what skl2onnx writes after the probabilities `p`.
fn add_label(graph: &mut GraphProto, classes: TensorProto) {
    let mut pick = node("pick", "ArrayFeatureExtractor", &["classes", "index"], "picked", &[]);
    pick.domain = "ai.onnx.ml".into();
    graph.node.extend([
        node("index", "ArgMax", &["p"], "index", &[("axis", 1)]),
        pick,
        node("shaped", "Reshape", &["picked", "any"], "shaped", &[]),
        node("label", "Cast", &["shaped"], "label", &[("to", data_type::INT64.into())]),
    ]);
    graph.initializer.extend([classes, integers("any", &[-1])]);
    graph.output = vec![value("label", &[None]), value("p", &[None, Some(2)])];
}

fn returns(import: &Import) {
    let exported = export(&import.graph, &import.parameters, &ExportOptions::default()).unwrap();
    let again = super::import(&exported).unwrap();
    assert_eq!(
        (again.graph.output(), again.parameters.len()),
        (import.graph.output(), import.parameters.len())
    );
    assert!(again.notes.iter().all(|note| !note.contains("ignored")), "{:?}", again.notes);
    let logits = ExportOptions { tail: false, ..ExportOptions::default() };
    let logits = export(&import.graph, &import.parameters, &logits).unwrap();
    let output = ModelProto::decode(&logits[..]).unwrap().graph.unwrap().output;
    assert_eq!(output.len(), 1, "a label is made of probabilities");
}

#[test]
fn the_label_of_a_classifier_is_kept() {
    let classifier = |classes: TensorProto| {
        changed(|graph| {
            graph.node.push(node("soft", "Softmax", &["y"], "p", &[]));
            add_label(graph, classes);
        })
        .unwrap()
    };
    let numbers = TensorProto { data_type: data_type::INT32, int32_data: vec![3, -7], ..names(&["", ""]) };
    let import = classifier(numbers);
    let labels =
        Labels { classes: Classes::Numbers(vec![3, -7]), output: Some("label".into()), mapped: false };
    assert_eq!(import.graph.output().labels, Some(labels.clone()));
    assert!(import.notes.iter().all(|note| !note.contains("'label' ignored")), "{:?}", import.notes);
    returns(&import);
    let import = classifier(names(&["cat", "größer"]));
    let words = Classes::Names(vec!["cat".into(), "größer".into()]);
    assert_eq!(import.graph.output().labels, Some(Labels { classes: words, ..labels }));
    returns(&import);
    // Another number of classes, or no text: the label is left out, and the note says so.
    let broken = TensorProto { string_data: vec![vec![0xff], vec![]], ..names(&["", ""]) };
    for classes in [names(&["one"]), names(&["a", "b", "c"]), broken] {
        let import = classifier(classes);
        assert_eq!(import.graph.output().labels, None);
        assert!(import.notes[0].contains("'p' is used; 'label' ignored"), "{:?}", import.notes);
    }
}

#[test]
fn two_classes_share_one_output() {
    let binary = |change: &dyn Fn(&mut GraphProto)| {
        changed(|graph| {
            graph.node[3] = node("fc2", "Gemm", &["a", "w2", "b2"], "y", &[("transB", 1)]);
            graph.initializer[2] = float_tensor("w2", &[1, 4], &[0.5; 4]);
            graph.initializer[3] = float_tensor("b2", &[1], &[0.25]);
            graph.initializer.push(float_tensor("one", &[], &[1.0]));
            graph.node.extend([
                node("sigmoid", "Sigmoid", &["y"], "second", &[]),
                node("sub", "Sub", &["one", "second"], "first", &[]),
                node("both", "Concat", &["first", "second"], "p", &[("axis", 1)]),
            ]);
            add_label(graph, names(&["cat", "dog"]));
            change(graph);
        })
    };
    let import = binary(&|_| {}).unwrap();
    let graph = &import.graph;
    assert_eq!((graph.output().tail, graph.outputs(), graph.probabilities()), (Some(Tail::TwoClasses), 1, 2));
    assert_eq!((default_loss(graph), import.logits.as_str()), (Loss::Sigmoid, "y"));
    assert!(matches!(&graph.output().labels, Some(Labels { mapped: false, output: Some(_), .. })));
    returns(&import);

    let mapped = binary(&|graph| {
        let mut map = node("map", "ZipMap", &["p"], "maps", &[]);
        map.domain = "ai.onnx.ml".into();
        map.attribute.push(AttributeProto {
            name: "classlabels_strings".into(),
            strings: names(&["cat", "dog"]).string_data,
            r#type: proto::attribute_type::STRINGS,
            ..AttributeProto::default()
        });
        graph.node.push(map);
        graph.output[1] = ValueInfoProto { name: "maps".into(), r#type: None };
    });
    let mapped = mapped.unwrap();
    assert!(matches!(&mapped.graph.output().labels, Some(Labels { mapped: true, output: Some(_), .. })));
    returns(&mapped);

    // Not the probabilities of two classes.
    let swapped = binary(&|graph| graph.node[6].input.swap(0, 1));
    let half = binary(&|graph| graph.initializer[4] = float_tensor("one", &[], &[0.5]));
    for other in [swapped, half] {
        assert!(other.is_err() || other.unwrap().graph.output().tail.is_none());
    }
}

#[test]
fn weights_of_other_types_become_float() {
    let halves = |name: &str, dims: &[usize], bits: u16| TensorProto {
        data_type: data_type::FLOAT16,
        raw_data: bits.to_le_bytes().repeat(dims.iter().product()),
        ..float_tensor(name, dims, &[])
    };
    let import = changed(|graph| {
        graph.initializer[0] = halves("w1", &[4, 6], 0x3800);
        graph.initializer[1] = halves("b1", &[4], 0xbc00);
        let doubles = [0.5f64; 8].iter().flat_map(|x| x.to_le_bytes()).collect();
        graph.initializer[2] = float_tensor("w2", &[2, 4], &[]);
        (graph.initializer[2].data_type, graph.initializer[2].raw_data) = (data_type::DOUBLE, doubles);
        graph.node.insert(0, node("cast", "Cast", &["x"], "c", &[("to", data_type::FLOAT16.into())]));
        graph.node[1].input[0] = "c".into();
        for value in [&mut graph.input[0], &mut graph.output[0]] {
            value.r#type.as_mut().unwrap().tensor_type.as_mut().unwrap().elem_type = data_type::FLOAT16;
        }
    })
    .unwrap();
    assert_eq!(import.parameters[..24], [0.5; 24]);
    assert_eq!(import.parameters[24..36], [[-1.0; 4], [0.5; 4], [0.5; 4]].concat());
    assert_eq!(
        import.notes,
        [
            "weights of type float16 become float",
            "weights of type double become float",
            "the input takes float instead of float16"
        ]
    );
}

#[test]
fn what_operator_sets_changed() {
    let at = |version: i64, change: &dyn Fn(&mut GraphProto)| {
        let mut model = model();
        model.opset_import[0].version = version;
        change(model.graph.as_mut().unwrap());
        import(&model.encode_to_vec())
    };
    // Before 13 a softmax without axis takes axis 1 and all after it; the last axis of [N, classes] is the same.
    let softmax = |graph: &mut GraphProto| {
        graph.node.push(node("soft", "Softmax", &["y"], "p", &[]));
        graph.output[0].name = "p".into();
    };
    for version in [11, 12, 13, 18, *OPSETS.end()] {
        assert_eq!(at(version, &softmax).unwrap().graph.output().tail, Some(Tail::Softmax), "{version}");
    }
    // The rate of a dropout is an attribute before 12, then an operand.
    let dropped = |graph: &mut GraphProto| {
        graph.node.insert(3, node("drop", "Dropout", &["a", "rate"], "d", &[]));
        graph.node[4].input[0] = "d".into();
        graph.initializer.push(float_tensor("rate", &[], &[0.25]));
    };
    assert_eq!(at(22, &dropped).unwrap().graph.nodes()[3].op, Op::Dropout { rate: 0.25 });
    // Batch statistics at run time would be another model.
    let training = |graph: &mut GraphProto| {
        let norm =
            node("norm", "BatchNormalization", &["h", "b1", "b1", "b1", "b1"], "n", &[("training_mode", 1)]);
        graph.node.insert(2, norm);
        graph.node[3].input[0] = "n".into();
    };
    let text = at(15, &training).unwrap_err().to_string();
    assert!(text.contains("node 'norm' (BatchNormalization)") && text.contains("model.eval()"), "{text}");
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
fn metadata_of_a_file_is_kept_within_bounds() {
    let (graph, parameters) = zoo::build("mlp:4-8-3", 1).unwrap();
    let entries = [("author", "me".to_owned()), ("round", "3".to_owned()), ("long", "x".repeat(16 << 20))];
    let options = ExportOptions { metadata: &entries, ..ExportOptions::default() };
    let read = import(&export(&graph, &parameters, &options).unwrap()).unwrap();
    assert_eq!(
        read.graph.metadata().iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(),
        ["author", "round"]
    );
    assert!(
        read.notes.iter().any(|note| note.starts_with("1 entries of metadata are left out")),
        "{:?}",
        read.notes
    );

    // A slice keeps it; the entries of an export replace those of the file.
    let half = crate::TierSpec::Rate(0.5).mask(&read.graph).unwrap();
    let slice = read.graph.slice(&half).unwrap();
    let packed = read.graph.gather(&half, &read.parameters).unwrap();
    let entries = [("round", "4".to_owned())];
    let options = ExportOptions { metadata: &entries, ..ExportOptions::default() };
    let (again, _) = Graph::from_onnx(&export(&slice, &packed, &options).unwrap()).unwrap();
    assert_eq!((again.metadata_of("author"), again.metadata_of("round")), (Some("me"), Some("4")));
    assert_eq!(again.with_metadata("round", None).metadata().len(), 1);
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
        prop_assert_eq!(again.constants(), graph.constants());
    }

    #[test]
    fn damaged_files_never_panic(
        which in 0usize..10,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        keep in any::<prop::sample::Index>(),
        truncate: bool,
    ) {
        let files: [&[u8]; 10] = [
            include_bytes!("../../tests/fixtures/mlp.graph.onnx"),
            include_bytes!("../../tests/fixtures/sklearn-mlp.onnx"),
            include_bytes!("../../tests/fixtures/gru.torchscript.onnx"),
            include_bytes!("../../tests/fixtures/gru-last.graph.onnx"),
            include_bytes!("../../tests/fixtures/lstm-stacked.torchscript.onnx"),
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
