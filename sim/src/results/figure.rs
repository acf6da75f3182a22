//! Titles and number formats of figures, and their better direction. `lookup` defines the names.

use plots::number;

/// The title of a figure in tables.
pub fn title(name: &str) -> String {
    let known = match name {
        "loss.mean" => "mean loss",
        "loss.variance" => "variance of loss",
        "loss.worst10" => "loss, worst 10 %",
        "loss.best10" => "loss, best 10 %",
        "loss.max_min" => "largest difference of losses",
        "inter" => "variance of tier means",
        "within" => "variance inside tiers",
        "accuracy.mean" => "accuracy",
        "accuracy.variance" => "variance of accuracy (percent²)",
        "accuracy.worst5" => "accuracy, worst 5 %",
        "accuracy.best5" => "accuracy, best 5 %",
        "accuracy.worst10" => "accuracy, worst 10 %",
        "accuracy.angle" => "angle of accuracy (rad)",
        "accuracy.jain" => "Jain's index of accuracy",
        "mae.mean" => "mean absolute error",
        "mae.variance" => "variance of absolute error",
        "mae.worst10" => "absolute error, worst 10 %",
        "mae.best10" => "absolute error, best 10 %",
        "r2" => "R2 of all devices",
        "global.mae" => "absolute error on the common test set",
        "global.r2" => "R2 on the common test set",
        "global.accuracy" => "accuracy on the common test set",
        "global.loss" => "loss on the common test set",
        "fairness.target" => "fairness target",
        "fairness.measured" => "disparity as measured",
        "fairness.value" => "driven parameter",
        "tiers.worst" => "loss of the worst tier",
        "tiers.cv" => "deviation / mean of tiers",
        "validation.cv" => "deviation / mean of tiers, validation",
        "gaps.max" => "largest gap",
        "gaps.min" => "least gap",
        "gaps.variance" => "variance of gaps",
        "gaps_valid.variance" => "variance of gaps on validation samples",
        "groups.accuracy" => "accuracy",
        "groups.constant" => "constant predictor",
        "groups.dp" => "DP disparity",
        "groups.spd" => "SPD (largest difference of groups' rates)",
        "groups.eo" => "EO disparity",
        "groups.eodds" => "EOdds disparity",
        "conflicts.model" => "model conflicts",
        "conflicts.layers" => "layer conflicts",
        "cost.bytes" => "bytes",
        "cost.bytes_up" => "bytes up",
        "cost.bytes_down" => "bytes down",
        "cost.seconds" => "virtual time",
        "cost.busy_s" => "time of devices",
        "cost.joules" => "energy of devices",
        _ => "",
    };
    if !known.is_empty() {
        return known.into();
    }
    let mut parts = name.split('.');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("tier"), Some(tier), Some(what)) => format!("{} of tier {tier}", what.replace('_', " ")),
        (Some("device"), Some(device), Some(what)) => {
            format!("{} of device {device}", what.replace('_', " "))
        }
        _ => name.replace(['.', '_'], " "),
    }
}

/// Formats a value of the figure.
pub fn show(name: &str, value: f64) -> String {
    match kind(name) {
        Kind::Share => number::percent(value),
        Kind::SquaredShare => number::figure(value * 1e4),
        Kind::Bytes => number::bytes(value),
        Kind::Seconds => number::seconds(value),
        Kind::Plain => number::figure(value),
    }
}

/// Mean and deviation; without the deviation for a single run.
pub fn show_spread(name: &str, spread: &common::metrics::Spread) -> String {
    let mean = show(name, spread.mean);
    if spread.runs < 2 {
        return mean;
    }
    match mean.split_once(' ') {
        // The unit is printed once, after both numbers.
        Some((number, "%")) => format!("{number} ± {:.1} %", 100.0 * spread.std),
        Some(_) => format!("{mean} ± {}", show(name, spread.std)),
        // The deviation has as many decimals as the mean.
        None => {
            let decimals = mean.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            let factor = if kind(name) == Kind::SquaredShare { 1e4 } else { 1.0 };
            format!("{mean} ± {:.decimals$}", spread.std * factor)
        }
    }
}

/// Formats a difference of two values of the figure.
pub fn show_difference(name: &str, value: f64) -> String {
    match kind(name) {
        Kind::Share => number::points(value),
        _ if value < 0.0 => format!("−{}", show(name, -value)),
        _ => format!("+{}", show(name, value)),
    }
}

/// Whether values are shares, which are written in percent.
pub fn is_share(name: &str) -> bool {
    kind(name) == Kind::Share
}

/// Whether higher values are better.
pub fn high_is_good(name: &str) -> bool {
    kind(name) == Kind::Share || name == "accuracy.jain" || name == "r2" || name.ends_with(".r2")
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kind {
    Plain,
    Share,
    SquaredShare,
    Bytes,
    Seconds,
}

fn kind(name: &str) -> Kind {
    match name {
        "cost.seconds" | "cost.busy_s" => Kind::Seconds,
        _ if name.starts_with("cost.bytes") => Kind::Bytes,
        "groups.constant" | "groups.accuracy" | "global.accuracy" => Kind::Share,
        _ if name.ends_with("accuracy") => Kind::Share,
        _ if name.contains("accuracy") && name.ends_with("variance") => Kind::SquaredShare,
        _ if name.contains("accuracy.") && !name.ends_with("angle") && !name.ends_with("jain") => Kind::Share,
        _ => Kind::Plain,
    }
}

#[cfg(test)]
mod tests {
    use common::metrics::Spread;

    use super::*;

    #[test]
    fn figures_are_written_in_their_unit() {
        let spread = Spread { runs: 3, mean: 0.8649, std: 0.0009 };
        assert_eq!(show_spread("accuracy.mean", &spread), "86.5 ± 0.1 %");
        assert_eq!(show_spread("loss.mean", &Spread { runs: 1, ..spread }), "0.865");
        assert_eq!(show("accuracy.variance", 0.006_244), "62.4");
        assert_eq!(show("accuracy.angle", 0.17), "0.170");
        assert_eq!(show_difference("accuracy.mean", -0.004), "−0.4 points");
        assert_eq!(show_difference("loss.mean", -0.5), "−0.500");
        assert!(high_is_good("accuracy.worst5") && high_is_good("groups.accuracy"));
        assert!(
            !high_is_good("accuracy.variance")
                && !high_is_good("accuracy.angle")
                && !high_is_good("groups.dp")
        );
        assert!(high_is_good("r2") && high_is_good("global.r2") && !high_is_good("mae.mean"));
        assert!(is_share("accuracy.mean") && !is_share("r2"));
        assert_eq!(title("tier.3.loss"), "loss of tier 3");
    }
}
