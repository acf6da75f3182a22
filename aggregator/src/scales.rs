//! The scale of columns with `scaling = "fleet"`: agreed on once, before the first round, and recorded.
//!
//! Every device tells mean and deviation of its own file. Once `run.min_devices` have, each scale is fixed:
//!
//! ```text
//! mean       median of the devices' means
//! deviation  sqrt(median of the devices' variances + (1.4826 x median distance of their means from the mean)^2)
//! ```
//! The second term is the spread between devices, which matters where each device sees another part of the range. A median
//! moves no further than to the next honest value, whatever one device tells. Devices that come later use the recorded scale.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Mutex,
};

use common::{
    DeviceId,
    files::{self, MAX_CONFIG, Secrecy},
    schema::{ColumnScale, SchemaAnswer, SchemaQuestion},
};
use serde::{Deserialize, Serialize};
use trainer::data::schema::{DecodeError, Schema, TextError};

use crate::config::Config;

/// With fewer devices, a median is no bound on what one of them can do.
const LEAST: usize = 3;
/// Normal numbers deviate by this much more than their median distance from the median.
const NORMAL: f64 = 1.4826;

/// Why the recorded scale cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has its message")]
#[non_exhaustive]
pub enum ScalesError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: {why}; remove the file only if the run has no rounds yet", path.display())]
    Content { path: PathBuf, why: String },
    #[error(transparent)]
    Schema(#[from] DecodeError),
    #[error(transparent)]
    Text(#[from] TextError),
}

/// The file of a recorded scale.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Recorded {
    /// Digest of the schema that the scale belongs to.
    schema: String,
    devices: usize,
    scales: Vec<ColumnScale>,
}

/// What the gateway knows of the schema and its scales.
#[derive(Debug)]
pub struct FleetSchema {
    schema: Option<Schema>,
    encoded: Vec<u8>,
    /// Devices that must have told theirs.
    needed: usize,
    file: PathBuf,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    devices: BTreeMap<DeviceId, Vec<ColumnScale>>,
    /// Empty until it is agreed on.
    agreed: Vec<ColumnScale>,
}

impl FleetSchema {
    /// Reads the recorded scale, if there is one. `file` is written once a scale is agreed on.
    pub fn open(schema: Option<Schema>, needed: usize, file: &Path) -> Result<Self, ScalesError> {
        let encoded = schema.as_ref().map(Schema::encode).transpose()?.unwrap_or_default();
        let fleet =
            Self { schema, encoded, needed: needed.max(1), file: file.to_owned(), told: Mutex::default() };
        if fleet.columns() == 0 || !file.exists() {
            return Ok(fleet);
        }
        let failed = |source| ScalesError::File { path: file.to_owned(), source };
        let wrong = |why: String| ScalesError::Content { path: file.to_owned(), why };
        let text = files::read_text(file, MAX_CONFIG).map_err(failed)?;
        let recorded: Recorded = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if recorded.schema != fleet.digest()? || recorded.scales.len() != fleet.columns() {
            return Err(wrong("the scale was agreed on for another schema".into()));
        }
        fleet.told().agreed = recorded.scales;
        Ok(fleet)
    }

    /// The schema for files with the model: with the scales of the fleet, as far as they are agreed on.
    pub(crate) fn text(&self) -> Result<Option<String>, ScalesError> {
        let Some(schema) = &self.schema else { return Ok(None) };
        let scales: Vec<_> = self.told().agreed.iter().map(|scale| (scale.mean, scale.deviation)).collect();
        Ok(Some(schema.with_scales(&scales).as_ref().unwrap_or(schema).to_toml()?))
    }

    fn columns(&self) -> usize {
        self.schema.as_ref().map_or(0, |schema| schema.fleet_columns().count())
    }

