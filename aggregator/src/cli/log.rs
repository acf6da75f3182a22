//! The log on standard error: as text, or as JSON with one object per line. What operators do on the dashboard is always in it.
//!
//! Keys of an object: `timestamp` (RFC 3339, UTC), `level`, `message`, and the fields of the event, such as `device` and `round`.

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use tracing_subscriber::{EnvFilter, fmt};

use crate::config::OPERATOR_LOG;

const DEFAULT: &str = "info";

#[derive(Args, Debug)]
pub(super) struct LogArgs {
    /// error, warn, info, debug or trace; also from FAIRTIER_LOG. Without it, `serve` uses log.level of the configuration, other
    /// commands info
    #[arg(long, global = true, env = "FAIRTIER_LOG")]
    log: Option<String>,
    /// `json` writes one object per line, with the keys timestamp, level, message and those of the event; also from
    /// FAIRTIER_LOG_FORMAT
    #[arg(long, global = true, default_value = "text", env = "FAIRTIER_LOG_FORMAT")]
    log_format: LogFormat,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// Changes the level of the log while the program runs.
pub(super) struct LogLevel {
    set: Box<dyn Fn(EnvFilter) -> Result<()>>,
    /// The level comes from the command line.
    is_fixed: bool,
}

impl LogLevel {
    /// True if the level is the configured one now; false if the command line states another.
    pub fn follow(&self, level: &str) -> Result<bool> {
        if !self.is_fixed {
            (self.set)(filter(level).context("log.level")?)?;
        }
        Ok(!self.is_fixed)
    }
}

fn filter(level: &str) -> Result<EnvFilter> {
    let always = format!("{OPERATOR_LOG}=info").parse()?;
    Ok(EnvFilter::try_new(level)?.add_directive(always))
}

impl LogArgs {
    pub fn start(&self) -> Result<LogLevel> {
        let filter = filter(self.log.as_deref().unwrap_or(DEFAULT)).context("--log")?;
        let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
        let is_fixed = self.log.is_some();
        let set: Box<dyn Fn(EnvFilter) -> Result<()>> = match self.log_format {
            LogFormat::Text => {
                let builder = builder.with_filter_reloading();
                let handle = builder.reload_handle();
                builder.init();
                Box::new(move |filter| Ok(handle.reload(filter)?))
            }
            LogFormat::Json => {
                let builder =
                    builder.json().flatten_event(true).with_current_span(false).with_span_list(false);
                let builder = builder.with_filter_reloading();
                let handle = builder.reload_handle();
                builder.init();
                Box::new(move |filter| Ok(handle.reload(filter)?))
            }
        };
        Ok(LogLevel { set, is_fixed })
    }
}
