//! What the columns of a file mean, agreed on by the whole fleet.
//!
//! ```text
//! [data] of fairtier.toml ──parse──► Schema ──read──► Samples
//! a file of samples ──propose──► commented [data]
//! ```
//! Columns are found by name. Words become numbers by the levels and classes that the schema lists, so all devices agree on
//! them. What does not fit is an error with line, column and remedy; nothing is dropped or guessed.
//!
//! | file | contents |
//! |---|---|
//! | `text` | the TOML form |
//! | `check` | what a schema must satisfy |
//! | `binary` | the compact form and its digest |
//! | `header` | which column of a file is which column of the schema |
//! | `cell` | from the text of a field to numbers |
//! | `read` | from a CSV file to samples |
//! | `arrays` | from NumPy arrays and images to samples |
//! | `window` | windows of a long recording |
//! | `survey` | what a file holds, and all that does not fit |
//! | `propose` | a schema from a file |

mod arrays;
mod binary;
mod cell;
mod check;
mod header;
pub mod nearest;
mod propose;
mod read;
mod survey;
mod text;
mod window;

pub use arrays::{read_any, read_array, read_pair};
pub use binary::{DecodeError, SchemaDigest};
pub use cell::FieldError;
pub use check::SchemaError;
pub use header::HeaderError;
pub use propose::{Proposal, ProposeError, ProposeOptions};
pub use read::{Table, Targets, read, read_from, read_with_column};
pub use survey::{ColumnSurvey, Finding, NumberRange, Survey, fleet_moments, survey, survey_any};
pub use text::{SchemaText, TextError};
pub use window::{Layout, Window};

use serde::{Deserialize, Serialize};

/// The key of the TOML form in the metadata of ONNX files.
pub const METADATA_KEY: &str = "fairtier.schema";
/// Most columns of a schema.
pub const MAX_COLUMNS: usize = 1 << 16;
/// Most levels or classes of one column.
pub const MAX_LEVELS: usize = 1 << 12;

/// The columns of a file, and what the model learns from them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Schema {
    /// What the model predicts.
    pub task: Task,
    /// Whether the first line of a file names its columns; otherwise columns are taken in the order of the schema.
    pub header: bool,
    /// Whether columns that the schema does not name are left out instead of refused.
    pub ignore_extra: bool,
    /// Texts that stand for a missing value, compared without regard to case.
    pub missing: Vec<String>,
    /// In the order of the model's inputs.
    pub columns: Vec<Column>,
    /// Joins consecutive rows to one sample.
    pub window: Option<Window>,
}

/// What the model predicts.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Task {
    /// One of several classes; the model has one output per class.
    Classification,
    /// One of two classes; the model has one output, the logit of the second class.
    Binary,
    /// Numbers; the model has one output per target.
    Regression,
}

/// One column.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Column {
    /// The name in the header of files.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
}

/// What a column holds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// A number: one input of the model.
    Number {
        /// What replaces a missing value.
        missing: Missing<f32>,
        /// How it is brought to about -1 to 1.
        scaling: Scaling,
    },
    /// One of several words: one input of the model per level, 1 for the level and 0 for the others.
    Category {
        /// In the order of the model's inputs.
        levels: Vec<String>,
        /// The level that replaces a missing value; a mean does not exist.
        missing: Missing<u32>,
    },
    /// The class to predict.
    Label {
        /// In the order of the model's outputs.
        classes: Vec<String>,
    },
    /// A number to predict.
    Target {
        /// How it is brought to about -1 to 1.
        scaling: Scaling,
    },
    /// A sensitive attribute, which is not an input.
    Attribute {
        /// In the order of the groups.
        levels: Vec<String>,
    },
    /// Not used.
    Ignored,
    /// The array of a NumPy file, or the pixels of an image: as many inputs of the model as it has numbers.
    Array {
        /// Sizes of one sample, such as channels, height and width.
        shape: Vec<u32>,
        /// One scale for all its numbers.
        scaling: Scaling,
    },
}

/// What replaces a missing value.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Missing<T> {
    /// Nothing: the file is refused.
    Refuse,
    /// Always the same.
    Constant(T),
    /// The mean that the column is scaled by, or else the mean of the values in the same file.
    Mean,
}

/// How a number is scaled.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Scaling {
    /// Not at all.
    None,
    /// `(x - mean) / deviation`.
    Standard {
        /// The mean of the column.
        mean: f32,
        /// Its standard deviation, above 0.
        deviation: f32,
    },
    /// `(x - min) / (max - min)`; values outside of the range are not clipped.
    Range {
        /// Becomes 0.
        min: f32,
        /// Becomes 1; above `min`.
        max: f32,
    },
    /// As `Standard`, with numbers that the fleet agrees on before the first round.
    Fleet,
}

impl Scaling {
    /// Scales a number. `Fleet` leaves it as it is: see [`Schema::with_scales`].
    pub fn apply(self, value: f32) -> f32 {
        match self {
            Self::None | Self::Fleet => value,
            Self::Standard { mean, deviation } => (value - mean) / deviation,
            Self::Range { min, max } => (value - min) / (max - min),
        }
    }

