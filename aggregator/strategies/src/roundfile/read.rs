//! Reads a [`RoundFile`] from JSON. Every key is checked, and an error names it.

use std::{collections::BTreeSet, ops::Range, path::Path};

use common::{
    DeviceId, Tier, TierSet,
    brief::MAX_GROUPS,
    files::{self, MAX_MODEL},
    region::RegionMap,
    tier::MAX_TIERS,
};
use serde_json::Value;

use crate::{cohort::Bounds, fairness::FairnessSettings};

use super::{
    FORMAT, PastGradient, RecordedDevice, RoundFile, RoundFileError, VERSION,
    json::{Node, parse},
};

type Result<T> = std::result::Result<T, RoundFileError>;

impl RoundFile {
    /// Arrays that are not inline are found relative to the file.
    pub fn open(path: &Path) -> Result<Self> {
        let text = files::read_text(path, MAX_MODEL)
            .map_err(|source| RoundFileError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path.parent().unwrap_or(Path::new("")))
    }

    /// Arrays that are not inline are found relative to `dir`.
    pub fn parse(text: &str, dir: &Path) -> Result<Self> {
        let value = parse(text)?;
        let root = Node::root(&value, dir);
        let format = root.required("format")?;
        if format.text()? != FORMAT {
            return Err(format.fault(format!("must be \"{FORMAT}\"")));
        }
        let version = root.required("version")?;
        if u64::from(version.whole()?) != VERSION {
            return Err(version.fault(format!("only version {VERSION} is known")));
        }
        let parameters = root.required("parameters")?;
        let values = parameters.numbers()?;
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(parameters.fault(format!("number {at} is not finite")));
        }
        let (regions, tier_weights, enrolled) = tiers(&root, values.len())?;
        let past = root.optional("history")?.map_or(Ok(vec![]), |node| node.items())?;
        let round = match root.optional("round")? {
            Some(node) => node.whole()?,
            None => past.len() as u32 + 1,
        };
        Ok(Self {
            round,
            clients: root.optional("clients")?.map(|node| node.whole()).transpose()?.map(|n| n as usize),
            lr: root.optional("lr")?.map(|node| node.positive()).transpose()?,
            server_lr: root.optional("server_lr")?.map_or(Ok(1.0), |node| node.finite())?,
            layers: layers(&root, values.len())?,
            devices: devices(&root, &regions)?,
            history: history(&past, round, &regions)?,
            state: root.field("state")?.map_or(Value::Null, |node| node.value().clone()),
            bounds: root.optional("guard")?.map(|node| bounds(&node)).transpose()?,
            strategy: root.optional("strategy")?.map(|node| strategy(&node)).transpose()?,
            fairness: root.optional("fairness")?.map(|node| fairness(&node)).transpose()?,
            parameters: values,
            regions,
            tier_weights,
            enrolled,
        })
    }
}

/// Regions, weights and sizes of the tiers.
type Tiers = (RegionMap, Vec<Option<f64>>, Vec<Option<usize>>);

fn tiers(root: &Node<'_>, parameters: usize) -> Result<Tiers> {
    let Some(list) = root.optional("tiers")? else {
        let whole = (0, parameters, TierSet::first(1));
        return Ok((RegionMap::from_spans(parameters, 1, [whole]), vec![None], vec![None]));
    };
    let tiers = list.items()?;
    if tiers.is_empty() || tiers.len() > MAX_TIERS {
        return Err(list.fault(format!("between 1 and {MAX_TIERS} tiers are needed, not {}", tiers.len())));
    }
    let mut holders = vec![TierSet::EMPTY; parameters];
    let mut weights = Vec::with_capacity(tiers.len());
    let mut enrolled = Vec::with_capacity(tiers.len());
    for (tier, node) in (0..).map_while(Tier::new).zip(&tiers) {
        match node.optional("indices")? {
            None => holders.iter_mut().for_each(|set| *set = set.with(tier)),
            Some(indices) => {
                let mut least = 0;
                for (at, index) in indices.wholes()?.into_iter().enumerate() {
                    let index = index as usize;
                    let slot = holders.get_mut(index).filter(|_| index >= least).ok_or_else(|| {
                        indices.fault(format!(
                            "number {at} is {index}; indices ascend and are below {parameters}"
                        ))
                    })?;
                    *slot = slot.with(tier);
                    least = index + 1;
                }
            }
        }
        weights.push(node.optional("weight")?.map(|weight| weight.not_negative()).transpose()?);
        let devices = node.optional("enrolled")?.map(|enrolled| enrolled.whole()).transpose()?;
        enrolled.push(devices.map(|devices| devices as usize));
    }
    let mut runs: Vec<(usize, usize, TierSet)> = Vec::new();
    for (at, &set) in holders.iter().enumerate() {
        match runs.last_mut() {
            Some((_, len, last)) if *last == set => *len += 1,
            _ => runs.push((at, 1, set)),
        }
    }
    Ok((RegionMap::from_spans(parameters, tiers.len(), runs), weights, enrolled))
}

