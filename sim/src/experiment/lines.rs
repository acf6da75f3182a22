//! Computes the figures of results from reports and scores.

use common::metrics::{Better, GroupFairness, Summary, TierSplit, mean_variance};
use coordinator::report::RoundReport;

use super::score::ShardScore;
use crate::{
    engine::Engine,
    results::{
        ConflictCounts, Distribution, FinalScores, GroupFigures, KnobPoint, MeanWeights, RoundScores,
        RunCost, TierCost, TierScores,
    },
};

impl From<&Summary> for Distribution {
    fn from(summary: &Summary) -> Self {
        let &Summary { mean, variance, worst10, best10, worst5, best5, angle, jain, max_min, .. } = summary;
        Self { mean, variance, worst10, best10, worst5, best5, angle, jain, max_min }
    }
}

pub fn figures(values: impl Iterator<Item = f64>, better: Better) -> Distribution {
    (&Summary::of(&mut values.collect::<Vec<_>>(), better)).into()
}

/// Scores of one round, over the devices that took part.
pub fn round_scores(report: &RoundReport) -> RoundScores {
    let errors = report.errors.as_ref();
    // A report on numbers has no accuracy.
    let classes = errors.is_none();
    let known = |summary: &&Summary| summary.count > 0;
    let tiers = report.loss_by_tier.iter().zip(&report.accuracy_by_tier).zip(&report.participation);
    let tiers = tiers.enumerate().map(|(tier, ((loss, accuracy), part))| TierScores {
        devices: loss.count,
        loss: loss.mean,
        loss_variance: loss.variance,
        accuracy: classes.then_some(accuracy.mean),
        accuracy_variance: classes.then_some(accuracy.variance),
        mae: errors.and_then(|errors| errors.mae_by_tier.get(tier)).filter(known).map(|mae| mae.mean),
        r2: errors.and_then(|errors| *errors.r2_by_tier.get(tier)?),
        asked: part.asked,
        delivered: part.delivered,
    });
    let traffic = report.traffic.unwrap_or_default();
    // The final scores repeat the line of the last round.
    let knobs = report.fairness.iter().filter(|_| report.purpose == "train");
    RoundScores {
        round: report.round,
        seconds: report.seconds,
        devices: report.devices.len(),
        loss: (&report.loss).into(),
        accuracy: classes.then(|| (&report.accuracy).into()),
        mae: errors.map(|errors| &errors.mae).filter(known).map(Into::into),
        r2: errors.and_then(|errors| errors.r2),
        tiers: tiers.collect(),
        inter: report.loss_split.inter,
        bytes_up: traffic.up,
        bytes_down: traffic.down,
        conflicts: report.conflicts.as_ref().map(|conflicts| ConflictCounts {
            model: conflicts.model as f64,
            layers: conflicts.layers.iter().map(|&count| count as f64).collect(),
        }),
        effective: report.weights.map(|weights| weights.effective),
        fairness: knobs.map(|line| KnobPoint::new(line, report)).collect(),
    }
}

/// Replaces the scores of a round by those of all devices.
pub fn rescore(line: &mut RoundScores, tiers: &[usize], scored: &[ShardScore]) {
    let last = distribution(tiers, scored, line.tiers.len());
    let parts: Vec<_> = line.tiers.iter().map(|tier| (tier.asked, tier.delivered)).collect();
    (line.loss, line.accuracy, line.inter, line.tiers) = (last.loss, last.accuracy, last.inter, last.tiers);
    (line.mae, line.r2) = (last.mae, last.r2);
    for (tier, (asked, delivered)) in line.tiers.iter_mut().zip(parts) {
        (tier.asked, tier.delivered) = (asked, delivered);
    }
}

