//! docs/leaderboard.md.

use std::fmt::{self, Write};

use super::{Board, BoardTable, FIGURES, Ranks, Row, WORST};
use crate::{
    claims::cell,
    results::{Role, figure},
};
use common::metrics::Spread;
use plots::number;

const HEAD: &str = "\
# Leaderboard

Written by `fairtier sim leaderboard --out docs/leaderboard.md` from the results kept in `sim/results`; do not edit.

Every strategy trains the same fleets: five tiers of hardware, five data sets, five seeds, without the guard and with the guard as the gateway
ships it. One parameter of each strategy has three values. Validation chooses one for every data set, guard and seed, by the loss of the
worst tenth of the devices. `sim/experiments/leaderboard.toml` states all of that, and was written before any result was there. Results of
other settings are not read.

- Losses are in nats, on a device's own test samples; accuracy is the mean over devices. Figures are means over the last evaluations of all
  devices. ± is the standard deviation over seeds.
- *Within* and *between* are the variance of losses inside tiers and of the tiers' means. *Time* is virtual, of one run.
- *Against FedAvg* is the loss of the worst tenth less that of FedAvg, paired by seed, with its 95 % interval. Below 0 is better.
- ● marks the front: no other strategy has both a higher accuracy and a lower loss of the worst tenth.
- A strategy that finds a direction, in place of an average, is marked with ↘. Its parameter is not driven by a fairness target.
- Ditto is scored by its common model, not by the personal ones.
";

const TAIL: &str = "
## Run more of it

```sh
fairtier sim leaderboard --run digits,wisdm --minutes 60 --out docs/leaderboard.md
```

Cells that are kept are not run again, and a cell that was interrupted is begun anew. `--run all` runs everything that is missing. Data sets
other than digits must be there: `fairtier sim data list` says which are, and where to get the others.
";

/// The page in Markdown.
pub fn page(board: &Board) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write_page(&mut out, board);
    out
}

fn write_page(out: &mut String, board: &Board) -> fmt::Result {
    out.write_str(HEAD)?;
    coverage(out, board)?;
    writeln!(out, "\n## Ranks")?;
    if board.ranks.is_empty() {
        writeln!(out, "\nNo data set has all its strategies yet.")?;
    }
    board.ranks.iter().try_for_each(|ranks| write_ranks(out, ranks))?;
    for table in board.tables.iter().filter(|table| table.run > 0) {
        write_table(out, table)?;
    }
    out.write_str(TAIL)
}

fn coverage(out: &mut String, board: &Board) -> fmt::Result {
    writeln!(out, "\n## What was run\n\n| data set | cells run | of | |\n|---|---|---|---|")?;
    for table in &board.tables {
        let state = match table.run {
            0 => "**not run yet**",
            run if run < table.planned => "**in part**",
            _ => "complete",
        };
        writeln!(out, "| {} | {} | {} | {state} |", cell(&table.label), table.run, table.planned)?;
    }
    let run: usize = board.tables.iter().map(|table| table.run).sum();
    let planned: usize = board.tables.iter().map(|table| table.planned).sum();
    writeln!(
        out,
        "\n{run} of {planned} cells in {:.1} hours of machine time. A cell is a strategy with a seed; it trains once for each value of its \
         parameter.",
        board.seconds / 3600.0
    )
}

fn write_ranks(out: &mut String, ranks: &Ranks) -> fmt::Result {
    let guard = if ranks.guard { "With the guard as shipped" } else { "Without the guard" };
    let blocks: Vec<String> =
        ranks.blocks.iter().map(|(label, seeds)| format!("{label} ({seeds} seeds)")).collect();
    writeln!(out, "\n### {guard}\n")?;
    writeln!(
        out,
        "Mean ranks over {}; 1 is best of {}. The critical difference is {:.1} (Nemenyi, 5 %): ranks that lie closer are not told apart. Seeds of one \
         data set are no independent data sets, so the difference that would be needed is larger.\n",
        blocks.join(", "),
        ranks.rows.len(),
        ranks.critical
    )?;
    writeln!(
        out,
        "| | worst tenth | mean loss | accuracy | not told apart from the first |\n|---|---|---|---|---|"
    )?;
    let first = ranks.rows.first().map_or(0.0, |row| row.ranks[0]);
    for row in &ranks.rows {
        let near = if row.ranks[0] - first < ranks.critical { "yes" } else { "" };
        let cells: Vec<String> = row.ranks.iter().map(|rank| format!("{rank:.1}")).collect();
        writeln!(out, "| {} | {} | {near} |", name(&row.label, row.role, row.direction), cells.join(" | "))?;
    }
    let sentences = ranks.sentences();
    if !sentences.is_empty() {
        writeln!(out, "\n{}", sentences.join(" "))?;
    }
    Ok(())
}

