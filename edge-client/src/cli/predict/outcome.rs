//! From logits to classes with probabilities, or to numbers; and scores.

use anyhow::{Result, ensure};
use common::plan::Loss;
use models::{Graph, graph::Classes, plan::default_loss};

use crate::data::schema::{Schema, Table, Task};

/// What a model says of rows.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Outcome {
    Classes(ClassOutcome),
    Values(ValueOutcome),
}

/// One class for every target; a sample has one target, or one per token or output.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ClassOutcome {
    pub(super) names: Vec<String>,
    /// Target after target, one number per class.
    pub(super) probabilities: Vec<f64>,
    pub(super) per_sample: usize,
    /// One per target, or empty.
    pub(super) labels: Vec<u32>,
    /// Mean cross-entropy; 0 without labels.
    pub(super) loss: f64,
}

/// Numbers in the unit of the file.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ValueOutcome {
    pub(super) names: Vec<String>,
    /// Sample after sample.
    pub(super) values: Vec<f32>,
    /// As many, or empty.
    pub(super) given: Vec<f32>,
}

/// How far predicted numbers are from given ones.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) struct ValueScore {
    /// Mean absolute error.
    pub(super) mae: f64,
    /// Share of the variance that is explained; `None` if all given numbers are equal.
    pub(super) r2: Option<f64>,
}

impl Outcome {
    pub(super) fn new(graph: &Graph, schema: Option<&Schema>, rows: &Table, logits: &[f32]) -> Result<Self> {
        if let Some(schema) = schema.filter(|schema| schema.task == Task::Regression) {
            let targets: Vec<_> = schema.targets().collect();
            let undo = |numbers: &[f32]| {
                numbers.iter().zip(targets.iter().cycle()).map(|(&x, (_, scaling))| scaling.undo(x)).collect()
            };
            let names = targets.iter().map(|(name, _)| (*name).to_owned()).collect();
            return Ok(Self::Values(ValueOutcome { names, values: undo(logits), given: undo(&rows.values) }));
        }
        if schema.is_none() && !rows.values.is_empty() && graph.output().tail.is_none() {
            ensure!(
                rows.values.len() == logits.len(),
                "{} numbers to predict for {} predictions; these files do not belong together",
                rows.values.len(),
                logits.len()
            );
            let names = match graph.outputs() {
                1 => vec!["y".to_owned()],
                count => (0..count).map(|at| format!("y{at}")).collect(),
            };
            return Ok(Self::Values(ValueOutcome {
                names,
                values: logits.to_vec(),
                given: rows.values.clone(),
            }));
        }
        ensure!(
            rows.values.is_empty(),
            "`y` holds fractions, and the model ends with {}; save classes with y.astype(int)",
            graph.output().tail.map_or("classes", |tail| tail.op_type())
        );
        let single = match schema {
            Some(schema) => schema.task == Task::Binary,
            None => default_loss(graph) == Loss::Sigmoid,
        };
        let names = names(graph, schema, single);
        let width = if single { 1 } else { names.len() };
        let targets = logits.len() / width.max(1);
        let labels = rows.labels.clone();
        ensure!(
            labels.is_empty() || labels.len() == targets,
            "{} labels for {targets} predictions; these files do not belong together",
            labels.len()
        );
        let (mut probabilities, mut loss) = (Vec::with_capacity(targets * names.len()), 0.0);
        for (at, row) in logits.chunks(width.max(1)).enumerate() {
            // One logit is that of the second of two classes.
            let row: Vec<f64> =
                single.then_some(0.0).into_iter().chain(row.iter().map(|&x| x.into())).collect();
            let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total = largest + row.iter().map(|x| (x - largest).exp()).sum::<f64>().ln();
            if let Some(&label) = labels.get(at) {
                ensure!(
                    (label as usize) < row.len(),
                    "label {label} of sample {at} is none of the model's {} classes, which count from 0",
                    row.len()
                );
                loss += total - row[label as usize];
            }
            probabilities.extend(row.iter().map(|x| (x - total).exp()));
        }
        let loss = loss / targets.max(1) as f64;
        let per_sample = (targets / rows.len().max(1)).max(1);
        Ok(Self::Classes(ClassOutcome { names, probabilities, per_sample, labels, loss }))
    }
}

