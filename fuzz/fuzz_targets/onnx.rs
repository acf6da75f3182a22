//! A model in a folder that it may read weights from, then import, compilation to a Plan and export.
#![no_main]

use std::sync::LazyLock;

use fuzz::ModelFolder;
use libfuzzer_sys::fuzz_target;
use models::{
    Graph, onnx,
    plan::{PlanOptions, compile},
};

static FOLDER: LazyLock<ModelFolder> = LazyLock::new(|| ModelFolder::make("model"));

fuzz_target!(|data: &[u8]| {
    let Ok(file) = FOLDER.read(data) else { return };
    let Ok((graph, parameters)) = Graph::from_onnx(&file) else { return };
    let _ = compile(&graph, graph.full(), &PlanOptions::train(4));
    let _ = onnx::export(&graph, &parameters, &onnx::ExportOptions::default());
    // A tier's slice of it.
    let Ok(mask) = graph.full().at_rate(0.5) else { return };
    let (Ok(slice), Ok(packed)) = (graph.slice(&mask), graph.gather(&mask, &parameters)) else { return };
    let _ = compile(&graph, &mask, &PlanOptions::train(4));
    let file =
        onnx::export(&slice, &packed, &onnx::ExportOptions::default()).expect("a slice can be exported");
    let (again, same) = Graph::from_onnx(&file).expect("an exported slice can be read");
    assert_eq!((again.layout().len(), same.len()), (slice.layout().len(), packed.len()));
});
