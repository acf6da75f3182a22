//! `fairtier gateway status --follow`: every round as it is finished, until the run ends.
//!
//! Reads files only, so that it outlives the server. A round is printed once, also if the server is killed and started again
//! in between. After a rollback, the rounds that are trained again are printed again.

use std::{fmt::Write as _, path::Path, time::Duration};

use anyhow::{Result, bail};
use common::Code;
use coordinator::report::history::{COLUMNS, HistoryRow};
use serde_json::{Value, json};

use super::{Format, place::Place, print, serve::stop_signal};
use crate::{
    runs,
    status::{self, is_serving},
    store::{Report, ReportReader},
};

/// Time between two looks at the files.
const EVERY: Duration = Duration::from_millis(200);
/// Lines of the history that are read at first; twice as many if that is not enough.
const LINES: usize = 16;

pub(super) fn follow(place: &Place, format: Format) -> Result<()> {
    // A wrong directory would be waited for without end.
    super::load(&place.run)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = stop_signal()?;
        tokio::pin!(stop);
        let mut follower = Follower { place, format, printed: None, serving: None };
        loop {
            let (text, end) = follower.look()?;
            print(&text)?;
            match end {
                End::No => {}
                End::Over => return Ok(()),
                End::Diverged => {
                    bail!("{}; the end of the gateway's log says what to change", Code::Diverged)
                }
            }
            tokio::select! {
                () = &mut stop => return Ok(()),
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    })
}

/// Whether more will come.
#[derive(Copy, Clone, PartialEq, Eq)]
enum End {
    No,
    Over,
    Diverged,
}

struct Follower<'a> {
    place: &'a Place,
    format: Format,
    /// The last round that was printed; absent before the first look.
    printed: Option<u32>,
    serving: Option<bool>,
}

impl Follower<'_> {
    /// What is new, and whether more will come.
    fn look(&mut self) -> Result<(String, End)> {
        let mut text = String::new();
        let Place { gateway, name, run } = self.place;
        if runs::active(gateway)? != *name {
            let line = format!("{name} is no longer the active run");
            self.say(&mut text, &line, &json!({ "event": "switched", "run": name.to_string() }));
            return Ok((text, End::Over));
        }
        let serving = is_serving(gateway)?;
        // Read before the history: the rounds that it counts are there.
        let status = status::last(run).unwrap_or_default();
        let finished = status["finished"] == true && !(serving && self.serving != Some(true));
        // A server that is stopped in a series of suspect rounds has not ended with E56.
        let last = &status["last_round"];
        let diverged =
            !serving && last["kept"] == Code::Diverged.number() && last["suspect_rounds"].is_null();
        if self.serving != Some(serving) && !finished && !diverged {
            let line = match serving {
                true => "a gateway serves the run".to_owned(),
                false => {
                    format!(
                        "no gateway runs; waiting for `fairtier gateway serve --dir {}`",
                        gateway.display()
                    )
                }
            };
            self.say(&mut text, &line, &json!({ "event": "serving", "serving": serving }));
        }
        self.serving = Some(serving);
        // The status may be older than the history; only a rollback removes lines.
        if let (Some(committed), Some(printed)) = (last_round(&run.join("store"))?, self.printed)
            && committed < printed
        {
            let line = format!("rolled back from round {printed} to round {committed}");
            self.say(&mut text, &line, &json!({ "event": "rolled_back", "from": printed, "to": committed }));
            self.printed = Some(committed);
        }
        self.show_rounds(&mut text)?;
        if finished {
            self.show_end(&mut text, &status);
        }
        let end = if diverged {
            End::Diverged
        } else if finished {
            End::Over
        } else {
            End::No
        };
        Ok((text, end))
    }

    fn say(&self, text: &mut String, line: &str, event: &Value) {
        let _ = match self.format {
            Format::Table => writeln!(text, "{line}"),
            Format::Json => writeln!(text, "{event}"),
        };
    }

    /// The rounds that are finished since the last look. The first look shows the last one.
    fn show_rounds(&mut self, text: &mut String) -> Result<()> {
        let store = self.place.run.join("store");
        let mut count = if self.printed.is_some() { LINES } else { 1 };
        let reports = loop {
            let mut reports: Vec<(u32, String)> = vec![];
            if let Some(mut reader) = ReportReader::last(&store, count)? {
                while let Some(Report { round, text }) = reader.read_next()? {
                    reports.push((round, text.to_owned()));
                }
            }
            let first = reports.first().map(|(round, _)| *round);
            let missing = self.printed.is_some_and(|printed| first.is_some_and(|first| first > printed + 1));
            if !missing || reports.len() < count {
                break reports;
            }
            count *= 2;
        };
        let begun = self.printed.is_some();
        let after = self.printed.unwrap_or(0);
        for (round, report) in reports.into_iter().filter(|(round, _)| *round > after) {
            self.printed = Some(round);
            if self.format == Format::Json {
                let _ = writeln!(text, "{{\"event\":\"round\",\"report\":{report}}}");
                continue;
            }
            match HistoryRow::parse(&report) {
                Ok(row) => show_row(text, &row),
                Err(error) => _ = writeln!(text, "round {round}: its report cannot be parsed: {error}"),
            }
        }
        if !begun {
            // Also without any round: those that follow are all new.
            self.printed.get_or_insert(0);
        }
        Ok(())
    }

    fn show_end(&self, text: &mut String, status: &Value) {
        let last = &status["last_round"];
        if self.format == Format::Json {
            let event = json!({
                "event": "end", "committed": status["committed"], "rounds": status["rounds"],
                "stopped": status["stopped"], "best": status["best"], "last_round": last,
            });
            let _ = writeln!(text, "{event}");
            return;
        }
        let number = |value: &Value| value.as_f64().map_or("-".to_owned(), |value| format!("{value:.4}"));
        let mean = |what: &Value| number(&what["mean"]);
        let scores = match &last["errors"] {
            Value::Null => format!("accuracy {}", mean(&last["accuracy"])),
            errors => format!("MAE {}, R2 {}", mean(&errors["mae"]), number(&errors["r2"])),
        };
        let _ = writeln!(text, "final scores: loss {}, {scores}", mean(&last["loss"]));
        text.push_str(&super::status::show_best(status));
        let _ = writeln!(text, "the run is over after {} rounds", status["committed"]);
    }
}

