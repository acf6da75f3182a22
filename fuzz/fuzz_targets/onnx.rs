//! ONNX import, then compilation to a Plan and export.
#![no_main]

use libfuzzer_sys::fuzz_target;
use models::{
    Graph, onnx,
    plan::{PlanOptions, compile},
};

fuzz_target!(|data: &[u8]| {
    let Ok((graph, parameters)) = Graph::from_onnx(data) else { return };
    let _ = compile(&graph, graph.full(), &PlanOptions::train(4));
    let _ = onnx::export(&graph, &parameters, &onnx::ExportOptions::default());
});