impl Ranks {
    /// What the ranks say of the default, also if it is not flattering.
    pub fn sentences(&self) -> Vec<String> {
        let Some(place) = self.rows.iter().position(|row| row.role == Role::Ours) else { return vec![] };
        let default = &self.rows[place];
        let mut said = vec![format!(
            "{} has rank {:.1} for the worst tenth, place {} of {}.",
            default.label,
            default.ranks[0],
            place + 1,
            self.rows.len()
        )];
        let list = |rows: &[&str]| rows.join(", ");
        let clearly = |row: &&super::ranks::RankRow| default.ranks[0] - row.ranks[0] >= self.critical;
        let ahead = &self.rows[..place];
        let [clear, near]: [Vec<&str>; 2] = [true, false].map(|wanted| {
            ahead.iter().filter(|row| clearly(row) == wanted).map(|row| row.label.as_str()).collect()
        });
        said.push(match (clear.is_empty(), near.is_empty()) {
            (true, true) => "No strategy is ahead of it.".into(),
            (true, false) => format!("Ahead of it, within the critical difference: {}.", list(&near)),
            (false, true) => format!("**Clearly ahead of it: {}.**", list(&clear)),
            (false, false) => {
                let (clear, near) = (list(&clear), list(&near));
                format!("**Clearly ahead of it: {clear}.** Ahead within the critical difference: {near}.")
            }
        });
        let best = |direction: bool| self.rows.iter().find(|row| row.direction == direction);
        if let (Some(average), Some(direction)) = (best(false), best(true)) {
            said.push(format!(
                "The best average is {} ({:.1}), the best direction {} ({:.1}).",
                average.label, average.ranks[0], direction.label, direction.ranks[0]
            ));
        }
        said
    }
}

fn write_table(out: &mut String, table: &BoardTable) -> fmt::Result {
    writeln!(out, "\n## {}\n", table.label)?;
    writeln!(
        out,
        "| | | mean loss | worst 10 % | against FedAvg | within | between | worst tier | accuracy | time | bytes | chosen (seeds) |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|"
    )?;
    table.rows.iter().try_for_each(|row| write_row(out, row))
}

fn write_row(out: &mut String, row: &Row) -> fmt::Result {
    let label = name(&row.label, row.role, row.direction);
    if row.seeds == 0 {
        return writeln!(out, "| {label} | | not run {}|", "| ".repeat(9));
    }
    let mark = if row.front { "●" } else { "" };
    let against = row.against.map_or_else(
        || "–".into(),
        |difference| {
            let show = |value| figure::show_difference(FIGURES[WORST], value);
            match difference.interval {
                Some(interval) => {
                    format!("{} [{}, {}]", show(difference.mean), show(interval.low), show(interval.high))
                }
                None => show(difference.mean),
            }
        },
    );
    let mut cells: Vec<String> =
        FIGURES.iter().zip(&row.values).map(|(name, value)| shown(name, value.as_ref())).collect();
    cells.insert(WORST + 1, against);
    let diverged = match row.diverged {
        0 => String::new(),
        count => format!("; **diverged with {count} of {}**", row.seeds),
    };
    writeln!(out, "| {label} | {mark} | {} | {}{diverged} |", cells.join(" | "), cell(&row.chosen))
}

/// Mean and deviation of what varies much from seed to seed, the mean alone of the rest.
fn shown(name: &str, value: Option<&Spread>) -> String {
    match value {
        None => "–".into(),
        Some(value) if ["loss.mean", "loss.worst10", "accuracy.mean"].contains(&name) => {
            figure::show_spread(name, value)
        }
        Some(value) if name == "cost.seconds" => format!("{} s", number::figure(value.mean)),
        Some(value) => figure::show(name, value.mean),
    }
}

fn name(label: &str, role: Role, direction: bool) -> String {
    let mark = if direction { " ↘" } else { "" };
    match role {
        Role::Ours => format!("**{}**{mark}", cell(label)),
        Role::Baseline => format!("{}{mark}", cell(label)),
    }
}
