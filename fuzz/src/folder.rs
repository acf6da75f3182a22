//! The folder of a model that keeps weights in other files, beside a file that no model may read.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// What no model may read.
const SECRET: &[u8] = b"this is outside of the folder of the model";

/// Weights in the folder and below it, links that stay in it, and links that leave it.
pub struct ModelFolder {
    /// Without links.
    pub path: PathBuf,
}

impl ModelFolder {
    /// Makes the folder anew; `name` is that of the target.
    pub fn make(name: &str) -> Self {
        let town = crate::place().join(format!("fairtier-fuzz-{}-{name}", std::process::id()));
        fill(&town).expect("the directory for temporary files can be written to");
        Self { path: fs::canonicalize(town.join("model")).expect("the folder was just made") }
    }

    /// Writes a model into the folder, and reads it with its weights. Fails if that reads a file outside of the folder.
    pub fn read(&self, model: &[u8]) -> Result<Vec<u8>, models::onnx::ReadError> {
        let path = self.path.join("net.onnx");
        fs::write(&path, model).expect("the folder can be written to");
        let file = models::onnx::read(&path)?;
        // Most models are one file. A search in each, observed comparison by comparison, takes an eighth of the time.
        if file != model {
            let leaks = |bytes: &[u8]| bytes.windows(SECRET.len()).any(|part| part == SECRET);
            assert!(!leaks(&file) || leaks(model), "a file outside of the folder was read");
        }
        Ok(file)
    }
}

fn fill(town: &Path) -> io::Result<()> {
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
