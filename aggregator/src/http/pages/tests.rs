use std::{fs, sync::Arc};

use coordinator::{Gathering, PhaseName};
use serde_json::{Value, json};

use super::*;
use crate::{
    ca::MemberState,
    config::Config,
    http::{
        access::{Role, User},
        alerts::alerts,
        history::RunHistory,
        members::{Member, MemberList},
    },
    live::{Answer, LiveDevice, LiveExchange, LiveRefusal, LiveTier, LiveView, LiveWait},
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
        server_expires: None,
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

/// One exchange of round 3, with a tier without quorum.
fn live(now: f64) -> LiveView {
    let device = |name: &str, answer| LiveDevice {
        device: name.parse().unwrap(),
        tier: 0,
        connected: true,
        last_seen: Some(now - 7.0),
        answer,
        late: false,
    };
    LiveView {
        at: now,
        run: "1".into(),
        phase: PhaseName::Collecting,
        since: now - 300.0,
        paused: false,
        committed: 2,
        rounds: 9,
        exchange: Some(LiveExchange {
            round: 3,
            number: 0,
            kind: "train",
            evaluates: false,
            opened: now - 300.0,
            until: now - 100.0,
            overdue: false,
        }),
        gathering: None,
        waits_long: true,
        waiting: vec![LiveWait {
            device: "cam-00001".parse().unwrap(),
            tier: 0,
            silent_since: None,
            until: Some(now + 60.0),
        }],
        waiting_count: 1,
        tiers: vec![LiveTier {
            devices: 2,
            connected: 2,
            asked: 2,
            delivered: 1,
            quorum: 0.75,
            until: Some(now - 100.0),
            ..LiveTier::default()
        }],
        devices: vec![device("cam-00000", Answer::Delivered), device("cam-00001", Answer::Works)],
        refusals: vec![LiveRefusal {
            device: "board-7".parse().unwrap(),
            by_device: false,
            code: common::Code::DoesNotFit,
        }],
    }
}

#[test]
fn alerts_say_what_is_wrong_and_with_whom() {
    let (_dir, history) = history(3, 1, 2);
    let (config, now) = (Config::default(), 1e9);
    let expires = |after: i64| Some((now as i64 + after) as u64);
    let member = |state, after| Member { state, expires: expires(after) };
    let members = MemberList::from([
        ("cam-00000".to_owned(), member(MemberState::Expired, -5)),
        ("cam-00001".to_owned(), member(MemberState::Member, 86_400)),
        ("cam-00002".to_owned(), member(MemberState::Member, 86_400 * 300)),
        ("cam-00003".to_owned(), Member { state: MemberState::Damaged, expires: None }),
    ]);
    let mut view = View {
        now,
        live: Some(Arc::new(live(now))),
        phases: vec![],
        run: "default",
        shapes: &[],
        history: &history,
        members: Arc::new(members),
        server_expires: expires(86_400 * 10),
        config: &config,
        disk: Some((1 << 29, 1 << 40)),
        user: None,
        actions: false,
        strategies: &[],
        said: None,
    };
    let said =
        |view: &View<'_>| -> Vec<String> { alerts(view).into_iter().map(|alert| alert.text).collect() };
    let found = said(&view);
    for wanted in [
        "Tier 0 has no quorum: 1 of 2 devices have delivered, 75 % are needed.",
        "Round 3 waits for cam-00001, at most 60 s more. It is open for 5 min.",
        "The disk of the gateway is nearly full: 0.5 of 1099.5 GB are free.",
        "The certificate has expired: cam-00000.",
        "The file in identity/ cannot be read, so the device is refused: `fairtier gateway enroll --replace` makes a new one: \
         cam-00003.",
        "The certificate ends within 14 days, and a connected device renews it by itself: cam-00001.",
        "The server's certificate ends in 10 days: `fairtier gateway rotate-server-key` makes a new one.",
        "board-7 is refused: E33 no tier fits the device's budget.",
        &format!("The guard limited {HOSTILE} in round 2."),
    ] {
        assert!(found.iter().any(|text| text == wanted), "{wanted}: {found:#?}");
    }
    assert_eq!(found.len(), 9, "{found:#?}");
    let html = Page::Overview.html(&view);
    assert!(
        html.contains("its deadline passed 2 min ago") && html.contains("Tier 0 has no quorum"),
        "{html}"
    );
    // Before a round: who is missing, and for how long.
    let gathering = Some(Gathering { have: 2, need: 4 });
    let waits = LiveView { phase: PhaseName::Gathering, exchange: None, gathering, ..live(now) };
    view.live = Some(Arc::new(waits));
    let found = said(&view);
    let wanted =
        "The next round waits for devices: 2 of 4 are connected, for 5 min so far. Not connected: cam-00002.";
    assert!(found.iter().any(|text| text == wanted), "{found:#?}");
    (view.live, view.disk, view.server_expires) = (None, None, None);
    view.members = Arc::default();
    assert_eq!(said(&view).len(), 1, "the guard's finding stays");
}

#[test]
fn pages_of_large_fleets_and_long_runs_stay_small() {
    for (devices, rounds) in [(10_000, 3), (60, 1000)] {
        let (_dir, history) = history(devices, 32, rounds);
        for page in all(&history) {
            let html = html(&page, &history, &Config::default());
            assert!(html.len() < 150_000, "{page:?}: {} bytes", html.len());
        }
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
