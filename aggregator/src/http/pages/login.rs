//! Pages without a run: the login, and short messages.

use plots::markup::{Element, el};

use super::layout::shell;

/// The login form; `why` says what was wrong with the last attempt.
pub fn login(why: Option<&str>) -> String {
    let field = |label: &str, name: &str, kind: &str, hint: &str| {
        el("label").class("field").text(label).with(
            el("input")
                .set("name", name)
                .set("type", kind)
                .set("autocomplete", hint)
                .set("required", "required")
                .set("maxlength", 256),
        )
    };
    let form = el("form")
        .set("method", "post")
        .set("action", "/login")
        .with(field("Name", "name", "text", "username"))
        .with(field("Password", "password", "password", "current-password"))
        .with(el("button").set("type", "submit").text("Log in"));
    let why = match why {
        Some(why) => el("p").class("bad").set("role", "alert").text(why),
        None => el("p").set("hidden", "hidden"),
    };
    let advice = "An account is made on the gateway: fairtier gateway dashboard user add NAME --role read";
    bare("Log in", [why, form, el("p").class("soft").text(advice)])
}

/// A page with one message.
pub fn message(title: &str, text: &str) -> String {
    bare(title, [el("p").text(text), el("p").with(el("a").set("href", "/").text("To the overview"))])
}

fn bare(title: &str, content: impl IntoIterator<Item = Element>) -> String {
    let main = el("main").set("id", "main").class("narrow").with(el("h1").text(title)).all(content);
    shell(title, el("body").with(main), false, false)
}
