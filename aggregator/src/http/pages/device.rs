//! One device: all that is known of it, and what to do about it.

use common::Code;
use plots::{
    markup::{Element, el},
    number::{figure, percent},
};

use super::parts::{Curve, Part, button, curves, fact, plot, prose, shown, span};
use crate::{
    ca::MemberState,
    http::view::{DeviceRow, View},
    live::Answer,
    remedies::remedy,
};

pub(super) fn parts(view: &View<'_>, name: &str) -> Vec<Part> {
    let row = view.device(name);
    if !row.is_known() {
        let none = el("p").text(format_args!("{name} is not a member, and no round has it."));
        return vec![Part::fixed("unknown", "Not known", [none])];
    }
    let mut parts = vec![Part::live("facts", "Now", [facts(view, &row)])];
    if let Some(refusal) = refusal(&row) {
        parts.push(Part::live("refusal", "Why it was refused", [refusal]));
    }
    parts.push(Part::live("course", "Over rounds", [course(&row)]));
    if let Some(user) = view.operates()
        && let Some(id) = row.id()
        && row.member.is_some_and(|member| member.state != MemberState::Revoked)
    {
        let revoke = el("div")
            .with(el("p").text(
                "Its certificate, key and open tokens become invalid at once, its connection is closed, and the run no longer \
                 waits for it. It cannot be undone: the device needs a new identity.",
            ))
            .with(button("/actions/revoke", &user.csrf, &[("device", id.as_str())], "Revoke this device"));
        parts.push(Part::fixed("actions", "Actions", [revoke]));
    }
    parts
}

fn facts(view: &View<'_>, row: &DeviceRow<'_>) -> Element {
    let past = row.past;
    let place = past.and_then(|past| view.history.place(past)).map_or("–".to_owned(), |place| {
        format!("{place} of {}, 1 has the lowest loss", view.history.losses.len())
    });
    let loss = match (past, row.loss()) {
        (Some(past), Some(loss))
            if view.history.shown().is_some_and(|report| report.round != past.reported_in) =>
        {
            format!("{}, of round {}", figure(loss), past.reported_in)
        }
        (_, loss) => shown(loss),
    };
    let count = |number: Option<u32>| number.map_or("0".to_owned(), |number| number.to_string());
    let open = row.live.map(|live| match live.answer {
        Answer::NotAsked => "not asked".to_owned(),
        Answer::Works => "works".into(),
        Answer::Queued => "its update waits for its turn".into(),
        Answer::Uploads => "its update is on its way".into(),
        Answer::Delivered if live.late => "delivered, after the deadline".into(),
        Answer::Delivered => "delivered".into(),
        Answer::Refused(code) => format!("refused ({code})"),
        Answer::Absent => "has not answered, and is no longer waited for".into(),
    });
    let waits = view
        .live
        .iter()
        .flat_map(|live| &live.waiting)
        .find(|wait| wait.device.as_str() == row.name)
        .and_then(|wait| wait.until)
        .map(|until| span((until - view.now).max(0.0)));
    let ends = row.expires().map_or("unknown".to_owned(), |end| {
        let left = end as f64 - view.now;
        if left > 0.0 { format!("in {}", span(left)) } else { format!("{} ago", span(left)) }
    });
    let seen = match (row.last_seen(), row.refused) {
        (Some(at), _) => format!("{} ago", span(view.now - at)),
        (None, Some(_)) => "refused since the gateway was started, so it has not joined the run".to_owned(),
        (None, None) => "not since the gateway was started".to_owned(),
    };
    let rounds = view.history.counted;
    el("dl").all(
        [
            fact("State", row.state().name()),
            fact("Tier", row.tier.map_or("–".to_owned(), |tier| tier.to_string())),
            fact("In the open exchange", open.unwrap_or_else(|| "–".into())),
            fact("Waited for", waits.map_or("no".to_owned(), |left| format!("at most {left} more"))),
            fact("Last seen", seen),
            fact("Loss", loss),
            fact("Place in the fleet", place),
            fact("Accuracy", past.and_then(|past| past.accuracy).map_or("–".into(), percent)),
            fact("Training samples", past.map_or("–".to_owned(), |past| past.samples.to_string())),
            fact("Weight in its last round", past.and_then(|past| past.weight).map_or("–".into(), figure)),
            fact("Rounds taken part", format_args!("{} of the last {rounds}", row.delivered())),
            fact("Rounds without an answer", row.dropped()),
            fact("Rounds in which it was refused", count(past.map(|past| past.refused))),
            fact("Rounds in which the guard limited it", count(past.map(|past| past.held))),
            fact("Certificate ends", ends),
        ]
        .into_iter()
        .flatten(),
    )
}

fn refusal(row: &DeviceRow<'_>) -> Option<Element> {
    let number = row.code()?;
    let last = row.past.and_then(|past| past.last_refusal.as_ref()).filter(|last| last.code == number);
    let when = last.map_or(String::new(), |last| format!(" In round {}.", last.round));
    let text = match Code::of(number) {
        Some(code) => format!("{code}.{when} {}", remedy(code)),
        None => format!("E{number:02}{}.{when}", last.map_or(String::new(), |last| format!(" {}", last.why))),
    };
    Some(prose(el("p"), &text))
}

fn course(row: &DeviceRow<'_>) -> Element {
    let Some(past) = row.past.filter(|past| past.points.len() > 1) else {
        return el("p").text("Plots follow after two rounds.");
    };
    let line = |index, name, value: fn(&crate::http::history::DevicePoint) -> Option<f64>| {
        vec![Curve {
            index,
            name,
            points: past.points.iter().map(|point| (point.round, value(point))).collect(),
        }]
    };
    el("div").class("panels").all([
        plot(curves("Loss", "loss", line(0, "loss", |point| point.loss), None), "As the device reports it."),
        plot(
            curves("Weight", "weight", line(1, "weight", |point| point.weight), None),
            "Its share in the new model.",
        ),
    ])
}
