//! A partition as text, on command lines and in files: `dirichlet:0.1`, `groups:50/30/20,20/40/40`.

use std::{
    fmt::{self, Display},
    str::FromStr,
};

use super::{Partition, Stratum};

/// FedFB's levels of heterogeneity for two groups and three clients.
const LEVELS: [(&str, &str); 3] =
    [("low", "33/33/34,33/33/34"), ("medium", "50/30/20,20/40/40"), ("high", "70/10/20,10/80/10")];

/// Every form of a partition and what it does, for the reference.
pub const FORMS: [(&str, &str); 12] = [
    ("iid", "equal shares at random"),
    ("shards:K", "K shards of samples sorted by label for each device"),
    ("dominant:SHARE", "this share of a device's samples has one class"),
    ("extreme", "at most two classes per device, as shards:2"),
    ("rare:K", "device 0 alone has the first K classes"),
    ("pat:K", "exactly K classes per device"),
    ("dirichlet:ALPHA", "Dirichlet shares of each class; every device gets samples"),
    ("dirichlet-free:ALPHA", "the same, but devices may get none"),
    ("natural:TRAIN:TEST", "natural clients of a known set with at least so many samples"),
    (
        "column:NAME",
        "one device for each value of a column or array of your own data; with `clients`, values are grouped",
    ),
    (
        "file:PATH",
        "a CSV file with the columns `row` (from 1) and `device` names the device of every training sample",
    ),
    (
        "groups:PERCENT/PERCENT,...",
        "percentages per device, one list per group; also low, medium, high. `strata:` does the same for the natural division of a source",
    ),
];

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{text}` is not a partition: {problem}. There are iid, shards:K, dominant:SHARE, extreme, rare:K, pat:K, dirichlet:ALPHA, dirichlet-free:ALPHA, natural:TRAIN:TEST, column:NAME, file:PATH, groups:PERCENT/PERCENT,... (or low, medium, high) and strata:PERCENT/PERCENT,..."
)]
/// A text that is not a partition.
pub struct BadPartition {
    /// The text as given.
    pub text: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl FromStr for Partition {
    type Err = BadPartition;

    fn from_str(text: &str) -> Result<Self, BadPartition> {
        parse(text).map_err(|problem| BadPartition { text: text.into(), problem })
    }
}

fn parse(text: &str) -> Result<Partition, &'static str> {
    let (name, rest) = match text.split_once(':') {
        Some((name, rest)) => (name, Some(rest)),
        None => (text, None),
    };
    // The notation of the source.
    if let Some(classes) = name.strip_prefix("pat-").filter(|_| rest.is_none()) {
        return Ok(Partition::Pat { classes: count(classes)? });
    }
    match (name, rest) {
        ("iid", None) => Ok(Partition::Iid),
        ("extreme", None) => Ok(Partition::Extreme),
        ("shards", rest) => Ok(Partition::Shards { per_client: count(rest.unwrap_or("2"))? }),
        ("dominant", rest) => match rest.unwrap_or("0.8").parse() {
            Ok(share) if (0.0..=1.0).contains(&share) => Ok(Partition::Dominant { share }),
            _ => Err("the share of the dominant class must be from 0 to 1"),
        },
        ("rare", Some(classes)) => Ok(Partition::Rare { classes: count(classes)? }),
        ("pat", Some(classes)) => Ok(Partition::Pat { classes: count(classes)? }),
        ("dirichlet", Some(alpha)) => Ok(Partition::Dirichlet { alpha: positive(alpha)? }),
        ("dirichlet-free", Some(alpha)) => Ok(Partition::DirichletFree { alpha: positive(alpha)? }),
        ("natural", rest) => {
            let (train, test) = rest.map_or(("0", "0"), |rest| rest.split_once(':').unwrap_or((rest, "0")));
            let least =
                |text: &str| text.parse().map_err(|_| "the minimum numbers of samples must be whole numbers");
            Ok(Partition::Natural { train: least(train)?, test: least(test)? })
        }
        ("column", Some(name)) if !name.is_empty() => Ok(Partition::Column { name: name.into() }),
        ("file", Some(path)) if !path.is_empty() => Ok(Partition::File { path: path.into() }),
        ("column" | "file", _) => Err("it needs a name after `:`"),
        ("groups", Some(shares)) => {
            let level = LEVELS.iter().find(|(name, _)| *name == shares).map(|(_, shares)| *shares);
            Ok(Partition::Fractions { by: Stratum::Group, shares: fractions(level.unwrap_or(shares))? })
        }
        ("strata", Some(shares)) => {
            Ok(Partition::Fractions { by: Stratum::Client, shares: fractions(shares)? })
        }
        ("pat" | "rare" | "dirichlet" | "dirichlet-free" | "groups" | "strata", None) => {
            Err("it needs a number after `:`")
        }
        ("iid" | "extreme", Some(_)) => Err("it takes no number"),
        _ => Err("its name is unknown"),
    }
}

fn count(text: &str) -> Result<usize, &'static str> {
    text.parse()
        .ok()
        .filter(|count| (1..=10_000).contains(count))
        .ok_or("its number must be whole and at least 1")
}

fn positive(text: &str) -> Result<f64, &'static str> {
    let alpha = text.parse().ok().filter(|alpha: &f64| *alpha > 0.0 && alpha.is_finite());
    alpha.ok_or("alpha must be a number above 0")
}

fn fractions(text: &str) -> Result<Vec<Vec<f64>>, &'static str> {
    let row = |row: &str| -> Result<Vec<f64>, &'static str> {
        let percent = |text: &str| text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
        let row: Option<Vec<f64>> = row.split('/').map(percent).collect();
        let row = row.ok_or("percentages must be from 0 to 100")?;
        let whole = (row.iter().sum::<f64>() - 100.0).abs() < 1e-6;
        if whole { Ok(row) } else { Err("percentages of each list must add up to 100") }
    };
    let rows = text.split(',').map(row).collect::<Result<Vec<_>, _>>()?;
    let width = rows.first().map_or(0, Vec::len);
    if rows.iter().all(|row| row.len() == width) { Ok(rows) } else { Err("lists have different lengths") }
}

impl Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iid => f.write_str("iid"),
            Self::Shards { per_client } => write!(f, "shards:{per_client}"),
            Self::Dominant { share } => write!(f, "dominant:{share}"),
            Self::Extreme => f.write_str("extreme"),
            Self::Rare { classes } => write!(f, "rare:{classes}"),
            Self::Pat { classes } => write!(f, "pat:{classes}"),
            Self::Dirichlet { alpha } => write!(f, "dirichlet:{alpha}"),
            Self::DirichletFree { alpha } => write!(f, "dirichlet-free:{alpha}"),
            Self::Natural { train, test } => write!(f, "natural:{train}:{test}"),
            Self::Column { name } => write!(f, "column:{name}"),
            Self::File { path } => write!(f, "file:{}", path.display()),
            Self::Fractions { by, shares } => {
                let name = match by {
                    Stratum::Group => "groups",
                    Stratum::Client => "strata",
                };
                let row = |row: &Vec<f64>| row.iter().map(f64::to_string).collect::<Vec<_>>().join("/");
                write!(f, "{name}:{}", shares.iter().map(row).collect::<Vec<_>>().join(","))
            }
        }
    }
}

impl TryFrom<String> for Partition {
    type Error = BadPartition;

    fn try_from(text: String) -> Result<Self, BadPartition> {
        text.parse()
    }
}

impl From<Partition> for String {
    fn from(partition: Partition) -> Self {
        partition.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for text in [
            "iid",
            "shards:2",
            "dominant:0.8",
            "extreme",
            "pat:2",
            "dirichlet:0.1",
            "dirichlet-free:2000",
            "natural:50:10",
            "column:site: north",
            "file:parts/owners.csv",
            "groups:50/30/20,20/40/40",
            "strata:80/20,20/80",
        ] {
            let partition: Partition = text.parse().unwrap();
            assert_eq!(partition.to_string(), text);
            let json = serde_json::to_string(&partition).unwrap();
            assert_eq!(serde_json::from_str::<Partition>(&json).unwrap(), partition);
        }
        assert_eq!("pat-1".parse(), Ok(Partition::Pat { classes: 1 }));
        assert_eq!("dominant".parse(), Ok(Partition::Dominant { share: 0.8 }));
        assert_eq!("natural:60".parse(), Ok(Partition::Natural { train: 60, test: 0 }));
        assert_eq!("groups:medium".parse::<Partition>().unwrap().to_string(), "groups:50/30/20,20/40/40");
    }

    #[test]
    fn invalid_partitions_are_reported_with_the_reason() {
        for (text, problem) in [
            ("", "unknown"),
            ("iid:3", "takes no number"),
            ("dirichlet", "needs a number"),
            ("dirichlet:0", "above 0"),
            ("dirichlet:nan", "above 0"),
            ("dominant:80", "from 0 to 1"),
            ("pat:0", "at least 1"),
            ("pat-x", "at least 1"),
            ("natural:few", "whole numbers"),
            ("column:", "needs a name"),
            ("file", "needs a name"),
            ("groups:50/30", "add up to 100"),
            ("groups:a/b", "from 0 to 100"),
            ("groups:50/50,100", "different lengths"),
        ] {
            let error = text.parse::<Partition>().unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains("shards:K"), "{text}: {error}");
        }
    }

    #[test]
    fn the_reference_and_the_refusal_know_every_form() {
        let refusal = "magic".parse::<Partition>().unwrap_err().to_string();
        for (form, _) in FORMS {
            assert!(refusal.contains(form), "{form}");
            let example = form
                .replace("K", "2")
                .replace("SHARE", "0.8")
                .replace("ALPHA", "0.1")
                .replace("PERCENT/PERCENT,...", "50/50,40/60")
                .replace("TRAIN:TEST", "5:1");
            example.parse::<Partition>().unwrap_or_else(|error| panic!("{form}: {error}"));
        }
    }
}
