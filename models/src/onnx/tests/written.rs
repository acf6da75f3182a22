//! Export, and import of what was exported or damaged.

use super::*;

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
            include_bytes!("../../../tests/fixtures/mlp.graph.onnx"),
            include_bytes!("../../../tests/fixtures/sklearn-mlp.onnx"),
            include_bytes!("../../../tests/fixtures/gru.torchscript.onnx"),
            include_bytes!("../../../tests/fixtures/gru-last.graph.onnx"),
            include_bytes!("../../../tests/fixtures/lstm-stacked.torchscript.onnx"),
            include_bytes!("../../../tests/fixtures/group-norm.torchscript.onnx"),
            include_bytes!("../../../tests/fixtures/layer-norm.torchscript.onnx"),
            include_bytes!("../../../tests/fixtures/pools.graph.onnx"),
            include_bytes!("../../../tests/fixtures/keras-cnn.onnx"),
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
