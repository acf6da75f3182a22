//! The files that people read: the model, the state of the run.

use std::time::Instant;

use common::Tier;
use models::onnx::{self, ExportOptions};
use serde_json::{Map, Value, json};

use super::{Keeper, KeeperError};
use crate::status::{self, replace};
use coordinator::report::RoundReport;

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
        self.status = Some(self.run_status(report.purpose == "evaluate", &json!(report)));
    }

    /// What `status.json` says of the run.
    pub(crate) fn run_status(&self, finished: bool, last_round: &Value) -> Map<String, Value> {
        let fields = [
            ("strategy", json!(self.method.name())),
            ("committed", json!(self.committed)),
            ("rounds", json!(self.settings.rounds)),
            ("finished", json!(finished)),
            ("last_round", last_round.clone()),
        ];
        fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Brings the files up to date.
    pub(super) fn write_files(&mut self) -> Result<(), KeeperError> {
        let Some(status) = self.status.take() else { return Ok(()) };
        self.write_model()?;
        self.write_status(&status)?;
        self.written = Some(Instant::now());
        Ok(())
    }

    pub(crate) fn write_status(&self, run: &Map<String, Value>) -> Result<(), KeeperError> {
        let (Some(dir), Some(file)) = (&self.dir, &self.status_file) else { return Ok(()) };
        file.write_run(run).map_err(|source| KeeperError::Write { path: dir.join(status::FILE), source })
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), KeeperError> {
        let Some(dir) = &self.dir else { return Ok(()) };
        replace(dir, name, bytes).map_err(|source| KeeperError::Write { path: dir.join(name), source })
    }
}
