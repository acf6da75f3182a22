//! The dashboard of a gateway under real rounds: what it shows is what `status` says, in a real browser, and no client
//! disturbs a round.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::Command,
    time::Duration,
};

use common::message::ToAggregator;
use fleet::{
    gateway::{Gateway, Serving},
    process::{Process, wait_for},
    raw::{Raw, hello, tls},
    tools,
};
use serde_json::Value;

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const PASSWORD: &str = "correct horse battery";

/// Address of the dashboard, without `http://` and the slash.
fn dashboard(serving: &mut Serving) -> String {
    let line = serving.process.wait_line("dashboard on http://");
    line.trim().trim_end_matches('/').rsplit('/').next().unwrap().to_owned()
}

fn send(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = vec![];
    // A connection that is closed early has answered before.
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

fn add_operator(gateway: &Gateway) {
    let dir = gateway.text("gw");
    let mut child = Command::new(fleet::process::program())
        .args(["gateway", "dashboard", "user", "add", "--dir", &dir, "--role", "operator", "ann"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(format!("{PASSWORD}\n").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// The cookie of a session.
fn log_in(address: &str) -> String {
    let form = format!("name=ann&password={}", PASSWORD.replace(' ', "+"));
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

/// Twenty devices, of which one is late, one is refused and one is revoked on the page.
#[test]
fn numbers_on_the_page_are_those_of_status_and_a_device_is_revoked_on_it() {
    let names: Vec<String> = (0..19).map(|number| format!("cam-{number:02}")).collect();
    let mut all: Vec<&str> = names.iter().map(String::as_str).collect();
    all.extend(["late", "small"]);
    let config = "run = { rounds = 6, min_devices = 20 }\nround = { deadline_s = 2.0, quorum = 0.5 }\nstore = { record = true }";
    let gateway = Gateway::new(config, &all);
    add_operator(&gateway);
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
    assert!(refused.contains("E33"), "{refused}");
    assert!(get(&address, "/device?name=small", "").contains("no tier fits"));

    // One joins and never answers.
    let mut late = raw("late");
    runtime.block_on(late.join(hello("late")));
    let devices: Vec<Process> = names
        .iter()
        .enumerate()
        .map(|(number, name)| gateway.device(&serving, name, &format!("{number}/20"), &[]))
        .collect();
    let done = gateway.wait_committed(3);
    assert!(done["last_round"]["devices"].as_array().is_some_and(|heard| heard.len() == 19));

    // Without a login nothing is changed; with one, a device is revoked.
    let form = "csrf=0&device=cam-18";
    let origin = format!("Origin: http://{address}\r\n");
    assert_eq!(code(&post(&address, "/actions/revoke", &origin, form)), "403");
    let cookie = log_in(&address);
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
    let done = post(
        &address,
        "/actions/revoke",
        &format!("{session}{origin}"),
        &format!("csrf={csrf}&device=cam-18"),
    );
    assert!(code(&done) == "200" && done.contains("cam-18 is revoked"), "{done}");
    wait_for("the log to name the user", || {
        serving.process.output().contains("revoked on the dashboard").then_some(())
    });
    wait_for("the page to show the revoked device", || {
        get(&address, "/devices?q=cam-18", "").contains("data-state=\"revoked\"").then_some(())
    });

    // The run ends, and nothing changes any more.
    let last = wait_for("the final scores", || {
        let status = status(&gateway);
        (status["finished"] == true).then_some(status)
    });
    let page = wait_for("the page to show the final scores", || {
        let page = get(&address, "/", "");
        page.contains("Scores of the final model").then_some(page)
    });
    let round = &last["last_round"];
    assert_eq!(value_of(&page, "committed"), 6.0);
    assert_eq!(value_of(&page, "loss"), round["loss"]["mean"].as_f64().unwrap());
    assert_eq!(value_of(&page, "accuracy"), round["accuracy"]["mean"].as_f64().unwrap());
    let row = page.split_once("data-tier=\"all\"").unwrap().1.split("</tr>").next().unwrap();
    let cells: Vec<f64> = row
        .split("data-value=\"")
        .skip(1)
        .map(|cell| cell.split('"').next().unwrap().parse().unwrap())
        .collect();
    let sum = |key: &str| -> f64 {
        round["participation"].as_array().unwrap().iter().map(|tier| tier[key].as_f64().unwrap()).sum()
    };
    let found = round["guard"].as_array().cloned().unwrap_or_default();
    let held: std::collections::BTreeSet<_> =
        found.iter().filter_map(|line| line["device"].as_str()).collect();
    let expected = [
        sum("asked"),
        sum("delivered"),
        sum("late"),
        sum("silent"),
        round["refused"].as_array().unwrap().len() as f64,
        held.len() as f64,
        round["loss"]["mean"].as_f64().unwrap(),
        round["loss"]["variance"].as_f64().unwrap(),
        round["loss"]["worst10"].as_f64().unwrap(),
        round["loss"]["best10"].as_f64().unwrap(),
        round["accuracy"]["mean"].as_f64().unwrap(),
    ];
    assert_eq!(cells, expected);
    // What another strategy would have done with a recorded round.
    let what_if = get(&address, "/round?number=2&strategy=heterofl", "");
    assert!(what_if.contains("heterofl would have moved the model by"), "{what_if}");
    for path in
        ["/", "/tiers", "/devices?sort=loss&order=down", "/device?name=late", "/rounds", "/round?number=1"]
    {
        let page = get(&address, path, "");
        assert_eq!(code(&page), "200", "{path}");
        assert!(page.len() < 150_000 && !page.contains("NaN"), "{path}: {} bytes", page.len());
        assert!(page.contains("content-security-policy: default-src 'none'"), "{path}");
        assert!(!page.contains("style=") && !page.contains("onclick"), "{path}");
    }
    look(&gateway, &address);
    drop((small, late, devices));
}

/// Loads pages in Chromium: the script runs without errors, and replaces parts.
fn look(gateway: &Gateway, address: &str) {
    let Some(browser) = tools::find(&BROWSERS, "chromium") else { return };
    let visit = |path: &str, extra: &[&str]| {
        let profile = gateway.path("profile");
        let output = Command::new(&browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--enable-logging=stderr",
            ])
            .args(["--no-first-run", "--disable-extensions", "--disable-background-networking"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .args(["--timeout=4000"])
            .args(extra)
            .arg(format!("http://{address}{path}"))
            .output()
            .unwrap();
        let _ = fs::remove_dir_all(profile);
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    let [dom, log] = visit("/", &["--dump-dom"]);
    assert!(dom.contains("Scores of the final model") && dom.contains("<polyline"), "{dom}\n{log}");
    assert!(!log.contains(":CONSOLE"), "{log}");
    // Set FAIRTIER_SCREENSHOTS to a folder to look at the pages.
    let Some(folder) = std::env::var_os("FAIRTIER_SCREENSHOTS") else { return };
    for (page, path) in [
        ("overview", "/"),
        ("tiers", "/tiers"),
        ("devices", "/devices"),
        ("round", "/round?number=2&strategy=fedavg"),
    ] {
        for width in [390, 768, 1440] {
            for (scheme, name) in [(0, "dark"), (1, "light")] {
                let file = Path::new(&folder).join(format!("{page}-{width}-{name}.png"));
                let shot = format!("--screenshot={}", file.display());
                let size = format!("--window-size={width},1400");
                let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
                visit(path, &[&shot, &size, &scheme]);
            }
        }
    }
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
        "//identity/ca.key",
        "/identity/ca.key",
        "/store/history.jsonl",
        "/round?number=../../1",
        "/round?number=99999999999",
        "/rounds?page=-1",
        "/devices?page=x",
        "/actions/revoke",
    ] {
        let answer = get(&address, path, "");
        assert!(code(&answer).starts_with('4'), "{path}: {answer}");
        assert!(!answer.contains("BEGIN") && !answer.contains("[server]"), "{path}");
    }
    for path in [
        "/device?name=%3Cscript%3Ealert(1)%3C/script%3E",
        "/devices?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E",
    ] {
        let answer = get(&address, path, "");
        assert!(code(&answer) == "200" && !answer.contains("<script>"), "{answer}");
    }
    // Guessing is slowed down soon.
    let guess =
        || post(&address, "/login", &format!("Origin: http://{address}\r\n"), "name=ann&password=wrong");
    let codes: Vec<String> = (0..7).map(|_| code(&guess()).to_owned()).collect();
    assert_eq!((&*codes[0], &*codes[6]), ("401", "429"), "{codes:?}");
    let now = status(&gateway)["committed"].as_u64().unwrap();
    gateway.wait_committed(now + 2);
}

#[test]
fn other_addresses_need_an_account_and_speak_https_alone() {
    let gateway = Gateway::new("run = { rounds = 2 }", &["cam-0"]);
    let dir = gateway.text("gw");
    let listen = ["serve", "--dir", &dir, "--listen", "127.0.0.1:0", "--dashboard", "0.0.0.0:0"];
    let output = Process::start("serve", "gateway", &listen).fail();
    assert!(output.contains("needs a login") && output.contains("dashboard user add"), "{output}");
    add_operator(&gateway);
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
