//! A strict reader of the OpenMetrics text format, as far as a gateway uses it.

use std::collections::{BTreeMap, BTreeSet};

/// What was read.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    samples: BTreeMap<(String, BTreeMap<String, String>), f64>,
}

impl Exposition {
    /// The value of a sample with exactly these labels.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.samples.get(&(name.to_owned(), labels)).copied()
    }
}

/// The family whose samples follow.
#[derive(Default)]
struct Family {
    name: String,
    kind: String,
    unit: String,
}

impl Family {
    /// Suffixes that samples of its kind may have.
    fn suffixes(&self) -> &'static [&'static str] {
        match self.kind.as_str() {
            "counter" => &["_total", "_created"],
            "histogram" => &["_bucket", "_sum", "_count", "_created"],
            "info" => &["_info"],
            "gauge" => &[""],
            _ => &[],
        }
    }

    /// Each bucket counts those below it as well, and the last one counts all.
    fn check(&self, samples: &Exposition) -> Result<(), String> {
        if self.kind != "histogram" {
            return Ok(());
        }
        let mut series = BTreeMap::<BTreeMap<String, String>, Vec<(f64, f64)>>::new();
        for ((name, labels), value) in &samples.samples {
            if *name == format!("{}_bucket", self.name) {
                let mut labels = labels.clone();
                let end = labels.remove("le").ok_or("a bucket without le")?;
                series.entry(labels).or_default().push((number(&end)?, *value));
            }
        }
        for (labels, mut buckets) in series {
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            let rises = buckets.is_sorted_by(|a, b| a.1 <= b.1);
            let count = samples.samples.get(&(format!("{}_count", self.name), labels));
            let last = buckets.last().copied();
            if !rises
                || last.map(|last| last.0) != Some(f64::INFINITY)
                || last.map(|last| last.1) != count.copied()
            {
                return Err(format!("histogram {}: {buckets:?} with count {count:?}", self.name));
            }
        }
        Ok(())
    }
}

/// Reads a whole exposition.
pub fn parse(text: &str) -> Result<Exposition, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("it does not end with # EOF")?;
    let (mut found, mut family, mut seen) = (Exposition::default(), Family::default(), BTreeSet::new());
    for line in body.lines() {
        let at = |why: &str| format!("{line:?}: {why}");
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (Some(what), Some(name), Some(rest)) = (words.next(), words.next(), words.next()) else {
                return Err(at("an unknown comment"));
            };
            if name != family.name {
                family.check(&found)?;
                if !seen.insert(name.to_owned()) {
                    return Err(at("a family that was there before"));
                }
                family = Family { name: name.to_owned(), ..Family::default() };
            }
            match what {
                "HELP" => {}
                "TYPE" => family.kind = rest.to_owned(),
                "UNIT" => family.unit = rest.to_owned(),
                _ => return Err(at("an unknown comment")),
            }
            if !family.unit.is_empty() && !name.ends_with(&format!("_{}", family.unit)) {
                return Err(at("the name does not end with its unit"));
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').ok_or_else(|| at("no value"))?;
        let (name, labels) = match series.split_once('{') {
            Some((name, rest)) => (name, labels(rest.strip_suffix('}').ok_or_else(|| at("no }"))?)?),
            None => (series, BTreeMap::new()),
        };
        let suffix = name.strip_prefix(family.name.as_str()).ok_or_else(|| at("of another family"))?;
        if !family.suffixes().contains(&suffix) {
            return Err(at("a suffix that its type does not have"));
        }
        if !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
            return Err(at("an impossible name"));
        }
        if found.samples.insert((name.to_owned(), labels), number(value)?).is_some() {
            return Err(at("a sample that was there before"));
        }
    }
    family.check(&found)?;
    Ok(found)
}

fn labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let (mut found, mut rest) = (BTreeMap::new(), text);
    while !rest.is_empty() {
        let (name, after) =
            rest.split_once("=\"").ok_or_else(|| format!("{text}: a label without a value"))?;
        let (mut value, mut letters) = (String::new(), after.char_indices());
        let end = loop {
            match letters.next() {
                Some((at, '"')) => break at,
                Some((_, '\\')) => match letters.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, letter @ ('"' | '\\'))) => value.push(letter),
                    _ => return Err(format!("{text}: an unknown escape")),
                },
                Some((_, letter)) => value.push(letter),
                None => return Err(format!("{text}: a label that does not end")),
            }
        };
        if found.insert(name.to_owned(), value).is_some() {
            return Err(format!("{text}: {name} twice"));
        }
        let after = &after[end + 1..];
        rest = after.strip_prefix(',').unwrap_or(after);
        if rest.len() == after.len() && !rest.is_empty() {
            return Err(format!("{text}: no comma between labels"));
        }
    }
    Ok(found)
}

fn number(text: &str) -> Result<f64, String> {
    match text {
        "+Inf" => Ok(f64::INFINITY),
        text => text.parse().map_err(|error| format!("{text}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_are_found() {
        let good = "# HELP a_seconds A.\n# TYPE a_seconds histogram\n# UNIT a_seconds seconds\na_seconds_sum{t=\"1\"} 2.0\n\
                    a_seconds_count{t=\"1\"} 2\na_seconds_bucket{le=\"1.0\",t=\"1\"} 1\na_seconds_bucket{le=\"+Inf\",t=\"1\"} 2\n# EOF\n";
        assert_eq!(parse(good).unwrap().value("a_seconds_count", &[("t", "1")]), Some(2.0));
        for (from, to) in [
            ("# EOF\n", ""),
            ("count{t=\"1\"} 2", "count{t=\"1\"} 3"),
            ("_sum", "_total"),
            ("UNIT a_seconds seconds", "UNIT a_seconds bytes"),
            ("le=\"1.0\",t", "le=\"1.0\"t"),
            ("} 1\n", "} one\n"),
            ("{le=\"1.0\",t=\"1\"} 1", "{le=\"1.0\",t=\"1\"} 3"),
            ("a_seconds_sum", "b_seconds_sum"),
        ] {
            assert!(parse(&good.replacen(from, to, 1)).is_err(), "{from} -> {to}");
        }
    }
}
