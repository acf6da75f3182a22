//! Recurrent layers as ONNX allows them: what is read, and what is refused with which advice.

use super::*;

/// x[N, 5, 3] -> LSTM of 2 units, layout 1 -> Y_h -> Squeeze -> y.
fn lstm() -> ModelProto {
    let mut layer = node(
        "lstm",
        "LSTM",
        &["x", "w", "r", "b", "", "", "", ""],
        "",
        &[("hidden_size", 2), ("layout", 1), ("input_forget", 0)],
    );
    layer.output.push("h".into());
    layer.attribute.push(texts("activations", &["Sigmoid", "Tanh", "Tanh"]));
    let numbers = |len: usize| (0..len).map(|i| i as f32 / 8.0).collect::<Vec<_>>();
    let mut model = model();
    model.graph = Some(GraphProto {
        name: "m".into(),
        node: vec![layer, node("squeeze", "Squeeze", &["h", "axes"], "y", &[])],
        initializer: vec![
            float_tensor("w", &[1, 8, 3], &numbers(24)),
            float_tensor("r", &[1, 8, 2], &numbers(16)),
            float_tensor("b", &[1, 16], &numbers(16)),
            integers("axes", &[1]),
        ],
        input: vec![value("x", &[None, Some(5), Some(3)])],
        output: vec![value("y", &[None, Some(2)])],
    });
    model
}

fn texts(name: &str, values: &[&str]) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        strings: values.iter().map(|text| text.as_bytes().to_vec()).collect(),
        r#type: proto::attribute_type::STRINGS,
        ..AttributeProto::default()
    }
}

fn changed(change: impl FnOnce(&mut GraphProto)) -> Result<Import, ImportError> {
    let mut model = lstm();
    change(model.graph.as_mut().unwrap());
    import(&model.encode_to_vec())
}

#[test]
fn a_layer_of_which_only_the_final_state_is_read() {
    let import = changed(|_| {}).unwrap();
    let names: Vec<&str> = import.graph.nodes().iter().map(|node| node.op.name()).collect();
    assert_eq!(names, ["Lstm", "Last"]);
    let exported = export(&import.graph, &import.parameters, &ExportOptions::default()).unwrap();
    let (again, same) = Graph::from_onnx(&exported).unwrap();
    assert_eq!(again.digest(again.full()), import.graph.digest(import.graph.full()));
    assert_eq!(same, import.parameters);
}

/// An output without a name is not there. It was mistaken for an operand that is left out, and the layer refused.
#[test]
fn a_layer_with_an_unnamed_cell() {
    let plain = changed(|_| {}).unwrap();
    let unnamed = changed(|graph| graph.node[0].output.push(String::new())).unwrap();
    assert_eq!(unnamed.graph.digest(unnamed.graph.full()), plain.graph.digest(plain.graph.full()));
}

/// Neutral operands and attributes may be written out, and the size of the state may be left out.
#[test]
fn what_has_no_effect_is_no_error() {
    let plain = changed(|_| {}).unwrap();
    let written_out = changed(|graph| {
        for (place, name) in [(4, "lengths"), (5, "zeros"), (6, "zeros"), (7, "peepholes")] {
            graph.node[0].input[place] = name.into();
        }
        graph.node[0].attribute.remove(0);
        graph.initializer.extend([
            integers("lengths", &[5]),
            float_tensor("zeros", &[1, 1, 2], &[0.0; 2]),
            float_tensor("peepholes", &[1, 6], &[0.0; 6]),
        ]);
    })
    .unwrap();
    assert_eq!((written_out.graph, written_out.parameters), (plain.graph, plain.parameters));
}

/// tract reads the functions of an RNN as tanh, whatever they are.
#[test]
fn a_plain_layer_has_tanh() {
    let plain = |function: &str| {
        changed(|graph| {
            graph.node[0].op_type = "RNN".into();
            graph.node[0].attribute.pop();
            graph.node[0].attribute.push(texts("activations", &[function]));
            graph.initializer[0] = float_tensor("w", &[1, 2, 3], &[0.5; 6]);
            graph.initializer[1] = float_tensor("r", &[1, 2, 2], &[0.5; 4]);
            graph.initializer[2] = float_tensor("b", &[1, 4], &[0.5; 4]);
        })
    };
    assert_eq!(plain("Tanh").unwrap().graph.nodes()[0].op.name(), "Rnn");
    let text = plain("Relu").unwrap_err().to_string();
    assert!(text.contains("has the activations Relu; export it with Tanh instead"), "{text}");
}

#[test]
fn what_is_not_supported_is_refused_with_advice() {
    type Change = fn(&mut GraphProto);
    let attribute = |graph: &mut GraphProto, name: &str, s: &str| {
        let s = Some(s.as_bytes().to_vec());
        graph.node[0].attribute.push(AttributeProto { name: name.into(), s, ..AttributeProto::default() });
    };
    for direction in ["bidirectional", "reverse"] {
        let text = changed(|graph| attribute(graph, "direction", direction)).unwrap_err().to_string();
        let advice = if direction == "reverse" { "reverse the steps" } else { "bidirectional=False" };
        assert!(text.contains("'lstm' (LSTM)") && text.contains(advice), "{text}");
    }
    let cases: [(Change, &str); 9] = [
        (|graph| graph.node[0].attribute[2].i = Some(1), "set input_forget to 0"),
        (|graph| graph.node[0].attribute[1].i = Some(0), "batch_first=True"),
        (
            |graph| graph.node[0].attribute[3] = texts("activations", &["HardSigmoid", "Tanh", "Tanh"]),
            "activations HardSigmoid, Tanh, Tanh; export it with Sigmoid, Tanh, Tanh",
        ),
        (
            |graph| {
                let (name, f) = ("clip".to_owned(), Some(1.0));
                graph.node[0].attribute.push(AttributeProto { name, f, ..AttributeProto::default() });
            },
            "export it without clip",
        ),
        (
            |graph| {
                graph.node[0].input[4] = "lengths".into();
                graph.initializer.push(integers("lengths", &[5, 4]));
            },
            "pad all to one length",
        ),
        (
            |graph| {
                graph.node[0].input[6] = "cell".into();
                graph.initializer.push(float_tensor("cell", &[1, 1, 2], &[0.0, 0.5]));
            },
            "leave out the initial state",
        ),
        (
            |graph| {
                graph.node[0].input[7] = "peepholes".into();
                graph.initializer.push(float_tensor("peepholes", &[1, 6], &[0.5; 6]));
            },
            "peepholes",
        ),
        (
            |graph| {
                graph.node[0].output.push("c".into());
                graph.node[1].input[0] = "c".into();
            },
            "read its final state",
        ),
        (|graph| graph.initializer[1] = float_tensor("r", &[1, 8, 4], &[0.0; 32]), "expected [1, 8, 2]"),
    ];
    for (change, advice) in cases {
        let text = changed(change).unwrap_err().to_string();
        assert!(text.contains("'lstm' (LSTM)") && text.contains(advice), "{advice}: {text}");
    }
}
