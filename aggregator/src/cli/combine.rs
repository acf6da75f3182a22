//! `fairtier round combine`: a round file in, the next model or the next brief out.

use std::{
    fmt::Write as _,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::Value;
use strategies::{
    Registry,
    roundfile::{ReplayResult, RoundFile, RoundFileError, replay},
};

use super::{Format, print};

#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the strategy; default: that of the run that recorded the file
    #[arg(long, value_name = "NAME")]
    strategy: Option<String>,
    /// Parameters of the strategy as JSON; every strategy also takes `eta` and `L`
    #[arg(long, value_name = "JSON")]
    params: Option<String>,
    /// `off` ignores the guard's bounds that the file states
    #[arg(long, value_name = "off", value_parser = ["off"])]
    guard: Option<String>,
    /// A round file, or - for standard input
    file: PathBuf,
    #[arg(long, default_value = "json")]
    format: Format,
}

pub(super) fn combine(registry: &Registry, args: Args) -> Result<()> {
    let mut file = if args.file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("standard input")?;
        RoundFile::parse(&text, Path::new(""))?
    } else {
        RoundFile::open(&args.file)?
    };
    if args.guard.is_some() {
        file.bounds = None;
    }
    let given = args.params.as_deref().map(parse_params).transpose()?;
    let (name, params) = match (args.strategy, &file.strategy) {
        (Some(name), Some((own, params))) if name == *own => (name, given.unwrap_or_else(|| params.clone())),
        (Some(name), _) => (name, given.unwrap_or(Value::Null)),
        (None, Some((own, params))) => (own.clone(), given.unwrap_or_else(|| params.clone())),
        (None, None) => {
            let why = "the file names none; give one with --strategy".to_owned();
            return Err(RoundFileError::Key { key: "strategy".into(), why }.into());
        }
    };
    let answer = replay(registry, &file, &name, params)?;
    let text = match args.format {
        Format::Json => serde_json::to_string(&answer)? + "\n",
        Format::Table => table(&file, &answer),
    };
    Ok(print(&text)?)
}

fn parse_params(text: &str) -> Result<Value, RoundFileError> {
    let fault = |error: serde_json::Error| RoundFileError::Key {
        key: "--params".into(),
        why: format!("no JSON: {error}"),
    };
    serde_json::from_str(text).map_err(fault)
}

fn table(file: &RoundFile, answer: &ReplayResult) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "round {}, {} devices, {} parameters",
        file.round,
        file.devices.len(),
        file.parameters.len()
    );
    if !answer.parameters.is_empty() {
        let steps = answer.parameters.iter().zip(&file.parameters).map(|(new, old)| new - old);
        let length = steps.map(|step| step * step).sum::<f64>().sqrt();
        let _ = writeln!(text, "the model moves by {length:.6}");
    }
    if !answer.weights.is_empty() {
        let _ = writeln!(text, "{:>20} {:>12}", "device", "weight");
        for (device, weight) in &answer.weights {
            let _ = writeln!(text, "{device:>20} {weight:>12.6}");
        }
    }
    if !answer.regions.is_empty() {
        let _ = writeln!(text, "{:>20} {:>12} {:>9}", "tiers of a region", "parameters", "rho");
        for region in &answer.regions {
            let tiers = region.tiers.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
            let rho = region.rho.map_or("-".to_owned(), |rho| format!("{rho:.4}"));
            let _ = writeln!(text, "{tiers:>20} {:>12} {rho:>9}", region.indices.len());
        }
    }
    let brief = &answer.brief;
    if !brief.devices.is_empty() {
        let _ = writeln!(text, "{:>20} {:>12}", "device", "next weight");
        for (device, next) in &brief.devices {
            let _ = writeln!(text, "{device:>20} {:>12.6}", next.weight);
        }
    }
    for (label, weights) in brief.sample_weights.iter().enumerate() {
        let _ = writeln!(text, "next weights of samples with label {label}: {weights:?}");
    }
    let length = |vector: &[f64]| vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    if !brief.gfair.is_empty() {
        let _ = writeln!(
            text,
            "the fair gradient has length {:.6}; --format json prints it",
            length(&brief.gfair)
        );
    }
    if !brief.direction.is_empty() {
        let _ = writeln!(
            text,
            "the direction has length {:.6}; try steps {:?}",
            length(&brief.direction),
            brief.steps
        );
    }
    for refused in &answer.refused {
        let _ = writeln!(text, "refused: {} (E{} {})", refused.id, refused.code, refused.why);
    }
    for (key, value) in &answer.diagnostics {
        let _ = writeln!(text, "{key}: {value}");
    }
    text
}
