//! The files that people read: the model, the state of the run.

use std::{fs, io, path::Path, time::Instant};

use common::Tier;
use models::onnx::{self, ExportOptions};
use serde_json::json;

use super::{Keeper, KeeperError};
use crate::report::RoundReport;

impl Keeper {
    /// A tier's sub-model as an ONNX file.
    pub(super) fn export(&self, tier: Tier) -> Result<Vec<u8>, KeeperError> {
        let mask = self.model.masks.get(tier.index()).unwrap_or(self.model.graph.full());
        let slice = self.model.graph.gather(mask, &self.parameters)?;
        let metadata = [("round", self.committed.to_string()), ("tier", tier.index().to_string())];
        let options = ExportOptions { metadata: &metadata, ..ExportOptions::default() };
        Ok(onnx::export(&self.model.graph.slice(mask)?, &slice, &options)?)
    }

    /// The present model, for whoever looks at the directory.
    pub fn write_model(&self) -> Result<(), KeeperError> {
        if self.dir.is_none() {
            return Ok(());
        }
        let metadata = [("round", self.committed.to_string())];
        let options = ExportOptions { metadata: &metadata, ..ExportOptions::default() };
        let file = onnx::export(&self.model.graph, &self.parameters, &options)?;
        self.write("model.onnx", &file)
    }

    /// Makes a report known; the files are due.
    pub(super) fn publish(&mut self, report: &RoundReport) {
        if let Some(observer) = &mut self.observer {
            observer(report);
        }
        let status = json!({
            "strategy": self.method.name(),
            "committed": self.committed,
            "finished": report.purpose == "evaluate",
            "last_round": report,
        });
        self.status = Some(status.to_string());
    }

    /// Brings the files up to date.
    pub(super) fn write_files(&mut self) -> Result<(), KeeperError> {
        let Some(status) = self.status.take() else { return Ok(()) };
        self.write_model()?;
        self.write("status.json", status.as_bytes())?;
        self.written = Some(Instant::now());
        Ok(())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), KeeperError> {
        let Some(dir) = &self.dir else { return Ok(()) };
        replace(dir, name, bytes).map_err(|source| KeeperError::Write { path: dir.join(name), source })
    }
}

/// Whoever reads sees the old file or the new one, never half of one.
pub fn replace(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let part = dir.join(format!(".{name}.part"));
    fs::write(&part, bytes).and_then(|()| fs::rename(&part, dir.join(name)))
}
