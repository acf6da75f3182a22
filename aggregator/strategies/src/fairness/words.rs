//! A line of a report in plain words.

use super::{
    line::{Capped, FairnessLine},
    status::FairnessStatus,
    sums::SignalKind,
};
use crate::strategy::FairnessScope;

/// Decimals of a disparity where the target states more.
const MOST_DECIMALS: usize = 4;

impl FairnessLine {
    /// One line, as in `fairness 0.31 of 0.30  q 2.9  met`.
    pub fn summary(&self) -> String {
        let decimals = decimals(self.target);
        let measured = self.measured.map_or("-".to_owned(), |measured| format!("{measured:.decimals$}"));
        let inside = self.tier.map_or(String::new(), |tier| format!(" inside tier {tier}"));
        let Self { parameter, target, .. } = self;
        let (value, status) = (short(self.value), self.status_words());
        format!("fairness {measured} of {target:.decimals$}{inside}  {parameter} {value}  {status}")
    }

    /// The name of the status, and whether the disparity is not told apart from chance: `met, within noise`.
    pub fn status_words(&self) -> String {
        let noise = if self.is_within_noise() { ", within noise" } else { "" };
        format!("{}{noise}", self.status.words())
    }

    /// Whether the disparity of a whole window is not told apart from chance.
    pub fn is_within_noise(&self) -> bool {
        let judged = !matches!(self.status, FairnessStatus::Measuring | FairnessStatus::Early);
        judged && self.resolution.is_some_and(|resolution| resolution.within_noise)
    }

    /// Whether a target this low is not told apart from chance.
    pub fn is_below_resolution(&self) -> bool {
        self.resolution.is_some_and(|resolution| resolution.limit > self.target)
    }

    /// The status in words, with the next step where there is one.
    pub fn advice(&self) -> String {
        let Self { parameter, target, .. } = self;
        match self.status {
            FairnessStatus::Measuring => "too few rounds to judge".into(),
            FairnessStatus::Early => "losses are equal because the model has not learnt yet".into(),
            FairnessStatus::Met => {
                let neutral = self.integrator == 0.0 && self.position == 0.0;
                let how = if neutral {
                    "without help".into()
                } else {
                    format!("with {parameter} = {}", short(self.value))
                };
                let noise = self.within_noise().map_or_else(String::new, |noise| format!(": {noise}"));
                format!("met {how}{noise}")
            }
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
        let guard = if self.capped.is_empty() {
            String::new()
        } else {
            format!("; {}: allow larger ones with guard.share", self.capped.words())
        };
        if self.raising_helps == Some(false) {
            return format!("{head}{best}; {ask}: a stronger {parameter} did not help{guard}");
        }
        format!("{head}{best}; {ask} or {change} fairness.most{guard}")
    }

    /// That the disparity is not told apart from chance, and what would tell.
    fn within_noise(&self) -> Option<String> {
        let limit = self.resolution.filter(|_| self.is_within_noise())?.limit;
        let (who, what) = (self.compared(), self.asked());
        let less = format!("{who} differ by less than {what} can resolve (about {})", short(limit));
        Some(match self.remedy() {
            Some(remedy) => format!("{less}; {remedy}"),
            None => less,
        })
    }

    /// What would resolve a target that is too low to be told apart from chance.
    fn remedy(&self) -> Option<String> {
        let resolution = self.resolution.filter(|_| self.is_below_resolution())?;
        let what = match resolution.more_samples {
            Some(more) => format!("about {} times as many validation samples", short(more.ceil())),
            None => "more devices in a round".into(),
        };
        Some(format!("to resolve {} takes {what}", short(self.target)))
    }

    /// Between whom the disparity is.
    fn compared(&self) -> String {
        match (self.scope, self.tier) {
            (FairnessScope::Tiers, _) => "the tiers".into(),
            (FairnessScope::Inside, Some(tier)) => format!("the devices of tier {tier}"),
            (FairnessScope::Devices | FairnessScope::Inside, _) => "the devices".into(),
        }
    }

    /// Of what there are too few.
    fn asked(&self) -> &'static str {
        match self.signal {
            SignalKind::Validation => "their validation samples",
            SignalKind::Training | SignalKind::Gap => "the devices of a round",
        }
    }

    /// What else there is to know: the certificate, devices without a signal, what is not resolved, a knob at its end, the guard.
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
        // Where the target is met, the advice says it.
        let (met, at_end) = (self.status == FairnessStatus::Met, self.status == FairnessStatus::NotReachable);
        if let Some((resolution, remedy)) = self.resolution.zip(self.remedy())
            && !(met && self.is_within_noise())
        {
            let (what, limit) = (self.asked(), short(resolution.limit));
            notes.push(format!("{what} resolve a disparity of about {limit} or more; {remedy}"));
        }
        if !self.capped.is_empty() && !met && !at_end {
            notes.push(format!("{} (guard.share): the target may be out of reach", self.capped.words()));
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

impl Capped {
    /// `the guard bounds the shares of a, b and 3 others`
    fn words(&self) -> String {
        let others = self.devices.saturating_sub(self.names.len() as u64);
        let mut names = self.names.clone();
        match others {
            0 => {}
            1 => names.push("1 other".into()),
            many => names.push(format!("{many} others")),
        }
        let last = names.pop().unwrap_or_default();
        let list = if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) };
        format!("the guard bounds the share{} of {list}", if self.devices == 1 { "" } else { "s" })
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
