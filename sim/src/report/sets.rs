//! Data sets as plain text: a list of all, and the content of one.

use std::fmt::{self, Write};

use common::output::{COLUMNS, wrap};

use crate::data::{
    Overview, PartOverview,
    known::{Availability, FileDigest, SetListing},
};

/// Every known set with its location, or how to get it.
pub fn sets_table(listings: &[SetListing]) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = list(&mut out, listings);
    out
}

fn list(out: &mut String, listings: &[SetListing]) -> fmt::Result {
    let wide = listings.iter().map(|listing| listing.name.len()).max().unwrap_or(0);
    writeln!(out, "{:<wide$} {:>7} {:>6} {:<8} about", "name", "train", "test", "state")?;
    let number = |count: Option<u32>| count.map_or("–".into(), |count| count.to_string());
    for listing in listings {
        let state = match &listing.state {
            Availability::BuiltIn => "built in",
            Availability::Found { .. } => "found",
            Availability::Missing { .. } => "missing",
        };
        let (train, test) = (number(listing.train), number(listing.test));
        let head = format!("{:<wide$} {train:>7} {test:>6} {state:<8} ", listing.name);
        writeln!(out, "{head}{}", wrap(listing.about, head.chars().count(), COLUMNS))?;
        let mut note = |text: &str| writeln!(out, "{:<wide$} {}", "", wrap(text, wide + 1, COLUMNS));
        match &listing.state {
            Availability::BuiltIn => {}
            Availability::Found { place, absent } if absent.is_empty() => {
                note(&format!("in {}", place.display()))?;
            }
            Availability::Found { place, absent } => {
                note(&format!("in {}, without {}", place.display(), some(absent)))?;
            }
            Availability::Missing { files, how } => {
                note(&format!("no {}", some(files)))?;
                note(how)?;
            }
        }
    }
    Ok(())
}

/// The first name, and the number of the others.
fn some(names: &[&str]) -> String {
    match names {
        [first, _, _, ..] => format!("{first} and {} more", names.len() - 1),
        few => few.join(", "),
    }
}

/// The content of a set, and the checksums of its files.
pub fn set_table(overview: &Overview, sums: &[FileDigest]) -> String {
    let mut out = String::new();
    let _ = describe(&mut out, overview, sums);
    out
}

fn describe(out: &mut String, overview: &Overview, sums: &[FileDigest]) -> fmt::Result {
    let Overview { name, shape, classes, targets, tokens, train, test, groups, clients, bytes, .. } =
        overview;
    let shape = shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
    let what = tokens.map_or("numbers".into(), |tokens| format!("tokens below {tokens}"));
    writeln!(
        out,
        "{name}: {shape} {what}, {classes} classes, {targets} per sample, {:.1} MB",
        *bytes as f64 / 1e6
    )?;
    for (title, part) in [("train", train), ("test", test)] {
        let range = part.range.map_or(String::new(), |(low, high)| format!(", features {low} to {high}"));
        writeln!(out, "  {title:<6} {} samples{range}", part.samples)?;
    }
    write_classes(out, overview, [train, test])?;
    for group in groups {
        writeln!(out, "  group  {}: {} train, {} test", group.name, group.train, group.test)?;
    }
    if let Some(sizes) = clients {
        writeln!(
            out,
            "  {} natural clients with {} to {} training samples (median {})",
            sizes.clients, sizes.least, sizes.most, sizes.median
        )?;
    }
    for sum in sums {
        let verdict = match sum.matches {
            Some(true) => "matches the known sum",
            Some(false) => "NOT the known sum",
            None => "no sum is known",
        };
        writeln!(out, "  sha256 {} {} ({verdict})", sum.sha256, sum.path.display())?;
    }
    Ok(())
}

fn write_classes(out: &mut String, overview: &Overview, parts: [&PartOverview; 2]) -> fmt::Result {
    for class in 0..overview.classes as usize {
        let [train, test] = parts.map(|part| part.per_class[class]);
        if train + test > 0 {
            let name = overview.class_names.get(class).map_or(String::new(), |name| format!(" ({name})"));
            writeln!(out, "  class  {class}{name}: {train} train, {test} test")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{DataDirs, known};

    #[test]
    fn the_list_shows_locations_and_instructions() {
        let places = DataDirs(vec![]);
        let listings: Vec<SetListing> = known::ALL.iter().map(|known| known.listing(&places)).collect();
        // The text without line breaks.
        let text = sets_table(&listings).split_whitespace().collect::<Vec<_>>().join(" ");
        for known in known::ALL {
            assert!(text.contains(known.name) && text.contains(known.how), "{}", known.name);
        }
    }

    #[test]
    fn a_set_is_described() {
        let set = known::load("digits", &DataDirs::default(), 0).unwrap();
        let text = set_table(&Overview::new(&set), &[]);
        assert!(text.contains("8x8 numbers, 10 classes"), "{text}");
        assert!(text.contains("class  0: 376 train, 178 test") && text.contains("features 0 to 1"), "{text}");
        let set = known::load("eagle", &DataDirs::default(), 0).unwrap();
        let text = set_table(&Overview::new(&set), &[]);
        assert!(text.contains("3 natural clients with 100 to 100"), "{text}");
    }
}
