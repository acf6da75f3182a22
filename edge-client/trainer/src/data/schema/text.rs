//! The TOML form of a schema: the table `[data]`.
//!
//! ```toml
//! [data]
//! task = "classification"
//! columns = [
//!   { name = "age", type = "number", missing = "mean", scaling = { mean = 40.0, deviation = 12.0 } },
//!   { name = "work", type = "category", levels = ["office", "field"], missing = { constant = "office" } },
//!   { name = "state", type = "label", classes = ["idle", "busy"] },
//! ]
//! ```

use serde::{Deserialize, Serialize};

use super::{Column, Kind, MISSING, Missing, Scaling, Schema, SchemaError, Task, Window, window::Layout};

/// Why a text is not a schema.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum TextError {
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    #[error("the schema cannot be written: {0}")]
    Write(#[from] toml::ser::Error),
    #[error("there is no table [data]; `fairtier data schema --from FILE` proposes one")]
    NoData,
    #[error("[data]: {0}")]
    Schema(#[from] SchemaError),
    #[error("[data]: column `{column}` is a {kind} and takes no `{key}`; remove it")]
    Key { column: String, kind: &'static str, key: &'static str },
    #[error("[data]: column `{column}` is a {kind} and needs `{key}`")]
    NoKey { column: String, kind: &'static str, key: &'static str },
}

/// The table `[data]`, as it is written.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchemaText {
    task: TaskText,
    #[serde(default = "yes")]
    header: bool,
    #[serde(default)]
    extra: ExtraText,
    #[serde(default = "missing")]
    missing: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<WindowText>,
    columns: Vec<ColumnText>,
}

fn yes() -> bool {
    true
}

fn missing() -> Vec<String> {
    MISSING.map(str::to_owned).to_vec()
}

#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TaskText {
    Classification,
    Binary,
    Regression,
}

#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ExtraText {
    #[default]
    Refuse,
    Ignore,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowText {
    rows: u32,
    stride: u32,
    #[serde(default)]
    layout: Layout,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    within: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnText {
    name: String,
    #[serde(rename = "type")]
    kind: KindText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    levels: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    classes: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shape: Option<Vec<u32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    missing: Option<MissingText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scaling: Option<ScalingText>,
}

#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KindText {
    Number,
    Category,
    Label,
    Target,
    Attribute,
    Ignored,
    Array,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MissingText {
    Refuse,
    Mean,
    Constant(ConstantText),
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum ConstantText {
    Number(f64),
    Level(String),
}

#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "`none`, `fleet`, { mean = .., deviation = .. } or { min = .., max = .. }")]
enum ScalingText {
    Word(ScalingWord),
    Standard(StandardText),
    Range(RangeText),
}

#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ScalingWord {
    None,
    Fleet,
}

#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StandardText {
    mean: f64,
    deviation: f64,
}

#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RangeText {
    min: f64,
    max: f64,
}

impl Schema {
    /// The table `[data]` of a text; other tables are left to other readers.
    pub fn from_toml(text: &str) -> Result<Self, TextError> {
        #[derive(Deserialize)]
        struct File {
            data: Option<SchemaText>,
        }
        toml::from_str::<File>(text)?.data.ok_or(TextError::NoData)?.schema()
    }
}

impl Schema {
    /// The text that [`from_toml`](Self::from_toml) reads.
    pub fn to_toml(&self) -> Result<String, TextError> {
        #[derive(Serialize)]
        struct File {
            data: SchemaText,
        }
        Ok(toml::to_string(&File { data: self.into() })?)
    }
}

impl SchemaText {
    /// The checked schema.
    pub fn schema(self) -> Result<Schema, TextError> {
        let schema = Schema {
            task: match self.task {
                TaskText::Classification => Task::Classification,
                TaskText::Binary => Task::Binary,
                TaskText::Regression => Task::Regression,
            },
            header: self.header,
            ignore_extra: self.extra == ExtraText::Ignore,
            missing: self.missing,
            columns: self.columns.into_iter().map(ColumnText::column).collect::<Result<_, _>>()?,
            window: self.window.map(|text| Window {
                rows: text.rows,
                stride: text.stride,
                layout: text.layout,
                within: text.within,
            }),
        };
        schema.check()?;
        Ok(schema)
    }
}

impl ColumnText {
    fn column(self) -> Result<Column, TextError> {
        self.check_keys()?;
        let Self { name, kind, levels, classes, shape, missing, scaling } = self;
        let scaling = match scaling {
            None | Some(ScalingText::Word(ScalingWord::None)) => Scaling::None,
            Some(ScalingText::Word(ScalingWord::Fleet)) => Scaling::Fleet,
            Some(ScalingText::Standard(StandardText { mean, deviation })) => {
                Scaling::Standard { mean: mean as f32, deviation: deviation as f32 }
            }
            Some(ScalingText::Range(RangeText { min, max })) => {
                Scaling::Range { min: min as f32, max: max as f32 }
            }
        };
        let (levels, classes) = (levels.unwrap_or_default(), classes.unwrap_or_default());
        let kind = match kind {
            KindText::Number => Kind::Number { missing: number(&name, missing.as_ref())?, scaling },
            KindText::Category => Kind::Category { missing: level(&name, missing, &levels)?, levels },
            KindText::Label => Kind::Label { classes },
            KindText::Target => Kind::Target { scaling },
            KindText::Attribute => Kind::Attribute { levels },
            KindText::Ignored => Kind::Ignored,
            KindText::Array => Kind::Array { shape: shape.unwrap_or_default(), scaling },
        };
        Ok(Column { name, kind })
    }

