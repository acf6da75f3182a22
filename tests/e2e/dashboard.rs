//! The dashboard of a gateway under real rounds: what it shows is what `status` says, in a real browser, and no client
//! disturbs a round.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::Command,
    time::Duration,
};

use common::message::ToAggregator;
use fleet::{
    browser::Browser,
    gateway::{Gateway, Serving},
    process::{Process, wait_for},
    raw::{Raw, hello, honest, tls},
    tools,
};
use serde_json::Value;

/// Says what a reader cannot read on a page.
const AUDIT: &str = include_str!("dashboard/audit.js");
const PASSWORD: &str = "correct horse battery";

/// Address of the dashboard, without `http://` and the slash.
fn dashboard(serving: &mut Serving) -> String {
    let line = serving.process.wait_line("dashboard on http://");
    line.trim().trim_end_matches('/').rsplit('/').next().unwrap().to_owned()
}

fn send(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // A connection that is closed early has answered before.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = vec![];
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(address: &str, path: &str, more: &str) -> String {
    send(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{more}\r\n"))
}

fn post(address: &str, path: &str, more: &str, form: &str) -> String {
    send(
        address,
        &format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n{more}\r\n{form}",
            form.len()
        ),
    )
}

fn code(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

/// The value that follows a text.
fn after<'a>(text: &'a str, marker: &str) -> &'a str {
    let rest = text.split_once(marker).unwrap_or_else(|| panic!("{marker} is missing in {text}")).1;
    rest.split('"').next().unwrap()
}

fn value_of(page: &str, key: &str) -> f64 {
    after(page, &format!("data-key=\"{key}\" data-value=\"")).parse().unwrap()
}

