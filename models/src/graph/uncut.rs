//! Hidden axes that every tier keeps whole, and why.
//!
//! Some are whole by design: outputs, embeddings, and values that are added to them or to the input. A user expects the others
//! to be cut, so a rate below 1 is refused unless the tier allows them to stay whole.

use std::fmt;

use serde::Serialize;

/// A hidden axis that no tier cuts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct UncutAxis {
    /// The layers whose units it counts, in model order.
    pub layers: Vec<String>,
    /// Number of units.
    pub width: u32,
    /// The node (or shared parameter) where it cannot be cut.
    pub node: String,
    /// Why no tier cuts it.
    pub reason: Reason,
}

/// Why an axis stays whole.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Its units are outputs of the model.
    Output,
    /// It is the width of an embedding.
    Embedding,
    /// With a size that is never cut.
    Agrees,
    /// Its channels fall into groups.
    Groups,
    /// Its units are added to units at other places.
    Places,
    /// A reshape merges it with another axis or splits it.
    Merged,
    /// Its units are positions, such as pixels or steps.
    Positions,
    /// A part of its units is taken.
    Split,
    /// A concatenation has too many parts.
    Parts,
}

impl Reason {
    /// True if cutting the axis would change the model's inputs or outputs, or is not wanted.
    pub fn is_by_design(self) -> bool {
        match self {
            Self::Output | Self::Embedding | Self::Agrees => true,
            Self::Groups | Self::Places | Self::Merged | Self::Positions | Self::Split | Self::Parts => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Output => "they are the outputs of the model",
            Self::Embedding => "they are the width of an embedding, which is not cut",
            Self::Agrees => "they must agree with a size that no tier cuts, such as the model's input",
            Self::Groups => "channels fall into groups, and a prefix of them is not a prefix of every group",
            Self::Places => "they are added to units at other places",
            Self::Merged => "a reshape merges them with another axis or splits them",
            Self::Positions => "they are used as positions (pixels, steps) and not as features",
            Self::Split => "a part of them is taken, and a prefix of them is not a prefix of both parts",
            Self::Parts => "a concatenation has more parts than a dimension may have",
        })
    }
}

impl fmt::Display for UncutAxis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers: Vec<String> = self.layers.iter().map(|layer| format!("'{layer}'")).collect();
        let (width, layers) = (self.width, layers.join(", "));
        write!(f, "the {width} units of {layers} cannot be cut: at '{}' {}", self.node, self.reason)
    }
}
