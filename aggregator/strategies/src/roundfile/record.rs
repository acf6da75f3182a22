//! Writes a live round as a round file: `record = true`.
//!
//! ```text
//! DIR/rounds/round-000007.json                 written last, so that an existing file is complete
//! DIR/rounds/round-000007/parameters.npy       the model before the round
//!                        /tier-1.npy           indices of a tier that does not hold everything
//!                        /update-cam-1.npy     as it was decoded; also first-, gradient- and history-
//! ```
//! The file also states how the flat vector divides into named tensors, and how much of each of them a tier keeps. All files
//! are private to their owner: an update reveals the samples it was trained on.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::{Path, PathBuf},
};

use common::{
    DeviceId, Tier,
    brief::Product,
    files::{AtomicFile, Secrecy, make_private_dir, private},
};
use models::npy::{Array, Data};
use serde_json::{Map, Value, json};

use super::{FORMAT, VERSION};
use crate::{
    cohort::{Bounds, Cohort, Participant},
    kernel::Scalar,
    method::Method,
    tiered::TieredModel,
    updates::{UpdateRef, Updates},
};

/// A round before it is combined.
#[derive(Debug)]
pub struct RoundDump<'a, U> {
    /// The model under its tiers.
    pub model: &'a TieredModel,
    /// The whole model before the round.
    pub parameters: &'a [f32],
    /// With the state before the round.
    pub method: &'a Method,
    /// Parameters of the strategy, as configured.
    pub params: &'a Map<String, Value>,
    /// The participants with their numbers.
    pub cohort: &'a Cohort,
    /// Where their updates are read from.
    pub updates: &'a mut U,
    /// The steps that the trial losses of the participants belong to.
    pub steps: &'a [f64],
    /// Gradients that were asked for before training.
    pub gradients: &'a BTreeMap<DeviceId, Vec<f32>>,
}

/// Why a round cannot be recorded. `E` is the error of reading updates.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum RecordError<E> {
    #[error("{path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error("an update cannot be read: {0}")]
    Read(E),
}

/// Writes the round below `dir` and returns the path.
pub fn record<U: Updates>(dir: &Path, dump: RoundDump<'_, U>) -> Result<PathBuf, RecordError<U::Error>> {
    let RoundDump { model, parameters, method, params, cohort, updates, steps, gradients } = dump;
    let name = format!("round-{:06}", cohort.round);
    let rounds = dir.join("rounds");
    let files = Files { dir: rounds.join(&name), name };
    make_private_dir(&files.dir).map_err(|source| RecordError::Write { path: files.dir.clone(), source })?;

    let tiers = (0..model.masks.len()).map_while(Tier::new);
    let tiers = tiers.map(|tier| tier_entry(&files, model, cohort, tier)).collect::<Result<Vec<_>, _>>()?;
    let mut devices = Vec::with_capacity(cohort.participants().len());
    for (index, participant) in cohort.participants().iter().enumerate() {
        let mut entry = device_entry(cohort, index, participant, steps);
        let product = method.needs().product;
        let sent = if product == Product::Gradient { "gradient" } else { "update" };
        entry.insert(sent.into(), files.vector(updates, UpdateRef::Update(index, participant), sent, 1.0)?);
        if product == Product::Both {
            let first = files.vector(updates, UpdateRef::FirstStep(index, participant), "first", 1.0)?;
            entry.insert("first_update".into(), first);
        }
        if let Some(gradient) = gradients.get(&participant.device) {
            let name = format!("gradient-{}", participant.device);
            entry.insert("gradient".into(), files.array(&name, Data::F32(gradient.clone()))?);
        }
        devices.push(entry);
    }
    let mut file = json!({
        "format": FORMAT,
        "version": VERSION,
        "round": cohort.round,
        "clients": cohort.clients(),
        "lr": cohort.lr,
        "server_lr": cohort.server_lr,
        "strategy": { "name": method.name(), "params": params },
        "parameters": files.array("parameters", Data::F32(parameters.to_vec()))?,
        "layers": model.layers.iter().map(|layer| [layer.start, layer.end]).collect::<Vec<_>>(),
        "tensors": tensors(model),
        "tiers": tiers,
        "devices": devices,
    });
    if !cohort.absent().is_empty() {
        file["history"] = history(&files, cohort, updates)?;
    }
    if let Some(Bounds { share, fifth, counts, floor, trusted, no_bonus }) = &cohort.bounds {
        let rules = json!({ "share": share, "fifth": fifth, "counts": counts, "floor": floor });
        file["guard"] = rules;
        file["guard"]["trusted"] = json!(trusted);
        file["guard"]["no_bonus"] = json!(no_bonus);
    }
    if let Some(fairness) = &method.fairness {
        file["fairness"] = json!(fairness.settings());
    }
    let state = method.state();
    if !state.is_null() {
        file["state"] = state;
    }
    let path = rounds.join(format!("{}.json", files.name));
    AtomicFile::create(&path, Secrecy::Secret)
        .and_then(|draft| draft.commit_unsynced(file.to_string()))
        .map_err(|source| RecordError::Write { path: path.clone(), source })?;
    Ok(path)
}

