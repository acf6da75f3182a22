//! The trainer's forward pass against tract's.

use super::{Agreement, Subject};
use crate::grad::Samples;

#[cfg(feature = "tract")]
const LIMIT: f64 = 1e-4;

impl Subject<'_> {
    #[cfg(not(feature = "tract"))]
    pub(super) fn forward(&self, _samples: &Samples, _logits: &[f32]) -> Result<Option<Agreement>, String> {
        Ok(None)
    }

    /// A tier that is the whole model is compared with its file, which our importer and exporter had no
    /// hand in; every other with its export.
    #[cfg(feature = "tract")]
    pub(super) fn forward(&self, samples: &Samples, logits: &[f32]) -> Result<Option<Agreement>, String> {
        use crate::{infer::Model, onnx};

        let exported;
        let file = match self.file.filter(|_| self.mask == self.graph.full()) {
            Some(file) => file,
            None => {
                let slice = self.graph.slice(self.mask).map_err(|error| error.to_string())?;
                let packed =
                    self.graph.gather(self.mask, self.parameters).map_err(|error| error.to_string())?;
                exported = onnx::export(&slice, &packed, &onnx::ExportOptions::default())
                    .map_err(|error| error.to_string())?;
                &exported
            }
        };
        let model = Model::load(file).map_err(|error| error.to_string())?;
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
}