    /// The number that [`apply`](Self::apply) makes `scaled` of.
    pub fn undo(self, scaled: f32) -> f32 {
        match self {
            Self::None | Self::Fleet => scaled,
            Self::Standard { mean, deviation } => scaled * deviation + mean,
            Self::Range { min, max } => scaled * (max - min) + min,
        }
    }

    /// One step of a scaled number, before scaling.
    pub fn unit(self) -> f32 {
        match self {
            Self::None | Self::Fleet => 1.0,
            Self::Standard { deviation, .. } => deviation,
            Self::Range { min, max } => max - min,
        }
    }

    /// The mean of the column, before scaling.
    fn mean(self) -> Option<f32> {
        match self {
            Self::Standard { mean, .. } => Some(mean),
            Self::None | Self::Range { .. } | Self::Fleet => None,
        }
    }
}

impl Kind {
    /// Inputs of the model that one row of the column fills.
    pub fn inputs(&self) -> usize {
        match self {
            Self::Number { .. } => 1,
            Self::Category { levels, .. } => levels.len(),
            // A product that overflows is refused by `check`.
            Self::Array { shape, .. } => {
                shape.iter().fold(1, |product: usize, &size| product.saturating_mul(size as usize))
            }
            Self::Label { .. } | Self::Target { .. } | Self::Attribute { .. } | Self::Ignored => 0,
        }
    }

    /// The scaling of a column of numbers.
    pub fn scaling(&self) -> Option<Scaling> {
        match self {
            Self::Number { scaling, .. } | Self::Target { scaling } | Self::Array { scaling, .. } => {
                Some(*scaling)
            }
            _ => None,
        }
    }

    fn scaling_mut(&mut self) -> Option<&mut Scaling> {
        match self {
            Self::Number { scaling, .. } | Self::Target { scaling } | Self::Array { scaling, .. } => {
                Some(scaling)
            }
            _ => None,
        }
    }

    /// The word of the TOML form.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Number { .. } => "number",
            Self::Category { .. } => "category",
            Self::Label { .. } => "label",
            Self::Target { .. } => "target",
            Self::Attribute { .. } => "attribute",
            Self::Ignored => "ignored",
            Self::Array { .. } => "array",
        }
    }
}

impl Schema {
    /// Inputs of the model.
    pub fn inputs(&self) -> usize {
        self.window.as_ref().map_or(1, |window| window.rows as usize).saturating_mul(self.row_inputs())
    }

    /// Inputs of the model that one row fills.
    pub fn row_inputs(&self) -> usize {
        self.columns.iter().map(|column| column.kind.inputs()).fold(0, usize::saturating_add)
    }

    /// Outputs of the model.
    pub fn outputs(&self) -> usize {
        match self.task {
            Task::Classification => self.classes().len(),
            Task::Binary => 1,
            Task::Regression => self.targets().count(),
        }
    }

    /// The classes of the label, in the order of the model's outputs; none for a regression.
    pub fn classes(&self) -> &[String] {
        let label = self.columns.iter().find_map(|column| match &column.kind {
            Kind::Label { classes } => Some(classes.as_slice()),
            _ => None,
        });
        label.unwrap_or_default()
    }

    /// The numbers to predict, in the order of the model's outputs.
    pub fn targets(&self) -> impl Iterator<Item = (&str, Scaling)> {
        self.columns.iter().filter_map(|column| match column.kind {
            Kind::Target { scaling } => Some((column.name.as_str(), scaling)),
            _ => None,
        })
    }

    /// Levels of the attribute, if there is one.
    pub fn attribute(&self) -> Option<&[String]> {
        self.columns.iter().find_map(|column| match &column.kind {
            Kind::Attribute { levels } => Some(levels.as_slice()),
            _ => None,
        })
    }

    /// Names of the columns whose scale the fleet agrees on.
    pub fn fleet_columns(&self) -> impl Iterator<Item = &str> {
        let fleet = |column: &&Column| column.kind.scaling() == Some(Scaling::Fleet);
        self.columns.iter().filter(fleet).map(|column| column.name.as_str())
    }

    /// The schema with mean and deviation in place of every `fleet`, in the order of
    /// [`fleet_columns`](Self::fleet_columns). `None` if there is another number of them, or if one is unusable.
    pub fn with_scales(&self, scales: &[(f32, f32)]) -> Option<Self> {
        let mut resolved = self.clone();
        let mut scales = scales.iter();
        let open = resolved.columns.iter_mut().filter_map(|column| column.kind.scaling_mut());
        for scaling in open.filter(|scaling| **scaling == Scaling::Fleet) {
            let &(mean, deviation) = scales.next()?;
            *scaling = Scaling::Standard { mean, deviation };
        }
        (scales.next().is_none() && resolved.check().is_ok()).then_some(resolved)
    }
}

/// The texts that stand for a missing value, unless a schema says otherwise.
pub const MISSING: [&str; 5] = ["", "?", "NA", "N/A", "nan"];

impl Default for Schema {
    /// Without columns, which [`check`](Schema::check) refuses.
    fn default() -> Self {
        Self {
            task: Task::Classification,
            header: true,
            ignore_extra: false,
            missing: MISSING.map(str::to_owned).to_vec(),
            columns: Vec::new(),
            window: None,
        }
    }
}

#[cfg(test)]
mod tests;
