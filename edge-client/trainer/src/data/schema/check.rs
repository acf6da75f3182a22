//! What a schema must satisfy, whatever form it comes in.

use std::collections::HashSet;

use super::{Column, Kind, MAX_COLUMNS, MAX_LEVELS, Missing, Scaling, Schema, Task};

/// Most inputs of a model, so that a schema cannot ask for unbounded memory.
const MAX_INPUTS: usize = 1 << 24;

/// Why a schema is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum SchemaError {
    #[error("no column is of type `number`, `category` or `array`, so the model has no inputs")]
    NoInputs,
    #[error("a schema has at most {MAX_COLUMNS} columns and {MAX_INPUTS} inputs of the model")]
    TooLarge,
    #[error("two columns are called `{0}`; give each its own name")]
    ColumnTwice(String),
    #[error("{task} needs exactly one column of type `label`, there are {got}")]
    Labels { task: &'static str, got: usize },
    #[error("a regression needs a column of type `target`")]
    NoTarget,
    #[error("column `{column}` is a {kind}, which {task} does not use; correct `type` or `task`")]
    WrongTask { column: String, kind: &'static str, task: &'static str },
    #[error("there are {0} columns of type `attribute`; only one is possible")]
    Attributes(usize),
    #[error("an attribute needs classes to form groups with, and a regression has none; ignore the column")]
    AttributeOfRegression,
    #[error("column `{column}` lists {got} {what}, needed are {needed}")]
    Levels { column: String, what: &'static str, got: usize, needed: &'static str },
    #[error("column `{column}` lists `{level}` twice")]
    LevelTwice { column: String, level: String },
    #[error(
        "column `{column}` lists `{level}`, which stands for a missing value; shorten `missing` of [data]"
    )]
    LevelMissing { column: String, level: String },
    #[error("the scaling of column `{0}` needs finite numbers, a deviation above 0 and `max` above `min`")]
    Scaling(String),
    #[error("column `{0}` cannot replace missing values by this: give a finite number or one of the levels")]
    Constant(String),
    #[error("column `{0}` is an array and needs a shape of sizes above 0, such as [3, 32, 32]")]
    Shape(String),
    #[error("windows are formed of lines of a CSV file, which holds no array such as column `{0}`")]
    WindowOfArray(String),
    #[error("a window needs a stride of at least 1 and 2 to 1,000,000 rows")]
    Window,
    #[error("windows take their label by majority; a regression has none")]
    WindowOfRegression,
    #[error("windows stay within `{0}`, but there is no such column")]
    WindowWithin(String),
}

impl Task {
    /// The word of the TOML form.
    pub fn word(self) -> &'static str {
        match self {
            Self::Classification => "classification",
            Self::Binary => "binary",
            Self::Regression => "regression",
        }
    }
}

impl Schema {
    /// Refuses contradictions; all readers expect that it was called.
    pub fn check(&self) -> Result<(), SchemaError> {
        let rows = self.window.as_ref().map_or(1, |window| window.rows as usize);
        let inputs = self.row_inputs().saturating_mul(rows);
        if self.columns.len() > MAX_COLUMNS || inputs > MAX_INPUTS {
            return Err(SchemaError::TooLarge);
        }
        let mut names = HashSet::new();
        if let Some(twice) = self.columns.iter().find(|column| !names.insert(&column.name)) {
            return Err(SchemaError::ColumnTwice(twice.name.clone()));
        }
        self.columns.iter().try_for_each(|column| self.check_column(column))?;
        if inputs == 0 {
            return Err(SchemaError::NoInputs);
        }
        self.check_roles()?;
        self.check_window()
    }