fn add_account(gateway: &Gateway, name: &str, role: &str) {
    let dir = gateway.text("gw");
    let mut child = Command::new(fleet::process::program())
        .args(["gateway", "dashboard", "user", "add", "--dir", &dir, "--role", role, name])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(format!("{PASSWORD}\n").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// The cookie of a session.
fn log_in(address: &str, name: &str) -> String {
    let form = format!("name={name}&password={}", PASSWORD.replace(' ', "+"));
    let answer = post(address, "/login", &format!("Origin: http://{address}\r\n"), &form);
    assert_eq!(code(&answer), "303", "{answer}");
    let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    cookie.split(';').next().unwrap().to_owned()
}

fn status(gateway: &Gateway) -> Value {
    let dir = gateway.text("gw");
    let text = Process::start("status", "gateway", &["status", "--dir", &dir, "--format", "json"]).succeed();
    serde_json::from_str(&text).unwrap()
}

/// Rows of a table: what `data-KEY` says, and the numbers of its cells.
fn rows(page: &str, key: &str) -> BTreeMap<String, Vec<f64>> {
    let start = format!("<tr data-{key}=\"");
    let rows = page.split(&start).skip(1);
    let row = |row: &str| {
        let (name, rest) = row.split_once('"').unwrap();
        let cells = rest.split("</tr>").next().unwrap().split("data-value=\"").skip(1);
        let numbers = cells.map(|cell| cell.split('"').next().unwrap().parse().unwrap());
        (name.to_owned(), numbers.collect())
    };
    rows.map(row).collect()
}

/// The numbers of one row of the last round, from the status. `tier`: absent for all devices.
fn expected(round: &Value, tier: Option<usize>) -> Vec<f64> {
    let all = round["participation"].as_array().unwrap();
    let own = |at: usize| tier.is_none_or(|tier| tier == at);
    let sum = |key: &str| -> f64 {
        all.iter().enumerate().filter(|(at, _)| own(*at)).map(|(_, line)| line[key].as_f64().unwrap()).sum()
    };
    let of = |key: &str| -> Vec<&Value> {
        let lines = round[key].as_array().map_or(&[][..], Vec::as_slice).iter();
        lines.filter(|line| line["tier"].as_u64().is_some_and(|at| own(at as usize))).collect()
    };
    let held: BTreeSet<_> = of("guard").iter().filter_map(|line| line["device"].as_str()).collect();
    let [loss, accuracy] = match tier {
        Some(tier) => [&round["loss_by_tier"][tier], &round["accuracy_by_tier"][tier]],
        None => [&round["loss"], &round["accuracy"]],
    };
    let counts = [
        sum("asked"),
        sum("delivered"),
        sum("late"),
        sum("silent"),
        of("refused").len() as f64,
        held.len() as f64,
    ];
    let losses = ["mean", "variance", "worst10", "best10"].map(|key| loss[key].as_f64().unwrap());
    [&counts[..], &losses, &[accuracy["mean"].as_f64().unwrap()]].concat()
}

/// Twenty devices in three tiers, of which one is late, later silent, and one is revoked, and one more that is refused.
#[test]
fn numbers_on_the_page_are_those_of_status_and_a_device_is_revoked_on_it() {
    let names: Vec<String> = (0..19).map(|number| format!("cam-{number:02}")).collect();
    let mut all: Vec<&str> = names.iter().map(String::as_str).collect();
    all.extend(["late", "small"]);
    let tiers: String = names.iter().enumerate().map(|(at, name)| format!("{name} = {}\n", at % 3)).collect();
    let config = |quorum: &str| {
        format!(
            "run = {{ rounds = 60, min_devices = 20 }}\nround = {{ deadline_s = 2.0, quorum = {quorum} }}\nstore = {{ record = true }}\n\
             [model]\nsource = \"digits-mlp\"\ntiers = [1.0, 0.5, 0.25]\n[devices]\nlate = 1\n{tiers}"
        )
    };
    // All devices of tier 1 must deliver, so that the first round waits for the late one.
    let gateway = Gateway::new(&config("[0.5, 1.0, 0.5]"), &all);
    add_account(&gateway, "ann", "operator");
    let mut serving = gateway.serve("127.0.0.1:0", &["--dashboard", "127.0.0.1:0", "--dashboard-actions"]);
    let address = dashboard(&mut serving);
    let page = get(&address, "/", "");
    assert!(page.contains("Round 1 waits for devices: 0 of 20 are connected"), "{page}");

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let raw = |name: &str| {
        let identity = fs::read(gateway.identity(name)).unwrap();
        runtime.block_on(Raw::connect(&serving.address, tls(&identity, false))).unwrap()
    };
    // One is refused: no tier fits its memory.
    let mut small = raw("small");
    let mut tiny = hello("small");
    tiny.budget.ram = 16;
    runtime.block_on(small.say(&ToAggregator::Hello(tiny)));
    let refused = wait_for("the page to show the refused device", || {
        let page = get(&address, "/devices?q=small", "");
        page.contains("data-state=\"refused\"").then_some(page)
    });
    assert!(refused.contains("E33 no tier fits"), "{refused}");
    assert!(get(&address, "/device?name=small", "").contains("no tier fits"));

    let mut late = raw("late");
    let welcome = runtime.block_on(late.join(hello("late")));
    let mut browser = Browser::start();
    if let Some(browser) = &mut browser {
        browser.open(&format!("http://{address}/"));
    }
    let devices: Vec<Process> = names
        .iter()
        .enumerate()
        .map(|(number, name)| gateway.device(&serving, name, &format!("{number}/20"), &[]))
        .collect();
    // The first round waits for one, which answers after the deadline.
    let task = runtime.block_on(late.assignment());
    let waits = wait_for("the page to show what the round waits for", || {
        let page = get(&address, "/", "");
        page.contains("Round 1 waits for late").then_some(page)
    });
    assert!(
        waits.contains("Tier 1 has no quorum: 6 of 7 devices have delivered, 100 % are needed."),
        "{waits}"
    );

    // Without a login nothing is changed, nor by a form of another session or another page.
    let form = "csrf=0&device=cam-18";
    let origin = format!("Origin: http://{address}\r\n");
    assert_eq!(code(&post(&address, "/actions/revoke", &origin, form)), "403");
    let cookie = log_in(&address, "ann");
    let session = format!("Cookie: {cookie}\r\n");
    let page = get(&address, "/device?name=cam-18", &session);
    let csrf = after(&page, "name=\"csrf\" value=\"").to_owned();
    for (headers, form) in [
        (format!("{session}{origin}"), "csrf=0&device=cam-18".to_owned()),
        (session.clone(), format!("csrf={csrf}&device=cam-18")),
        (format!("{session}Origin: http://evil.example\r\n"), format!("csrf={csrf}&device=cam-18")),
    ] {
        assert_eq!(code(&post(&address, "/actions/revoke", &headers, &form)), "403", "{headers}");
    }
    let headers = format!("{session}{origin}");
    let act = |action: &str, more: &str| {
        let done = post(&address, &format!("/actions/{action}"), &headers, &format!("csrf={csrf}{more}"));
        assert_eq!(code(&done), "303", "{done}");
    };
    act("pause", "");
    let (offer, update) = honest(&task, &welcome);
    assert_eq!(runtime.block_on(late.deliver(&offer, &update)), None);
    let page = wait_for("the run to rest", || {
        let page = get(&address, "/", "");
        page.contains("Paused: 1 of 60 rounds committed").then_some(page)
    });
    let first = status(&gateway);
    assert!(first["last_round"]["participation"][1]["late"].as_f64() >= Some(1.0), "{first}");
    compare(&address, &page, &first);

    // From now on it does not answer, and no round waits for it beyond the deadline.
    fs::write(gateway.path("gw/fairtier.toml"), config("0.5")).unwrap();
    serving.process.signal("HUP");
    wait_for("the configuration", || serving.process.output().contains("configuration read").then_some(()));
    act("resume", "");
    wait_for("the page to name the device that did not answer", || {
        let page = get(&address, "/", "");
        (page.contains("did not answer in time") && page.contains(">late</a>")).then_some(())
    });
    gateway.wait_committed(3);

    // The run rests meanwhile, however slow the browser is.
    act("pause", "");
    let connected = || value_of(&get(&address, "/", ""), "connected");
    let before = connected();
    match &mut browser {
        Some(browser) => revoke_in(browser, &address),
        None => act("revoke", "&device=cam-18"),
    }
    wait_for("the revoked device to be disconnected", || (connected() < before).then_some(()));
    act("resume", "");
    wait_for("the log to name the user", || {
        serving.process.output().contains("revoked on the dashboard").then_some(())
    });
    let page = wait_for("the page to show the revoked device", || {
        let page = get(&address, "/device?name=cam-18", &session);
        page.contains("<dd>revoked</dd>").then_some(page)
    });
    assert!(!page.contains("/actions/revoke"), "a revoked device cannot be revoked again");

    // The run ends, and nothing changes any more.
    let last = wait_for("the final scores", || {
        let status = status(&gateway);
        (status["finished"] == true).then_some(status)
    });
    let page = wait_for("the page to show the final scores", || {
        let page = get(&address, "/", "");
        let all = page.contains("Scores of the final model")
            && value_of(&page, "committed") == last["committed"].as_f64().unwrap();
        all.then_some(page)
    });
    compare(&address, &page, &last);
    let heard = last["last_round"]["devices"].as_array().unwrap();
    let revoked = heard.iter().any(|line| line["device"] == "cam-18");
    assert!(!revoked && heard.len() >= 18, "the revoked device is heard: {heard:?}");
    // What another strategy would have done with a recorded round.
    let what_if = get(&address, "/round?number=2&strategy=heterofl", "");
    assert!(what_if.contains("heterofl would have moved the model by"), "{what_if}");
    for path in PAGES {
        let page = get(&address, path, "");
        assert_eq!(code(&page), "200", "{path}");
        assert!(page.len() < 150_000 && !page.contains("NaN"), "{path}: {} bytes", page.len());
        assert!(page.contains("content-security-policy: default-src 'none'"), "{path}");
        assert!(
            !page.contains("unsafe-inline") && !page.contains("style=") && !page.contains("onclick"),
            "{path}"
        );
    }
    if let Some(browser) = &mut browser {
        read_in(browser, &address);
    }
    drop((small, late, devices));
}

const PAGES: [&str; 7] = [
    "/",
    "/tiers",
    "/devices?sort=loss&order=down",
    "/device?name=cam-04",
    "/device?name=late",
    "/rounds",
    "/round?number=2&strategy=fedavg",
];

/// Every number of the overview, and the losses of all devices, beside the status.
fn compare(address: &str, page: &str, status: &Value) {
    let round = &status["last_round"];
    assert_eq!(value_of(page, "committed"), status["committed"].as_f64().unwrap());
    assert_eq!(value_of(page, "loss"), round["loss"]["mean"].as_f64().unwrap());
    assert_eq!(value_of(page, "accuracy"), round["accuracy"]["mean"].as_f64().unwrap());
    let means: Vec<f64> =
        round["loss_by_tier"].as_array().unwrap().iter().map(|tier| tier["mean"].as_f64().unwrap()).collect();
    let worst = (0..means.len()).max_by(|a, b| means[*a].total_cmp(&means[*b])).unwrap();
    assert_eq!(value_of(page, "worst-tier"), worst as f64);
    let of_tiers = rows(page, "tier");
    assert_eq!(of_tiers["all"], expected(round, None));
    for tier in 0..3 {
        assert_eq!(of_tiers[&tier.to_string()], expected(round, Some(tier)), "tier {tier}");
    }
    let listed = rows(&get(address, "/devices", ""), "device");
    let heard = round["devices"].as_array().unwrap();
    let loss = |line: &Value| line["test_loss"].as_f64().or(line["loss_before"].as_f64()).unwrap();
    for line in heard {
        let name = line["device"].as_str().unwrap();
        // Its tier and its loss.
        assert_eq!(listed[name][..2], [line["tier"].as_f64().unwrap(), loss(line)], "{name}");
    }
    let worst = heard.iter().max_by(|a, b| loss(a).total_cmp(&loss(b))).unwrap();
    let name = worst["device"].as_str().unwrap();
    let first = page
        .split(&format!("The highest losses of {} devices", heard.len()))
        .nth(2)
        .unwrap()
        .split("scope=\"row\"")
        .nth(1)
        .unwrap();
    assert!(first.split("</a>").next().unwrap().ends_with(name), "{name} is worst off, and first is {first}");
}

/// An operator follows the run, logs in and revokes a device, with the keyboard.
fn revoke_in(browser: &mut Browser, address: &str) {
    // The page was opened before the first round, and was not loaded again.
    browser.wait("Number(document.querySelector('[data-key=committed]').dataset.value) >= 3");
    browser.wait("document.getElementById('connection').textContent === 'This page follows the run.'");
    browser.open(&format!("http://{address}/login"));
    browser.fill("input[name=name]", "ann");
    browser.fill("input[name=password]", PASSWORD);
    browser.leave(|browser| browser.press("Enter"));
    assert_eq!(browser.text("location.pathname"), "/");
    browser.open(&format!("http://{address}/devices?q=cam-18"));
    browser.value("document.querySelector('[data-device=cam-18] a').focus()");
    browser.leave(|browser| browser.press("Enter"));
    browser.value("document.querySelector('form[action=\"/actions/revoke\"] button').focus()");
    browser.leave(|browser| browser.press("Enter"));
    let said = browser.text("document.querySelector('.said').textContent");
    assert_eq!(said, "cam-18 is revoked. Its connection is closed within seconds.");
    // The address is a page's, so that loading it again repeats nothing.
    assert_eq!(browser.text("location.pathname"), "/device");
    browser.wait("[...document.querySelectorAll('dd')].some(fact => fact.textContent === 'revoked')");
    assert_eq!(browser.take_errors(), [""; 0]);
}

/// Pages can be read on every screen, in both themes, with a keyboard, with a screen reader, and without scripts.
fn read_in(browser: &mut Browser, address: &str) {
    let folder = std::env::var_os("FAIRTIER_SCREENSHOTS");
    for path in PAGES {
        browser.open(&format!("http://{address}{path}"));
        for width in [390, 768, 1440] {
            for (dark, theme) in [(false, "light"), (true, "dark")] {
                browser.screen(width, dark);
                let found = browser.value(&format!("({AUDIT})({width})"));
                assert_eq!(found, serde_json::json!([]), "{path}, {width} px, {theme}");
                // Set FAIRTIER_SCREENSHOTS to a folder to look at the pages.
                if let Some(folder) = &folder {
                    let name: String =
                        path.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
                    browser.picture(&Path::new(folder).join(format!("{name}-{width}-{theme}.png")));
                }
            }
        }
        // What can be clicked or filled in, tables and plots have names.
        let tree = browser.call("Accessibility.getFullAXTree", serde_json::json!({}));
        for node in tree["nodes"].as_array().unwrap().iter().filter(|node| node["ignored"] == false) {
            let role = node["role"]["value"].as_str().unwrap_or_default();
            let needs = [
                "link",
                "button",
                "textbox",
                "searchbox",
                "combobox",
                "spinbutton",
                "table",
                "region",
                "image",
            ];
            let name = node["name"]["value"].as_str().unwrap_or_default().trim();
            assert!(!needs.contains(&role) || !name.is_empty(), "{path}: {node}");
        }
        // Tab reaches all of them, and shows where it is. Parts of the page are not replaced meanwhile.
        browser.screen(1440, false);
        browser.value("document.getElementById('hold')?.click()");
        let all = browser.value(
            "[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, [tabindex]')]\
             .filter(element => element.checkVisibility()).length",
        );
        browser.value("document.activeElement.blur(), window.reached = new Set()");
        for step in 0..all.as_u64().unwrap() {
            browser.press("Tab");
            let shown = browser.value(
                "(element => { window.reached.add(element); const style = getComputedStyle(element); \
                 return element !== document.body && style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 1 })\
                 (document.activeElement)",
            );
            assert_eq!(shown, true, "{path}: step {step} of the keyboard is not seen");
        }
        assert_eq!(browser.value("window.reached.size"), all, "{path}");
    }
    assert_eq!(browser.take_errors(), [""; 0]);
    let own = format!("http://{address}/");
    for request in browser.requests() {
        assert!(
            request.starts_with(&own) || request.starts_with("data:") || request == "about:blank",
            "{request}"
        );
    }
    // Without scripts, the page has the same numbers and loads itself again.
    browser.open(&format!("http://{address}/"));
    let loss = browser.text("document.querySelector('[data-key=loss]').dataset.value");
    browser.call("Emulation.setScriptExecutionDisabled", serde_json::json!({ "value": true }));
    browser.open(&format!("http://{address}/"));
    assert_eq!(browser.text("document.querySelector('[data-key=loss]').dataset.value"), loss);
    assert_eq!(browser.text("document.querySelector('noscript meta').content"), "10");
    assert_eq!(browser.value("document.getElementById('hold').checkVisibility()"), false);
    browser.call("Emulation.setScriptExecutionDisabled", serde_json::json!({ "value": false }));
}

#[test]
fn actions_need_the_role_and_a_token_is_shown_once() {
    let gateway = Gateway::new("run = { rounds = 1000000, min_devices = 1 }", &["cam-0"]);
    let dir = gateway.text("gw");
    let listen = [
        "serve",
        "--dir",
        &dir,
        "--listen",
        "127.0.0.1:0",
        "--dashboard",
        "127.0.0.1:0",
        "--dashboard-actions",
    ];
    add_account(&gateway, "bob", "read");
    let output = Process::start("serve", "gateway", &listen).fail();
    assert!(output.contains("needs an operator"), "{output}");
    add_account(&gateway, "ann", "operator");
    // What operators do is logged at every level.
    let options = ["--dashboard", "127.0.0.1:0", "--dashboard-actions", "--log", "error"];
    let mut serving = gateway.serve("127.0.0.1:0", &options);
    let address = dashboard(&mut serving);
    let _device = gateway.device(&serving, "cam-0", "0/2", &[]);
    gateway.wait_committed(2);
    let headers_of = |name: &str| {
        let cookie = log_in(&address, name);
        (format!("Cookie: {cookie}\r\n"), format!("Cookie: {cookie}\r\nOrigin: http://{address}\r\n"))
    };
    let (ann, ann_acts) = headers_of("ann");
    let csrf = after(&get(&address, "/", &ann), "name=\"csrf\" value=\"").to_owned();
    let (bob, bob_acts) = headers_of("bob");
    let page = get(&address, "/", &bob);
    assert!(page.contains("bob (read)") && !page.contains("/actions/"), "{page}");
    for action in ["revoke", "token", "pause", "resume", "export"] {
        let own = after(&page, "name=\"csrf\" value=\"");
        let answer = post(
            &address,
            &format!("/actions/{action}"),
            &bob_acts,
            &format!("csrf={own}&device=cam-0&hours=1"),
        );
        assert!(code(&answer) == "403" && answer.contains("can only read"), "{action}: {answer}");
    }

    let act = |action: &str, more: &str| {
        let done = post(&address, &format!("/actions/{action}"), &ann_acts, &format!("csrf={csrf}{more}"));
        let to = done.lines().find_map(|line| line.strip_prefix("location: ")).map(|to| to.trim().to_owned());
        (done.clone(), to)
    };
    let (_, to) = act("pause", "");
    let page = get(&address, &to.unwrap(), &ann);
    assert!(page.contains("The run is paused") && page.contains("Resume the run"), "{page}");
    // The open round ends, and no other one begins.
    let page = wait_for("the run to rest", || {
        let page = get(&address, "/", &ann);
        page.contains(">Paused: ").then_some(page)
    });
    let rests_at = value_of(&page, "committed");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(value_of(&get(&address, "/", &ann), "committed"), rests_at);
    act("resume", "");
    wait_for("the run to go on", || {
        (value_of(&get(&address, "/", &ann), "committed") > rests_at + 1.0).then_some(())
    });

    let (_, to) = act("token", "&device=cam-9&hours=2");
    let to = to.unwrap();
    assert!(!get(&address, &to, &bob).contains("Token for"), "the session of another user");
    let page = get(&address, &to, &ann);
    let token = page
        .split_once("Token for cam-9, valid for 2 h and shown only now: ")
        .unwrap()
        .1
        .split('<')
        .next()
        .unwrap();
    assert!(!page.contains("http-equiv=\"refresh\""), "the token would vanish while it is copied");
    assert!(!get(&address, &to, &ann).contains(token), "it is shown once");
    for wrong in ["&device=cam-9&hours=0", "&device=..%2Fx&hours=1", "&device=cam-0&hours=1", ""] {
        let (answer, to) = act("token", wrong);
        assert!(code(&answer) == "422" && to.is_none(), "{wrong}: {answer}");
    }
    let (model, _) = act("export", "&tier=1");
    assert!(code(&model) == "200" && model.contains("filename=\"tier-1.onnx\""), "{}", &model[..300]);
    let log = serving.process.output();
    for line in [
        "issued a token on the dashboard",
        "paused on the dashboard",
        "resumed on the dashboard",
        "exported on the dashboard",
    ] {
        let line =
            log.lines().find(|found| found.contains(line)).unwrap_or_else(|| panic!("{line} is not logged"));
        assert!(line.contains("ann") && line.contains("127.0.0.1"), "{line}");
    }
    assert!(!log.contains(token), "the log has the token");
    let refused = log.lines().find(|line| line.contains("an action on the dashboard was refused")).unwrap();
    assert!(refused.contains("bob") && refused.contains("/actions/revoke"), "{refused}");
    assert!(!log.contains("INFO fairtier") && !log.contains("committed"), "the level is error: {log}");

    // Without an account there is no session.
    Process::start("remove", "gateway", &["dashboard", "user", "remove", "--dir", &dir, "ann"]).succeed();
    assert_eq!(code(&act("pause", "").0), "403");
    let out = post(&address, "/logout", &bob_acts, "");
    assert_eq!(code(&out), "303");
    assert!(!get(&address, "/", &bob).contains("bob"));
}

#[test]
fn hostile_requests_disturb_no_round() {
    let gateway = Gateway::new("run = { rounds = 1000000, min_devices = 2 }", &["cam-0", "cam-1"]);
    let mut serving = gateway.serve("127.0.0.1:0", &["--dashboard", "127.0.0.1:0"]);
    let address = dashboard(&mut serving);
    let _devices = ["cam-0", "cam-1"].map(|name| gateway.device(&serving, name, "0/2", &[]));
    let begun = gateway.wait_committed(3)["committed"].as_u64().unwrap();
    // Clients that send nothing, half a head, or read nothing of an answer: more than one address may have.
    let slow: Vec<TcpStream> = (0..60)
        .filter_map(|number| {
            let mut stream = TcpStream::connect(&address).ok()?;
            let head = [
                &b""[..],
                b"GET / HTTP/1.1\r\nHost: ",
                b"GET /events?of=/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
            ];
            let _ = stream.write_all(head[number % 3]);
            Some(stream)
        })
        .collect();
    gateway.wait_committed(begun + 3);
    drop(slow);
    wait_for("places to be free again", || (code(&get(&address, "/", "")) == "200").then_some(()));
    let long = "x".repeat(40_000);
    for (request, expected) in [
        (format!("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: {long}\r\n\r\n"), "431"),
        (format!("GET /{long} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"), "4"),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n".into(), "421"),
        ("GET / HTTP/1.1\r\nConnection: close\r\n\r\n".into(), "421"),
        ("\u{0}\u{1}\u{2}\r\n\r\n".into(), "400"),
        (
            format!(
                "POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 40000\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\n{long}"
            ),
            "413",
        ),
    ] {
        let answer = send(&address, &request);
        assert!(code(&answer).starts_with(expected), "{expected}: {answer}");
    }
    for path in [
        "/../../etc/passwd",
        "/assets/../../fairtier.toml",
        "/assets/%2e%2e/fairtier.toml",
        "/assets/..%2f..%2ffairtier.toml",
        "//identity/ca.key",
        "/identity/ca.key",
        "/store/history.jsonl",
        "/round?number=../../1",
        "/round?number=99999999999",
        "/rounds?page=-1",
        "/devices?page=x",
        "/events?of=/round",
        "/events?of=http://evil.example/",
    ] {
        let answer = get(&address, path, "");
        assert!(code(&answer).starts_with('4'), "{path}: {answer}");
        assert!(!answer.contains("BEGIN") && !answer.contains("[server]"), "{path}");
    }
    hostile_on_every_route(&address);
    // Guessing is slowed down soon.
    let guess =
        || post(&address, "/login", &format!("Origin: http://{address}\r\n"), "name=ann&password=wrong");
    let codes: Vec<String> = (0..7).map(|_| code(&guess()).to_owned()).collect();
    assert_eq!((&*codes[0], &*codes[6]), ("401", "429"), "{codes:?}");
    let now = status(&gateway)["committed"].as_u64().unwrap();
    gateway.wait_committed(now + 2);
}

const ROUTES: [&str; 18] = [
    "/",
    "/tiers",
    "/devices",
    "/device",
    "/rounds",
    "/round",
    "/events",
    "/assets/dashboard.css",
    "/assets/live.js",
    "/login",
    "/logout",
    "/actions/revoke",
    "/actions/token",
    "/actions/pause",
    "/actions/resume",
    "/actions/export",
    "/none",
    "/%ff",
];

/// Whatever the route: the answer is an error or a page, never markup of the request, and comes at once.
fn hostile_on_every_route(address: &str) {
    const SCRIPT: &str = "%3Cscript%3Ealert(1)%3C/script%3E";
    let (long, many) = ("x".repeat(40_000), "A: b\r\n".repeat(200));
    let names = [
        "name", "q", "tier", "sort", "order", "page", "number", "strategy", "params", "of", "said", "device",
    ];
    let query: String = names.iter().map(|name| format!("{name}=%22%3E{SCRIPT}%00..%2F..%2F&")).collect();
    for route in ROUTES {
        for (what, request, codes) in [
            (
                "oversized header",
                format!("GET {route} HTTP/1.1\r\nHost: {address}\r\nX: {long}\r\n\r\n"),
                "4",
            ),
            ("too many headers", format!("GET {route} HTTP/1.1\r\nHost: {address}\r\n{many}\r\n"), "4"),
            (
                "two hosts",
                format!(
                    "GET {route} HTTP/1.1\r\nHost: {address}\r\nHost: {address}\r\nConnection: close\r\n\r\n"
                ),
                "4",
            ),
            (
                "another host",
                format!("GET {route} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"),
                "421",
            ),
            (
                "another method",
                format!("DELETE {route} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"),
                "4",
            ),
            ("no HTTP", format!("GET {route}\r\n\r\n"), "4"),
            (
                "a path outside",
                format!(
                    "GET {route}/../../identity/ca.key HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
                ),
                "4",
            ),
            (
                "a form without a length",
                format!(
                    "POST {route} HTTP/1.1\r\nHost: {address}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nZZZ\r\n"
                ),
                "4",
            ),
        ] {
            let answer = send(address, &request);
            assert!(code(&answer).starts_with(codes), "{route}: {what}: {answer}");
            assert!(!answer.contains("PRIVATE KEY"), "{route}: {what}");
        }
        for (path, body) in [(format!("{route}?{query}"), ""), (route.to_owned(), &*query)] {
            let answer = match body {
                "" => get(address, &path, ""),
                body => post(address, &path, &format!("Origin: http://{address}\r\n"), body),
            };
            assert!(matches!(code(&answer).as_bytes(), [b'2' | b'3' | b'4', ..]), "{path}: {answer}");
            assert!(!answer.contains("<script>") && !answer.contains("alert(1)<"), "{path}: {answer}");
        }
    }
    for path in [format!("/device?name={SCRIPT}"), format!("/devices?q=%22%3E{SCRIPT}")] {
        let answer = get(address, &path, "");
        assert!(code(&answer) == "200" && !answer.contains("<script>"), "{answer}");
    }
}

#[test]
fn other_addresses_need_an_account_and_speak_https_alone() {
    let gateway = Gateway::new("run = { rounds = 2 }", &["cam-0"]);
    let dir = gateway.text("gw");
    let listen = ["serve", "--dir", &dir, "--listen", "127.0.0.1:0", "--dashboard", "0.0.0.0:0"];
    let output = Process::start("serve", "gateway", &listen).fail();
    assert!(output.contains("needs a login") && output.contains("dashboard user add"), "{output}");
    add_account(&gateway, "ann", "operator");
    let mut serving = gateway.serve("127.0.0.1:0", &["--dashboard", "0.0.0.0:0"]);
    let line = serving.process.wait_line("dashboard on https://");
    let port = line.trim().trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
    let address = format!("127.0.0.1:{port}");
    assert!(!get(&address, "/", "").contains("FairTier"), "plain HTTP is not answered");
    let Some(program) = tools::find(&["curl"], "curl") else { return };
    let ca = gateway.text("gw/identity/ca.crt");
    let curl = |more: &[&str]| {
        let output = Command::new(&program)
            .args(["-s", "-i", "--cacert", &ca, &format!("https://localhost:{port}/")])
            .args(more)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let answer = curl(&[]);
    assert!(answer.contains("303") && answer.contains("location: /login"), "{answer}");
    // Without a login no route says anything.
    for route in ROUTES {
        let url = format!("https://localhost:{port}{route}");
        for method in ["GET", "POST"] {
            let args = ["-s", "-i", "--path-as-is", "-X", method, "--cacert", &ca, &url];
            let output = Command::new(&program).args(args).output().unwrap();
            let answer = String::from_utf8_lossy(&output.stdout).into_owned();
            let expected = match (method, route) {
                ("GET", "/login" | "/assets/dashboard.css" | "/assets/live.js") => "200",
                ("POST", "/login") => "415",
                ("POST", "/logout") => "403",
                ("GET", route) if route == "/logout" || route.starts_with("/actions/") => "405",
                ("POST", route) if !route.starts_with("/actions/") && route != "/none" && route != "/%ff" => {
                    "405"
                }
                _ => "303",
            };
            assert_eq!(code(&answer), expected, "{method} {route}: {answer}");
        }
    }
    let form = format!("name=ann&password={}", PASSWORD.replace(' ', "+"));
    let login = format!("https://localhost:{port}/login");
    let answer = curl(&[
        "--next",
        "-s",
        "-i",
        "--cacert",
        &ca,
        "-H",
        &format!("Origin: https://localhost:{port}"),
        "-d",
        &form,
        &login,
    ]);
    assert!(answer.contains("; Secure"), "{answer}");
}