/// Only the bounds of shares are read: losses and updates are stored after the guard has limited them.
fn bounds(node: &Node<'_>) -> Result<Bounds> {
    let (share, floor) = (node.required("share")?, node.required("floor")?);
    // Files of earlier programs have one number for all three.
    let or_share = |key: &str| -> Result<f64> {
        let Some(given) = node.optional(key)? else { return share.finite() };
        let number = given.finite()?;
        if number < 1.0 { Err(given.fault("must be 1 or more")) } else { Ok(number) }
    };
    let bounds = Bounds {
        share: share.finite()?,
        fifth: or_share("fifth")?,
        counts: or_share("counts")?,
        floor: floor.finite()?,
        trusted: device_ids(node, "trusted")?,
        no_bonus: device_ids(node, "no_bonus")?,
    };
    if bounds.share < 1.0 {
        return Err(share.fault("must be 1 or more"));
    }
    if !(0.0..=1.0).contains(&bounds.floor) {
        return Err(floor.fault("must lie in [0, 1]"));
    }
    Ok(bounds)
}

fn device_ids(node: &Node<'_>, key: &str) -> Result<BTreeSet<DeviceId>> {
    let Some(list) = node.optional(key)? else { return Ok(BTreeSet::new()) };
    let id = |item: Node<'_>| -> Result<DeviceId> {
        item.text()?.parse().map_err(|error| item.fault(format!("{error}")))
    };
    list.items()?.into_iter().map(id).collect()
}

fn layers(root: &Node<'_>, parameters: usize) -> Result<Vec<Range<usize>>> {
    let Some(list) = root.optional("layers")? else { return Ok(vec![]) };
    let mut layers: Vec<Range<usize>> = Vec::new();
    for node in list.items()? {
        let ends = node.wholes()?;
        let &[start, end] = ends.as_slice() else { return Err(node.fault("expected [start, end]")) };
        let (start, end) = (start as usize, end as usize);
        let after = layers.last().map_or(0, |layer| layer.end);
        if start < after || end < start || end > parameters {
            return Err(node.fault(format!("layers are half-open, ascending, and end by {parameters}")));
        }
        layers.push(start..end);
    }
    Ok(layers)
}

fn devices(root: &Node<'_>, regions: &RegionMap) -> Result<Vec<RecordedDevice>> {
    let nodes = root.required("devices")?.items()?;
    let counted = |node: &Node<'_>| node.optional("samples").map(|samples| samples.is_some());
    let mut any = false;
    for node in &nodes {
        any |= counted(node)?;
    }
    let mut seen = BTreeSet::new();
    let mut devices = Vec::with_capacity(nodes.len());
    for node in &nodes {
        let device = device(node, regions, any)?;
        if !seen.insert(device.id.clone()) {
            return Err(node.required("id")?.fault(format!("{} is listed twice", device.id)));
        }
        devices.push(device);
    }
    Ok(devices)
}

/// `counted`: some device states its number of samples, so all must.
fn device(node: &Node<'_>, regions: &RegionMap, counted: bool) -> Result<RecordedDevice> {
    let tier = tier(node, regions)?;
    let scalar = |name: &str| node.field(name)?.map(|value| value.number()).transpose();
    let vector = |name: &str| node.optional(name)?.map(|value| packed(&value, tier, regions)).transpose();
    let samples = match counted {
        true => node.required("samples")?.whole()?,
        false => 1,
    };
    let (group_loss_sums, group_counts) = groups(node)?;
    Ok(RecordedDevice {
        id: id(node)?,
        tier,
        samples,
        weight: node.optional("weight")?.map(|weight| weight.not_negative()).transpose()?,
        loss_before: scalar("loss_before")?,
        loss_after: scalar("loss_after")?,
        validation_loss: scalar("validation_loss")?,
        validation_error: scalar("validation_error")?,
        update: vector("update")?,
        first_update: vector("first_update")?,
        gradient: vector("gradient")?,
        gap: scalar("gap")?,
        trial_losses: trials(node)?,
        group_loss_sums,
        group_counts,
        sample_mass: scalar("sample_mass")?,
    })
}

