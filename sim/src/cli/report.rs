//! `fairtier sim report`, `fairtier sim keep` and `fairtier sim reproduce`: pages and records from saved results.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    claims::{self, Evidence},
    keep::keep,
    report::{Digest, SourceDigest, appendix, experiments_html, experiments_markdown},
    results::{ResultsError, write},
};
use clap::{Args, ValueEnum};

use super::Format;

pub const EXAMPLES: &str = "\
Examples:
  fairtier sim report                         results/ as one page, report.html
  fairtier sim report results --format md     its tables, printed
  fairtier sim report --format json | jq '.experiments[].checks'";

pub const KEEP_EXAMPLES: &str = "\
Examples:
  fairtier sim run fedfb-tables --profile full    produces results to keep
  fairtier sim keep                               copies results/ to sim/results in a small form
  fairtier sim reproduce                          writes REPRODUCTION.md from sim/results
  fairtier sim report sim/results                 the same as a page";

pub const REPRODUCE_EXAMPLES: &str = "\
Examples:
  fairtier sim reproduce                          REPRODUCTION.md and docs/reproduction.md from sim/results
  fairtier sim reproduce results --out -          prints the record of results/";

/// Directory of kept results.
const KEPT: &str = "sim/results";
/// Page with every check.
const APPENDIX: &str = "docs/reproduction.md";

/// Errors of reports and records.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("there is no directory {}; create results with fairtier sim run EXPERIMENT, or name another directory", .0.display())]
    NoResults(PathBuf),
    #[error(transparent)]
    Results(#[from] ResultsError),
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
}

#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Directory of results
    #[arg(value_name = "DIR", default_value = "results")]
    pub dir: PathBuf,
    /// Output file; - prints to the terminal [default: report.html for html, - for md and json]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// A self-contained page, the tables in Markdown, or all numbers as JSON
    #[arg(long, value_enum, default_value_t = ReportFormat::Html)]
    pub format: ReportFormat,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum ReportFormat {
    Html,
    Md,
    Json,
}

#[derive(Args, Debug)]
pub struct KeepArgs {
    /// Directory of results
    #[arg(value_name = "DIR", default_value = "results")]
    pub dir: PathBuf,
    /// Directory for the kept results
    #[arg(long, value_name = "DIR", default_value = KEPT)]
    pub out: PathBuf,
    /// How to print which files were written
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

#[derive(Args, Debug)]
pub struct ReproduceArgs {
    /// Directory of results
    #[arg(value_name = "DIR", default_value = KEPT)]
    pub dir: PathBuf,
    /// Output file; - prints to the terminal [default: REPRODUCTION.md for md, - for json]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// File for every check and what was run [default: docs/reproduction.md with a file for md, else none]
    #[arg(long, value_name = "FILE")]
    pub appendix: Option<PathBuf>,
    /// The record in Markdown, or every claim with its numbers as JSON
    #[arg(long, value_enum, default_value_t = RecordFormat::Md)]
    pub format: RecordFormat,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum RecordFormat {
    Md,
    Json,
}

/// Runs `sim report`; returns the text to print.
pub fn report(args: &ReportArgs) -> Result<String, ReportError> {
    let digest = Digest::new(&evidence(&args.dir)?);
    let text = match args.format {
        ReportFormat::Html => experiments_html(&digest),
        ReportFormat::Md => experiments_markdown(&digest),
        ReportFormat::Json => serde_json::to_string_pretty(&digest)? + "\n",
    };
    let page = (args.format == ReportFormat::Html).then(|| PathBuf::from("report.html"));
    deliver(text, args.out.clone().or(page).as_deref())
}

/// Runs `sim keep`; returns the text to print.
pub fn kept(args: &KeepArgs) -> Result<String, ReportError> {
    if !args.dir.is_dir() {
        return Err(ReportError::NoResults(args.dir.clone()));
    }
    let written = keep(&args.dir, &args.out)?;
    Ok(match args.format {
        Format::Table => format!("wrote {} files to {}\n", written.len(), args.out.display()),
        Format::Json => serde_json::to_string(&written)? + "\n",
    })
}

/// Runs `sim reproduce`; returns the text to print.
pub fn reproduce(args: &ReproduceArgs) -> Result<String, ReportError> {
    let evidence = evidence(&args.dir)?;
    let (text, usual) = match args.format {
        RecordFormat::Md => (claims::record(&evidence), "REPRODUCTION.md"),
        RecordFormat::Json => (serde_json::to_string_pretty(&SourceDigest::all(&evidence))? + "\n", "-"),
    };
    let out = args.out.as_deref().unwrap_or(Path::new(usual));
    let to_file = args.format == RecordFormat::Md && out.as_os_str() != "-";
    let page = args.appendix.clone().or_else(|| to_file.then(|| APPENDIX.into()));
    let mut said = deliver(text, Some(out))?;
    if let Some(page) = page {
        write(&page, &appendix(&evidence))?;
        if to_file {
            said += &format!("wrote {}\n", page.display());
        }
    }
    Ok(said)
}

fn evidence(dir: &Path) -> Result<Evidence, ReportError> {
    if !dir.is_dir() {
        return Err(ReportError::NoResults(dir.into()));
    }
    Ok(Evidence::read(dir)?)
}

fn deliver(text: String, out: Option<&Path>) -> Result<String, ReportError> {
    match out.filter(|path| path.as_os_str() != "-") {
        None => Ok(text),
        Some(path) => {
            fs::write(path, text).map_err(|source| ReportError::Write { path: path.into(), source })?;
            Ok(format!("wrote {}\n", path.display()))
        }
    }
}
