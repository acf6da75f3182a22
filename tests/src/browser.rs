//! A real browser, driven through the pipes of its debugging protocol: messages are JSON, each ended by a zero.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{process::PATIENCE, tools};

const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// The pipes that the browser reads and writes are its descriptors 3 and 4.
const START: &str = "exec \"$@\" 3<\"$IN\" 4>\"$OUT\"";
const POLL: Duration = Duration::from_millis(50);

/// A browser with one page. It ends with the test.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    _profile: TempDir,
    to: File,
    from: Receiver<Value>,
    /// Of the page.
    session: String,
    calls: u64,
    /// Not looked at yet.
    events: Vec<Value>,
    requests: BTreeSet<String>,
    errors: Vec<String>,
}

impl Browser {
    /// `None` if there is no browser, as [`tools::find`] says.
    pub fn start() -> Option<Self> {
        let program = tools::find(&PROGRAMS, "chromium")?;
        let profile = tempfile::tempdir().unwrap();
        let [inward, outward] = ["in", "out"].map(|name| profile.path().join(name));
        assert!(Command::new("mkfifo").args([&inward, &outward]).status().unwrap().success());
        // Opened in both directions, a pipe waits for no other end.
        let open = |path: &Path| File::options().read(true).write(true).open(path).unwrap();
        let (to, read) = (open(&inward), open(&outward));
        let child = Command::new("sh")
            .args(["-c", START, "sh"])
            .arg(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args(["--disable-extensions", "--disable-background-networking", "--disable-component-update"])
            .arg(format!("--user-data-dir={}", profile.path().join("profile").display()))
            .args(["--remote-debugging-pipe", "about:blank"])
            .envs([("IN", &inward), ("OUT", &outward)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (sender, from) = channel();
        thread::spawn(move || {
            let mut lines = BufReader::new(read).split(0);
            while let Some(Ok(line)) = lines.next() {
                if sender.send(serde_json::from_slice(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        let mut this = Self {
            child,
            _profile: profile,
            to,
            from,
            session: String::new(),
            calls: 0,
            events: vec![],
            requests: BTreeSet::new(),
            errors: vec![],
        };
        let target = this.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = this.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        attached["sessionId"].as_str().unwrap().clone_into(&mut this.session);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            this.call(&format!("{domain}.enable"), json!({}));
        }
        this.call("Emulation.setFocusEmulationEnabled", json!({ "enabled": true }));
        Some(this)
    }

    /// A command of the protocol.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        let mut message = json!({ "id": id, "method": method });
        message["params"] = params;
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        self.to.write_all((message.to_string() + "\0").as_bytes()).unwrap();
        loop {
            let answer =
                self.next(PATIENCE).unwrap_or_else(|| panic!("the browser does not answer {method}"));
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    /// The next message; events are noted.
    fn next(&mut self, patience: Duration) -> Option<Value> {
        let message = match self.from.recv_timeout(patience) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => panic!("the browser has ended"),
        };
        let params = &message["params"];
        match message["method"].as_str() {
            Some("Network.requestWillBeSent") => {
                self.requests.insert(params["request"]["url"].as_str().unwrap_or_default().to_owned());
            }
            Some("Runtime.exceptionThrown") => self.errors.push(params.to_string()),
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => {
                self.errors.push(params.to_string());
            }
            _ => {}
        }
        if message["method"].is_string() {
            self.events.push(message.clone());
        }
        Some(message)
    }

    /// Loads a page.
    pub fn open(&mut self, url: &str) {
        self.leave(|this| {
            let done = this.call("Page.navigate", json!({ "url": url }));
            assert!(done["errorText"].is_null(), "{url}: {done}");
        });
    }

    /// Does something that leads to another page, and waits until that is loaded.
    pub fn leave(&mut self, act: impl FnOnce(&mut Self)) {
        self.events.clear();
        act(self);
        let start = Instant::now();
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            self.next(POLL);
            assert!(start.elapsed() < PATIENCE, "no page was loaded");
        }
    }

    /// The value of an expression on the page.
    pub fn value(&mut self, script: &str) -> Value {
        let params = json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        let done = self.call("Runtime.evaluate", params);
        assert!(done["exceptionDetails"].is_null(), "{script}: {done}");
        done["result"]["value"].clone()
    }

    pub fn text(&mut self, script: &str) -> String {
        self.value(script).as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an expression is true.
    pub fn wait(&mut self, script: &str) {
        let start = Instant::now();
        while self.value(script) != true {
            assert!(
                start.elapsed() < PATIENCE,
                "{script} stays false:\n{}",
                self.text("document.body.innerText")
            );
            thread::sleep(POLL);
        }
    }

    /// Types into the first element that a selector finds.
    pub fn fill(&mut self, selector: &str, text: &str) {
        self.value(&format!("document.querySelector({}).focus()", json!(selector)));
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Presses a key: `Tab` or `Enter`.
    pub fn press(&mut self, key: &str) {
        let (code, text) = if key == "Enter" { (13, "\r") } else { (9, "") };
        let press = |kind| json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
        self.call("Input.dispatchKeyEvent", press(if text.is_empty() { "rawKeyDown" } else { "keyDown" }));
        self.call(
            "Input.dispatchKeyEvent",
            json!({ "type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code }),
        );
    }

    /// The width of the screen, and whether its user wants dark pages.
    pub fn screen(&mut self, width: u32, dark: bool) {
        let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// The whole page as a PNG file.
    pub fn picture(&mut self, path: &Path) {
        let taken =
            self.call("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": true }));
        let mut decode =
            Command::new("base64").arg("-d").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = decode.stdin.take().unwrap();
        let text = taken["data"].as_str().unwrap().to_owned();
        let writer = thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
        let mut bytes = vec![];
        decode.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
        writer.join().unwrap();
        assert!(decode.wait().unwrap().success());
        fs::write(path, bytes).unwrap();
    }

    /// Addresses that the browser has asked for.
    pub fn requests(&self) -> &BTreeSet<String> {
        &self.requests
    }

    /// Exceptions of scripts, and what the browser has refused or could not load, since the last call.
    pub fn take_errors(&mut self) -> Vec<String> {
        // What is on its way arrives before the answer.
        self.value("0");
        std::mem::take(&mut self.errors)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
