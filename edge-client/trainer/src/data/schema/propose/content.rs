//! What is seen of one column, and what it is proposed to mean.

use std::collections::BTreeMap;

use super::{ProposeError, dates::is_date, is_missing};
use crate::data::schema::{
    Kind, Missing, Scaling, Task,
    cell::{excerpt, has_decimal_comma},
    survey::{Moments, NumberRange},
};

/// More words than this are no category.
const MAX_PROPOSED_LEVELS: usize = 64;
/// Fewer words than this are a category even if most of them occur once.
const MIN_NAMES: usize = 8;
/// More different whole numbers than this are no classes.
const MAX_PROPOSED_CLASSES: usize = 20;

/// What was seen of one column.
pub(super) struct Content {
    pub(super) name: String,
    missing: usize,
    numbers: Moments,
    /// Values that are not numbers.
    words: usize,
    /// The first of them, with its line.
    word: Option<(usize, String)>,
    /// How many of them are numbers with a decimal comma.
    commas: usize,
    /// How many of them are dates or times.
    dates: usize,
    /// Whether all numbers are whole.
    whole: bool,
    /// The different values, as far as they are counted, in the order of first appearance.
    levels: BTreeMap<String, usize>,
    /// More values than are counted.
    many: bool,
}

impl Content {
    pub(super) fn new(name: String) -> Self {
        let (numbers, levels) = (Moments::default(), BTreeMap::new());
        let (words, word, commas, dates) = (0, None, 0, 0);
        Self { name, missing: 0, numbers, words, word, commas, dates, whole: true, levels, many: false }
    }

    pub(super) fn add(&mut self, line: usize, field: &str) {
        if is_missing(field) {
            self.missing += 1;
            return;
        }
        match field.parse::<f64>() {
            Ok(value) if (value as f32).is_finite() => {
                self.numbers.add(value);
                self.whole &= value.fract() == 0.0;
            }
            _ => {
                self.words += 1;
                self.commas += usize::from(has_decimal_comma(field));
                self.dates += usize::from(is_date(field));
                self.word.get_or_insert_with(|| (line, excerpt(field)));
            }
        }
        if self.levels.len() <= MAX_PROPOSED_LEVELS {
            *self.levels.entry(field.to_owned()).or_default() += 1;
        } else {
            self.many |= !self.levels.contains_key(field);
        }
    }

    /// A sample that was taken for a header would be lost. Headers of numbers, as pandas writes them, may be values too.
    pub(super) fn is_named_like_a_value(&self) -> bool {
        self.name.parse::<f64>().is_err() && self.levels.contains_key(&self.name)
    }

    /// The first value, if all words are numbers with a decimal comma. As a category they would lose their order.
    pub(super) fn decimal_comma(&self) -> Option<&(usize, String)> {
        self.word.as_ref().filter(|_| self.commas == self.words)
    }

    /// Words in the order of the alphabet, numbers by size.
    fn sorted(&self) -> Vec<String> {
        let mut levels: Vec<String> = self.levels.keys().cloned().collect();
        if self.words == 0 {
            let number = |level: &String| level.parse().unwrap_or(f64::INFINITY);
            levels.sort_by(|a, b| number(a).total_cmp(&number(b)));
            levels.dedup_by(|a, b| number(a) == number(b));
        }
        levels
    }

    /// What the label is.
    pub(super) fn target(&self, task: Option<Task>) -> Result<(Task, Kind), ProposeError> {
        let wrong = |why| ProposeError::Label(self.name.clone(), why);
        let classes = self.sorted();
        let few = !self.many && classes.len() <= MAX_PROPOSED_LEVELS;
        let task = task.unwrap_or_else(|| {
            let number = self.words == 0 && (!self.whole || classes.len() > MAX_PROPOSED_CLASSES || !few);
            if number { Task::Regression } else { Task::Classification }
        });
        match task {
            Task::Regression if self.words > 0 => Err(wrong("a regression needs numbers")),
            Task::Regression => Ok((task, Kind::Target { scaling: self.scaling().0 })),
            Task::Classification | Task::Binary if !few => Err(wrong("it has more than 64 different values")),
            Task::Classification | Task::Binary => Ok((task, Kind::Label { classes })),
        }
    }

