//! A line of a report in plain words.

use super::{line::FairnessLine, status::FairnessStatus};

/// Decimals of a disparity where the target states more.
const MOST_DECIMALS: usize = 4;

impl FairnessLine {
    /// One line, as in `fairness 0.31 of 0.30  q 2.9  met`.
    pub fn summary(&self) -> String {
        let decimals = decimals(self.target);
        let measured = self.measured.map_or("-".to_owned(), |measured| format!("{measured:.decimals$}"));
        let inside = self.tier.map_or(String::new(), |tier| format!(" inside tier {tier}"));
        let Self { parameter, target, .. } = self;
        let (value, status) = (short(self.value), self.status.words());
        format!("fairness {measured} of {target:.decimals$}{inside}  {parameter} {value}  {status}")
    }

    /// The status in words, with the next step where there is one.
    pub fn advice(&self) -> String {
        let Self { parameter, target, .. } = self;
        match self.status {
            FairnessStatus::Measuring => "too few rounds to judge".into(),
            FairnessStatus::Early => "losses are equal because the model has not learnt yet".into(),
            FairnessStatus::Met if self.integrator == 0.0 && self.position == 0.0 => {
                "met without help".into()
            }
            FairnessStatus::Met => format!("met with {parameter} = {}", short(self.value)),
            FairnessStatus::LimitedByPrice => {
                let best = self.best_mean.map_or_else(String::new, |best| format!(" of {best:.4}"));
                let target = self.key();
                format!(
                    "the mean loss lies above its best{best} by more than `fairness.budget`; raise `{target}` or \
                     `fairness.budget`"
                )
            }
            FairnessStatus::NotReachable => self.unreachable(),
            FairnessStatus::Approaching => format!("on the way to {target}"),
        }
    }

    /// Why the target is not reached, and what to change.
    fn unreachable(&self) -> String {
        let Self { parameter, most, neutral, .. } = self;
        let (way, change) = if most > neutral { ("up", "raise") } else { ("down", "lower") };
        let head = format!("not reachable with {parameter} {way} to {}", short(*most));
        // Rounded up, so that the number can be reached.
        let reached = self.reached.map(|reached| short((reached * 1000.0).ceil() / 1000.0));
        let (best, ask) = match reached {
            Some(reached) => (format!(": best {reached}"), format!("ask for at least {reached}")),
            None => (String::new(), "ask for more".to_owned()),
        };
        if self.raising_helps == Some(false) {
            return format!("{head}{best}; {ask}: a stronger {parameter} did not help");
        }
        format!("{head}{best}; {ask} or {change} fairness.most")
    }

    /// What else there is to know: the certificate, devices without a signal, a knob at its end.
    pub fn notes(&self) -> Vec<String> {
        let Self { parameter, ledger, .. } = self;
        let mut notes = vec![];
        match self.bound {
            Some(bound) if self.certified => notes.push(format!(
                "certified: over the last {} rounds the root mean square of the measured disparity is at most {}",
                ledger.rounds,
                short(bound)
            )),
            Some(_) => notes.push(format!("not certified: {}", self.limit())),
            None => {}
        }
        match self.unmeasured {
            0 => {}
            1 => notes.push("1 device of this round sent no signal and is not measured".into()),
            many => notes.push(format!("{many} devices of this round sent no signal and are not measured")),
        }
        if self.position >= 1.0 {
            notes.push(format!("{parameter} is at its end, {}", short(self.most)));
        }
        notes
    }

    /// The limit that acted since the ledger began.
    fn limit(&self) -> String {
        let Self { parameter, ledger, .. } = self;
        if ledger.withheld != 0.0 {
            "`fairness.budget` has held the knob back".into()
        } else if ledger.up > 0.0 {
            format!("{parameter} was at its end")
        } else {
            "the measured disparity was more than twice the target".into()
        }
    }

    /// The key of the target.
    fn key(&self) -> &'static str {
        if self.tier.is_some() { "fairness.inside" } else { "fairness.target" }
    }
}

impl FairnessStatus {
    /// The name in words.
    pub fn words(self) -> String {
        self.name().replace('_', " ")
    }
}

/// As many decimals as a number has, at least two.
fn decimals(number: f64) -> usize {
    let text = number.to_string();
    let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    decimals.clamp(2, MOST_DECIMALS)
}

/// Three significant digits, without zeros at the end.
fn short(number: f64) -> String {
    let whole = number.abs().log10().floor();
    let decimals = if number == 0.0 { 0 } else { (2.0 - whole).clamp(0.0, 6.0) as usize };
    let text = format!("{number:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::{decimals, short};

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 10.0, 2.9, 2.3166247904, 0.0123456, 1234.5, 3e-9].map(short);
        assert_eq!(shown, ["0", "10", "2.9", "2.32", "0.0123", "1234", "0"]);
        assert_eq!([0.3, 1.0, 0.125, 0.123456].map(decimals), [2, 2, 3, 4]);
    }
}