fn id(node: &Node<'_>) -> Result<DeviceId> {
    let id = node.required("id")?;
    id.text()?.parse().map_err(|error: common::id::BadDeviceId| id.fault(error.to_string()))
}

/// The tier may be left out if there is only one.
fn tier(node: &Node<'_>, regions: &RegionMap) -> Result<Tier> {
    let only =
        (regions.tiers() == 1).then(|| node.optional("tier")).transpose()?.is_some_and(|tier| tier.is_none());
    let given = if only { None } else { Some(node.required("tier")?) };
    let index = given.as_ref().map_or(Ok(0), |tier| tier.whole())? as usize;
    let known = Tier::new(index).filter(|_| index < regions.tiers());
    known.ok_or_else(|| {
        let last = regions.tiers() - 1;
        given.as_ref().unwrap_or(node).fault(format!("there are tiers 0 to {last}, not {index}"))
    })
}

fn packed(node: &Node<'_>, tier: Tier, regions: &RegionMap) -> Result<Vec<f64>> {
    let values = node.numbers()?;
    let (expected, got) = (regions.slice_len(tier), values.len());
    if got != expected {
        return Err(node.fault(format!("has {got} numbers, but {tier} keeps {expected} parameters")));
    }
    Ok(values)
}

fn trials(node: &Node<'_>) -> Result<Option<Vec<(f64, f64)>>> {
    let Some(list) = node.optional("trial_losses")? else { return Ok(None) };
    let pair = |node: Node<'_>| match node.numbers()?.as_slice() {
        &[step, loss] if step.is_finite() => Ok((step, loss)),
        _ => Err(node.fault("expected [step, loss]")),
    };
    let pairs = list.items()?.into_iter().map(pair).collect::<Result<Vec<_>>>()?;
    Ok((!pairs.is_empty()).then_some(pairs))
}

/// Sums and counts by label x attributes + attribute.
fn groups(node: &Node<'_>) -> Result<(Vec<f64>, Vec<u32>)> {
    let (sums, counts) = (node.optional("group_loss_sums")?, node.optional("group_counts")?);
    let Some(counts) = counts else {
        return match sums {
            Some(sums) => Err(sums.fault("needs `group_counts` beside it")),
            None => Ok((vec![], vec![])),
        };
    };
    let rows = counts.items()?.iter().map(|row| row.wholes()).collect::<Result<Vec<_>>>()?;
    let shape: Vec<usize> = rows.iter().map(Vec::len).collect();
    let cells: usize = shape.iter().sum();
    if shape.windows(2).any(|pair| pair[0] != pair[1]) || cells > MAX_GROUPS {
        return Err(counts.fault(format!("expected lists [y][a] of one length, at most {MAX_GROUPS} cells")));
    }
    let sums = match sums {
        None => vec![],
        Some(list) => {
            let rows = list.items()?.iter().map(|row| row.numbers()).collect::<Result<Vec<_>>>()?;
            if !rows.iter().map(Vec::len).eq(shape.iter().copied()) {
                return Err(list.fault("must have the shape of `group_counts`"));
            }
            rows.concat()
        }
    };
    Ok((sums, rows.concat()))
}

/// One list per past round, oldest first; the last is the round before this one.
fn history(past: &[Node<'_>], round: u32, regions: &RegionMap) -> Result<Vec<PastGradient>> {
    let mut history = Vec::new();
    for (at, node) in past.iter().enumerate() {
        let ago = (past.len() - at) as u32;
        let then = round.checked_sub(ago);
        let then = then.ok_or_else(|| node.fault(format!("there is no round {ago} before round {round}")))?;
        for node in node.items()? {
            let tier = tier(&node, regions)?;
            let vector = node.required("gradient")?;
            let gradient = packed(&vector, tier, regions)?;
            if !gradient.iter().all(|value| value.is_finite()) {
                return Err(vector.fault("holds NaN or infinity"));
            }
            let lr = node.optional("lr")?.map(|lr| lr.positive()).transpose()?;
            history.push(PastGradient { id: id(&node)?, tier, round: then, lr, gradient });
        }
    }
    Ok(history)
}

fn strategy(node: &Node<'_>) -> Result<(String, Value)> {
    let name = node.required("name")?.text()?.to_owned();
    Ok((name, node.field("params")?.map_or(Value::Null, |params| params.value().clone())))
}

fn fairness(node: &Node<'_>) -> Result<FairnessSettings> {
    serde_json::from_value(node.value().clone()).map_err(|error| node.fault(error.to_string()))
}
