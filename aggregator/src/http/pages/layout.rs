//! What all pages share: head, navigation, the style sheet and the script.

use plots::{
    PLOT_STYLE, STYLE,
    markup::{Element, el},
};

use super::{Page, parts};
use crate::http::view::View;

/// The one script: it replaces parts of the page that have changed. Pages are complete without it.
pub const SCRIPT: &str = include_str!("../assets/live.js");
/// Styles besides those of reports.
pub const STYLE_SHEET: &str = include_str!("../assets/dashboard.css");

/// The whole style sheet.
pub fn style() -> String {
    [STYLE, PLOT_STYLE, STYLE_SHEET].concat()
}

const PAGES: [(&str, &str); 4] =
    [("/", "Overview"), ("/tiers", "Tiers"), ("/devices", "Devices"), ("/rounds", "Rounds")];

/// A page around its parts.
pub fn document(view: &View<'_>, page: &Page, parts: Vec<Element>) -> String {
    let path = match page {
        Page::Overview => "/",
        Page::Tiers => "/tiers",
        Page::Devices(_) | Page::Device(_) => "/devices",
        Page::Rounds(_) | Page::Round(_) => "/rounds",
    };
    let title = page.title();
    let live = view.live.is_some() && page.follows();
    let main = el("main")
        .set("id", "main")
        .with(el("h1").text(&title))
        .with(connection(view, live))
        .with(said(view))
        .all(parts)
        .with(el("p").set("id", "announcement").class("hidden").set("aria-live", "polite"));
    let body = el("body")
        .set("data-live", if live { "yes" } else { "no" })
        .with(el("a").class("skip").set("href", "#main").text("To the content"))
        .with(header(view, path))
        .with(main)
        .with(el("footer").with(el("p").text("Losses are as devices report them.")));
    // A page that says what was done, perhaps with a token, is not loaded again by itself: it would say it no more.
    shell(&title, body, live, live && view.said.is_none())
}

/// A document with its head. `live`: it follows the run. `reloads`: without a script it is loaded again.
pub fn shell(title: &str, body: Element, live: bool, reloads: bool) -> String {
    let head = el("head")
        .with(el("meta").set("charset", "utf-8"))
        .with(el("meta").set("name", "viewport").set("content", "width=device-width, initial-scale=1"))
        .with(el("title").text(format_args!("{title} – FairTier")))
        .with(el("link").set("rel", "stylesheet").set("href", "/assets/dashboard.css"))
        .with(el("link").set("rel", "icon").set("href", "data:,"));
    let script = live.then(|| el("script").set("src", "/assets/live.js").set("defer", "defer"));
    let reload = el("meta").set("http-equiv", "refresh").set("content", "10");
    let head = head.all(script).all(reloads.then(|| el("noscript").with(reload)));
    format!("<!DOCTYPE html>\n{}\n", el("html").set("lang", "en").with(head).with(body))
}

fn header(view: &View<'_>, path: &str) -> Element {
    let link = |(href, name): &(&str, &str)| {
        let link = el("a").set("href", href).text(name);
        el("li").with(if *href == path { link.set("aria-current", "page") } else { link })
    };
    let header = el("header")
        .class("top")
        .with(el("span").class("brand").text("FairTier"))
        .with(el("nav").set("aria-label", "Pages").with(el("ul").all(PAGES.iter().map(link))));
    match view.user {
        Some(user) => header.with(
            el("div")
                .class("user")
                .with(el("span").text(format_args!("{} ({})", user.name, user.role.name())))
                .with(parts::button("/logout", &user.csrf, &[], "Log out")),
        ),
        None if view.actions => {
            header.with(el("div").class("user").with(el("a").set("href", "/login").text("Log in")))
        }
        None => header,
    }
}

fn said(view: &View<'_>) -> Element {
    match view.said {
        Some(said) => el("p").class("said").set("role", "status").text(said),
        None => el("p").set("hidden", "hidden"),
    }
}

/// Whether the page is up to date. The script shows the button, with which a reader stops the changes.
fn connection(view: &View<'_>, live: bool) -> Element {
    let state = match (&view.live, live) {
        (Some(_), true) => "This page was made when it was loaded. With a script it follows the run.",
        (Some(_), false) => "This page does not change.",
        (None, _) => "No server runs: this is the run as it was left.",
    };
    let line =
        el("div").class("connection").with(el("p").set("id", "connection").set("role", "status").text(state));
    let hold = el("button").set("type", "button").set("id", "hold").set("hidden", "hidden");
    if live { line.with(hold.text("Stop updates")) } else { line }
}
