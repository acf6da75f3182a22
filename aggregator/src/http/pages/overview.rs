//! The first page: where the run stands, who is worst off, what must be done.

use plots::{
    markup::{Element, el},
    number::{figure, percent},
};

use super::{
    parts::{
        Column, Curve, Part, button, card, cell, count, curves, number, plot, prose, row_head, shown, span,
        table,
    },
    worst::worst,
};
use crate::http::{
    alerts::alerts,
    history::{Figures, Report, RoundFigures},
    view::View,
};
use coordinator::PhaseName;

/// Rounds over which the pace is taken, and with which figures are compared.
const PACE: usize = 10;

pub(super) fn parts(view: &View<'_>) -> Vec<Part> {
    let mut parts = vec![
        Part::live("state", "Now", [state(view), cards(view)]),
        Part::live("alerts", "What needs attention", [alert_list(view)]),
        Part::live("last-tiers", "The last round by tier", [last_round(view)]),
        Part::live("worst", "Who is worst off", worst(view)),
        Part::live("course", "Over rounds", [course(view)]),
    ];
    if let Some(user) = view.operates() {
        let paused = view.live.as_ref().is_some_and(|live| live.paused);
        let pause = match (&view.live, paused) {
            (None, _) => el("p").text("No server runs, so there is nothing to pause."),
            (Some(live), false) if live.phase == PhaseName::Finished => {
                el("p").text("The run is finished, so there is nothing to pause.")
            }
            (Some(_), true) => button("/actions/resume", &user.csrf, &[], "Resume the run"),
            (Some(_), false) => button("/actions/pause", &user.csrf, &[], "Pause after this round"),
        };
        parts.push(Part::fixed(
            "actions",
            "Actions",
            [pause, token_form(&user.csrf), export_form(view, &user.csrf)],
        ));
    }
    parts
}

/// One sentence on what the run does.
pub fn sentence(view: &View<'_>) -> String {
    let committed = view.committed();
    let of = format!("{committed} of {} rounds committed", view.rounds());
    let Some(live) = &view.live else {
        let what = if view.history.scores.is_some() { "The run is finished" } else { "The run is stopped" };
        return format!("{what}: {of}.");
    };
    if live.phase == PhaseName::Finished {
        return format!("The run is finished: {of}. Its models can be fetched.");
    }
    if live.paused && live.exchange.is_none() {
        return format!("Paused: {of}. No further round begins until it is resumed.");
    }
    if let Some(gathering) = live.gathering {
        return format!(
            "Round {} waits for devices: {} of {} are connected.",
            committed + 1,
            gathering.have,
            gathering.need
        );
    }
    match &live.exchange {
        Some(exchange) if exchange.evaluates => "Collects the scores of the final model.".into(),
        Some(exchange) => format!("Round {} of {} is open.", exchange.round, live.rounds),
        None => format!("Round {} of {} is being combined.", committed + 1, live.rounds),
    }
}

fn state(view: &View<'_>) -> Element {
    let exchange = view.live.as_ref().and_then(|live| live.exchange.as_ref());
    let mut text = sentence(view);
    if let Some(exchange) = exchange {
        let left = exchange.until - view.now;
        text += &format!(
            " Exchange {} ({}), open for {}; {}.",
            exchange.number + 1,
            exchange.kind,
            span(view.now - exchange.opened),
            if left >= 0.0 {
                format!("at most {} until its deadline", span(left))
            } else {
                format!("its deadline passed {} ago", span(left))
            }
        );
    }
    let paused = view.live.as_ref().is_some_and(|live| live.paused && live.exchange.is_some());
    if paused {
        text += " It is the last one: the run is paused.";
    }
    let say = match &view.live {
        Some(live) if live.paused => "paused".to_owned(),
        Some(live) if live.phase == PhaseName::Finished => "the run is finished".to_owned(),
        Some(live) => live.gathering.map_or_else(
            || "the run goes on".to_owned(),
            |need| format!("waits for devices: {} of {}", need.have, need.need),
        ),
        None => "no server runs".to_owned(),
    };
    el("p").class("lead").set("data-say", say).text(text)
}