/// The directory of a round's arrays.
struct Files {
    dir: PathBuf,
    name: String,
}

impl Files {
    /// Writes an array and returns the JSON value that refers to it.
    fn array<E>(&self, name: &str, data: Data) -> Result<Value, RecordError<E>> {
        let path = self.dir.join(format!("{name}.npy"));
        let array = Array { shape: vec![data.len()], data };
        let mut options = private();
        let written = options.write(true).create(true).truncate(true).open(&path);
        written
            .and_then(|mut file| file.write_all(&array.write()))
            .map_err(|source| RecordError::Write { path, source })?;
        Ok(json!({ "npy": format!("{}/{name}.npy", self.name) }))
    }

    /// Writes a vector that was sent, times `sign`.
    fn vector<U: Updates>(
        &self,
        updates: &mut U,
        which: UpdateRef<'_>,
        kind: &str,
        sign: f64,
    ) -> Result<Value, RecordError<U::Error>> {
        let name = format!("{kind}-{}", which.device());
        let mut buffer = Vec::new();
        let values = updates.read(which, &mut buffer).map_err(RecordError::Read)?.iter();
        let data = if size_of::<U::Value>() == size_of::<f32>() {
            Data::F32(values.map(|value| (sign * value.wide()) as f32).collect())
        } else {
            Data::F64(values.map(|value| sign * value.wide()).collect())
        };
        self.array(&name, data)
    }
}

fn device_entry(
    cohort: &Cohort,
    index: usize,
    participant: &Participant,
    steps: &[f64],
) -> Map<String, Value> {
    let mut entry = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            entry.insert(key.into(), value);
        }
    };
    put("id", Some(json!(participant.device)));
    put("tier", Some(json!(participant.tier.index())));
    put("samples", Some(json!(participant.samples())));
    put("weight", cohort.device_weight(index).map(Value::from));
    put("loss_before", Some(json!(participant.loss())));
    put("loss_after", participant.reported_loss_after().map(Value::from));
    put("validation_loss", participant.validation().map(|validation| validation.loss.into()));
    put("validation_error", participant.validation().map(|validation| validation.error.into()));
    put("gap", participant.gap().map(Value::from));
    put("sample_mass", participant.mass().map(Value::from));
    let trials: Vec<_> = steps.iter().zip(participant.trials()).map(|(step, loss)| [*step, *loss]).collect();
    put("trial_losses", (!trials.is_empty()).then(|| json!(trials)));
    // Labels are binary, so the cells are two rows.
    let rows = |len: usize| len.div_ceil(2).max(1);
    let (sums, counts) = (participant.group_losses(), participant.group_counts());
    let by_label = json!(sums.chunks(rows(sums.len())).collect::<Vec<_>>());
    put("group_loss_sums", (!sums.is_empty()).then_some(by_label));
    let by_label = json!(counts.chunks(rows(counts.len())).collect::<Vec<_>>());
    put("group_counts", (!counts.is_empty()).then_some(by_label));
    entry
}

