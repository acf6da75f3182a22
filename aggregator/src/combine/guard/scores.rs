//! Scores on test samples. Nobody gains weight by them, but one absurd number would hide from the report how all
//! others fare.
//!
//! | figure | can be believed | otherwise |
//! |---|---|---|
//! | loss | what the peers' bands allow with a factor of 100, or 100 times the device's training loss | the middle of the peers |
//! | samples | what the peers' bands of sample counts allow | the middle of the peers, of which as large a share is correct |
//!
//! The band is that wide because a report on fairness must not leave out who really is badly off: such a device's
//! training loss is high, too. Figures of the report are those that count; what was said stands beside them in its
//! guard's lines.

use common::{
    DeviceId, Tier,
    message::{Scalars, Score},
};

use super::{
    super::cohort::Cohort,
    Guard, GuardConfig, GuardLine, Mode, PEERS,
    band::{bands_of, count_bands},
};

/// By how much a score's loss may exceed the usual, or the training loss.
const WIDE: f64 = 100.0;

/// What a device has delivered.
type Delivered = (DeviceId, Tier, Scalars);

/// A device's score, to look at and to change; and how its two figures are called.
struct Kind {
    of: fn(&mut Scalars) -> &mut Option<Score>,
    loss: &'static str,
    samples: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind { of: |scalars| &mut scalars.test, loss: "test_loss", samples: "test_samples" },
    Kind { of: |scalars| &mut scalars.personal, loss: "personal_loss", samples: "personal_samples" },
];

impl Guard {
    /// Clips the scores that can not be believed and names them. Training losses are those that count.
    pub fn check_scores(&self, delivered: &mut [Delivered], tiers: usize, lines: &mut Vec<GuardLine>) {
        if self.config.mode == Mode::Off {
            return;
        }
        for kind in KINDS {
            let mut values = |figure: fn(&Score) -> f64| -> Vec<(Tier, f64)> {
                let score =
                    |(_, tier, scalars): &mut Delivered| Some((*tier, figure((kind.of)(scalars).as_ref()?)));
                delivered.iter_mut().filter_map(score).collect()
            };
            let wide = GuardConfig { factor: WIDE, ..self.config.clone() };
            let losses = bands_of(&values(|score| score.loss), tiers, &wide);
            let counts = count_bands(&values(|score| score.samples.into()), tiers, &self.config);
            for (device, tier, scalars) in delivered.iter_mut() {
                let own = WIDE * scalars.loss_before;
                let Some(score) = (kind.of)(scalars) else { continue };
                let mut note = |what, said, counted| {
                    let (device, tier) = (device.to_string(), tier.index());
                    lines.push(GuardLine {
                        device,
                        tier,
                        what,
                        action: "clipped",
                        why: PEERS,
                        said,
                        counted,
                    });
                };
                let band = losses.get(tier.index()).copied().flatten();
                if let Some(band) = band.filter(|band| score.loss > band.limit && score.loss > own) {
                    note(kind.loss, score.loss, band.usual());
                    score.loss = band.usual();
                }
                let band = counts.get(tier.index()).copied().flatten();
                let said = f64::from(score.samples);
                if let Some(counted) = self.by_peers(device, said, band) {
                    note(kind.samples, said, counted);
                    score.correct = (score.accuracy() * counted) as u32;
                    score.samples = counted as u32;
                }
            }
        }
    }
}

/// Lets what counted in an exchange take the place of what was said in it, for the report. Devices are in order.
pub fn count(delivered: &mut [Delivered], cohort: &Cohort<'_>, lines: &[GuardLine]) {
    for line in lines {
        let found = delivered.binary_search_by(|(device, ..)| device.as_str().cmp(&line.device));
        let Some((.., scalars)) = found.ok().and_then(|at| delivered.get_mut(at)) else { continue };
        match line.what {
            "loss" => scalars.loss_before = line.counted,
            "loss_after" => scalars.loss_after = Some(line.counted),
            "gap" => scalars.gap = Some(line.counted),
            "samples" => scalars.samples = line.counted as u32,
            _ => {}
        }
    }
    for participant in cohort.participants() {
        let Ok(at) = delivered.binary_search_by(|(device, ..)| device.cmp(&participant.device)) else {
            continue;
        };
        if let Some((.., scalars)) = delivered.get_mut(at).filter(|_| !participant.group_counts().is_empty())
        {
            scalars.group_losses = participant.group_losses().iter().copied().collect();
            scalars.group_counts = participant.group_counts().iter().copied().collect();
        }
    }
}