    /// A key that the type does not use would be dropped silently.
    fn check_keys(&self) -> Result<(), TextError> {
        let (kind, uses, needs): (_, &[&str], _) = match self.kind {
            KindText::Number => ("number", &["missing", "scaling"], None),
            KindText::Category => ("category", &["levels", "missing"], Some("levels")),
            KindText::Label => ("label", &["classes"], Some("classes")),
            KindText::Target => ("target", &["scaling"], None),
            KindText::Attribute => ("attribute", &["levels"], Some("levels")),
            KindText::Ignored => ("ignored column", &[], None),
            KindText::Array => ("array", &["shape", "scaling"], Some("shape")),
        };
        let keys = [
            ("levels", self.levels.is_some()),
            ("classes", self.classes.is_some()),
            ("shape", self.shape.is_some()),
            ("missing", self.missing.is_some()),
            ("scaling", self.scaling.is_some()),
        ];
        for (key, given) in keys {
            let column = || self.name.clone();
            if given && !uses.contains(&key) {
                return Err(TextError::Key { column: column(), kind, key });
            }
            if !given && needs == Some(key) {
                return Err(TextError::NoKey { column: column(), kind, key });
            }
        }
        Ok(())
    }
}

fn number(column: &str, missing: Option<&MissingText>) -> Result<Missing<f32>, TextError> {
    Ok(match missing {
        None | Some(MissingText::Refuse) => Missing::Refuse,
        Some(MissingText::Mean) => Missing::Mean,
        Some(MissingText::Constant(ConstantText::Number(value))) => Missing::Constant(*value as f32),
        Some(MissingText::Constant(ConstantText::Level(_))) => {
            return Err(SchemaError::Constant(column.to_owned()).into());
        }
    })
}

fn level(column: &str, missing: Option<MissingText>, levels: &[String]) -> Result<Missing<u32>, TextError> {
    let wrong = || SchemaError::Constant(column.to_owned());
    Ok(match missing {
        None | Some(MissingText::Refuse) => Missing::Refuse,
        Some(MissingText::Constant(ConstantText::Level(word))) => {
            let level = levels.iter().position(|level| *level == word).ok_or_else(wrong)?;
            Missing::Constant(level as u32)
        }
        Some(MissingText::Mean | MissingText::Constant(ConstantText::Number(_))) => {
            return Err(wrong().into());
        }
    })
}

impl From<&Schema> for SchemaText {
    fn from(schema: &Schema) -> Self {
        Self {
            task: match schema.task {
                Task::Classification => TaskText::Classification,
                Task::Binary => TaskText::Binary,
                Task::Regression => TaskText::Regression,
            },
            header: schema.header,
            extra: if schema.ignore_extra { ExtraText::Ignore } else { ExtraText::Refuse },
            missing: schema.missing.clone(),
            window: schema.window.clone().map(|window| WindowText {
                rows: window.rows,
                stride: window.stride,
                layout: window.layout,
                within: window.within,
            }),
            columns: schema.columns.iter().map(ColumnText::from).collect(),
        }
    }
}

impl From<&Column> for ColumnText {
    fn from(column: &Column) -> Self {
        let text = |kind| Self {
            name: column.name.clone(),
            kind,
            levels: None,
            classes: None,
            shape: None,
            missing: None,
            scaling: None,
        };
        match &column.kind {
            Kind::Number { missing, scaling } => {
                let missing = match missing {
                    Missing::Refuse => None,
                    Missing::Mean => Some(MissingText::Mean),
                    Missing::Constant(value) => {
                        Some(MissingText::Constant(ConstantText::Number(decimal(*value))))
                    }
                };
                Self { missing, scaling: scaling_text(*scaling), ..text(KindText::Number) }
            }
            Kind::Category { levels, missing } => {
                let missing = match missing {
                    Missing::Constant(at) => levels
                        .get(*at as usize)
                        .map(|level| MissingText::Constant(ConstantText::Level(level.clone()))),
                    Missing::Refuse | Missing::Mean => None,
                };
                Self { missing, levels: Some(levels.clone()), ..text(KindText::Category) }
            }
            Kind::Label { classes } => Self { classes: Some(classes.clone()), ..text(KindText::Label) },
            Kind::Target { scaling } => Self { scaling: scaling_text(*scaling), ..text(KindText::Target) },
            Kind::Attribute { levels } => Self { levels: Some(levels.clone()), ..text(KindText::Attribute) },
            Kind::Ignored => text(KindText::Ignored),
            Kind::Array { shape, scaling } => {
                Self { shape: Some(shape.clone()), scaling: scaling_text(*scaling), ..text(KindText::Array) }
            }
        }
    }
}

fn scaling_text(scaling: Scaling) -> Option<ScalingText> {
    Some(match scaling {
        Scaling::None => return None,
        Scaling::Fleet => ScalingText::Word(ScalingWord::Fleet),
        Scaling::Standard { mean, deviation } => {
            ScalingText::Standard(StandardText { mean: decimal(mean), deviation: decimal(deviation) })
        }
        Scaling::Range { min, max } => ScalingText::Range(RangeText { min: decimal(min), max: decimal(max) }),
    })
}

/// The shortest decimal number that is read as `value`; `0.1f32 as f64` would be written with 17 digits.
fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(value.into())
}
