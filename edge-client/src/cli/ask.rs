//! `fairtier board predict`: what a board's own model says of samples.

use std::{fmt::Write as _, fs, path::PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use common::sealed::BoardIdentity;
use serde_json::json;

use super::{Format, print};
use crate::{
    host::{
        args::DataArgs,
        bridge::port::{self, PortSpec},
        provision,
    },
    serial::BoardAnswer,
};

/// Questions have numbers of 16 bits.
const MOST: usize = 10_000;

#[derive(clap::Args, Debug)]
pub(super) struct AskArgs {
    /// Port of the board, as for `bridge`; no bridge may have it open
    port: PortSpec,
    /// Board identity that `fairtier gateway enroll --serial` wrote; questions are sealed with its key
    #[arg(long)]
    identity: PathBuf,
    #[command(flatten)]
    data: DataArgs,
    /// Ask about this many samples at most
    #[arg(long, default_value_t = 10)]
    show: usize,
    #[arg(long, default_value = "table")]
    format: Format,
}

pub(super) fn predict(args: &AskArgs) -> Result<()> {
    let at = || args.identity.display().to_string();
    let identity = BoardIdentity::decode(&fs::read(&args.identity).with_context(at)?).with_context(at)?;
    let schema = args.data.local_schema()?;
    eprintln!("waiting for the board");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (arrived, mut ports) = tokio::sync::mpsc::channel(1);
        let watcher = tokio::spawn(port::watch(args.port.clone(), arrived));
        let mut port = ports.recv().await.ok_or_else(|| anyhow!("the port cannot be opened"))?;
        let inputs = provision::inputs(&mut port.stream, &identity).await?;
        let rows = args.data.rows_to_predict(schema.as_ref(), inputs as usize)?;
        ensure!(
            rows.inputs == inputs as usize,
            "the board takes {inputs} numbers per sample, the data has {}",
            rows.inputs
        );
        let samples: Vec<Vec<f32>> =
            rows.features.chunks(rows.inputs.max(1)).take(args.show.min(MOST)).map(<[f32]>::to_vec).collect();
        let answers = provision::ask(&mut port.stream, &identity, &samples).await?;
        watcher.abort();
        let names = schema.as_ref().map_or(&[][..], |schema| schema.classes());
        Ok(print(&match args.format {
            Format::Table => table(&answers, names),
            Format::Json => json(&answers, names),
        })?)
    })
}

fn table(answers: &[BoardAnswer], names: &[String]) -> String {
    let mut text = String::new();
    if let Some(BoardAnswer { round, trained, .. }) = answers.first() {
        let since = if *trained { ", trained further on the board" } else { "" };
        let _ = writeln!(text, "model of round {round}{since}\nsample  class  score");
    }
    for (number, prediction) in answers.iter().enumerate().filter_map(|(at, it)| Some((at, it.prediction?))) {
        let class = prediction.class.to_string();
        let name = names.get(prediction.class as usize).unwrap_or(&class);
        let _ = writeln!(text, "{number:>6}  {name:>5}  {:.4}", prediction.score);
    }
    text
}

fn json(answers: &[BoardAnswer], names: &[String]) -> String {
    let lines = answers.iter().filter_map(|answer| {
        let prediction = answer.prediction?;
        Some(json!({
            "round": answer.round,
            "trained": answer.trained,
            "class": prediction.class,
            "name": names.get(prediction.class as usize),
            "score": prediction.score,
            "outputs": answer.outputs,
        }))
    });
    lines.map(|line| format!("{line}\n")).collect()
}
