//! Layers: how nodes become one layer, and which become none.

use super::*;

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