/// Figures over devices with test samples; `tiers` holds the tier of each.
pub fn distribution(tiers: &[usize], scored: &[ShardScore], count: usize) -> FinalScores {
    // A model of numbers has no accuracy.
    let classes = scored.iter().all(|scored| scored.errors.is_none());
    let tested = || tiers.iter().zip(scored).filter(|(_, scored)| scored.targets > 0);
    let of = |wanted: usize| {
        let own = || tested().filter(move |(tier, _)| **tier == wanted).map(|(_, scored)| scored);
        let (loss, loss_variance) = mean_variance(&own().map(ShardScore::mean_loss).collect::<Vec<_>>());
        let accuracy = own().map(ShardScore::accuracy).collect::<Option<Vec<f64>>>();
        let accuracy = accuracy.map(|values| mean_variance(&values)).filter(|_| classes);
        let mae: Vec<f64> = own().filter_map(ShardScore::mae).collect();
        TierScores {
            devices: own().count(),
            loss,
            loss_variance,
            accuracy: accuracy.map(|(mean, _)| mean),
            accuracy_variance: accuracy.map(|(_, variance)| variance),
            mae: (!mae.is_empty()).then(|| mean_variance(&mae).0),
            r2: ShardScore::pooled_r2(own()),
            ..TierScores::default()
        }
    };
    let lines: Vec<TierScores> = (0..count).map(of).collect();
    let mae = tested().any(|(_, scored)| scored.errors.is_some());
    let split = TierSplit::of(lines.iter().map(|tier| (tier.devices, tier.loss, tier.loss_variance)));
    FinalScores {
        loss: figures(tested().map(|(_, scored)| scored.mean_loss()), Better::Low),
        accuracy: classes
            .then(|| figures(tested().filter_map(|(_, scored)| scored.accuracy()), Better::High)),
        mae: mae.then(|| figures(tested().filter_map(|(_, scored)| scored.mae()), Better::Low)),
        r2: ShardScore::pooled_r2(tested().map(|(_, scored)| scored)),
        tiers: lines,
        within: split.within,
        inter: split.inter,
        ..FinalScores::default()
    }
}

/// Figures of pooled predictions; `None` without groups.
pub fn groups(scored: &[ShardScore]) -> Option<GroupFigures> {
    let cells = scored.iter().map(|scored| scored.counts.len()).max()?;
    let mut sums = [vec![0.0; cells], vec![0.0; cells]];
    for scored in scored {
        for (sum, values) in sums.iter_mut().zip([&scored.positive, &scored.counts]) {
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
    let [positive, counts] = &sums;
    let fairness = GroupFairness::of(positive, counts)?;
    let all: f64 = counts.iter().sum();
    Some(GroupFigures {
        accuracy: fairness.accuracy,
        constant: fairness.constant_accuracy,
        dp: fairness.dp.overall,
        eo: fairness.eo.overall,
        eodds: fairness.eodds.overall,
        spd: fairness.dp.pair,
        positive: positive.iter().sum::<f64>() / all.max(1.0),
    })
}

pub fn cost(engine: &Engine) -> RunCost {
    let tier = |tier: &crate::engine::TierAccount| TierCost {
        bytes_down: tier.bytes_down,
        bytes_up: tier.bytes_up,
        busy_s: tier.busy_s,
        joules: tier.joules,
        asked: tier.asked,
        answered: tier.answered,
    };
    let seconds = (engine.now() - common::Instant::ZERO).as_millis() as f64 / 1000.0;
    RunCost { seconds, tiers: engine.account().tiers.iter().map(tier).collect() }
}

/// Means over the rounds that have weights.
pub fn weights(reports: &[RoundReport]) -> Option<MeanWeights> {
    let all: Vec<_> = reports.iter().filter_map(|report| report.weights).collect();
    let mean = |of: fn(&common::metrics::WeightFigures) -> f64| {
        all.iter().map(of).sum::<f64>() / all.len().max(1) as f64
    };
    (!all.is_empty()).then(|| MeanWeights {
        entropy: mean(|weights| weights.entropy),
        chi2: mean(|weights| weights.chi_square),
        effective: mean(|weights| weights.effective),
    })
}

pub fn conflicts(lines: &[RoundScores]) -> Option<ConflictCounts> {
    let all: Vec<_> = lines.iter().filter_map(|line| line.conflicts.as_ref()).collect();
    let rounds = all.len() as f64;
    let layers = all.first()?.layers.len();
    let mean = |of: &dyn Fn(&ConflictCounts) -> f64| all.iter().map(|line| of(line)).sum::<f64>() / rounds;
    Some(ConflictCounts {
        model: mean(&|line| line.model),
        layers: (0..layers).map(|layer| mean(&|line| line.layers[layer])).collect(),
    })
}
