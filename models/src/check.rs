//! Checks a model: every tier is cut, compiled and run, and compared with independent computations.
//!
//! | check | against | error, relative to | limit |
//! |---|---|---|---|
//! | forward | tract, on the file itself where the tier is the whole model | the largest logit, at least 1 | 1e-4 |
//! | gradient (f64) | central differences of the loss | the norm of the parameter's gradient | 1e-4 |
//! | arithmetic | gradients in f32 against f64 | the largest gradient | 1e-3 |
//!
//! Differences are taken along a random direction of every parameter tensor, which involves all of its numbers, and along
//! single numbers of it. A step may cross the kink of a ReLU or of a maximum. Where the difference does not match, smaller
//! steps are tried; a wrong gradient fails with all of them.

use common::{WidthMask, plan::Loss, rng::Rng};
use serde::Serialize;
use trainer::train::{Fast, Portable};

use crate::{
    Graph, TierSpec,
    grad::{GradError, ModelSamples, Runner},
    plan::default_loss,
};

mod forward;

const GRADIENT_LIMIT: f64 = 1e-4;
const ARITHMETIC_LIMIT: f64 = 1e-3;
const STEPS: [f64; 3] = [1e-6, 1e-7, 1e-8];
/// Gradients below this share of the whole gradient's norm count as zero.
const FLOOR: f64 = 1e-4;

/// How a check is made.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct CheckOptions {
    /// By default that of the model.
    pub loss: Option<Loss>,
    /// Random samples per tier; at least 2, for batch normalisation.
    pub samples: usize,
    /// Single numbers tried per parameter tensor.
    pub probes: usize,
    /// Of the random samples and probes.
    pub seed: u64,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { loss: None, samples: 3, probes: 2, seed: 0 }
    }
}

/// The results of one tier.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TierCheck {
    /// As requested.
    pub spec: TierSpec,
    /// Units kept of each hidden axis.
    pub widths: Vec<u32>,
    /// Parameters of the slice.
    pub parameters: usize,
    /// Bytes of the training arena for the samples of the check.
    pub arena_bytes: u64,
    /// Trainer against tract; absent in a build without tract.
    pub forward: Option<Agreement>,
    /// Gradients against finite differences.
    pub gradient: Option<Agreement>,
    /// Gradients in f32 against f64.
    pub arithmetic: Option<Agreement>,
    /// Why a check was not possible.
    pub problem: Option<String>,
    /// A deviation from the usual check that is not an error.
    pub note: Option<String>,
}

/// How far two results are apart.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Agreement {
    /// The largest error found.
    pub error: f64,
    /// The largest error allowed.
    pub limit: f64,
    /// Where the error is largest.
    pub at: String,
}

impl Agreement {
    fn new(limit: f64) -> Self {
        Self { error: 0.0, limit, at: String::new() }
    }

    /// NaN counts as the largest error.
    fn note(&mut self, error: f64, at: impl FnOnce() -> String) {
        if error > self.error || error.is_nan() {
            let error = if error.is_nan() { f64::INFINITY } else { error };
            *self = Self { error, limit: self.limit, at: at() };
        }
    }

    /// True if the error is within its limit.
    pub fn is_right(&self) -> bool {
        self.error <= self.limit
    }
}

impl TierCheck {
    /// True if everything was compared, and agrees.
    pub fn is_right(&self) -> bool {
        self.problem.is_none() && self.agrees()
    }

    /// True unless something was compared and is wrong.
    pub fn agrees(&self) -> bool {
        [&self.forward, &self.gradient, &self.arithmetic].into_iter().flatten().all(Agreement::is_right)
    }
}

/// Checks one tier. `file` is the ONNX file that the model was read from.
pub fn check(
    graph: &Graph,
    parameters: &[f32],
    file: Option<&[u8]>,
    spec: &TierSpec,
    options: &CheckOptions,
) -> TierCheck {
    let mut found = TierCheck {
        spec: spec.clone(),
        widths: vec![],
        parameters: 0,
        arena_bytes: 0,
        forward: None,
        gradient: None,
        arithmetic: None,
        problem: None,
        note: None,
    };
    let mask = match spec.mask(graph) {
        Ok(mask) => mask,
        Err(error) => return TierCheck { problem: Some(format!("cannot be sliced: {error}")), ..found },
    };
    found.widths = mask.widths().to_vec();
    found.parameters = graph.layout().slice_len(&mask);
    if let Some(at) = parameters.iter().position(|value| !value.is_finite()) {
        let problem = format!("parameter {at} of {} is not a finite number", parameters.len());
        return TierCheck { problem: Some(problem), ..found };
    }
    let subject = TierSubject { graph, parameters, mask: &mask, file };
    if let Err(problem) = subject.run(options, &mut found) {
        found.problem = Some(problem);
    }
    found
}

/// True if this build can compare with tract.
pub const fn has_tract() -> bool {
    cfg!(feature = "tract")
}

