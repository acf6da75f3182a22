//! The page in headless Chromium: it must be rendered without errors on the console.

use std::{fs, path::Path, process::Command};

use crate::{
    made_up::{self, SETTINGS},
    sim, tools,
};

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Standard output and error of one visit.
fn visit(browser: &Path, page: &Path, profile: &Path, extra: &[&str]) -> (String, String) {
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
        ])
        .args(["--no-first-run", "--disable-extensions", "--disable-background-networking"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(extra)
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (out, err)
}

/// Lines of the page's own console, as Chromium logs them.
fn console(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains(":CONSOLE")).collect()
}

#[test]
fn a_browser_shows_tables_and_plots_without_errors() {
    let Some(browser) = tools::find(&NAMES, "chromium") else { return };
    let dir = tempfile::tempdir().unwrap();
    made_up::write_all(&dir.path().join("results"));
    sim(&["report"], dir.path());
    let page = dir.path().join("report.html");
    let (dom, log) = visit(&browser, &page, &dir.path().join("profile"), &["--dump-dom"]);
    let written = fs::read_to_string(&page).unwrap();
    for tag in ["<table", "<svg", "<tr", "<td", "<polyline", "<circle", "<section"] {
        assert_eq!(dom.matches(tag).count(), written.matches(tag).count(), "{tag}\n{log}");
    }
    assert!(dom.contains("<table") && dom.contains("</html>"), "{log}");
    for (_, label) in SETTINGS {
        let escaped = label.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        assert!(dom.contains(&escaped), "{label}");
    }
    assert_eq!(console(&log), [""; 0]);
}

#[test]
fn script_errors_are_detected() {
    let Some(browser) = tools::find(&NAMES, "chromium") else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("bad.html");
    fs::write(&page, "<!DOCTYPE html><p><script>throw new Error('loud')</script>").unwrap();
    let (_, log) = visit(&browser, &page, &dir.path().join("profile"), &["--dump-dom"]);
    assert!(console(&log).iter().any(|line| line.contains("loud")), "{log}");
}

/// The page of the demo fits into a phone and a desktop, in both colour schemes.
#[test]
fn the_page_of_the_demo_is_rendered_at_both_widths() {
    let Some(browser) = tools::find(&NAMES, "chromium") else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("report.html");
    let demo = Command::new(env!("CARGO_BIN_EXE_fairtier"))
        .args([
            "demo",
            "--rounds",
            "3",
            "--devices-per-tier",
            "2",
            "--seed",
            "1",
            "--minority",
            "--quiet",
            "--out",
        ])
        .arg(&page)
        .output()
        .unwrap();
    assert!(demo.status.success(), "{}", String::from_utf8_lossy(&demo.stderr));
    let written = fs::read_to_string(&page).unwrap();
    for (width, scheme) in [(390, 0), (1440, 1)] {
        // A frame has the width of a phone; a window may not be as narrow.
        let frame = dir.path().join(format!("{width}.html"));
        let probe = format!(
            "<!DOCTYPE html><iframe width={width} height=2000 src=report.html></iframe><p id=out></p><script>\
             onload = () => {{ const d = document.querySelector('iframe').contentDocument.documentElement;\
             document.getElementById('out').textContent = 'over ' + (d.scrollWidth - d.clientWidth); }}</script>"
        );
        fs::write(&frame, probe).unwrap();
        let profile = dir.path().join(format!("profile-{width}"));
        let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
        let extra = ["--dump-dom", "--allow-file-access-from-files", &scheme];
        let (dom, log) = visit(&browser, &frame, &profile, &extra);
        assert!(dom.contains("over 0<"), "{dom}\n{log}");
        let (dom, log) = visit(&browser, &page, &profile, &extra);
        for tag in ["<table", "<svg", "<tr", "<td", "<polyline", "<section"] {
            assert_eq!(dom.matches(tag).count(), written.matches(tag).count(), "{tag}\n{log}");
        }
        assert_eq!(console(&log), [""; 0]);
    }
    for part in ["id=\"target\"", "id=\"minority\"", "class=\"front\"", "Disparity between tiers", "Knob: q"]
    {
        assert!(written.contains(part), "{part}");
    }
}

/// Labels of plots and names in tables are whole on a phone and on a desktop.
#[test]
fn no_label_is_cut_off_on_a_phone() {
    let Some(browser) = tools::find(&NAMES, "chromium") else { return };
    let dir = tempfile::tempdir().unwrap();
    made_up::write_own(&dir.path().join("results"));
    made_up::write_all(&dir.path().join("results"));
    sim(&["report"], dir.path());
    for width in [390, 1440] {
        let frame = dir.path().join(format!("{width}.html"));
        let probe = format!(
            "<!DOCTYPE html><iframe width={width} height=2000 src=report.html></iframe><p id=out></p><script>\
             onload = () => {{ const page = document.querySelector('iframe').contentDocument;\
             const root = page.documentElement; const cut = []; let seen = 0;\
             for (const svg of page.querySelectorAll('svg[role=img]')) {{ const box = svg.getBoundingClientRect();\
             for (const text of svg.querySelectorAll('text')) {{ seen++; const own = text.getBoundingClientRect();\
             if (own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1 || own.bottom > box.bottom + 1)\
             cut.push(text.textContent + ' of ' + svg.querySelector('title').textContent); }} }}\
             for (const cell of page.querySelectorAll('.figures th[scope=row]')) {{ seen++;\
             if (cell.scrollWidth > cell.clientWidth + 1 || cell.clientWidth > root.clientWidth / 2)\
             cut.push('cell ' + cell.textContent); }}\
             document.getElementById('out').textContent = 'over ' + (root.scrollWidth - root.clientWidth)\
             + ', cut ' + cut.length + ', seen ' + seen + ': ' + cut.join('; '); }}</script>"
        );
        fs::write(&frame, probe).unwrap();
        let profile = dir.path().join(format!("profile-{width}"));
        let (dom, log) = visit(&browser, &frame, &profile, &["--dump-dom", "--allow-file-access-from-files"]);
        let (_, found) = dom.split_once("<p id=\"out\">").unwrap_or_else(|| panic!("{dom}\n{log}"));
        let found = found.split('<').next().unwrap_or_default();
        assert!(found.starts_with("over 0, cut 0, seen "), "{width}: {found}\n{log}");
        let seen: usize = found.split("seen ").nth(1).unwrap().split(':').next().unwrap().parse().unwrap();
        assert!(seen > 100, "{found}");
    }
}
