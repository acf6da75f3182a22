//! The label that a classifier puts behind its probabilities.

use super::*;

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
