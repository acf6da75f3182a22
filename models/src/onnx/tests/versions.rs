//! Types of numbers and operator sets.

use super::*;

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
