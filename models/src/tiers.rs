//! How an operator writes a tier: as a rate or as explicit widths.
//!
//! ```toml
//! tiers = [1, 0.5, { widths = [16] }, { rate = 0.25, keep_whole = true }, { rate = 0.5, last = 1 }]
//! ```

use common::WidthMask;
use serde::{Deserialize, Serialize};

use crate::{Graph, graph::SliceError};

/// The widths of a tier, as in a configuration.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TierSpec {
    /// The share of every hidden axis that the tier keeps, in `(0, 1]`.
    Rate(f64),
    /// Units kept of each hidden axis, in model order.
    Widths {
        /// One per hidden axis.
        widths: Vec<u32>,
        /// Only this many of the last layers are trained.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last: Option<u16>,
    },
    /// A rate; with `keep_whole`, axes that cannot be cut stay whole.
    Partly {
        /// As in [`TierSpec::Rate`].
        rate: f64,
        /// Axes that cannot be cut stay whole; otherwise they are an error.
        #[serde(default)]
        keep_whole: bool,
        /// Only this many of the last layers are trained.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last: Option<u16>,
    },
}

impl TierSpec {
    /// The whole model.
    pub const WHOLE: Self = Self::Rate(1.0);

    /// A rate; `keep_whole`: axes that cannot be cut stay whole.
    pub fn rate(rate: f64, keep_whole: bool) -> Self {
        if keep_whole { Self::Partly { rate, keep_whole, last: None } } else { Self::Rate(rate) }
    }

    /// How many of the last layers are trained; `None`: all layers.
    pub fn last(&self) -> Option<u16> {
        match self {
            Self::Rate(_) => None,
            Self::Widths { last, .. } | Self::Partly { last, .. } => *last,
        }
    }

    /// These units of each hidden axis.
    pub fn widths(widths: &[u32]) -> Self {
        Self::Widths { widths: widths.to_vec(), last: None }
    }

    /// The widths for a model. An error names the axis that cannot be cut.
    pub fn mask(&self, graph: &Graph) -> Result<WidthMask, SliceError> {
        match self {
            Self::Rate(rate) => graph.mask_at(*rate, false),
            Self::Partly { rate, keep_whole, .. } => graph.mask_at(*rate, *keep_whole),
            Self::Widths { widths, .. } => Ok(graph.full().at_widths(widths)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zoo;

    #[derive(Deserialize)]
    struct Config {
        tiers: Vec<TierSpec>,
    }

    #[test]
    fn reads_numbers_and_widths() {
        let expected = [TierSpec::Rate(1.0), TierSpec::Rate(0.5), TierSpec::widths(&[16])];
        let toml: Config = toml::from_str("tiers = [1, 0.5, { widths = [16] }]").unwrap();
        assert_eq!(toml.tiers, expected);
        let json: Vec<TierSpec> = serde_json::from_str(r#"[1, 0.5, {"widths": [16]}]"#).unwrap();
        assert_eq!(json, expected);
        let toml: Config =
            toml::from_str("tiers = [{ rate = 0.5, keep_whole = true }, { rate = 1 }]").unwrap();
        assert_eq!(
            toml.tiers,
            [TierSpec::rate(0.5, true), TierSpec::Partly { rate: 1.0, keep_whole: false, last: None }]
        );
        let toml: Config =
            toml::from_str("tiers = [{ rate = 0.5, last = 1 }, { widths = [16], last = 2 }]").unwrap();
        assert_eq!(
            toml.tiers,
            [
                TierSpec::Partly { rate: 0.5, keep_whole: false, last: Some(1) },
                TierSpec::Widths { widths: vec![16], last: Some(2) },
            ]
        );
        assert_eq!(toml.tiers.iter().map(TierSpec::last).collect::<Vec<_>>(), [Some(1), Some(2)]);
        assert!(toml::from_str::<Config>("tiers = [\"half\"]").is_err());
    }

    #[test]
    fn masks_fit_the_graph() {
        let (graph, _) = zoo::by_name("mnist-mlp").unwrap().build(0);
        assert_eq!(TierSpec::Rate(0.5).mask(&graph).unwrap().widths(), [100, 50]);
        assert_eq!(TierSpec::widths(&[7, 9]).mask(&graph).unwrap().widths(), [7, 9]);
        assert!(TierSpec::widths(&[7]).mask(&graph).is_err());
        assert!(TierSpec::Rate(1.5).mask(&graph).is_err());
        assert!(TierSpec::WHOLE.mask(&graph).unwrap() == *graph.full());
        // Every model of the zoo can be cut to its usual rates, and a linear one cannot be cut at all.
        for entry in zoo::ALL {
            let (graph, _) = entry.build(0);
            for &rate in entry.rates {
                assert_eq!(TierSpec::Rate(rate).mask(&graph).unwrap(), graph.full().at_rate(rate).unwrap());
            }
        }
        let (linear, _) = zoo::by_name("emnist-linear").unwrap().build(0);
        let text = TierSpec::rate(0.5, true).mask(&linear).unwrap_err().to_string();
        assert_eq!(
            text,
            "no hidden axis can be cut, so a tier of rate 0.5 would be the whole model; use rate 1"
        );
    }
}
