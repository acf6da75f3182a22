//! `fairtier gateway export`: a kept model as ONNX, tier by tier.
//!
//! A server keeps its store to itself. What it keeps, with checksums, is in `status.json`, and the models are files.

use std::{fs, path::Path, str::FromStr};

use anyhow::{Context, Result, anyhow, bail};
use coordinator::best::BestModel;
use models::onnx;
use serde::Deserialize;
use serde_json::Value;
use strategies::strategy::Needs;

use super::{Format, place::Place, print};
use crate::{
    export::{MODEL, read_model, slice},
    run::open_model,
    status,
    store::{DiskStore, KeptList, KeptModel, StoreError},
};

/// How often a model is looked for that a server has replaced meanwhile.
const TRIES: usize = 5;

/// Which model is exported.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Which {
    #[default]
    Latest,
    Best,
    Round(u32),
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "latest" => Ok(Self::Latest),
            "best" => Ok(Self::Best),
            text => {
                text.parse().map(Self::Round).map_err(|_| "must be a round, `best` or `latest`".to_owned())
            }
        }
    }
}

pub(super) fn export(place: &Place, which: Which, out: &Path, format: Format) -> Result<()> {
    let config = super::load(&place.run)?;
    let (graph, latest) = read_model(&place.run)?;
    let (round, parameters) = match which {
        Which::Latest => (None, latest),
        which => find(place, which, latest.len()).map(|(round, found)| (Some(round), found))?,
    };
    let (model, _) = open_model(&config, Needs::default())?;
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let metadata: Vec<_> = round.iter().map(|round| ("round", round.to_string())).collect();
    let options = onnx::ExportOptions { metadata: &metadata, ..onnx::ExportOptions::default() };
    let mut rows = vec![];
    for (tier, mask) in model.masks.iter().enumerate() {
        let name = out.join(format!("tier-{tier}.onnx"));
        let (slice, bytes) = slice(&graph, mask, &parameters, &options)?;
        fs::write(&name, &bytes).with_context(|| name.display().to_string())?;
        rows.push((tier, slice.len(), bytes.len(), name.display().to_string()));
    }
    if format == Format::Json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(tier, parameters, bytes, file)| {
                serde_json::json!({ "tier": tier, "round": round, "parameters": parameters, "bytes": bytes, "file": file })
            })
            .collect();
        return Ok(print(&format!("{}\n", Value::from(rows)))?);
    }
    let mut text = round.map_or(String::new(), |round| format!("the model after round {round}\n"));
    text += &format!("{:>5} {:>11} {:>10}  file\n", "tier", "parameters", "bytes");
    for (tier, parameters, bytes, file) in rows {
        text += &format!("{tier:>5} {parameters:>11} {bytes:>10}  {file}\n");
    }
    Ok(print(&text)?)
}

/// A kept model: its round and its parameters.
fn find(place: &Place, which: Which, parameters: usize) -> Result<(u32, Vec<f32>)> {
    let store = place.run.join("store");
    for left in (0..TRIES).rev() {
        let list = kept(place)?;
        let kept = choose(which, &list)?;
        match DiskStore::read_kept(&store, kept) {
            Ok(found) if found.len() == parameters => return Ok((kept.round, found)),
            Ok(found) => bail!(
                "the model of round {} has {} parameters, {MODEL} has {parameters}; `fairtier gateway verify` checks the store",
                kept.round,
                found.len()
            ),
            // A server may have dropped it since it wrote its status.
            Err(_) if left > 0 && self::kept(place)? != list => {}
            Err(error) => return Err(error.into()),
        }
    }
    bail!(
        "the server replaces its models faster than they can be read; raise store.keep_models, or stop it first"
    )
}

/// What is kept, from the store or from the server that has it open.
fn kept(place: &Place) -> Result<KeptList> {
    match DiskStore::kept(&place.run.join("store")) {
        Ok(list) => list.ok_or_else(|| anyhow!("no run has begun; serve first")),
        Err(StoreError::Locked { .. }) => {
            #[derive(Deserialize)]
            struct Told {
                models: Vec<KeptModel>,
                best: Option<BestModel>,
            }
            let told = status::last(&place.run).and_then(|status| Told::deserialize(status).ok());
            let Told { models, best } =
                told.context("the server's status.json does not say which models are kept; stop it first")?;
            Ok(KeptList { models, best })
        }
        Err(error) => Err(error.into()),
    }
}

fn choose(which: Which, list: &KeptList) -> Result<KeptModel> {
    let best = list.best.as_ref().map(|best| best.round);
    let wanted = match which {
        Which::Latest => list.models.last().map(|kept| kept.round),
        Which::Best => best,
        Which::Round(round) => Some(round),
    };
    if let Some(kept) = list.models.iter().find(|kept| Some(kept.round) == wanted) {
        return Ok(*kept);
    }
    let name = |kept: &KeptModel| match list.best.as_ref().filter(|best| best.round == kept.round) {
        Some(best) => format!("{} (the best, {} {:.4})", kept.round, best.by.text(), best.value),
        None => kept.round.to_string(),
    };
    let rounds: Vec<_> = list.models.iter().map(name).collect();
    let rounds = rounds.join(", ");
    match wanted {
        Some(round) => bail!(
            "the model of round {round} is not kept; kept are those of rounds {rounds}. store.keep_models says how many are kept from now on"
        ),
        None => bail!(
            "no model is the best one yet: a model is measured in the round after it; kept are those of rounds {rounds}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use coordinator::best::{BestBy, Measured};

    use super::*;

    fn list(best: Option<u32>) -> KeptList {
        let best = best.map(|round| BestModel {
            round,
            by: BestBy::Mean,
            measured: Measured::Loss,
            value: 0.5,
            unimproved: 0,
        });
        KeptList { models: [3, 8, 9].map(|round| KeptModel { round, crc: 0 }).to_vec(), best }
    }

    #[test]
    fn a_missing_round_is_refused_with_those_that_are_there() {
        let error = choose(Which::Round(5), &list(Some(3))).unwrap_err().to_string();
        let expected = "the model of round 5 is not kept; kept are those of rounds 3 (the best, mean loss 0.5000), 8, 9.";
        assert!(error.starts_with(expected), "{error}");
        assert_eq!(choose(Which::Best, &list(Some(3))).unwrap().round, 3);
        assert_eq!(choose(Which::Round(8), &list(None)).unwrap().round, 8);
        assert_eq!(choose(Which::Latest, &list(None)).unwrap().round, 9);
        let error = choose(Which::Best, &list(None)).unwrap_err().to_string();
        assert!(
            error.starts_with("no model is the best one yet") && error.ends_with("rounds 3, 8, 9"),
            "{error}"
        );
    }

    #[test]
    fn only_rounds_and_two_words_name_a_model() {
        assert_eq!(
            ["best", "latest", "7"].map(|text| text.parse()),
            [Ok(Which::Best), Ok(Which::Latest), Ok(Which::Round(7))]
        );
        for bad in ["", "first", "-1", "7.5", "4294967296"] {
            assert!(bad.parse::<Which>().is_err(), "{bad}");
        }
    }
}