fn cards(view: &View<'_>) -> Element {
    let report = view.history.shown();
    let (committed, rounds) = (view.committed(), view.rounds());
    let loss = report.and_then(|report| report.loss.shown_mean());
    let accuracy = report.and_then(|report| report.accuracy.shown_mean());
    let worst = report.and_then(|report| worst_tier(report));
    let disparity = report.and_then(|report| crate::http::history::disparity(report));
    let knob = report.and_then(|report| report.fairness.first());
    let pace = pace(view);
    let goes_on = view.live.as_ref().is_some_and(|live| {
        let overdue = live.exchange.as_ref().is_some_and(|exchange| exchange.overdue);
        !live.paused && live.gathering.is_none() && !overdue && live.phase != PhaseName::Finished
    });
    let left = pace.filter(|_| goes_on).map_or_else(String::new, |per_minute| {
        let minutes = f64::from(rounds.saturating_sub(committed)) / per_minute;
        format!("about {} left", span(60.0 * minutes))
    });
    let earlier = earlier(view);
    let was = |note: &str, value: fn(Earlier<'_>) -> Option<f64>, show: fn(f64) -> String| {
        let text = earlier.and_then(|then| Some(format!("{} in round {}", show(value(then)?), then.0.round)));
        text.map_or_else(|| note.to_owned(), |text| format!("{text}; {note}"))
    };
    let devices = view.live.as_ref().map(|live| live.connected() as f64);
    let known = view.live.as_ref().map_or(0, |live| live.devices.len());
    el("div").class("cards").all([
        card(
            "Rounds",
            "committed",
            Some(committed.into()),
            &format!("{committed} of {rounds}"),
            &format!("run {}, strategy {}", view.run, view.config.strategy.name),
        ),
        card("Rounds per minute", "pace", pace, &shown(pace), &left),
        card(
            "Devices connected",
            "connected",
            devices,
            &devices.map_or("–".into(), |n| format!("{n:.0}")),
            &match view.live {
                Some(_) => format!("of {known} in the run"),
                None => "no server runs".into(),
            },
        ),
        card(
            "Mean loss",
            "loss",
            loss,
            &shown(loss),
            &was(
                "over devices, of the model that they received",
                |(round, _)| round.loss.shown_mean(),
                figure,
            ),
        ),
        card(
            "Mean accuracy",
            "accuracy",
            accuracy,
            &accuracy.map_or("–".into(), percent),
            &was("over devices with test samples", |(round, _)| round.accuracy.shown_mean(), percent),
        ),
        card(
            "Worst tier",
            "worst-tier",
            worst.map(|(tier, _)| tier as f64),
            &worst.map_or("–".into(), |(tier, _)| format!("Tier {tier}")),
            &worst.map_or(String::new(), |(_, loss)| format!("mean loss {}", figure(loss))),
        ),
        card(
            "Disparity between tiers",
            "disparity",
            disparity,
            &shown(disparity),
            &was("standard deviation of tier losses over their mean", |(_, disparity)| disparity, figure),
        ),
        match knob {
            Some(line) => card(
                "Fairness target",
                "target",
                Some(line.target),
                &format!("{} of {}", shown(line.measured), figure(line.target)),
                &format!(
                    "{}; {} = {}",
                    line.status.name().replace('_', " "),
                    line.parameter,
                    figure(line.next_value)
                ),
            ),
            None if view.config.fairness.target > 0.0 => {
                let target = view.config.fairness.target;
                let text = format!("– of {}", figure(target));
                card("Fairness target", "target", Some(target), &text, "measured from the first round on")
            }
            None => card("Fairness target", "target", None, "none", "fairness.target sets one"),
        },
    ])
}