/// The last round in the history, 0 if it is empty; `None` without a history.
fn last_round(store: &Path) -> Result<Option<u32>> {
    let Some(mut reader) = ReportReader::last(store, 1)? else { return Ok(None) };
    Ok(Some(reader.read_next()?.map_or(0, |report| report.round)))
}

fn show_row(text: &mut String, row: &HistoryRow) {
    let value = |name: &str| {
        let at = COLUMNS.iter().position(|(column, ..)| *column == name)?;
        let (value, digits) = (row.cells[at]?, COLUMNS[at].2);
        Some(format!("{value:.digits$}"))
    };
    let cell = |name: &str| value(name).unwrap_or("-".to_owned());
    if let Some(change) = row.change() {
        let _ = writeln!(text, "changed before round {}: {change}", cell("round"));
    }
    let tiers: Vec<_> = row
        .loss_by_tier
        .iter()
        .map(|loss| loss.map_or("-".to_owned(), |loss| format!("{loss:.4}")))
        .collect();
    let scores = match value("mae") {
        Some(mae) => format!("MAE {mae}  R2 {}", cell("r2")),
        None => format!("accuracy {}", cell("accuracy")),
    };
    // Why the model of the round is not used.
    let kept = value("kept").map_or(String::new(), |code| format!("  refused: E{code}"));
    let best = row.best.as_ref().map_or("-".to_owned(), |best| best.round.to_string());
    let _ = writeln!(
        text,
        "round {}  devices {}  loss {} (tiers {})  {scores}  best {best}  {}{kept}",
        cell("round"),
        cell("devices"),
        cell("loss"),
        tiers.join(" "),
        row.times[1].as_deref().unwrap_or("-")
    );
    if let Some(stopped) = &row.stopped {
        let _ = writeln!(text, "{stopped}");
    }
}
