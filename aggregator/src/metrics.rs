//! Figures of a running gateway for Prometheus.
//!
//! Rounds come from the same reports as `status.json`, the rest from the server at every scrape. Labels are tiers, strategies,
//! outcomes and codes, never devices: their number would grow with the fleet, and their names are not for monitors.

use std::{fmt, sync::Mutex, sync::PoisonError, sync::atomic::AtomicU64};

use common::metrics::mean_variance;
use coordinator::report::RoundReport;
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Registry, Unit},
};

use crate::server::Handle;

/// Upper ends of the buckets of losses; cross-entropies lie between them.
const LOSSES: [f64; 12] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0];
/// Upper ends of the buckets of times, in seconds.
const SECONDS: [f64; 11] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1200.0, 3600.0];

type Number = Gauge<f64, AtomicU64>;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Tier {
    tier: usize,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Strategy {
    strategy: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Round {
    strategy: String,
    outcome: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Answer {
    tier: usize,
    outcome: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Direction {
    tier: usize,
    direction: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RefusedAnswer {
    code: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RefusedConnection {
    reason: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Limited {
    tier: usize,
    what: &'static str,
}

/// `tier` is empty for a parameter of all tiers.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Knob {
    strategy: String,
    parameter: String,
    tier: String,
}

/// All figures.
pub struct Metrics {
    strategy: String,
    registry: Registry,
    rounds: RoundFigures,
    run: RunFigures,
    /// Only one scrape at a time brings the run's figures up to date.
    scrape: Mutex<()>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("strategy", &self.strategy).finish_non_exhaustive()
    }
}

/// What a report says.
#[derive(Clone)]
struct RoundFigures {
    total: Family<Round, Counter>,
    seconds: Family<Strategy, Histogram>,
    asked: Family<Tier, Counter>,
    answers: Family<Answer, Counter>,
    refused: Family<RefusedAnswer, Counter>,
    bytes: Family<Direction, Counter>,
    guard: Family<Limited, Counter>,
    device_loss: Family<Tier, Histogram>,
    loss: Number,
    accuracy: Number,
    loss_of_tier: Family<Tier, Number>,
    accuracy_of_tier: Family<Tier, Number>,
    disparity: Number,
    tier_disparity: Number,
    fairness_measured: Family<Knob, Number>,
    fairness_target: Family<Knob, Number>,
    fairness_knob: Family<Knob, Number>,
    fairness_met: Family<Knob, Number>,
}

/// What the server says now.
#[derive(Clone, Default)]
struct RunFigures {
    committed: Gauge,
    planned: Gauge,
    finished: Gauge,
    exchange: Gauge,
    open: Number,
    registered: Family<Tier, Gauge>,
    connected: Family<Tier, Gauge>,
    refused: Family<RefusedConnection, Counter>,
    disk_free: Gauge,
    certificate: Gauge,
    worker: Gauge,
}

impl Metrics {
    /// `strategy`: its name, for labels.
    pub fn new(strategy: &str) -> Self {
        let mut registry = Registry::with_prefix("fairtier");
        registry.register("build", "The program", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        let (rounds, run) = (RoundFigures::register(&mut registry), RunFigures::register(&mut registry));
        Self { strategy: strategy.to_owned(), registry, rounds, run, scrape: Mutex::new(()) }
    }

    /// Takes in the report of a round.
    pub fn observe(&self, report: &RoundReport) {
        self.rounds.observe(report, &self.strategy);
    }

    /// The figures of now, in the OpenMetrics text format.
    pub fn encode(&self, server: &Handle) -> Result<String, fmt::Error> {
        let _one = self.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        self.run.observe(server);
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl RoundFigures {
    fn register(registry: &mut Registry) -> Self {
        let losses: fn() -> Histogram = || Histogram::new(LOSSES);
        let seconds: fn() -> Histogram = || Histogram::new(SECONDS);
        let this = Self {
            total: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            asked: Family::default(),
            answers: Family::default(),
            refused: Family::default(),
            bytes: Family::default(),
            guard: Family::default(),
            device_loss: Family::new_with_constructor(losses),
            loss: Number::default(),
            accuracy: Number::default(),
            loss_of_tier: Family::default(),
            accuracy_of_tier: Family::default(),
            disparity: Number::default(),
            tier_disparity: Number::default(),
            fairness_measured: Family::default(),
            fairness_target: Family::default(),
            fairness_knob: Family::default(),
            fairness_met: Family::default(),
        };
        let all = this.clone();
        let add = registry;
        add.register("rounds", "Rounds; kept: the model was left unchanged", all.total);
        add.register_with_unit(
            "round",
            "Time from opening to closing of a round",
            Unit::Seconds,
            all.seconds,
        );
        add.register("asked", "Devices asked in rounds", all.asked);
        add.register("answers", "How devices have answered: delivered, late, refused, silent", all.answers);
        add.register("refused_answers", "Answers that were refused, by error code", all.refused);
        let traffic = "Models, guides and updates, without framing and retransmissions";
        add.register_with_unit("traffic", traffic, Unit::Bytes, all.bytes);
        add.register("guard_findings", "Figures that the guard has limited", all.guard);
        add.register("device_loss", "Losses of devices, one per device and round", all.device_loss);
        add.register("loss", "Mean loss over devices in the last round", all.loss);
        add.register("accuracy", "Mean accuracy over devices in the last round", all.accuracy);
        add.register("tier_loss", "Mean loss of a tier in the last round", all.loss_of_tier);
        add.register("tier_accuracy", "Mean accuracy of a tier in the last round", all.accuracy_of_tier);
        add.register("disparity", "Standard deviation over mean of the losses of devices", all.disparity);
        add.register(
            "tier_disparity",
            "Standard deviation over mean of the losses of tiers",
            all.tier_disparity,
        );
        add.register(
            "fairness_measured",
            "Disparity that is compared with the target",
            all.fairness_measured,
        );
        add.register("fairness_target", "Disparity that the fleet shall have at most", all.fairness_target);
        add.register("fairness_knob", "Value of the parameter that the target drives", all.fairness_knob);
        add.register("fairness_met", "1 if the target is met over the last window", all.fairness_met);
        this
    }

    fn observe(&self, report: &RoundReport, strategy: &str) {
        let train = report.purpose == "train";
        if train {
            let outcome = if report.kept.is_some() { "kept" } else { "combined" };
            self.total.get_or_create(&Round { strategy: strategy.to_owned(), outcome }).inc();
            self.seconds.get_or_create(&Strategy { strategy: strategy.to_owned() }).observe(report.seconds);
        }
        for (tier, part) in report.participation.iter().enumerate() {
            self.asked.get_or_create(&Tier { tier }).inc_by(part.asked as u64);
            let in_time = part.delivered.saturating_sub(part.late);
            let outcomes = [
                ("delivered", in_time),
                ("late", part.late),
                ("refused", part.refused),
                ("silent", part.silent),
            ];
            for (outcome, count) in outcomes {
                self.answers.get_or_create(&Answer { tier, outcome }).inc_by(count as u64);
            }
        }
        for line in &report.refused {
            self.refused.get_or_create(&RefusedAnswer { code: format!("E{:02}", line.code) }).inc();
        }
        for (tier, traffic) in report.traffic_by_tier.iter().enumerate() {
            self.bytes.get_or_create(&Direction { tier, direction: "up" }).inc_by(traffic.up);
            self.bytes.get_or_create(&Direction { tier, direction: "down" }).inc_by(traffic.down);
        }
        for finding in &report.guard {
            self.guard.get_or_create(&Limited { tier: finding.tier, what: finding.what }).inc();
        }
        for line in &report.devices {
            let loss = line.test_loss.unwrap_or(line.loss_before);
            self.device_loss.get_or_create(&Tier { tier: line.tier }).observe(loss);
        }
        self.observe_losses(report);
        for line in &report.fairness {
            let tier = line.tier.map_or(String::new(), |tier| tier.to_string());
            let knob = Knob { strategy: line.strategy.clone(), parameter: line.parameter.clone(), tier };
            if let Some(measured) = line.measured {
                self.fairness_measured.get_or_create(&knob).set(measured);
            }
            self.fairness_target.get_or_create(&knob).set(line.target);
            self.fairness_knob.get_or_create(&knob).set(line.value);
            let met = line.status == strategies::fairness::FairnessStatus::Met;
            self.fairness_met.get_or_create(&knob).set(f64::from(u8::from(met)));
        }
    }

    /// A round without devices leaves the figures of the one before.
    fn observe_losses(&self, report: &RoundReport) {
        if report.loss.count > 0 {
            self.loss.set(report.loss.mean);
            self.disparity.set(report.loss.cv);
        }
        if report.accuracy.count > 0 {
            self.accuracy.set(report.accuracy.mean);
        }
        for (tier, loss) in report.loss_by_tier.iter().enumerate().filter(|(_, loss)| loss.count > 0) {
            self.loss_of_tier.get_or_create(&Tier { tier }).set(loss.mean);
        }
        for (tier, score) in report.accuracy_by_tier.iter().enumerate().filter(|(_, score)| score.count > 0) {
            self.accuracy_of_tier.get_or_create(&Tier { tier }).set(score.mean);
        }
        let means: Vec<f64> =
            report.loss_by_tier.iter().filter(|loss| loss.count > 0).map(|loss| loss.mean).collect();
        let (mean, variance) = mean_variance(&means);
        if mean > 0.0 {
            self.tier_disparity.set(variance.sqrt() / mean);
        }
    }
}

impl RunFigures {
    fn register(add: &mut Registry) -> Self {
        let this = Self::default();
        let all = this.clone();
        add.register("round_committed", "Rounds committed in the run", all.committed);
        add.register("rounds_planned", "Rounds of the run", all.planned);
        add.register("run_finished", "1 if the run is over", all.finished);
        add.register("exchange", "The open exchange of the round, from 0; -1 between two", all.exchange);
        add.register_with_unit("exchange_open", "How long the exchange is open", Unit::Seconds, all.open);
        add.register("devices_registered", "Devices that have joined the run", all.registered);
        add.register("devices_connected", "Devices that are connected now", all.connected);
        add.register("connections_refused", "Connections that were refused, by reason", all.refused);
        add.register_with_unit("disk_free", "Free space for the store", Unit::Bytes, all.disk_free);
        let expires = "When the server's certificate expires, since 1970";
        add.register_with_unit(
            "server_certificate_expiry_timestamp",
            expires,
            Unit::Seconds,
            all.certificate,
        );
        add.register("worker_up", "1 unless the run cannot go on", all.worker);
        this
    }

    fn observe(&self, server: &Handle) {
        let progress = server.progress();
        self.committed.set(progress.committed.into());
        self.planned.set(progress.rounds.into());
        self.finished.set(progress.finished.into());
        self.exchange.set(progress.exchange.map_or(-1, i64::from));
        self.open.set(progress.open_for.map_or(0.0, |open| open.as_millis() as f64 / 1000.0));
        for (tier, devices) in progress.tiers.iter().enumerate() {
            self.registered.get_or_create(&Tier { tier }).set(number(devices.registered as u64));
            self.connected.get_or_create(&Tier { tier }).set(number(devices.connected as u64));
        }
        for (refusal, count) in server.refused() {
            let counter = self.refused.get_or_create(&RefusedConnection { reason: refusal.name() });
            counter.inc_by(count.saturating_sub(counter.get()));
        }
        // What cannot be read keeps its value.
        if let Some(free) = server.disk_free() {
            self.disk_free.set(number(free));
        }
        if let Some(expires) = server.certificate_expires() {
            self.certificate.set(number(expires));
        }
        self.worker.set((!server.has_failed()).into());
    }
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
