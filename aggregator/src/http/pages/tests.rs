use std::{fs, sync::Arc};

use serde_json::{Value, json};

use super::*;
use crate::{
    config::Config,
    http::{
        access::{Role, User},
        history::RunHistory,
        members::MemberList,
    },
};

const HOSTILE: &str = "<script>alert('x')</script>\"&\r\n";

/// A history of `rounds` rounds with this many devices and tiers; the last device has a hostile name.
fn history(devices: usize, tiers: usize, rounds: u32) -> (tempfile::TempDir, RunHistory) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("store")).unwrap();
    let name =
        |number: usize| if number + 1 == devices { HOSTILE.to_owned() } else { format!("cam-{number:05}") };
    let line = |round: u32| -> Value {
        let summary = json!({ "count": 9, "mean": 1.0 / f64::from(round), "variance": 0.25, "worst10": 2.0, "best10": 0.5 });
        json!({
            "round": round, "purpose": "train", "seconds": 1.5, "loss": summary, "accuracy": summary,
            "loss_by_tier": vec![summary.clone(); tiers], "accuracy_by_tier": vec![summary.clone(); tiers],
            "participation": vec![json!({ "asked": 9, "delivered": 8, "silent": 1 }); tiers],
            "weight_by_tier": vec![1.0 / tiers as f64; tiers],
            "traffic": { "up": 5_000_000, "down": 7_000_000 },
            "traffic_by_tier": vec![json!({ "up": 5_000_000, "down": 7_000_000 }); tiers],
            "devices": (0..devices).map(|number| json!({
                "device": name(number), "tier": number % tiers, "samples": 10, "loss_before": 1.5, "weight": 0.001,
            })).collect::<Vec<_>>(),
            "refused": [{ "device": HOSTILE, "tier": 0, "code": 999, "why": HOSTILE }],
            "guard": [{ "device": HOSTILE, "tier": 0, "what": HOSTILE, "said": 1.0, "counted": 0.5, "why": HOSTILE }],
        })
    };
    let text: String = (1..=rounds).map(|round| line(round).to_string() + "\n").collect();
    fs::write(dir.path().join("store/history.jsonl"), text).unwrap();
    let mut history = RunHistory::new(dir.path());
    history.refresh().unwrap();
    assert_eq!(history.committed(), rounds);
    (dir, history)
}

fn all(history: &RunHistory) -> Vec<Page> {
    let report = history.last.as_ref().map(|report| Arc::new(ReportOf((**report).clone())));
    let what_if = WhatIf { strategy: HOSTILE.into(), params: HOSTILE.into(), result: Err(HOSTILE.into()) };
    let round = RoundPage { round: 2, page: 1, report, recorded: true, what_if: Some(what_if) };
    let query = DevicesQuery {
        q: "<".into(),
        sort: HOSTILE.into(),
        order: HOSTILE.into(),
        ..DevicesQuery::default()
    };
    vec![
        Page::Overview,
        Page::Tiers,
        Page::Devices(DevicesQuery::default()),
        Page::Devices(query),
        Page::Device(HOSTILE.into()),
        Page::Device("cam-00000".into()),
        Page::Rounds(1),
        Page::Round(Box::new(round)),
    ]
}

fn html(page: &Page, history: &RunHistory, config: &Config) -> String {
    let user = User { name: HOSTILE.into(), role: Role::Operator, csrf: "0".into() };
    let view = View {
        now: 1e9,
        live: None,
        phases: vec![],
        run: HOSTILE,
        shapes: &[],
        history,
        members: Arc::new(MemberList::new()),
        config,
        disk: Some((1, 100)),
        user: Some(&user),
        actions: true,
        strategies: &["fedavg"],
        said: Some(HOSTILE),
    };
    page.html(&view)
}

#[test]
fn text_from_devices_and_requests_never_becomes_markup() {
    let (_dir, history) = history(3, 2, 2);
    for page in all(&history) {
        let html = html(&page, &history, &Config::default());
        assert!(!html.contains("<script>") && !html.contains("alert('x')<"), "{page:?}: {html}");
        assert!(!html.contains("style=\"") && !html.contains(" onclick"), "{page:?}");
        // One of each, or a screen reader is lost.
        for tag in ["<main", "<h1", "<header", "<footer"] {
            assert_eq!(html.matches(tag).count(), 1, "{tag}");
        }
        for table in html.split("<table").skip(1) {
            assert!(table.contains("<caption>") && table.contains("scope=\"col\""), "{page:?}");
        }
    }
}

#[test]
fn pages_of_large_fleets_stay_small() {
    let (_dir, history) = history(10_000, 32, 3);
    for page in all(&history) {
        let html = html(&page, &history, &Config::default());
        assert!(html.len() < 150_000, "{page:?}: {} bytes", html.len());
    }
}

#[test]
fn a_list_is_sorted_searched_and_divided_into_pages() {
    let (_dir, history) = history(120, 2, 2);
    let config = Config::default();
    let rows = |query: DevicesQuery| {
        let html = html(&Page::Devices(query), &history, &config);
        let names = html.split("data-device=\"").skip(1).map(|row| row.split('"').next().unwrap().to_owned());
        (names.collect::<Vec<_>>(), html)
    };
    let (first, html) = rows(DevicesQuery::default());
    assert_eq!((first.len(), &*first[1]), (50, "cam-00000"));
    assert!(html.contains("aria-sort=\"ascending\"") && html.contains("Devices 1 to 50 of 120"), "{html}");
    let (down, html) = rows(DevicesQuery { order: "down".into(), ..DevicesQuery::default() });
    assert_eq!(&*down[0], "cam-00118");
    assert!(html.contains("aria-sort=\"descending\""));
    let (last, _) = rows(DevicesQuery { page: Some(99), ..DevicesQuery::default() });
    assert_eq!(last.len(), 20);
    let (found, _) = rows(DevicesQuery { q: "CAM-0001".into(), ..DevicesQuery::default() });
    assert_eq!(found.len(), 10);
    // The last device was refused in tier 0 later.
    let (tier, _) = rows(DevicesQuery { tier: "1".into(), page: Some(2), ..DevicesQuery::default() });
    assert_eq!(tier.len(), 9);
}
