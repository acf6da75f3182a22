//! What each command of `fairtier model` does.

use std::{fs, io::ErrorKind, path::Path, process::ExitCode};

use super::{
    CheckArgs, Command, Format, GradArgs, LossKind, ModelTools, Need, OneTier, Optimizer, Source, Tiers,
    check, grad,
    inspect::{Inspection, Tier, tiers_table},
    plan::{Report, Request},
    table::{Table, grouped},
};
use crate::{
    Graph, TierSpec,
    check::CheckOptions,
    grad::{Samples, gradients},
    npy::Array,
    onnx::{self, ExportOptions},
    plan::PlanOptions,
    zoo,
};
use anyhow::{Context, Result, bail, ensure};
use common::{
    files::{self, MAX_MODEL},
    output::print,
};
use serde_json::{Value, json};

impl ModelTools {
    /// Exit code 1 if a model does not fit or something is wrong with it.
    pub fn run(&self) -> Result<ExitCode> {
        let (output, ok) = run(self)?;
        print(&output)?;
        Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// What to print, and whether it is good news.
fn run(cli: &ModelTools) -> Result<(String, bool)> {
    let mut ok = true;
    let (text, json) = match &cli.command {
        Command::Inspect { source, tiers } => inspect(source, tiers)?,
        Command::Slice { source, tier, out, logits } => slice(source, tier, out, *logits)?,
        Command::Export { source, tiers, out, logits } => export(source, tiers, out, *logits)?,
        Command::Plan { source, need } => {
            let report = plan(source, need)?;
            ok = report.fits();
            (report.to_string(), serde_json::to_value(&report)?)
        }
        Command::Check { source, check } => {
            let report = check_model(source, check)?;
            ok = report.is_right();
            (report.to_string(), serde_json::to_value(&report)?)
        }
        Command::Grad { source, grad } => {
            let report = write_gradients(source, grad)?;
            (report.to_string(), serde_json::to_value(&report)?)
        }
        Command::Zoo => list_zoo()?,
    };
    let output = match cli.format {
        Format::Table => text,
        Format::Json => serde_json::to_string_pretty(&json)? + "\n",
    };
    Ok((output, ok))
}

fn inspect(source: &Source, tiers: &Tiers) -> Result<(String, Value)> {
    let model = Model::load(source)?;
    let specs = model.rates(tiers.tiers.as_deref());
    let inspection = Inspection::new(&model.graph, &model.notes, &specs, tiers.batch)?;
    Ok((inspection.to_string(), serde_json::to_value(&inspection)?))
}

fn slice(source: &Source, tier: &OneTier, out: &Path, logits: bool) -> Result<(String, Value)> {
    let model = Model::load(source)?;
    let spec = model.tier(tier.tier, tier.widths.as_deref());
    let written = model.write(&spec, None, out, logits)?;
    let text = format!(
        "{}: widths {:?}, {} parameters\n",
        out.display(),
        written.widths,
        grouped(written.parameters as u64)
    );
    let json = json!({ "file": out, "widths": written.widths, "parameters": written.parameters });
    Ok((text, json))
}

fn export(source: &Source, tiers: &Tiers, out: &Path, logits: bool) -> Result<(String, Value)> {
    let model = Model::load(source)?;
    let specs = model.rates(tiers.tiers.as_deref());
    let needs = Tier::list(&model.graph, &specs, tiers.batch)?;
    fs::create_dir_all(out).with_context(|| format!("can not make directory {}", out.display()))?;
    let full = out.join(format!("{}.onnx", model.stem));
    model.write(&TierSpec::WHOLE, None, &full, logits)?;
    let mut files = Vec::new();
    for (tier, spec) in specs.iter().enumerate() {
        let file = out.join(format!("{}-tier{tier}.onnx", model.stem));
        model.write(spec, Some(tier), &file, logits)?;
        files.push(file);
    }
    let list: String = files.iter().map(|file| format!("  {}\n", file.display())).collect();
    let text = format!("Written:\n  {}\n{list}\n{}", full.display(), tiers_table(&needs));
    let rows = needs.iter().zip(&files).map(|(tier, file)| {
        let mut row = serde_json::to_value(tier)?;
        row["file"] = json!(file);
        Ok(row)
    });
    let json = json!({ "full": full, "tiers": rows.collect::<Result<Vec<Value>>>()? });
    Ok((text, json))
}

fn plan(source: &Source, need: &Need) -> Result<Report> {
    let model = Model::load(source)?;
    let spec = model.tier(need.tier, need.widths.as_deref());
    let moments = match need.optimizer {
        Optimizer::Sgd => 0,
        Optimizer::Momentum => 1,
        Optimizer::Adam => 2,
    };
    let options = PlanOptions {
        last: need.last,
        moments,
        error_feedback: need.error_feedback,
        guide: need.guide,
        personal: need.personal,
        scaler: need.scaler,
        ..PlanOptions::train(need.batch)
    };
    let request = Request { options, ram: need.ram, flash: need.flash, buffers: need.buffers };
    Ok(Report::new(&model.graph, &spec.mask(&model.graph)?, &request)?)
}

fn check_model(source: &Source, args: &CheckArgs) -> Result<check::Report> {
    let model = match Model::load(source) {
        // A model that can not be imported is a finding; a file that can not be read is not.
        Err(error) if error.is::<onnx::ImportError>() => {
            return Ok(check::Report::refused(&source.model, error.root_cause().to_string()));
        }
        model => model?,
    };
    let file = model.file.as_ref().map(|file| files::read(file, MAX_MODEL)).transpose()?;
    let options = CheckOptions {
        loss: args.loss.map(|kind| LossKind::of(Some(kind), &model.graph)),
        samples: args.samples.into(),
        probes: args.probes.into(),
        seed: source.seed,
    };
    let specs = model.rates(args.tiers.as_deref());
    let found = specs
        .iter()
        .map(|spec| crate::check::check(&model.graph, &model.parameters, file.as_deref(), spec, &options));
    Ok(check::Report::new(&source.model, &model.graph, found.collect(), &model.notes))
}

fn write_gradients(source: &Source, args: &GradArgs) -> Result<grad::Report> {
    let model = Model::load(source)?;
    model.spare(&args.out)?;
    for (read, what) in [(&args.inputs, "inputs"), (&args.labels, "labels")] {
        let same = *read == args.out || is_same_file(read, &args.out);
        ensure!(!same, "{} holds the {what}; choose another place to write to", args.out.display());
    }
    let mask = model.tier(args.tier, args.widths.as_deref()).mask(&model.graph)?;
    let array = |path: &Path| {
        let bytes =
            files::read(path, MAX_MODEL).with_context(|| format!("cannot read {}", path.display()))?;
        Array::read(&bytes).with_context(|| path.display().to_string())
    };
    let (inputs, labels) = (array(&args.inputs)?, array(&args.labels)?);
    let loss = LossKind::of(args.loss, &model.graph);
    let samples = Samples::from_arrays(&model.graph, loss, &inputs, &labels)?;
    let found = gradients(&model.graph, &model.parameters, Some(&mask), &samples)?;
    fs::write(&args.out, grad::archive(&found)?)
        .with_context(|| format!("can not write {}", args.out.display()))?;
    Ok(grad::Report::new(args.out.clone(), samples.rows(), mask.widths().to_vec(), &found))
}

/// Also by other paths: links and `..`. Files that do not exist are none.
fn is_same_file(a: &Path, b: &Path) -> bool {
    matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

fn list_zoo() -> Result<(String, Value)> {
    let mut table = Table::new(3, &["name", "rates", "description", "parameters"]);
    let mut rows = Vec::new();
    for entry in zoo::ALL {
        let (graph, parameters) = entry.build(0);
        let rates: Vec<String> = entry.rates.iter().map(f64::to_string).collect();
        let description = entry.description.to_owned();
        let count = grouped(parameters.len() as u64);
        table.row([entry.name.to_owned(), rates.join(","), description, count]);
        rows.push(json!({
            "name": entry.name,
            "description": entry.description,
            "rates": entry.rates,
            "widths": graph.full().widths(),
            "inputs": graph.inputs(),
            "outputs": graph.outputs(),
            "parameters": parameters.len(),
        }));
    }
    Ok((table.to_string(), Value::Array(rows)))
}

/// A model with where it came from.
struct Model {
    graph: Graph,
    parameters: Vec<f32>,
    notes: Vec<String>,
    rates: &'static [f64],
    /// Axes that can not be cut may stay whole.
    keep_whole: bool,
    /// Of file names.
    stem: String,
    file: Option<std::path::PathBuf>,
}

/// What was written.
struct Written {
    widths: Vec<u32>,
    parameters: usize,
}

impl Model {
    fn load(source: &Source) -> Result<Self> {
        let keep_whole = source.keep_whole;
        if let Some(entry) = zoo::by_name(&source.model) {
            let (graph, parameters) = entry.build(source.seed);
            let stem = entry.name.to_owned();
            let (notes, rates) = (vec![], entry.rates);
            return Ok(Self { graph, parameters, notes, rates, keep_whole, stem, file: None });
        }
        let path = Path::new(&source.model);
        let bytes = match files::read(path, MAX_MODEL) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let names: Vec<&str> = zoo::ALL.iter().map(|entry| entry.name).collect();
                bail!("'{}' is neither a file nor a model of the zoo ({})", source.model, names.join(", "))
            }
            bytes => bytes.with_context(|| format!("cannot read {}", source.model))?,
        };
        let import = onnx::import(&bytes).with_context(|| source.model.clone())?;
        let stem =
            path.file_stem().map_or_else(|| "model".into(), |stem| stem.to_string_lossy().into_owned());
        let onnx::Import { graph, parameters, notes, .. } = import;
        let nothing_to_cut = graph.full().widths().iter().all(|&width| width == 1);
        let rates: &[f64] = if nothing_to_cut { &[1.0] } else { &[1.0, 0.7, 0.5, 0.25, 0.125] };
        let file = fs::canonicalize(path).ok();
        Ok(Self { graph, parameters, notes, rates, keep_whole, stem, file })
    }

    /// By default the model's usual ones.
    fn rates(&self, rates: Option<&[f64]>) -> Vec<TierSpec> {
        let rates = rates.unwrap_or(self.rates).iter();
        rates.map(|&rate| TierSpec::rate(rate, self.keep_whole)).collect()
    }

    /// By default the whole model.
    fn tier(&self, rate: Option<f64>, widths: Option<&[u32]>) -> TierSpec {
        match widths {
            Some(widths) => TierSpec::widths(widths),
            None => TierSpec::rate(rate.unwrap_or(1.0), self.keep_whole),
        }
    }

    /// Refuses to write over the model.
    fn spare(&self, out: &Path) -> Result<()> {
        let overwrites = self.file.is_some() && fs::canonicalize(out).ok() == self.file;
        ensure!(!overwrites, "{} is the model itself; choose another place to write to", out.display());
        Ok(())
    }

    fn write(&self, spec: &TierSpec, tier: Option<usize>, out: &Path, logits: bool) -> Result<Written> {
        self.spare(out)?;
        let mask = spec.mask(&self.graph)?;
        let slice = self.graph.slice(&mask)?;
        let parameters = self.graph.gather(&mask, &self.parameters)?;
        let mut metadata = Vec::new();
        if mask != *self.graph.full() || tier.is_some() {
            metadata.extend(tier.map(|tier| ("tier", tier.to_string())));
            metadata.push(("widths", serde_json::to_string(mask.widths())?));
        }
        let options = ExportOptions { tail: !logits, metadata: &metadata, stats: None };
        let bytes = onnx::export(&slice, &parameters, &options)?;
        fs::write(out, bytes).with_context(|| format!("can not write {}", out.display()))?;
        Ok(Written { widths: mask.widths().to_vec(), parameters: parameters.len() })
    }
}
