//! Models that are refused, each with its reason.

use super::*;

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
    assert!(text.starts_with("node 'res' (Add): adds shapes [4] and [6]"), "{text}");
    let text = refused(|graph| graph.node[3] = node("res", "Add", &["a", "a"], "y", &[]));
    assert!(text.starts_with("node 'res' (Add): adds a value to itself"), "{text}");
    let text = refused(|graph| graph.node[3] = node("cat", "Concat", &["a", "f"], "y", &[("axis", 0)]));
    assert_eq!(text, "node 'cat' (Concat): works on the batch, which would mix samples");
    let text = refused(|graph| graph.node[3] = node("cat", "Concat", &["a", "a"], "y", &[("axis", 1)]));
    assert!(text.starts_with("node 'cat' (Concat): joins a value to itself"), "{text}");
    let text = refused(|graph| graph.node[3] = node("gate", "Mul", &["a", "f"], "y", &[]));
    assert!(text.starts_with("node 'gate' (Mul): multiplies shapes [6] and [4]"), "{text}");
    let text = refused(|graph| graph.node[3] = node("square", "Mul", &["a", "a"], "y", &[]));
    assert_eq!(text, "node 'square' (Mul): multiplies a value by itself, which is not supported");
    let text = refused(|graph| {
        graph.initializer.push(integers("five", &[0, 1, 1, 2, 1, 2]));
        graph.node[3] = node("fold", "Reshape", &["a", "five"], "y", &[]);
    });
    assert_eq!(text, "node 'fold' (Reshape): reshapes to 5 dimensions per sample; at most 4 are supported");
    let text = refused(|graph| {
        let numbers = [("start", 0), ("end", 4), ("axis", 1), ("two", 2)];
        graph.initializer.extend(numbers.map(|(name, number)| integers(name, &[number])));
        graph.node[3] = node("half", "Slice", &["a", "start", "end", "axis", "two"], "y", &[]);
    });
    assert_eq!(text, "node 'half' (Slice): takes a part in steps of 2; only steps of 1 are supported");
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
    assert!(
        text.starts_with("node 'fc2' (Gemm): takes 5 numbers per sample, but its input has shape [4]"),
        "{text}"
    );
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
fn other_operator_sets_are_refused() {
    for version in [-1, 9, 10, 29] {
        let opset_import = vec![OperatorSetIdProto { domain: "ai.onnx".into(), version }];
        let model = ModelProto { opset_import, ..model() };
        assert_eq!(import(&model.encode_to_vec()), Err(ImportError::Opset(version)));
    }
    assert_eq!(import(&[]), Err(ImportError::NoGraph));
    assert!(matches!(import(b"not a model"), Err(ImportError::Decode(_))));
}
