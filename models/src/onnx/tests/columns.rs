//! Columns that a pipeline chooses, names of their nodes, and what is refused of pipelines and loops.

use super::*;

/// What follows a list of columns of the six inputs.
fn chosen(columns: &[i64], pick: NodeProto) -> Result<Import, ImportError> {
    changed(|graph| {
        graph.initializer.push(integers("columns", columns));
        graph.initializer[0] = float_tensor("w1", &[4, columns.len()], &vec![0.5; 4 * columns.len()]);
        graph.node[1].input[0] = "picked".into();
        graph.node.insert(1, pick);
    })
}

fn extractor() -> NodeProto {
    let domain = "ai.onnx.ml".into();
    NodeProto { domain, ..node("pick", "ArrayFeatureExtractor", &["f", "columns"], "picked", &[]) }
}

#[test]
fn listed_columns_become_parts() {
    let gather = || node("pick", "Gather", &["f", "columns"], "picked", &[("axis", -1)]);
    let (part, join) = ("Part", "Concat");
    let cases: [(&[i64], &[&str]); 5] = [
        (&[0, 1, 2, 3, 4, 5], &[]),
        (&[2, 3, 4], &[part]),
        (&[0, 2, 3, 5], &[part, part, join, part, join]),
        (&[5, 0], &[part, part, join]),
        (&[1, 1], &[part, part, join]),
    ];
    for (columns, expected) in cases {
        for pick in [extractor(), gather()] {
            let import = chosen(columns, pick).unwrap();
            let names: Vec<_> = import.graph.nodes().iter().map(|node| node.op.name()).collect();
            assert_eq!(
                names,
                [&["Flatten"][..], expected, &["Dense", "Relu", "Dense"]].concat(),
                "{columns:?}"
            );
            let file = export(&import.graph, &import.parameters, &ExportOptions::default()).unwrap();
            let again = super::import(&file).unwrap();
            assert_eq!(again.graph.nodes().len(), names.len());
            assert_eq!(again.parameters, import.parameters);
        }
    }
    assert_eq!(chosen(&[4, -1], gather()).unwrap().graph.nodes().len(), 5, "the last two are neighbours");
}

#[test]
fn columns_that_are_not_there_or_too_many_are_refused() {
    for columns in [&[6][..], &[5, 6], &[0, 7], &[i64::MAX, i64::MAX], &[i64::MIN, -1]] {
        let error = chosen(columns, extractor()).unwrap_err();
        assert!(error.to_string().starts_with("node 'pick"), "{columns:?}: {error}");
    }
    let error = chosen(&[0, 2].repeat(40), extractor()).unwrap_err();
    assert!(error.to_string().contains("takes 80 separate parts; at most 64"), "{error}");
    assert!(error.advice().unwrap().contains("fewer separate ones"), "{error}");
    assert!(chosen(&[], extractor()).is_err());
}

/// skl2onnx states the lowest operator set that a model needs: another one would not help.
#[test]
fn a_model_without_layers_is_named_before_its_operator_set() {
    let mut model = model();
    model.opset_import[0].version = 9;
    let old = import(&model.encode_to_vec()).unwrap_err().to_string();
    assert!(old.contains("operator set 9"), "{old}");
    let graph = model.graph.as_mut().unwrap();
    (graph.node[3].op_type, graph.node[3].domain) = ("LinearClassifier".into(), "ai.onnx.ml".into());
    let error = import(&model.encode_to_vec()).unwrap_err();
    assert!(error.to_string().contains("uses op 'ai.onnx.ml.LinearClassifier'"), "{error}");
    assert!(error.advice().unwrap().contains("MLPClassifier"), "{error}");
}

/// PyTorch's newer exporter writes nn.EmbeddingBag so: the body reads the input, and the node does not name it.
#[test]
fn a_loop_whose_body_reads_the_input_is_named() {
    let error = changed(|graph| {
        graph.initializer.push(integers("count", &[1]));
        graph.node[2] = node("empty", "SequenceEmpty", &[], "s", &[]);
        graph.node[3] = node("loop", "Loop", &["count", "", "s"], "y", &[]);
    })
    .unwrap_err();
    assert!(error.to_string().starts_with("node 'empty' uses op 'SequenceEmpty'"), "{error}");
    assert!(error.advice().unwrap().contains("nn.Embedding"), "{error}");
}

/// ONNX Runtime refuses a file in which two nodes have one name.
#[test]
fn nodes_that_one_node_has_become_have_names_of_their_own() {
    let import = changed(|graph| {
        graph.input[0] = value("x", &[None, Some(2), Some(3), Some(4)]);
        let mut turn = node("turn", "Transpose", &["x"], "t", &[]);
        let (name, ints) = ("perm".into(), vec![0, 3, 2, 1]);
        turn.attribute.push(AttributeProto { name, ints, ..AttributeProto::default() });
        graph.node[0].input[0] = "t".into();
        graph.node.insert(0, turn);
        graph.initializer[0] = float_tensor("w1", &[4, 24], &[0.5; 96]);
    })
    .unwrap();
    let file = export(&import.graph, &import.parameters, &ExportOptions::default()).unwrap();
    let nodes = ModelProto::decode(&file[..]).unwrap().graph.unwrap().node;
    assert!(nodes.iter().filter(|node| node.op_type == "Transpose").count() > 1, "{nodes:?}");
    let mut names: Vec<_> = nodes.iter().map(|node| &node.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), nodes.len());
}
