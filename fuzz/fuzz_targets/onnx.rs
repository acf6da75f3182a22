//! A model in a folder that it may read weights from, then import, compilation to a Plan and export.
#![no_main]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use libfuzzer_sys::fuzz_target;
use models::{
    Graph, onnx,
    plan::{PlanOptions, compile},
};

/// What no model may read.
const SECRET: &[u8] = b"this is outside of the folder of the model";

/// The folder of the model: weights in it and below it, links that stay in it, and links that leave it.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let town = fuzz::place().join(format!("fairtier-fuzz-{}-model", std::process::id()));
    make(&town).expect("the directory for temporary files can be written to");
    town.join("model")
});

fn make(town: &Path) -> std::io::Result<()> {
    let _ = fs::remove_dir_all(town);
    let folder = town.join("model");
    fs::create_dir_all(folder.join("sub"))?;
    let weights: Vec<u8> = (0..1024u16).flat_map(|i| (f32::from(i) / 64.0).to_le_bytes()).collect();
    fs::write(folder.join("w"), &weights)?;
    fs::write(folder.join("sub/w"), weights)?;
    fs::write(town.join("secret"), SECRET)?;
    for (target, link) in
        [("sub/w", "inner"), ("../secret", "leak"), ("..", "up"), ("/dev/zero", "zero"), ("loop", "loop")]
    {
        std::os::unix::fs::symlink(target, folder.join(link))?;
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let path = FOLDER.join("net.onnx");
    fs::write(&path, data).expect("the folder can be written to");
    let Ok(file) = onnx::read(&path) else { return };
    let leaks = |bytes: &[u8]| bytes.windows(SECRET.len()).any(|part| part == SECRET);
    assert!(!leaks(&file) || leaks(data), "a file outside of the folder was read");
    let Ok((graph, parameters)) = Graph::from_onnx(&file) else { return };
    let _ = compile(&graph, graph.full(), &PlanOptions::train(4));
    let _ = onnx::export(&graph, &parameters, &onnx::ExportOptions::default());
    // A tier's slice of it.
    let Ok(mask) = graph.full().at_rate(0.5) else { return };
    let (Ok(slice), Ok(packed)) = (graph.slice(&mask), graph.gather(&mask, &parameters)) else { return };
    let _ = compile(&graph, &mask, &PlanOptions::train(4));
    let file = onnx::export(&slice, &packed, &onnx::ExportOptions::default()).expect("a slice can be exported");
    let (again, same) = Graph::from_onnx(&file).expect("an exported slice can be read");
    assert_eq!((again.layout().len(), same.len()), (slice.layout().len(), packed.len()));
});