    /// Label, targets and attribute must suit the task.
    fn check_roles(&self) -> Result<(), SchemaError> {
        let count = |wanted: &str| self.columns.iter().filter(|column| column.kind.word() == wanted).count();
        let task = self.task.word();
        let foreign = match self.task {
            Task::Regression => "label",
            Task::Classification | Task::Binary => "target",
        };
        if let Some(column) = self.columns.iter().find(|column| column.kind.word() == foreign) {
            return Err(SchemaError::WrongTask { column: column.name.clone(), kind: foreign, task });
        }
        match (self.task, count("label"), count("target"), count("attribute")) {
            (_, _, _, attributes @ 2..) => Err(SchemaError::Attributes(attributes)),
            (Task::Regression, _, 0, _) => Err(SchemaError::NoTarget),
            (Task::Regression, _, _, 1..) => Err(SchemaError::AttributeOfRegression),
            (Task::Classification | Task::Binary, got, ..) if got != 1 => {
                Err(SchemaError::Labels { task, got })
            }
            _ => Ok(()),
        }
    }

    fn check_column(&self, column: &Column) -> Result<(), SchemaError> {
        let name = || column.name.clone();
        if let Some(scaling) = column.kind.scaling()
            && !usable(scaling)
        {
            return Err(SchemaError::Scaling(name()));
        }
        match &column.kind {
            Kind::Number { missing: Missing::Constant(value), .. } if !value.is_finite() => {
                Err(SchemaError::Constant(name()))
            }
            Kind::Category { levels, missing } => {
                self.check_levels(column, "levels", levels, (1, "at least 1"))?;
                match missing {
                    Missing::Refuse => Ok(()),
                    Missing::Constant(level) if (*level as usize) < levels.len() => Ok(()),
                    Missing::Constant(_) | Missing::Mean => Err(SchemaError::Constant(name())),
                }
            }
            Kind::Label { classes } if self.task == Task::Binary && classes.len() != 2 => {
                let (what, got) = ("classes", classes.len());
                Err(SchemaError::Levels {
                    column: name(),
                    what,
                    got,
                    needed: "2, or task = \"classification\"",
                })
            }
            Kind::Label { classes } => self.check_levels(column, "classes", classes, (2, "at least 2")),
            Kind::Attribute { levels } => self.check_levels(column, "levels", levels, (2, "at least 2")),
            Kind::Array { shape, .. } if shape.is_empty() || shape.contains(&0) => {
                Err(SchemaError::Shape(name()))
            }
            Kind::Array { .. } if self.window.is_some() => Err(SchemaError::WindowOfArray(name())),
            Kind::Number { .. } | Kind::Target { .. } | Kind::Array { .. } | Kind::Ignored => Ok(()),
        }
    }

    fn check_levels(
        &self,
        column: &Column,
        what: &'static str,
        levels: &[String],
        (least, needed): (usize, &'static str),
    ) -> Result<(), SchemaError> {
        let name = || column.name.clone();
        if levels.len() < least {
            return Err(SchemaError::Levels { column: name(), what, got: levels.len(), needed });
        }
        if levels.len() > MAX_LEVELS {
            return Err(SchemaError::Levels {
                column: name(),
                what,
                got: levels.len(),
                needed: "at most 4096",
            });
        }
        let mut seen = HashSet::new();
        for level in levels {
            if !seen.insert(level) {
                return Err(SchemaError::LevelTwice { column: name(), level: level.clone() });
            }
            if self.is_missing(level) {
                return Err(SchemaError::LevelMissing { column: name(), level: level.clone() });
            }
        }
        Ok(())
    }

    fn check_window(&self) -> Result<(), SchemaError> {
        let Some(window) = &self.window else { return Ok(()) };
        if window.stride == 0 || !(2..=1_000_000).contains(&window.rows) {
            return Err(SchemaError::Window);
        }
        if self.task == Task::Regression {
            return Err(SchemaError::WindowOfRegression);
        }
        match &window.within {
            Some(name) if !self.columns.iter().any(|column| column.name == *name) => {
                Err(SchemaError::WindowWithin(name.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Whether the text of a field stands for a missing value.
    pub(super) fn is_missing(&self, field: &str) -> bool {
        self.missing.iter().any(|missing| missing.eq_ignore_ascii_case(field))
    }
}

fn usable(scaling: Scaling) -> bool {
    match scaling {
        Scaling::None | Scaling::Fleet => true,
        Scaling::Standard { mean, deviation } => mean.is_finite() && deviation.is_finite() && deviation > 0.0,
        Scaling::Range { min, max } => min.is_finite() && (max - min).is_finite() && max > min,
    }
}
