//! Counts participants whose loss a step raises to first order, in the whole model and in single layers.
//!
//! ```text
//! conflict of i:   g_i.d > 1e-12 ||g_i|| ||d||      d = the step, g_i = -D_i
//! ```
//! Counted for the step that was found and for the plain mean of the updates.

use serde_json::json;

use crate::{
    algebra::{Products, dot},
    cohort::Cohort,
    gram::{Gram, Grams},
    strategy::direction::{Direction, participants},
};

const TOLERANCE: f64 = 1e-12;

impl Direction {
    /// Notes the conflicts of this step and of the plain mean.
    pub(crate) fn note_conflicts(&mut self, cohort: &Cohort, grams: &Grams) {
        let found = Conflicts::of(cohort, grams, |block, gram| {
            gram.rows.iter().map(|&row| self.at(row, block)).collect()
        });
        let mean = Conflicts::of(cohort, grams, |_, gram| {
            let count = participants(cohort, gram);
            let share = |place: usize| if place < count { 1.0 / count as f64 } else { 0.0 };
            (0..gram.rows.len()).map(share).collect()
        });
        self.note("conflicts", json!({"model": found.model, "layers": found.layers}));
        self.note("conflicts_of_mean", json!({"model": mean.model, "layers": mean.layers}));
    }
}

struct Conflicts {
    /// Participants whose loss the whole step raises.
    model: usize,
    /// By layer: participants whose loss the step of the layer raises.
    layers: Vec<usize>,
}

/// Sums over some blocks.
#[derive(Clone)]
struct Sums {
    /// By participant: `g_i.d` and `||g_i||^2`.
    devices: Vec<(f64, f64)>,
    /// `||d||^2`
    step: f64,
}

impl Conflicts {
    fn of(cohort: &Cohort, grams: &Grams, step: impl Fn(usize, &Gram) -> Vec<f64>) -> Self {
        let empty = Sums { devices: vec![(0.0, 0.0); cohort.participants().len()], step: 0.0 };
        let layers = grams.blocks().iter().map(|gram| gram.block.layer + 1).max().unwrap_or(0);
        let mut layers = vec![empty.clone(); layers];
        let mut model = empty;
        for (block, gram) in grams.blocks().iter().enumerate() {
            let coefficients = step(block, gram);
            let along = Products::of(gram).with(&coefficients);
            let square = dot(&along, &coefficients);
            for sums in [&mut model, &mut layers[gram.block.layer]] {
                sums.step += square;
                for (place, &row) in gram.rows[..participants(cohort, gram)].iter().enumerate() {
                    let (product, own) = &mut sums.devices[row];
                    *product -= along[place];
                    *own += gram.at(place, place);
                }
            }
        }
        Self { model: model.count(), layers: layers.iter().map(Sums::count).collect() }
    }
}

impl Sums {
    fn count(&self) -> usize {
        let step = self.step.max(0.0).sqrt();
        self.devices.iter().filter(|(product, own)| *product > TOLERANCE * own.sqrt() * step).count()
    }
}