    /// A remark on samples from which nothing can be learned.
    pub(super) fn unlabelled(&self, rows: usize) -> String {
        match self.missing {
            0 => String::new(),
            missing => format!("{missing} of {rows} missing: remove these lines before training"),
        }
    }

    /// What another column is, and a remark.
    pub(super) fn kind(&self, rows: usize) -> (Kind, String) {
        let gaps = match self.missing {
            0 => String::new(),
            missing => format!("{missing} of {rows} missing"),
        };
        if self.missing == rows {
            return (Kind::Ignored, "no values".into());
        }
        let name = self.name.to_lowercase();
        let all_different = self.many || self.levels.len() == rows;
        if matches!(&*name, "" | "id" | "index") && all_different && (self.words > 0 || self.whole) {
            return (Kind::Ignored, "numbers the rows".into());
        }
        let many = self.many || self.levels.len() > MAX_PROPOSED_LEVELS;
        // Many numbers and few words are no category.
        if self.words == 0 || many && self.numbers.count > self.words as u64 {
            let (kind, range) = self.number();
            let words = self.word.as_ref().map_or(String::new(), |(line, word)| {
                format!(
                    "{} no number, such as {word:?} in line {line}: correct them, or list them in `missing`",
                    self.words
                )
            });
            return (kind, join(&join(&range, &gaps), &words));
        }
        // The dates and names of one file are not those of another.
        if self.dates == self.words && self.numbers.count == 0 {
            return (Kind::Ignored, "dates or times; to use them, write numbers such as the month".into());
        }
        if many {
            return (Kind::Ignored, "more than 64 different texts".into());
        }
        let texts = self.levels.len();
        if texts >= MIN_NAMES && 2 * texts > rows - self.missing {
            return (
                Kind::Ignored,
                format!("{texts} different texts in {rows} samples, so they seem to be names"),
            );
        }
        let mut levels = self.sorted();
        let missing = match self.missing {
            0 => Missing::Refuse,
            _ => {
                let at = levels.iter().position(|level| level == "unknown").unwrap_or_else(|| {
                    levels.push("unknown".into());
                    levels.len() - 1
                });
                Missing::Constant(at as u32)
            }
        };
        let numbers = match self.numbers.count {
            0 => String::new(),
            count => format!("{count} values are numbers: are the words mistakes?"),
        };
        (Kind::Category { levels, missing }, join(&numbers, &gaps))
    }

    /// A number, and its range as a remark. A mean that replaces gaps is written down, so that no file has one of its own.
    fn number(&self) -> (Kind, String) {
        let (scaling, range) = self.scaling();
        let kind = match (self.missing, scaling, self.numbers.range()) {
            (1.., Scaling::None, Some(NumberRange { mean, deviation, .. })) => {
                let (mean, deviation) = (brief(mean), brief(deviation));
                match deviation > 0.0 {
                    true => {
                        let scaling = Scaling::Standard { mean, deviation };
                        Kind::Number { missing: Missing::Mean, scaling }
                    }
                    false => Kind::Number { missing: Missing::Constant(mean), scaling },
                }
            }
            (0, ..) => Kind::Number { missing: Missing::Refuse, scaling },
            _ => Kind::Number { missing: Missing::Mean, scaling },
        };
        (kind, range)
    }

    /// The scaling, and the range as a remark. Numbers of about -3 to 3 are left as they are.
    fn scaling(&self) -> (Scaling, String) {
        let Some(NumberRange { min, max, mean, deviation }) = self.numbers.range() else {
            return (Scaling::None, String::new());
        };
        let remark = format!("{} to {}", brief(min), brief(max));
        let close = mean.abs() <= 3.0 && (0.1..=3.0).contains(&deviation);
        let (mean, deviation) = (brief(mean), brief(deviation));
        let scaling = match close || deviation <= 0.0 {
            true => Scaling::None,
            false => Scaling::Standard { mean, deviation },
        };
        (scaling, remark)
    }
}

/// Four digits, which is enough for a scale and for a remark.
fn brief(value: f64) -> f32 {
    format!("{value:.3e}").parse().unwrap_or(value as f32)
}

fn join(one: &str, other: &str) -> String {
    match (one, other) {
        ("", text) | (text, "") => text.to_owned(),
        _ => format!("{one}; {other}"),
    }
}
