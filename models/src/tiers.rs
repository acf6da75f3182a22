//! How an operator writes a tier: as a rate or as explicit widths.
//!
//! ```toml
//! tiers = [1, 0.5, { widths = [16] }]
//! ```

use common::{WidthMask, mask::MaskError};
use serde::{Deserialize, Serialize};

use crate::Graph;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TierSpec {
    /// The share of every hidden axis that the tier keeps, in `(0, 1]`.
    Rate(f64),
    /// Units kept of each hidden axis, in model order.
    Widths { widths: Vec<u32> },
}

impl TierSpec {
    pub fn mask(&self, graph: &Graph) -> Result<WidthMask, MaskError> {
        match self {
            Self::Rate(rate) => graph.full().at_rate(*rate),
            Self::Widths { widths } => graph.full().at_widths(widths),
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
        let expected = [TierSpec::Rate(1.0), TierSpec::Rate(0.5), TierSpec::Widths { widths: vec![16] }];
        let toml: Config = toml::from_str("tiers = [1, 0.5, { widths = [16] }]").unwrap();
        assert_eq!(toml.tiers, expected);
        let json: Vec<TierSpec> = serde_json::from_str(r#"[1, 0.5, {"widths": [16]}]"#).unwrap();
        assert_eq!(json, expected);
        assert!(toml::from_str::<Config>("tiers = [\"half\"]").is_err());
    }

    #[test]
    fn masks_fit_the_graph() {
        let (graph, _) = zoo::by_name("mnist-mlp").unwrap().build(0);
        assert_eq!(TierSpec::Rate(0.5).mask(&graph).unwrap().widths(), [100, 50]);
        assert_eq!(TierSpec::Widths { widths: vec![7, 9] }.mask(&graph).unwrap().widths(), [7, 9]);
        assert!(TierSpec::Widths { widths: vec![7] }.mask(&graph).is_err());
        assert!(TierSpec::Rate(1.5).mask(&graph).is_err());
    }
}
