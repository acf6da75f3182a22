//! The files that users read: the model, the state of the run, recorded rounds.

use std::{fmt, path::PathBuf, time::Instant};

use common::Tier;
use coordinator::{conductor::Recorder, report::RoundReport};
use models::onnx::{self, ExportOptions};
use serde_json::{Map, Value, json};
use strategies::{
    roundfile::{RoundDump, record},
    updates::Updates,
};
use tracing::warn;
use trainer::data::schema::METADATA_KEY;

use super::{RoundWorker, WorkerError};
use crate::status::{self, replace};

/// Where round files go, if rounds are recorded.
#[derive(Debug)]
pub(super) struct RoundFiles(pub(super) Option<PathBuf>);

impl Recorder for RoundFiles {
    fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// A round counts even if its file cannot be written.
    fn record<U: Updates<Value = f32>>(&mut self, dump: RoundDump<'_, U>)
    where
        U::Error: fmt::Display,
    {
        let Some(dir) = &self.0 else { return };
        let round = dump.cohort.round;
        if let Err(failed) = record(dir, dump) {
            warn!(round, "the round file is missing: {failed}");
        }
    }
}

impl RoundWorker {
    /// A tier's sub-model as an ONNX file.
    pub(super) fn export(&self, tier: Tier) -> Result<Vec<u8>, WorkerError> {
        let mask = &self.conductor.run.model.masks[tier.index()];
        let slice = self.conductor.run.model.graph.gather(mask, &self.conductor.run.parameters)?;
        let mut metadata = self.metadata()?;
        metadata.push(("tier", tier.index().to_string()));
        let options = ExportOptions { metadata: &metadata, ..ExportOptions::default() };
        Ok(onnx::export(&self.conductor.run.model.graph.slice(mask)?, &slice, &options)?)
    }

    /// What files say besides the model: its round, and what the columns of samples mean.
    fn metadata(&self) -> Result<Vec<(&'static str, String)>, WorkerError> {
        let schema = self.schema.as_ref().map(|schema| schema.text()).transpose()?.flatten();
        let round = ("round", self.conductor.run.committed.to_string());
        Ok(std::iter::once(round).chain(schema.map(|text| (METADATA_KEY, text))).collect())
    }

    /// Writes the present model into the gateway's directory.
    pub(crate) fn write_model(&self) -> Result<(), WorkerError> {
        if self.dir.is_none() {
            return Ok(());
        }
        let metadata = self.metadata()?;
        let options = ExportOptions { metadata: &metadata, ..ExportOptions::default() };
        let file = onnx::export(&self.conductor.run.model.graph, &self.conductor.run.parameters, &options)?;
        self.write("model.onnx", &file)
    }

    /// Publishes a report; the files are due.
    pub(super) fn publish(&mut self, report: &RoundReport) {
        if let Some(observer) = &mut self.observer {
            observer(report);
        }
        self.status = Some(self.run_status(report.purpose == "evaluate", &json!(report)));
    }

    /// The part of `status.json` about the run.
    pub(crate) fn run_status(&self, finished: bool, last_round: &Value) -> Map<String, Value> {
        // Commands that run beside the server cannot ask the store. One that cannot be read is reported by `verify`.
        let kept = self.dir.as_ref().map(|_| self.store.kept_models().unwrap_or_default());
        let fields = [
            ("strategy", json!(self.conductor.run.method.name())),
            ("committed", json!(self.conductor.run.committed)),
            ("rounds", json!(self.conductor.run.settings.rounds)),
            ("finished", json!(finished)),
            ("last_round", last_round.clone()),
            ("best", json!(self.conductor.run.best)),
            ("stopped", json!(self.conductor.early_stop().map(|stop| stop.to_string()))),
            ("models", json!(kept)),
        ];
        fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Brings the files up to date.
    pub(super) fn write_files(&mut self) -> Result<(), WorkerError> {
        let Some(status) = self.status.take() else { return Ok(()) };
        self.write_model()?;
        self.write_status(&status)?;
        self.written = Some(Instant::now());
        Ok(())
    }

    pub(crate) fn write_status(&self, run: &Map<String, Value>) -> Result<(), WorkerError> {
        let (Some(dir), Some(file)) = (&self.dir, &self.status_file) else { return Ok(()) };
        file.write_run(run).map_err(|source| WorkerError::Write { path: dir.join(status::FILE), source })
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), WorkerError> {
        let Some(dir) = &self.dir else { return Ok(()) };
        replace(dir, name, bytes).map_err(|source| WorkerError::Write { path: dir.join(name), source })
    }
}
