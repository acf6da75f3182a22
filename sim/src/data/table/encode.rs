//! Encodes the columns of a table as features.
//!
//! | column | features |
//! |---|---|
//! | numbers | one: `(x - min) / (max - min)`; a missing value becomes the mean |
//! | categories | one per value: 1 or 0 |
//!
//! Minimum, maximum, mean and the list of values come from training rows only. So a number of a test row can lie
//! outside [0, 1], and a value without a training row is encoded as zeros.

use std::collections::BTreeMap;

use crate::data::Features;

/// Most values that a category may have. A column with more is a name or a number.
const MAX_VALUES: usize = 1000;

pub enum Column {
    /// NaN if a value is missing.
    Numbers(Vec<f32>),
    /// For each row, the number of its text in the map.
    Categories { texts: BTreeMap<String, u32>, rows: Vec<u32> },
}

pub struct Encoded {
    pub inputs: usize,
    pub train: Features,
    pub test: Features,
}

impl Column {
    pub fn categories() -> Self {
        Self::Categories { texts: BTreeMap::new(), rows: Vec::new() }
    }

    pub fn push_number(&mut self, number: f32) {
        if let Self::Numbers(numbers) = self {
            numbers.push(number);
        }
    }

    pub fn push_category(&mut self, text: &str) -> Result<(), String> {
        if let Self::Categories { texts, rows } = self {
            let next = texts.len() as u32;
            let number = match texts.get(text) {
                Some(&number) => number,
                None if texts.len() == MAX_VALUES => {
                    return Err(format!("has more than {MAX_VALUES} values; it is not a category"));
                }
                None => *texts.entry(text.to_owned()).or_insert(next),
            };
            rows.push(number);
        }
        Ok(())
    }
}

pub fn encode(columns: &[Column], train: &[u32], test: &[u32]) -> Encoded {
    let fitted: Vec<Fitted<'_>> = columns.iter().map(|column| Fitted::new(column, train)).collect();
    let inputs: usize = fitted.iter().map(Fitted::width).sum();
    let features = |rows: &[u32]| {
        let mut features = vec![0.0; inputs * rows.len()];
        for (&row, mut out) in rows.iter().zip(features.chunks_exact_mut(inputs.max(1))) {
            for column in &fitted {
                let (own, rest) = out.split_at_mut(column.width().min(out.len()));
                column.write(row as usize, own);
                out = rest;
            }
        }
        Features::Floats(features)
    };
    Encoded { inputs, train: features(train), test: features(test) }
}

/// Numbers that divide the training rows into equal parts, without repetition.
pub fn quantiles(numbers: &[f32], train: &[u32], parts: usize) -> Vec<f32> {
    let mut sorted: Vec<f32> = train.iter().filter_map(|&row| numbers.get(row as usize).copied()).collect();
    sorted.sort_by(f32::total_cmp);
    let mut cuts: Vec<f32> =
        (1..parts).filter_map(|part| sorted.get(sorted.len() * part / parts).copied()).collect();
    cuts.dedup();
    // A cut at the smallest value would leave an empty part.
    cuts.retain(|cut| sorted.first().is_some_and(|first| cut > first));
    cuts
}

enum Fitted<'a> {
    Numbers {
        rows: &'a [f32],
        low: f32,
        factor: f32,
        mean: f32,
    },
    /// Feature index of each value in the training rows.
    Categories {
        rows: &'a [u32],
        feature: Vec<Option<usize>>,
        width: usize,
    },
}

impl<'a> Fitted<'a> {
    fn new(column: &'a Column, train: &[u32]) -> Self {
        match column {
            Column::Numbers(rows) => {
                let known = train.iter().filter_map(|&row| rows.get(row as usize)).filter(|x| x.is_finite());
                let (mut low, mut high, mut sum, mut count) = (f32::INFINITY, f32::NEG_INFINITY, 0.0, 0.0);
                for &x in known {
                    (low, high) = (low.min(x), high.max(x));
                    sum += f64::from(x);
                    count += 1.0;
                }
                // A constant column becomes 0 instead of a division by zero.
                let spread = high - low;
                let factor = if spread > 0.0 && spread.is_finite() { 1.0 / spread } else { 0.0 };
                let (low, mean) = if count > 0.0 { (low, (sum / count) as f32) } else { (0.0, 0.0) };
                Self::Numbers { rows, low, factor, mean }
            }
            Column::Categories { texts, rows } => {
                let mut seen = vec![false; texts.len()];
                for value in train.iter().filter_map(|&row| rows.get(row as usize)) {
                    if let Some(seen) = seen.get_mut(*value as usize) {
                        *seen = true;
                    }
                }
                let mut feature = vec![None; texts.len()];
                let mut width = 0;
                // Alphabetical order, independent of the order of rows.
                for &value in texts.values().filter(|&&value| seen.get(value as usize) == Some(&true)) {
                    if let Some(feature) = feature.get_mut(value as usize) {
                        *feature = Some(width);
                        width += 1;
                    }
                }
                Self::Categories { rows, feature, width }
            }
        }
    }

    fn width(&self) -> usize {
        match self {
            Self::Numbers { .. } => 1,
            Self::Categories { width, .. } => *width,
        }
    }

    fn write(&self, row: usize, out: &mut [f32]) {
        match self {
            Self::Numbers { rows, low, factor, mean } => {
                let x = rows.get(row).copied().filter(|x| x.is_finite()).unwrap_or(*mean);
                out.iter_mut().for_each(|out| *out = (x - low) * factor);
            }
            Self::Categories { rows, feature, .. } => {
                let feature = rows.get(row).and_then(|&value| *feature.get(value as usize)?);
                if let Some(out) = feature.and_then(|feature| out.get_mut(feature)) {
                    *out = 1.0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn category(texts: &[&str]) -> Column {
        let mut column = Column::categories();
        texts.iter().for_each(|text| column.push_category(text).unwrap());
        column
    }

    #[test]
    fn fitted_on_training_rows_only() {
        let columns = [
            Column::Numbers(vec![10.0, 20.0, f32::NAN, 40.0]),
            category(&["b", "a", "b", "c"]),
            Column::Numbers(vec![5.0; 4]),
        ];
        let encoded = encode(&columns, &[0, 1, 2], &[3]);
        assert_eq!(encoded.inputs, 4);
        let train = vec![0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.5, 0.0, 1.0, 0.0];
        assert_eq!(encoded.train, Features::Floats(train));
        assert_eq!(encoded.test, Features::Floats(vec![3.0, 0.0, 0.0, 0.0]), "beyond 1, and no `c`");
        let unknown = encode(&[Column::Numbers(vec![f32::NAN; 2])], &[0, 1], &[]);
        assert_eq!(unknown.train, Features::Floats(vec![0.0; 2]));
    }

    #[test]
    fn quantiles_cut_training_rows_into_equal_parts() {
        let numbers: Vec<f32> = (0..100).map(|x| x as f32).collect();
        let rows: Vec<u32> = (0..50).collect();
        assert_eq!(quantiles(&numbers, &rows, 5), [10.0, 20.0, 30.0, 40.0]);
        assert_eq!(quantiles(&[1.0; 9], &[0, 1, 2], 5), [0.0; 0]);
        assert_eq!(quantiles(&[], &[], 5), [0.0; 0]);
    }

    #[test]
    fn a_column_with_too_many_values_is_refused() {
        let mut column = Column::categories();
        (0..MAX_VALUES).for_each(|value| column.push_category(&value.to_string()).unwrap());
        assert!(column.push_category("7").is_ok());
        assert!(column.push_category("one more").unwrap_err().contains("not a category"));
    }
}
