//! `fairtier data`: what is in a file of samples, and what its columns mean.

use std::{
    fmt::Write as _,
    fs::OpenOptions,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::{Subcommand, ValueEnum};
use common::output::{COLUMNS, print, table};
use serde_json::{Value, json};

use super::Format;
use crate::{
    data::schema::{self, ColumnSurvey, NumberRange, ProposeOptions, Schema, Survey, Targets, Task},
    host::args::read_schema,
};

/// `fairtier data`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DataTools {
    #[command(subcommand)]
    command: DataCommand,
}

const EXAMPLES: &str = "\
Examples:
  fairtier data schema --from samples.csv --label state        proposes what the columns mean
  fairtier data schema --from samples.csv >> fairtier.toml     and writes it for the whole fleet
  fairtier data check --schema fairtier.toml *.csv             what fits, and what does not";

const SCHEMA: &str = "\
Examples:
  fairtier data schema --from samples.csv                          the last column is the label
  fairtier data schema --from north.csv south.csv                  words of both files are known
  fairtier data schema --from prices.csv --label price --task regression --out schema.toml";

const CHECK: &str = "\
Examples:
  fairtier data check --schema fairtier.toml samples.csv
  fairtier data check --schema fairtier.toml --unlabelled new.csv --format json";

/// Most levels of a column that a table counts; JSON has all of them.
const SHOWN: usize = 16;

#[derive(Subcommand, Debug)]
enum DataCommand {
    /// Proposes a schema: the table [data], from what a CSV file holds
    #[command(after_help = SCHEMA)]
    Schema(SchemaArgs),
    /// Reads files by a schema and lists all that does not fit; exit code 1 if something does not
    #[command(after_help = CHECK)]
    Check(CheckArgs),
}

#[derive(clap::Args, Debug)]
struct SchemaArgs {
    /// CSV files; with several, levels and classes are those of all of them
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    from: Vec<PathBuf>,
    /// Name or number (from 1) of the column to predict [default: the last]
    #[arg(long)]
    label: Option<String>,
    /// What the model predicts [default: regression for numbers with many values, else classification]
    #[arg(long)]
    task: Option<TaskName>,
    /// Whether the first line names the columns [default: if it holds no sample]
    #[arg(long)]
    header: Option<bool>,
    /// New file to write to, instead of standard output
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Copy, Clone, Debug, ValueEnum)]
enum TaskName {
    Classification,
    Binary,
    Regression,
}

#[derive(clap::Args, Debug)]
struct CheckArgs {
    /// TOML file with the table [data]
    #[arg(long, value_name = "FILE")]
    schema: PathBuf,
    /// Files of samples
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Accept files without the column to predict
    #[arg(long)]
    unlabelled: bool,
    #[arg(long, default_value = "table")]
    format: Format,
}

impl DataTools {
    /// Runs the command.
    pub fn run(self) -> Result<()> {
        match self.command {
            DataCommand::Schema(args) => propose(&args),
            DataCommand::Check(args) => check(&args),
        }
    }
}

fn propose(args: &SchemaArgs) -> Result<()> {
    let task = args.task.map(|task| match task {
        TaskName::Classification => Task::Classification,
        TaskName::Binary => Task::Binary,
        TaskName::Regression => Task::Regression,
    });
    let options = ProposeOptions { label: args.label.clone(), task, header: args.header };
    let text = Schema::propose_from(&args.from, &options)?.toml()?;
    match &args.out {
        None => Ok(print(&text)?),
        Some(path) => {
            // A schema is corrected by hand, so an existing one is not replaced.
            let file = OpenOptions::new().write(true).create_new(true).open(path);
            if file.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
                bail!("{}: exists and may hold corrections; remove it, or name another file", path.display());
            }
            let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
            written.with_context(|| path.display().to_string())
        }
    }
}

fn check(args: &CheckArgs) -> Result<()> {
    let schema = read_schema(&args.schema)?;
    let targets = if args.unlabelled { Targets::Optional } else { Targets::Needed };
    let (mut text, mut reports, mut wrong) = (String::new(), Vec::new(), 0);
    for path in &args.files {
        match schema::survey_any(path, &schema, targets) {
            Ok(survey) => {
                wrong += usize::from(survey.misfits > 0);
                text += &describe(path, &survey);
                reports.push(json!({ "file": path, "survey": survey }));
            }
            Err(error) => {
                wrong += 1;
                let _ = writeln!(text, "{error}");
                reports.push(json!({ "file": path, "error": error.to_string() }));
            }
        }
    }
    let (inputs, outputs) = (schema.inputs(), schema.outputs());
    match args.format {
        Format::Json => print(&format!("{}\n", report(&schema, &reports)?))?,
        Format::Table => {
            print(&format!("{text}The model needs {inputs} inputs and {outputs} outputs.\n"))?;
        }
    }
    match wrong {
        0 => Ok(()),
        _ => bail!("{wrong} of {} files do not fit {}", args.files.len(), args.schema.display()),
    }
}

fn report(schema: &Schema, files: &[Value]) -> Result<Value> {
    Ok(json!({
        "digest": schema.digest()?.to_string(),
        "inputs": schema.inputs(),
        "outputs": schema.outputs(),
        "classes": schema.classes(),
        "files": files,
    }))
}

fn describe(path: &Path, survey: &Survey) -> String {
    let mut text = String::new();
    let file = path.display();
    let _ = match survey.misfits {
        0 => write!(text, "{file}: {} samples", survey.samples),
        misfits => write!(text, "{file}: {misfits} of {} lines do not fit", survey.rows),
    };
    if survey.left_over > 0 {
        let _ = write!(text, "; {} lines at ends form no window", survey.left_over);
    }
    text.push('\n');
    let rows: Vec<Vec<String>> = survey
        .columns
        .iter()
        .map(|column| vec![format!("  {}", column.name), column.kind.to_owned(), content(column)])
        .collect();
    text += &table(&rows, 3, COLUMNS.max(400));
    for finding in &survey.findings {
        let _ = writeln!(text, "{file}:{}: {}", finding.line, finding.problem);
    }
    let listed = survey.findings.len();
    if survey.misfits > listed {
        let _ = writeln!(text, "{file}: and {} more lines", survey.misfits - listed);
    }
    text
}

fn content(column: &ColumnSurvey) -> String {
    let mut parts: Vec<String> = Vec::new();
    if let Some(NumberRange { min, max, mean, deviation }) = column.range {
        parts.push(format!(
            "{} to {}, mean {}, deviation {}",
            short(min),
            short(max),
            short(mean),
            short(deviation)
        ));
    }
    if !column.counts.is_empty() {
        let counts = column.counts.iter().take(SHOWN).map(|(level, count)| format!("{level} {count}"));
        let more = column.counts.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        parts.push(counts.collect::<Vec<_>>().join(", ") + &more);
    }
    if column.missing > 0 {
        parts.push(format!("{} missing", column.missing));
    }
    parts.join("; ")
}

/// Four digits.
fn short(value: f64) -> String {
    format!("{value:.3e}").parse::<f64>().map_or_else(|_| value.to_string(), |value| value.to_string())
}