struct TierSubject<'a> {
    graph: &'a Graph,
    parameters: &'a [f32],
    mask: &'a WidthMask,
    #[cfg_attr(not(feature = "tract"), expect(dead_code, reason = "only tract reads files"))]
    file: Option<&'a [u8]>,
}

impl TierSubject<'_> {
    fn run(&self, options: &CheckOptions, found: &mut TierCheck) -> Result<(), String> {
        let text = |error: GradError| match error {
            GradError::Slice(error) => format!("cannot be sliced: {error}"),
            GradError::Compile(error) => format!("cannot be compiled: {error}"),
            error => error.to_string(),
        };
        let loss = options.loss.unwrap_or_else(|| default_loss(self.graph));
        let rows = options.samples.max(2);
        let samples =
            ModelSamples::random(self.graph, loss, rows, options.seed).map_err(|error| error.to_string())?;
        let mut single = self.runner::<f32, _>(loss, rows, Portable::plain()).map_err(text)?;
        found.arena_bytes = single.info().arena_bytes();
        let logits = single.logits(&samples).map_err(text)?;
        found.forward = self.forward(&samples, &logits, &mut found.note)?;
        let mut double = self.runner::<f64, _>(loss, rows, Fast::new()).map_err(text)?;
        let (_, exact) = double.flat_gradients(&samples).map_err(text)?;
        let (_, rounded) = single.flat_gradients(&samples).map_err(text)?;
        found.arithmetic = Some(arithmetic(&double.params(), &rounded, &exact));
        found.gradient = Some(differences(&mut double, &samples, &exact, options).map_err(text)?);
        Ok(())
    }

    fn runner<T, B>(&self, loss: Loss, rows: usize, backend: B) -> Result<Runner<T, B>, GradError>
    where
        T: trainer::train::Float,
        B: trainer::train::Backend<T>,
    {
        Runner::new(self.graph, self.parameters, self.mask, loss, rows, backend)
    }
}

type Params = [(String, std::ops::Range<usize>)];

fn arithmetic(params: &Params, rounded: &[f32], exact: &[f64]) -> Agreement {
    let largest = exact.iter().fold(f64::MIN_POSITIVE, |largest, x| largest.max(x.abs()));
    let mut agreement = Agreement::new(ARITHMETIC_LIMIT);
    for (name, range) in params {
        let pairs = rounded[range.clone()].iter().zip(&exact[range.clone()]);
        for (at, (&a, &b)) in pairs.enumerate() {
            agreement.note((f64::from(a) - b).abs() / largest, || format!("{name}[{at}]"));
        }
    }
    agreement
}

/// Central differences `(l(w + h v) - l(w - h v)) / 2h` against `g . v`, with `v` of length 1.
fn differences(
    runner: &mut Runner<f64, Fast<f64>>,
    samples: &ModelSamples,
    gradient: &[f64],
    options: &CheckOptions,
) -> Result<Agreement, GradError> {
    let mut rng = Rng::new(options.seed ^ 0x5eed);
    let mut agreement = Agreement::new(GRADIENT_LIMIT);
    let whole = norm(gradient);
    for (name, range) in runner.params() {
        let part = &gradient[range.clone()];
        let scale = norm(part).max(FLOOR * whole).max(f64::MIN_POSITIVE);
        let len = range.len();
        let direction: Vec<f64> = (0..len).map(|_| rng.normal()).collect();
        let length = norm(&direction).max(f64::MIN_POSITIVE);
        let direction = direction.into_iter().map(|x| x / length).enumerate().collect();
        let mut tries: Vec<(String, Vec<(usize, f64)>)> = vec![(name.clone(), direction)];
        for _ in 0..options.probes.min(len) {
            let at = rng.below(len as u64) as usize;
            tries.push((format!("{name}[{at}]"), vec![(at, 1.0)]));
        }
        for (title, direction) in tries {
            let expected: f64 = direction.iter().map(|&(at, v)| v * part[at]).sum();
            let mut best = f64::INFINITY;
            for step in STEPS {
                let slope = slope(runner, samples, range.start, &direction, step)?;
                best = best.min((slope - expected).abs() / scale);
                if best <= GRADIENT_LIMIT {
                    break;
                }
            }
            agreement.note(best, || title);
        }
    }
    Ok(agreement)
}

fn slope(
    runner: &mut Runner<f64, Fast<f64>>,
    samples: &ModelSamples,
    start: usize,
    direction: &[(usize, f64)],
    step: f64,
) -> Result<f64, GradError> {
    let kept = runner.weights().to_vec();
    let mut losses = [0.0; 2];
    for (loss, step) in losses.iter_mut().zip([step, -step]) {
        for &(at, v) in direction {
            runner.weights()[start + at] = kept[start + at] + step * v;
        }
        *loss = runner.loss(samples)?;
    }
    runner.weights().copy_from_slice(&kept);
    let [above, below] = losses;
    Ok((above - below) / (2.0 * step))
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests;
