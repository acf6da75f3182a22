//! HTML and SVG elements as a tree: the output is well-formed and escaped by construction.
//!
//! The crate maud does not fit: it leaves `meta` and `br` open, but pictures are XML files and tests parse pages as
//! XML.

use std::fmt::{self, Display};

/// An element with its attributes and children.
#[derive(Clone, PartialEq, Debug)]
pub struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    children: Vec<Child>,
}

#[derive(Clone, PartialEq, Debug)]
enum Child {
    Element(Element),
    Text(String),
}

/// A new element.
pub fn el(name: &'static str) -> Element {
    Element { name, attributes: vec![], children: vec![] }
}

impl Element {
    /// Adds an attribute; its value is escaped.
    #[must_use]
    pub fn set(mut self, name: &'static str, value: impl Display) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    /// Sets a length or coordinate, rounded to a hundredth.
    #[must_use]
    pub fn at(self, name: &'static str, value: f64) -> Self {
        let value = (value * 100.0).round() / 100.0;
        // Avoids "-0".
        self.set(name, value + 0.0)
    }

    /// Sets the `class` attribute.
    #[must_use]
    pub fn class(self, class: impl Display) -> Self {
        self.set("class", class)
    }

    /// Appends a child element.
    #[must_use]
    pub fn with(mut self, child: Element) -> Self {
        self.children.push(Child::Element(child));
        self
    }

    /// Appends several child elements.
    #[must_use]
    pub fn all(mut self, children: impl IntoIterator<Item = Element>) -> Self {
        self.children.extend(children.into_iter().map(Child::Element));
        self
    }

    /// Appends text, which is escaped.
    #[must_use]
    pub fn text(mut self, text: impl Display) -> Self {
        self.children.push(Child::Text(text.to_string()));
        self
    }

    /// Text that a pointer shows over the element (SVG).
    #[must_use]
    pub fn hint(self, text: impl Display) -> Self {
        self.with(el("title").text(text))
    }
}

impl Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}", self.name)?;
        for (name, value) in &self.attributes {
            write!(f, " {name}=\"{}\"", escape(value, true))?;
        }
        if self.children.is_empty() && is_void(self.name) {
            return f.write_str("/>");
        }
        f.write_str(">")?;
        for child in &self.children {
            match child {
                Child::Element(element) => element.fmt(f)?,
                Child::Text(text) => f.write_str(&escape(text, false))?,
            }
        }
        write!(f, "</{}>", self.name)
    }
}

/// Whether HTML has no end tag for this element. All others get one, which SVG accepts as well.
fn is_void(name: &str) -> bool {
    matches!(
        name,
        "meta" | "link" | "input" | "br" | "circle" | "line" | "path" | "rect" | "polyline" | "polygon"
    )
}

fn escape(text: &str, quotes: bool) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if quotes { text.replace('"', "&quot;") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attributes_are_escaped() {
        let element = el("p").set("title", "a\"<b>&").with(el("b").text("</p>&\""));
        assert_eq!(element.to_string(), "<p title=\"a&quot;&lt;b&gt;&amp;\"><b>&lt;/p&gt;&amp;\"</b></p>");
    }

    #[test]
    fn coordinates_are_short_and_empty_elements_closed() {
        assert_eq!(
            el("circle").at("cx", 1.23456).at("cy", -0.001).to_string(),
            r#"<circle cx="1.23" cy="0"/>"#
        );
        assert_eq!(el("td").to_string(), "<td></td>");
    }
}