/// A round, and the disparity between its tiers.
type Earlier<'a> = (&'a RoundFigures, Option<f64>);

/// Ten rounds before the last one, or the first round.
fn earlier<'a>(view: &'a View<'_>) -> Option<Earlier<'a>> {
    let history = view.history;
    let at = history.rounds.len().checked_sub(2)?.saturating_sub(PACE - 1);
    Some((history.rounds.get(at)?, history.disparity.get(at).copied().flatten()))
}

/// The tier with the highest mean loss.
pub fn worst_tier(report: &Report) -> Option<(usize, f64)> {
    let means = report.loss_by_tier.iter().map(Figures::shown_mean).enumerate();
    means.filter_map(|(tier, mean)| Some((tier, mean?))).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Rounds per minute over the last rounds.
fn pace(view: &View<'_>) -> Option<f64> {
    let last: Vec<f64> =
        view.history.rounds.iter().rev().take(PACE).filter_map(|round| round.seconds).collect();
    let seconds: f64 = last.iter().sum();
    (seconds > 0.0).then(|| 60.0 * last.len() as f64 / seconds)
}

fn alert_list(view: &View<'_>) -> Element {
    let alerts = alerts(view);
    if alerts.is_empty() {
        return el("p").text("Nothing.");
    }
    el("ul")
        .class("alerts")
        .all(alerts.into_iter().map(|alert| prose(el("li").class(alert.class()), &alert.text)))
}

/// The same figures as `fairtier gateway status`.
pub(super) fn last_round(view: &View<'_>) -> Element {
    let Some(report) = view.history.shown() else {
        return el("p").text("No round is finished yet: the present model is the initial one.");
    };
    let columns = [
        Column::text("Tier"),
        Column::number("Asked"),
        Column::number("Delivered"),
        Column::number("Late"),
        Column::number("Silent"),
        Column::number("Refused"),
        Column::number("Held"),
        Column::number("Mean loss"),
        Column::number("Variance"),
        Column::number("Worst tenth"),
        Column::number("Best tenth"),
        Column::number("Mean accuracy"),
    ];
    let row =
        |tier: Option<usize>| {
            let own = |of: usize| tier.is_none_or(|tier| tier == of);
            let sum = |part: fn(&crate::http::history::Participation) -> u64| -> u64 {
                report
                    .participation
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| own(*at))
                    .map(|(_, line)| part(line))
                    .sum()
            };
            let (loss, accuracy) = match tier {
                Some(tier) => (
                    report.loss_by_tier.get(tier).copied().unwrap_or_default(),
                    report.accuracy_by_tier.get(tier).copied().unwrap_or_default(),
                ),
                None => (report.loss, report.accuracy),
            };
            let mut held: Vec<&str> =
                report.guard.iter().filter(|line| own(line.tier)).map(|line| line.device.as_str()).collect();
            held.sort_unstable();
            held.dedup();
            let refused = report.refused.iter().filter(|line| own(line.tier)).count();
            let of = |value: Option<f64>| number(value.filter(|_| loss.count > 0));
            el("tr")
                .set("data-tier", tier.map_or("all".to_owned(), |tier| tier.to_string()))
                .with(row_head(tier.map_or("All".to_owned(), |tier| format!("Tier {tier}"))))
                .with(count(sum(|line| line.asked)))
                .with(count(sum(|line| line.delivered)))
                .with(count(sum(|line| line.late)))
                .with(count(sum(|line| line.silent)))
                .with(count(refused as u64))
                .with(count(held.len() as u64))
                .with(of(loss.mean))
                .with(of(loss.variance))
                .with(of(loss.worst10))
                .with(of(loss.best10))
                .with(accuracy.shown_mean().map_or_else(
                    || cell("–"),
                    |share| el("td").set("data-value", share).text(percent(share)),
                ))
        };
    let what = match report.purpose.as_str() {
        "evaluate" => "Scores of the final model".to_owned(),
        _ => format!("Round {}, {} s", report.round, shown(report.seconds)),
    };
    table(&what, &columns, (0..report.loss_by_tier.len()).map(Some).chain([None]).map(row))
}

