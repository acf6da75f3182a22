//! Tables of the documentation, generated from the code.

use std::fmt::Write;

use aggregator::config;
use common::Code;
use strategies::{Needs, Registry, StrategyError, parameter::Parameter};

/// Strategies, keys of configurations and experiments, and codes.
pub(super) fn markdown(registry: &Registry) -> Result<String, StrategyError> {
    let mut text = String::from(
        "# Reference\n\nWritten by `fairtier reference`; a test fails when this file is stale.\n\n## Strategies\n",
    );
    for strategy in registry.describe()? {
        let _ = write!(text, "\n### `{}`\n\n{}.\n", strategy.name, capital(strategy.about));
        let needs = needs(strategy.needs);
        if !needs.is_empty() {
            let _ = writeln!(text, "A device needs {}.", needs.join(", "));
        }
        if !strategy.parameters.is_empty() {
            text += "\n| parameter | default | meaning |\n|---|---|---|\n";
            strategy.parameters.iter().for_each(|parameter| text += &row(parameter));
        }
    }
    text += "\n## Keys of `fairtier.toml`\n";
    let mut table = String::new();
    for key in config::keys() {
        if key.table != table {
            let _ = write!(text, "\n### `[{}]`\n\n| key | default | meaning |\n|---|---|---|\n", key.table);
            table.clone_from(&key.table);
        }
        let _ = writeln!(text, "| `{}` | `{}` | {} |", key.key, cell(&key.default), cell(&key.about));
    }
    text += &experiments();
    text += "\n## Codes\n\n| code | name | meaning |\n|---|---|---|\n";
    for code in Code::ALL {
        let _ = writeln!(text, "| E{:02} | {} | {} |", code.number(), code.name(), cell(code.text()));
    }
    Ok(text)
}

/// Keys and partitions of experiment files.
fn experiments() -> String {
    let mut text = String::from(
        "\n## Keys of experiments\n\n`training`, `wire`, `guard` and `fairness` have the keys of these tables above. \
         `fairtier sim new NAME` writes a file to start from.\n",
    );
    for table in sim::experiment::keys() {
        if table.name.is_empty() {
            text += "\n### At the top\n";
        } else {
            let _ = write!(text, "\n### `{}`\n", table.name);
        }
        text += "\n| key | default | meaning |\n|---|---|---|\n";
        for key in table.keys {
            let default = key.default.map_or_else(String::new, |default| format!("`{}`", cell(&default)));
            let _ = writeln!(text, "| `{}` | {default} | {} |", key.key, cell(&key.about));
        }
    }
    text += "\n### Partitions\n\n| partition | who gets what |\n|---|---|\n";
    for (form, about) in sim::partition::FORMS {
        let _ = writeln!(text, "| `{form}` | {} |", cell(&capital(about)));
    }
    text
}

fn row(parameter: &Parameter) -> String {
    let Parameter { key, default, values, about } = parameter;
    let default = if default.is_null() { String::new() } else { format!("`{default}`") };
    let names = if values.is_empty() { String::new() } else { format!(" One of `{}`.", values.join("`, `")) };
    format!("| `{key}` | {default} | {}{names} |\n", cell(about))
}

/// Escapes the bars that would end a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// What a device must have room and data for.
fn needs(needs: Needs) -> Vec<&'static str> {
    let all = [
        (needs.guide, "room for a second vector"),
        (needs.personal, "room for a personal model"),
        (needs.gradients, "room for gradients"),
        (needs.validation, "samples that can be kept for validation"),
        (needs.groups, "samples with an attribute"),
        (needs.binary, "two classes"),
        (needs.sgd, "plain SGD"),
    ];
    all.into_iter().filter_map(|(needed, what)| needed.then_some(what)).collect()
}
