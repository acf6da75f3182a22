//! What each command of `fairtier model` does.

use std::{fs, io::ErrorKind, path::Path, process::ExitCode};

use super::{
    CheckArgs, GradArgs, LossKind, ModelArgs, ModelCommand, ModelTools, OptimizerKind, OutputFormat,
    PlanArgs, TierArgs, TiersArgs, check, grad,
    inspect::{Inspection, TierNeeds, tiers_table},
    plan::{PlanReport, PlanRequest},
    table::grouped,
};
use crate::{
    Graph, TierSpec,
    check::CheckOptions,
    grad::{ModelSamples, gradients},
    npy::Array,
    onnx::{self, ExportOptions},
    plan::PlanOptions,
    zoo,
};
use anyhow::{Context, Result, bail, ensure};
use common::{
    files::{self, MAX_MODEL},
    output::{self, print},
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

/// The text to print, and whether the exit code is 0.
fn run(cli: &ModelTools) -> Result<(String, bool)> {
    let mut ok = true;
    let (text, json) = match &cli.command {
        ModelCommand::Inspect { source, tiers } => inspect(source, tiers)?,
        ModelCommand::Slice { source, tier, out, logits } => slice(source, tier, out, *logits)?,
        ModelCommand::Export { source, tiers, out, logits } => export(source, tiers, out, *logits)?,
        ModelCommand::Plan { source, need } => {
            let report = plan(source, need)?;
            ok = report.fits();
            (report.to_string(), serde_json::to_value(&report)?)
        }
        ModelCommand::Check { source, check } => {
            let report = check_model(source, check)?;
            ok = report.is_right();
            (report.to_string(), serde_json::to_value(&report)?)
        }
        ModelCommand::Grad { source, grad } => {
            let report = write_gradients(source, grad)?;
            (report.to_string(), serde_json::to_value(&report)?)
        }
        ModelCommand::Zoo => list_zoo()?,
    };
    let output = match cli.format {
        OutputFormat::Table => text,
        OutputFormat::Json => serde_json::to_string_pretty(&json)? + "\n",
    };
    Ok((output, ok))
}

fn inspect(source: &ModelArgs, tiers: &TiersArgs) -> Result<(String, Value)> {
    let model = LoadedModel::load(source)?;
    let specs = model.rates(tiers.tiers.as_deref());
    let inspection = Inspection::new(&model.graph, &model.notes, &specs, tiers.batch)?;
    Ok((inspection.to_string(), serde_json::to_value(&inspection)?))
}

fn slice(source: &ModelArgs, tier: &TierArgs, out: &Path, logits: bool) -> Result<(String, Value)> {
    let model = LoadedModel::load(source)?;
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

fn export(source: &ModelArgs, tiers: &TiersArgs, out: &Path, logits: bool) -> Result<(String, Value)> {
    let model = LoadedModel::load(source)?;
    let specs = model.rates(tiers.tiers.as_deref());
    let needs = TierNeeds::list(&model.graph, &specs, tiers.batch)?;
    fs::create_dir_all(out).with_context(|| format!("cannot create directory {}", out.display()))?;
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

fn plan(source: &ModelArgs, need: &PlanArgs) -> Result<PlanReport> {
    let model = LoadedModel::load(source)?;
    let spec = model.tier(need.tier, need.widths.as_deref());
    let moments = match need.optimizer {
        OptimizerKind::Sgd => 0,
        OptimizerKind::Momentum => 1,
        OptimizerKind::Adam => 2,
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
    let round = need.samples.map(|samples| (samples, need.epochs));
    let request = PlanRequest { options, ram: need.ram, flash: need.flash, buffers: need.buffers, round };
    Ok(PlanReport::new(&model.graph, &spec.mask(&model.graph)?, &request)?)
}

fn check_model(source: &ModelArgs, args: &CheckArgs) -> Result<check::CheckReport> {
    let model = match LoadedModel::load(source) {
        // A model that cannot be imported, or that lacks its weights, is a finding; a file that cannot be read is not.
        Err(error)
            if error.is::<onnx::ImportError>()
                || matches!(error.downcast_ref(), Some(onnx::ReadError::Weights { .. })) =>
        {
            let reason = error.root_cause().to_string();
            return Ok(check::CheckReport::refused(&source.model, reason, error.downcast_ref()));
        }
        model => model?,
    };
    let file = model.file.as_deref().map(onnx::read).transpose()?;
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
    Ok(check::CheckReport::new(&source.model, &model.graph, found.collect(), &model.notes))
}

fn write_gradients(source: &ModelArgs, args: &GradArgs) -> Result<grad::GradReport> {
    let model = LoadedModel::load(source)?;
    model.spare(&args.out)?;
    for (read, what) in [(&args.inputs, "inputs"), (&args.labels, "labels")] {
        let same = *read == args.out || is_same_file(read, &args.out);
        ensure!(!same, "{} holds the {what}; choose another output file", args.out.display());
    }
    let mask = model.tier(args.tier, args.widths.as_deref()).mask(&model.graph)?;
    let array = |path: &Path| {
        let bytes =
            files::read(path, MAX_MODEL).with_context(|| format!("cannot read {}", path.display()))?;
        Array::read(&bytes).with_context(|| path.display().to_string())
    };
    let (inputs, labels) = (array(&args.inputs)?, array(&args.labels)?);
    let loss = LossKind::of(args.loss, &model.graph);
    let samples = ModelSamples::from_arrays(&model.graph, loss, &inputs, &labels)?;
    let found = gradients(&model.graph, &model.parameters, Some(&mask), &samples)?;
    fs::write(&args.out, grad::archive(&found)?)
        .with_context(|| format!("cannot write {}", args.out.display()))?;
    Ok(grad::GradReport::new(args.out.clone(), samples.rows(), mask.widths().to_vec(), &found))
}

/// Compares resolved paths (links, `..`). False for files that do not exist.
fn is_same_file(a: &Path, b: &Path) -> bool {
    matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

/// Width of the column of names.
const NAME: usize = 18;

fn list_zoo() -> Result<(String, Value)> {
    let mut text = format!("  {:<NAME$}  parameters  description and rates\n", "name");
    let mut rows = Vec::new();
    for entry in zoo::ALL {
        let (graph, parameters) = entry.build(0);
        let rates: Vec<String> = entry.rates.iter().map(f64::to_string).collect();
        let about = format!("{}; {}", entry.description, rates.join(","));
        let head = format!("  {:<NAME$}  {:>10}  ", entry.name, grouped(parameters.len() as u64));
        text += &format!("{head}{}\n", output::wrap(&about, head.len(), output::COLUMNS));
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
    Ok((text, Value::Array(rows)))
}

/// A model and its source.
struct LoadedModel {
    graph: Graph,
    parameters: Vec<f32>,
    notes: Vec<String>,
    rates: &'static [f64],
    /// Axes that cannot be cut may stay whole.
    keep_whole: bool,
    /// Stem of file names.
    stem: String,
    file: Option<std::path::PathBuf>,
}

/// Rates for a model that names none.
fn usual_rates(graph: &Graph) -> &'static [f64] {
    let nothing_to_cut = graph.full().widths().iter().all(|&width| width == 1);
    if nothing_to_cut { &[1.0] } else { &[1.0, 0.7, 0.5, 0.25, 0.125] }
}

/// A file that was written.
struct WrittenSlice {
    widths: Vec<u32>,
    parameters: usize,
}

impl LoadedModel {
    fn load(source: &ModelArgs) -> Result<Self> {
        let keep_whole = source.keep_whole;
        if let Some(entry) = zoo::by_name(&source.model) {
            let (graph, parameters) = entry.build(source.seed);
            let stem = entry.name.to_owned();
            let (notes, rates) = (vec![], entry.rates);
            return Ok(Self { graph, parameters, notes, rates, keep_whole, stem, file: None });
        }
        if let Some((graph, parameters)) = zoo::build(&source.model, source.seed) {
            let stem = source.model.replace(':', "-");
            let rates = usual_rates(&graph);
            return Ok(Self { graph, parameters, notes: vec![], rates, keep_whole, stem, file: None });
        }
        let path = Path::new(&source.model);
        let bytes = match onnx::read(path) {
            Err(onnx::ReadError::File(error)) if error.kind() == ErrorKind::NotFound => {
                let names: Vec<&str> = zoo::ALL.iter().map(|entry| entry.name).collect();
                bail!("'{}' is neither a file nor a model of the zoo ({})", source.model, names.join(", "))
            }
            bytes => bytes.with_context(|| format!("cannot read {}", source.model))?,
        };
        let import = onnx::import(&bytes).with_context(|| source.model.clone())?;
        let stem =
            path.file_stem().map_or_else(|| "model".into(), |stem| stem.to_string_lossy().into_owned());
        let onnx::Import { graph, parameters, notes, .. } = import;
        let rates = usual_rates(&graph);
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
        ensure!(!overwrites, "{} is the model itself; choose another output file", out.display());
        Ok(())
    }

    fn write(&self, spec: &TierSpec, tier: Option<usize>, out: &Path, logits: bool) -> Result<WrittenSlice> {
        self.spare(out)?;
        let mask = spec.mask(&self.graph)?;
        let mut slice = self.graph.slice(&mask)?;
        let parameters = self.graph.gather(&mask, &self.parameters)?;
        let mut metadata = Vec::new();
        if mask != *self.graph.full() || tier.is_some() {
            // The tier of the file that is sliced, which is another one.
            slice = slice.with_metadata("tier", None);
            metadata.extend(tier.map(|tier| ("tier", tier.to_string())));
            metadata.push(("widths", serde_json::to_string(mask.widths())?));
        }
        let options = ExportOptions { tail: !logits, metadata: &metadata, stats: None };
        let bytes = onnx::export(&slice, &parameters, &options)?;
        fs::write(out, bytes).with_context(|| format!("cannot write {}", out.display()))?;
        Ok(WrittenSlice { widths: mask.widths().to_vec(), parameters: parameters.len() })
    }
}
