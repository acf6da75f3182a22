//! Names that exporters give to constants which they fill in for layers without parameters.

use crate::{
    Graph,
    graph::{Builder, Param, ValueId},
    onnx::{ExportOptions, export},
};

/// A trained scale of ones is not taken for a constant of the exporter, whatever its name.
#[test]
fn a_scale_of_ones_stays_a_parameter() {
    for name in ["scale", "val_2", "norm.ones"] {
        let mut builder = Builder::new("net", "x", &[3]).unwrap();
        let hidden = builder.dense("a", ValueId::INPUT, 3, 4, Param::plain("a"), None).unwrap();
        let params = [Some(Param::plain(name)), None];
        let normed = builder.layer_norm("n", hidden, 1, 1e-5, params).unwrap();
        let logits = builder.dense("b", normed, 4, 2, Param::plain("b"), None).unwrap();
        let graph = builder.finish("y", logits, None).unwrap();
        let parameters = vec![1.0; graph.layout().len()];
        let file = export(&graph, &parameters, &ExportOptions::default()).unwrap();
        let (again, read) = Graph::from_onnx(&file).unwrap();
        assert_eq!((again.layout().len(), &read), (graph.layout().len(), &parameters), "{name}");
    }
}