fn course(view: &View<'_>) -> Element {
    let history = view.history;
    if history.rounds.len() < 2 {
        return el("p").text("Plots follow after two rounds.");
    }
    let rounds = || history.rounds.iter();
    let by = |value: &dyn Fn(&RoundFigures) -> Option<f64>| -> Vec<(u32, Option<f64>)> {
        rounds().map(|round| (round.round, value(round))).collect()
    };
    let target = rounds().rev().find_map(|round| round.fairness).map(|knob| knob.target);
    let tiers =
        history.rounds.iter().zip(&history.disparity).map(|(round, value)| (round.round, *value)).collect();
    let measured = by(&|round| round.fairness.and_then(|knob| knob.measured));
    let (lines, caption) = match target {
        // Its losses are of other samples than those of the table, or of more rounds.
        Some(_) => (
            vec![
                Curve { index: 0, name: "held against the target", points: measured },
                Curve { index: 2, name: "reported losses", points: tiers },
            ],
            "Dashed: the target. Blue-grey: what is held against it. Orange: of the losses that devices report.",
        ),
        None => (
            vec![Curve { index: 0, name: "disparity", points: tiers }],
            "Standard deviation of tier losses over their mean.",
        ),
    };
    let mut panels = vec![
        plot(curves("Disparity between tiers", "disparity", lines, target), caption),
        plot(
            curves(
                "Mean loss",
                "mean loss",
                vec![
                    Curve { index: 0, name: "mean", points: by(&|round| round.loss.shown_mean()) },
                    Curve { index: 2, name: "worst tenth", points: by(&|round| round.loss.worst10) },
                ],
                None,
            ),
            "Blue-grey: mean over devices. Orange: mean of the worst tenth.",
        ),
        plot(
            curves(
                "Mean accuracy",
                "mean accuracy",
                vec![Curve { index: 1, name: "mean", points: by(&|round| round.accuracy.shown_mean()) }],
                None,
            ),
            "Over devices with test samples.",
        ),
    ];
    if target.is_some() {
        let knob = by(&|round| round.fairness.map(|knob| knob.value));
        panels.push(plot(
            curves("Knob", "the knob", vec![Curve { index: 3, name: "knob", points: knob }], None),
            "The parameter that the target drives.",
        ));
    }
    el("div").class("panels").all(panels)
}

fn token_form(csrf: &str) -> Element {
    let field = |label: &str, name: &str, kind: &str, value: &str| {
        el("label").text(label).with(
            el("input").set("name", name).set("type", kind).set("value", value).set("required", "required"),
        )
    };
    el("form")
        .set("method", "post")
        .set("action", "/actions/token")
        .with(el("h3").text("A token with which a device enrols itself, once"))
        .with(el("input").set("type", "hidden").set("name", "csrf").set("value", csrf))
        .with(field("Device", "device", "text", "").set("class", "field"))
        .with(field("Valid for hours", "hours", "number", "24").set("class", "field"))
        .with(el("button").set("type", "submit").text("Issue a token"))
}

fn export_form(view: &View<'_>, csrf: &str) -> Element {
    let option = |tier: usize| el("option").set("value", tier).text(format_args!("Tier {tier}"));
    el("form")
        .set("method", "post")
        .set("action", "/actions/export")
        .with(el("h3").text("The present model as ONNX"))
        .with(el("input").set("type", "hidden").set("name", "csrf").set("value", csrf))
        .with(
            el("label").class("field").text("Part").with(
                el("select")
                    .set("name", "tier")
                    .with(el("option").set("value", "").text("The whole model"))
                    .all((0..view.tiers()).map(option)),
            ),
        )
        .with(el("button").set("type", "submit").text("Export"))
}