fn names(graph: &Graph, schema: Option<&Schema>, single: bool) -> Vec<String> {
    if let Some(schema) = schema {
        return schema.classes().to_vec();
    }
    let count = match default_loss(graph) {
        Loss::Softmax { classes } if !single => classes as usize,
        _ => 2,
    };
    let inside = graph.output().labels.as_ref().filter(|labels| labels.classes.len() == count);
    match inside.map(|labels| &labels.classes) {
        Some(Classes::Names(names)) => names.clone(),
        Some(Classes::Numbers(numbers)) => numbers.iter().map(i64::to_string).collect(),
        None => (0..count).map(|class| class.to_string()).collect(),
    }
}

impl ClassOutcome {
    /// Probabilities of each target.
    pub(super) fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.probabilities.chunks(self.names.len().max(1))
    }

    /// Predicted classes; the first of equal ones.
    pub(super) fn predicted(&self) -> Vec<usize> {
        let best =
            |row: &[f64]| (1..row.len()).fold(0, |best, at| if row[at] > row[best] { at } else { best });
        self.rows().map(best).collect()
    }

    /// Share of right predictions.
    pub(super) fn accuracy(&self) -> f64 {
        let right = self.predicted().iter().zip(&self.labels).filter(|(p, l)| **p == **l as usize).count();
        right as f64 / self.labels.len().max(1) as f64
    }

    /// Targets by label (rows) and predicted class (columns).
    pub(super) fn confusion(&self) -> Vec<Vec<u64>> {
        let mut counts = vec![vec![0; self.names.len()]; self.names.len()];
        for (predicted, &label) in self.predicted().into_iter().zip(&self.labels) {
            counts[label as usize][predicted] += 1;
        }
        counts
    }
}

/// Share of a class that is predicted as this class; `None` if there is no sample of it.
pub(super) fn recall(counts: &[u64], class: usize) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    (all > 0).then(|| counts[class] as f64 / all as f64)
}

impl ValueOutcome {
    /// One per target; none without given numbers.
    pub(super) fn scores(&self) -> Vec<ValueScore> {
        let (width, rows) = (self.names.len().max(1), self.given.len() / self.names.len().max(1));
        if rows == 0 {
            return vec![];
        }
        let column = |numbers: &[f32], at: usize| -> Vec<f64> {
            numbers.iter().skip(at).step_by(width).map(|&x| x.into()).collect()
        };
        let score = |at: usize| {
            let (values, given) = (column(&self.values, at), column(&self.given, at));
            let mean = given.iter().sum::<f64>() / rows as f64;
            let errors = values.iter().zip(&given).map(|(a, b)| a - b);
            let total: f64 = given.iter().map(|x| (x - mean).powi(2)).sum();
            let left: f64 = errors.clone().map(|error| error.powi(2)).sum();
            let mae = errors.map(f64::abs).sum::<f64>() / rows as f64;
            ValueScore { mae, r2: (total > 0.0).then(|| 1.0 - left / total) }
        };
        (0..width).map(score).collect()
    }
}

#[cfg(test)]
mod tests {
    use models::zoo;

    use super::*;

    fn rows(labels: Vec<u32>, values: Vec<f32>) -> Table {
        Table { inputs: 2, features: vec![0.0; 4], labels, values, ..Table::default() }
    }

    /// Fractions in `y` were taken for no labels at all, and logits shown as classes.
    #[test]
    fn fractions_without_a_schema_are_numbers() {
        let graph = zoo::build("mlp:2-1", 1).unwrap().0;
        let Outcome::Values(found) =
            Outcome::new(&graph, None, &rows(vec![], vec![0.5, 2.0]), &[1.0, 2.0]).unwrap()
        else {
            panic!("numbers are shown as classes")
        };
        assert_eq!(
            (found.names.as_slice(), found.values.as_slice()),
            (&["y".to_owned()][..], &[1.0, 2.0][..])
        );
        assert!((found.scores()[0].mae - 0.25).abs() < 1e-9);
        let two = zoo::build("mlp:2-2", 1).unwrap().0;
        let error = Outcome::new(&two, None, &rows(vec![], vec![0.5, 2.0]), &[0.0; 4]).unwrap_err();
        assert!(error.to_string().starts_with("2 numbers to predict for 4 predictions"), "{error}");
        // Whole numbers are classes.
        let classes = Outcome::new(&two, None, &rows(vec![1, 0], vec![]), &[0.0, 1.0, 1.0, 0.0]).unwrap();
        assert!(matches!(classes, Outcome::Classes(found) if found.accuracy() == 1.0));
    }
}
