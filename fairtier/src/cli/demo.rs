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
  fairtier demo                                  20 devices, seeds 0 to 4, seed 1 in full, report.html
  fairtier demo --seed 7                         this seed alone
  fairtier demo --target 0.6                     a weaker target; 0: none, and q is fixed
  fairtier demo --minority                       one device has classes that no other has
  fairtier demo --strategy-params '{\"q_m\": 0}'   no fairness inside tiers
  fairtier demo --format json --quiet | jq .seeds
  fairtier demo --dashboard                      and follow it on http://127.0.0.1:8080/
  fairtier demo --runs runs                      keep every round, for `fairtier gateway dashboard --dir`
  fairtier demo --rounds 2 --seed 1 --out -      a quick look without a report

One aggregator and all devices run in this process and talk QUIC with mutual TLS over loopback.
The same seed gives the same numbers.";

#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Rounds of training per strategy
    #[arg(long, value_name = "N", default_value_t = DemoOptions::default().rounds)]
    pub rounds: u32,
    /// Run this seed alone: data split, initial model and order of samples [default: 1 in full, and 0 to 4 in a table]
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Disparity between tiers to keep: standard deviation of their mean losses over the mean; 0: no target
    #[arg(long, value_name = "X", default_value_t = DemoOptions::default().target)]
    pub target: f64,
    /// Give one device classes that no other device has, and show its accuracy
    #[arg(long)]
    pub minority: bool,
    /// Devices in each of the five tiers
    #[arg(long, value_name = "N", default_value_t = DemoOptions::default().devices_per_tier)]
    pub devices_per_tier: usize,
    /// Parameters of FairHeteroFL as a JSON object; others keep their default. With a target, q is not one of them
    #[arg(long, value_name = "JSON")]
    pub strategy_params: Option<String>,
    /// File for the report; - writes none
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,
    /// Also write the main comparison as an SVG picture
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
    /// Also write every round of each run to DIR/STRATEGY-SEED, for `fairtier gateway dashboard --dir`
    #[arg(long, value_name = "DIR")]
    pub runs: Option<PathBuf>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Pages for a browser that follow the run, until the demo ends
    #[cfg(feature = "dashboard")]
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:8080")]
    pub dashboard: Option<std::net::SocketAddr>,
    /// Print no progress
    #[arg(long, short)]
    pub quiet: bool,
}

impl DemoArgs {
    /// The options of the demo, checked.
    pub fn options(&self) -> Result<DemoOptions, BadOption> {
        let default = DemoOptions::default();
        let (seed, others) = match self.seed {
            Some(seed) => (seed, vec![]),
            None => (default.seed, default.others),
        };
        let options = DemoOptions {
            rounds: self.rounds,
            seed,
            others,
            target: self.target,
            minority: self.minority,
            runs: self.runs.clone(),
            devices_per_tier: self.devices_per_tier,
            #[cfg(feature = "dashboard")]
            dashboard: self.dashboard,
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
    #[cfg(feature = "dashboard")]
    if let Some(address) = options.dashboard {
        ensure!(
            address.port() != 0,
            "--dashboard {address}: give a port, because every run of the demo opens it again"
        );
        eprintln!("dashboard on http://{address}/");
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
        assert_eq!(options(&["--target=-1"]), Err(BadOption::Target(-1.0)));
        assert_eq!(options(&["--target", "inf"]), Err(BadOption::Target(f64::INFINITY)));
        assert!(options(&["--target", "NaN"]).is_err());
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
        let fair = options(&["--strategy-params", r#"{"q_m": 0.5}"#]).unwrap().fair;
        assert_eq!(serde_json::Value::from(fair), serde_json::json!({ "q_m": 0.5 }));
    }

    #[test]
    fn a_driven_parameter_is_refused_with_the_reason() {
        let fixed = ["--strategy-params", r#"{"q": 7}"#];
        let error = options(&fixed).unwrap_err().to_string();
        assert!(error.contains("drives `q`"), "{error}");
        assert_eq!(options(&[&fixed[..], &["--target", "0"]].concat()).unwrap().fair["q"], 7);
        let hessian = ["--strategy-params", r#"{"step": "hessian"}"#];
        assert!(options(&hessian).unwrap_err().to_string().contains("step"));
    }

    #[test]
    fn a_seed_is_run_alone() {
        let chosen = options(&["--seed", "7"]).unwrap();
        assert_eq!((chosen.seed, chosen.others), (7, vec![]));
        assert_eq!(options(&[]).unwrap().others, [0, 2, 3, 4]);
    }
}
