//! `fairtier demo`.

use std::{
    fs, future,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use common::output::print;

use sim::cli::{Format, start_log};

use crate::demo::{self, BadOption, DemoError, DemoOptions, report};

mod progress;

/// Exit code that shells report for a program ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Text after the options in `fairtier demo --help`.
pub const EXAMPLES: &str = "\
Examples:
  fairtier demo                                  20 devices, both strategies, report.html
  fairtier demo --seed 7                         other data split, other initial model
  fairtier demo --strategy-params '{\"q\": 5}'     more weight on slow tiers
  fairtier demo --format json --quiet | jq .changes
  fairtier demo --rounds 2 --out -               a quick look without a report

One aggregator and all devices run in this process and talk QUIC with mutual TLS over loopback.
The same seed gives the same numbers.";

#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Rounds of training per strategy
    #[arg(long, value_name = "N", default_value_t = DemoOptions::default().rounds)]
    pub rounds: u32,
    /// Seed of the data split, the initial model and the order of samples
    #[arg(long, value_name = "S", default_value_t = DemoOptions::default().seed)]
    pub seed: u64,
    /// Devices in each of the five tiers
    #[arg(long, value_name = "N", default_value_t = DemoOptions::default().devices_per_tier)]
    pub devices_per_tier: usize,
    /// Parameters of FairHeteroFL as a JSON object; parameters that are not given keep the demo's value
    #[arg(long, value_name = "JSON")]
    pub strategy_params: Option<String>,
    /// File for the report; - writes none
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,
    /// Also write the main comparison as an SVG picture
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Print no progress
    #[arg(long, short)]
    pub quiet: bool,
}

impl DemoArgs {
    /// The options of the demo, checked.
    pub fn options(&self) -> Result<DemoOptions, BadOption> {
        let options = DemoOptions {
            rounds: self.rounds,
            seed: self.seed,
            devices_per_tier: self.devices_per_tier,
            ..DemoOptions::default()
        };
        options.check()?;
        match &self.strategy_params {
            Some(params) => options.with_strategy_params(params),
            None => Ok(options),
        }
    }

    /// Path of the report; `None` if none is wanted.
    pub fn report(&self) -> Option<&PathBuf> {
        (self.out.as_os_str() != "-").then_some(&self.out)
    }
}

impl DemoArgs {
    /// Runs the demo. Ctrl-C ends it with exit code 130.
    pub fn run(&self) -> Result<ExitCode> {
        start_log();
        match demo(self) {
            Err(error) if matches!(error.downcast_ref(), Some(DemoError::Stopped)) => {
                eprintln!("stopped; nothing was written");
                Ok(INTERRUPTED.into())
            }
            done => done.map(|()| ExitCode::SUCCESS),
        }
    }
}

fn demo(args: &DemoArgs) -> Result<()> {
    let options = args.options()?;
    // Fails before the run, not after it.
    for path in args.report().into_iter().chain(&args.picture) {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        ensure!(dir.is_dir(), "cannot write {}: there is no directory {}", path.display(), dir.display());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let stop = async {
        if tokio::signal::ctrl_c().await.is_err() {
            future::pending::<()>().await;
        }
    };
    let result = runtime.block_on(demo::run(&options, progress::observer(args.quiet), stop))?;
    let text = match args.format {
        Format::Table => report::table(&result),
        Format::Json => serde_json::to_string(&result)? + "\n",
    };
    if let Some(path) = args.report() {
        write(path, &report::html(&result), args.quiet)?;
    }
    if let Some(path) = &args.picture {
        write(path, &report::picture(&result), args.quiet)?;
    }
    Ok(print(&text)?)
}

fn write(path: &Path, text: &str, quiet: bool) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    if !quiet {
        eprintln!("wrote {}", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        demo: DemoArgs,
    }

    fn options(args: &[&str]) -> Result<DemoOptions, BadOption> {
        Cli::try_parse_from([&["demo"], args].concat()).unwrap().demo.options()
    }

    #[test]
    fn defaults_are_those_of_the_library() {
        assert_eq!(options(&[]), Ok(DemoOptions::default()));
    }

    #[test]
    fn bad_values_are_named() {
        assert_eq!(options(&["--rounds", "0"]), Err(BadOption::Rounds(0)));
        assert_eq!(options(&["--devices-per-tier", "41"]), Err(BadOption::DevicesPerTier(41)));
        for (params, named) in [("[1]", "object"), (r#"{"Q": 1}"#, "Q"), (r#"{"q": -1}"#, "q"), ("{", "EOF")]
        {
            let error = options(&["--strategy-params", params]).unwrap_err().to_string();
            assert!(error.contains(named), "{params}: {error}");
        }
        // One value too few for five tiers.
        let error = options(&["--strategy-params", r#"{"q_m": [1, 2, 3, 4]}"#]).unwrap_err().to_string();
        assert!(error.contains("5 tiers"), "{error}");
    }

    #[test]
    fn parameters_that_are_not_given_keep_their_value() {
        let fair = options(&["--strategy-params", r#"{"q": 7}"#]).unwrap().fair;
        assert_eq!(fair["q"], 7);
        assert_eq!(fair.get("step"), DemoOptions::default().fair.get("step"));
    }
}
