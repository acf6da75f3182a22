//! ONNX import, and what follows from it: a Plan, and the file again.
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