    fn digest(&self) -> Result<String, DecodeError> {
        self.schema.as_ref().map_or(Ok(String::new()), |schema| Ok(schema.digest()?.to_string()))
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        // Nothing panics while it is held.
        self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Answers a device, and agrees on the scale once enough devices have asked. Writes a file, so it blocks.
    pub(crate) fn answer(
        &self,
        device: &DeviceId,
        question: &SchemaQuestion,
    ) -> Result<SchemaAnswer, ScalesError> {
        let mut told = self.told();
        let complete = question.summaries.len() == self.columns() && question.summaries.iter().all(usable);
        if complete && self.columns() > 0 && told.agreed.is_empty() {
            told.devices.insert(device.clone(), question.summaries.clone());
            if told.devices.len() >= self.needed {
                let scales = agree(self.columns(), &told.devices.values());
                let record =
                    Recorded { schema: self.digest()?, devices: told.devices.len(), scales: scales.clone() };
                let failed = |source| ScalesError::File { path: self.file.clone(), source };
                let text = serde_json::to_string_pretty(&record).map_err(|error| failed(error.into()))?;
                // A scale that a device has used must survive a restart.
                files::write_file(&self.file, format!("{text}\n"), Secrecy::Group).map_err(failed)?;
                told.agreed = scales;
                told.devices.clear();
            }
        }
        Ok(SchemaAnswer { schema: self.encoded.clone(), scales: told.agreed.clone() })
    }
}

/// What an operator should know before a fleet of this configuration agrees on its scale: the finding, and the remedy.
pub(crate) fn weakness(config: &Config) -> Option<(String, String)> {
    let schema = config.schema().ok().flatten()?;
    let (column, devices) = (schema.fleet_columns().next()?, config.run.min_devices);
    (devices < LEAST).then(|| {
        let what = format!(
            "run.min_devices = {devices}: so few devices decide the scale of `{column}` and other columns with scaling = \"fleet\", \
             and one that lies can choose it"
        );
        (what, format!("set run.min_devices to {LEAST} or more before the first device joins"))
    })
}

fn usable(scale: &ColumnScale) -> bool {
    scale.mean.is_finite() && scale.deviation.is_finite() && scale.deviation >= 0.0
}

/// One scale per column.
fn agree<'a>(
    columns: usize,
    devices: &(impl Iterator<Item = &'a Vec<ColumnScale>> + Clone),
) -> Vec<ColumnScale> {
    let column = |at: usize| {
        let of =
            |value: fn(&ColumnScale) -> f64| devices.clone().filter_map(move |told| told.get(at)).map(value);
        let mean = median(of(|scale| scale.mean.into()).collect());
        let variance = median(of(|scale| f64::from(scale.deviation).powi(2)).collect());
        let between =
            NORMAL * median(of(|scale| scale.mean.into()).map(|other| (other - mean).abs()).collect());
        let deviation = (variance + between.powi(2)).sqrt() as f32;
        // A column that is constant everywhere is only shifted.
        let deviation = if deviation > 0.0 && deviation.is_finite() { deviation } else { 1.0 };
        ColumnScale { mean: mean as f32, deviation }
    };
    (0..columns).map(column).collect()
}

/// The middle of the numbers; the mean of the two in the middle of an even number. 0 without numbers.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match (numbers.get(middle), middle.checked_sub(1).and_then(|before| numbers.get(before))) {
        (Some(&one), Some(&other)) if numbers.len().is_multiple_of(2) => (one + other) / 2.0,
        (Some(&one), _) => one,
        (None, _) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        let text = "data = { task = \"classification\", columns = [\
            { name = \"x\", type = \"number\", scaling = \"fleet\" }, \
            { name = \"y\", type = \"label\", classes = [\"a\", \"b\"] }] }";
        Schema::from_toml(text).unwrap()
    }

    fn tell(mean: f32, deviation: f32) -> SchemaQuestion {
        SchemaQuestion { summaries: vec![ColumnScale { mean, deviation }] }
    }

    fn id(number: usize) -> DeviceId {
        format!("d{number}").parse().unwrap()
    }

    /// The scale that devices with these means and deviations agree on.
    fn scale(told: &[(f32, f32)]) -> ColumnScale {
        let devices: Vec<_> =
            told.iter().map(|&(mean, deviation)| vec![ColumnScale { mean, deviation }]).collect();
        agree(1, &devices.iter())[0]
    }

    #[test]
    fn a_device_that_lies_moves_the_scale_by_less_than_a_tenth() {
        // Means of 100 +- 5 and deviations of 20 +- 2, as files of one process differ.
        let honest: Vec<(f32, f32)> =
            (0..10).map(|at| (95.0 + at as f32 * 1.1, 18.0 + (at * 7 % 10) as f32 * 0.4)).collect();
        let truth = scale(&honest);
        for (mean, deviation) in [(1e6, 1.0), (1.0, 1e6), (1e6, 1e6), (-1e6, 1e6), (1e6, 0.0), (1e-6, 1e-6)] {
            for liar in 0..honest.len() {
                let mut told = honest.clone();
                told[liar] = (told[liar].0 * mean, told[liar].1 * deviation);
                let found = scale(&told);
                assert!((found.mean - truth.mean).abs() < 0.1 * truth.mean, "{liar}: {found:?} {truth:?}");
                let moved = (found.deviation - truth.deviation).abs();
                assert!(moved < 0.1 * truth.deviation, "{liar}: {found:?} {truth:?}");
            }
        }
    }

    #[test]
    fn devices_of_different_ranges_get_the_spread_between_them() {
        let apart = scale(&[(0.0, 1.0), (50.0, 1.0), (100.0, 1.0)]);
        assert!(apart.mean == 50.0 && apart.deviation > 50.0, "{apart:?}");
        assert_eq!(scale(&[(3.0, 0.0), (3.0, 0.0)]), ColumnScale { mean: 3.0, deviation: 1.0 });
    }

    #[test]
    fn few_devices_are_a_weakness() {
        let of = |devices: usize, scaling: &str| {
            weakness(
                &Config::parse(&format!(
                    "run = {{ min_devices = {devices} }}\ndata = {{ task = \"regression\", columns = [\
                     {{ name = \"x\", type = \"number\", scaling = {scaling} }}, {{ name = \"y\", type = \"target\" }}] }}"
                ))
                .unwrap(),
            )
        };
        assert!(
            of(2, "\"fleet\"")
                .unwrap()
                .0
                .contains("run.min_devices = 2: so few devices decide the scale of `x`")
        );
        assert_eq!((of(3, "\"fleet\""), of(1, "\"none\"")), (None, None));
    }

    #[test]
    fn a_scale_is_agreed_on_once_and_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("scales.json");
        let fleet = FleetSchema::open(Some(schema()), 3, &file).unwrap();
        let ask = |fleet: &FleetSchema, device: usize, question: &SchemaQuestion| {
            fleet.answer(&id(device), question).unwrap().scales
        };
        assert_eq!(ask(&fleet, 1, &SchemaQuestion::default()), []);
        assert_eq!(ask(&fleet, 1, &tell(1.0, 1.0)), []);
        assert_eq!(ask(&fleet, 1, &tell(2.0, 1.0)), [], "one device counts once");
        assert_eq!(ask(&fleet, 2, &tell(f32::NAN, 1.0)), [], "not a number");
        assert_eq!(ask(&fleet, 2, &tell(3.0, 1.0)), []);
        assert!(!file.exists());
        let agreed = ask(&fleet, 3, &tell(4.0, 1.0));
        assert_eq!(agreed[0].mean, 3.0);
        assert_eq!(ask(&fleet, 4, &tell(900.0, 1.0)), agreed, "a late device uses the recorded scale");
        let again = FleetSchema::open(Some(schema()), 3, &file).unwrap();
        assert_eq!(ask(&again, 5, &SchemaQuestion::default()), agreed, "after a restart, too");
        let mut other = schema();
        other.missing.clear();
        assert!(FleetSchema::open(Some(other), 3, &file).unwrap_err().to_string().contains("another schema"));
        assert_eq!(
            FleetSchema::open(None, 3, &file).unwrap().answer(&id(1), &tell(1.0, 1.0)).unwrap(),
            SchemaAnswer::default()
        );
    }
}
