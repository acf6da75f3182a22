//! The trainer's forward pass against tract's.

use super::{Agreement, TierSubject};
use crate::grad::ModelSamples;
#[cfg(feature = "tract")]
use crate::{
    infer::{InferError, TractModel},
    onnx,
};

#[cfg(feature = "tract")]
const LIMIT: f64 = 1e-4;

impl TierSubject<'_> {
    #[cfg(not(feature = "tract"))]
    pub(super) fn forward(
        &self,
        _samples: &ModelSamples,
        _logits: &[f32],
        _note: &mut Option<String>,
    ) -> Result<Option<Agreement>, String> {
        Ok(None)
    }

    /// A tier that is the whole model is compared with its file, which is independent of our importer and exporter, unless tract
    /// cannot run it. Every other tier is compared with its export. Where tract is known to be wrong, nothing is compared.
    #[cfg(feature = "tract")]
    pub(super) fn forward(
        &self,
        samples: &ModelSamples,
        logits: &[f32],
        note: &mut Option<String>,
    ) -> Result<Option<Agreement>, String> {
        let file = self.file.filter(|_| self.mask == self.graph.full());
        let model = match file.map(TractModel::load) {
            Some(Ok(model)) => Ok(model),
            Some(Err(error)) => {
                if !matches!(error, InferError::Celu { .. }) {
                    *note = Some(format!("outputs were compared with our export of the file: {error}"));
                }
                self.exported()?
            }
            None => self.exported()?,
        };
        let model = match model {
            Ok(model) => model,
            Err(error @ InferError::Celu { .. }) => {
                *note = Some(format!("outputs were not compared: {error}"));
                return Ok(None);
            }
            Err(error) => return Err(error.to_string()),
        };
        let wanted = model.logits(samples.inputs(&(0..samples.rows()))).map_err(|error| error.to_string())?;
        if wanted.len() != logits.len() {
            return Err(format!("tract gives {} logits, the trainer {}", wanted.len(), logits.len()));
        }
        let largest = wanted.iter().fold(1.0, |largest: f32, x| largest.max(x.abs()));
        let outputs = (wanted.len() / samples.rows()).max(1);
        let mut agreement = Agreement::new(LIMIT);
        for (at, (got, wanted)) in logits.iter().zip(&wanted).enumerate() {
            let error = f64::from((got - wanted).abs() / largest);
            agreement.note(error, || format!("output {} of sample {}", at % outputs, at / outputs));
        }
        Ok(Some(agreement))
    }

    #[cfg(feature = "tract")]
    fn exported(&self) -> Result<Result<TractModel, InferError>, String> {
        let text = |error: &dyn std::error::Error| error.to_string();
        let slice = self.graph.slice(self.mask).map_err(|error| text(&error))?;
        let packed = self.graph.gather(self.mask, self.parameters).map_err(|error| text(&error))?;
        let options = onnx::ExportOptions::default();
        let file = onnx::export(&slice, &packed, &options).map_err(|error| text(&error))?;
        Ok(TractModel::load(&file))
    }
}