fn tier_entry<E>(
    files: &Files,
    model: &TieredModel,
    cohort: &Cohort,
    tier: Tier,
) -> Result<Value, RecordError<E>> {
    let mask = model.masks.get(tier.index()).unwrap_or(model.graph.full());
    let named = model.graph.params().iter().zip(model.graph.param_shapes()).map(|(param, shape)| {
        let kept: Vec<usize> = shape.dims.iter().map(|dim| dim.size(mask)).collect();
        json!({ "name": param.name, "shape": kept })
    });
    let mut entry = json!({
        "name": format!("tier-{}", tier.index()),
        "widths": mask.widths(),
        "tensors": named.collect::<Vec<_>>(),
    });
    if model.regions.slice_len(tier) < model.regions.parameters() {
        let pieces = model.regions.pieces(tier).iter();
        let indices = pieces.flat_map(|piece| piece.full..piece.full + piece.len).map(|index| index as i64);
        entry["indices"] = files.array(&format!("tier-{}", tier.index()), Data::I64(indices.collect()))?;
    }
    if let Some(weight) = cohort.tier_weight(tier) {
        entry["weight"] = weight.into();
    }
    if let Some(enrolled) = cohort.stated_enrolled(tier) {
        entry["enrolled"] = enrolled.into();
    }
    Ok(entry)
}

/// Every tensor of the flat vector: a dimension is `blocks x width of a hidden axis x inner` indices, of
/// which a tier keeps the first widths in every block. A concatenation has `parts`, each with an axis of its own.
fn tensors(model: &TieredModel) -> Value {
    let graph = &model.graph;
    let offsets = graph.offsets(graph.full());
    let tensor = |((param, shape), offset): ((&models::graph::Param, &common::TensorShape), usize)| {
        let part = |part: &common::Part| json!({ "axis": part.axis.map(|axis| axis.0), "inner": part.inner });
        let dim = |dim: &common::Dim| match dim.parts() {
            [one] => {
                json!({ "blocks": dim.blocks(), "axis": one.axis.map(|axis| axis.0), "inner": one.inner })
            }
            parts => json!({ "blocks": dim.blocks(), "parts": parts.iter().map(part).collect::<Vec<_>>() }),
        };
        let sizes: Vec<usize> = shape.dims.iter().map(|dim| dim.size(graph.full())).collect();
        json!({
            "name": param.name,
            "offset": offset,
            "shape": sizes,
            "dims": shape.dims.iter().map(dim).collect::<Vec<_>>(),
        })
    };
    graph.params().iter().zip(graph.param_shapes()).zip(offsets).map(tensor).collect::<Vec<_>>().into()
}

/// One list per round, from the first round in which an absent device was seen.
fn history<U: Updates>(
    files: &Files,
    cohort: &Cohort,
    updates: &mut U,
) -> Result<Value, RecordError<U::Error>> {
    let first = cohort.absent().iter().map(|absent| absent.round).min().unwrap_or(cohort.round);
    let mut rounds = vec![Vec::new(); cohort.round.saturating_sub(first) as usize];
    for (number, absent) in cohort.absent().iter().enumerate() {
        let gradient = files.vector(updates, UpdateRef::Absent(number, absent), "history", -1.0)?;
        if let Some(round) = rounds.get_mut((absent.round - first) as usize) {
            round.push(json!({
                "id": absent.device,
                "tier": absent.tier.index(),
                "lr": absent.lr,
                "gradient": gradient,
            }));
        }
    }
    Ok(json!(rounds))
}
