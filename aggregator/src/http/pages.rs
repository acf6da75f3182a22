//! The pages: each is a list of parts. A browser gets the parts that have changed once a second.

mod device;
mod devices;
mod layout;
mod login;
mod overview;
mod parts;
mod round;
mod rounds;
mod tiers;
mod what_if;
mod worst;

pub use devices::DevicesQuery;
use layout::document;
pub use layout::{SCRIPT, style};
pub use login::{login, message};
pub use parts::{Part, device_link, span};
use plots::markup::Element;
use serde::Deserialize;

pub use what_if::{WhatIf, replay};

use super::view::View;

/// A page with what was asked of it.
#[derive(Clone, PartialEq, Debug)]
pub enum Page {
    Overview,
    Tiers,
    Devices(DevicesQuery),
    Device(String),
    Rounds(usize),
    Round(Box<RoundPage>),
}

/// The page of one round, which is read for it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RoundPage {
    pub round: u32,
    /// From 1.
    pub page: usize,
    pub report: Option<std::sync::Arc<ReportOf>>,
    pub recorded: bool,
    pub what_if: Option<WhatIf>,
}

/// A report that compares by identity of its round.
#[derive(Clone, Debug)]
pub struct ReportOf(pub super::history::Report);

impl PartialEq for ReportOf {
    fn eq(&self, other: &Self) -> bool {
        self.0.round == other.0.round
    }
}

/// `?name=` of a device's page.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NameQuery {
    pub name: String,
}

/// `?page=` of a list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PageQuery {
    pub page: Option<usize>,
}

/// `?number=` of a round's page.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RoundQuery {
    pub number: u32,
    pub page: Option<usize>,
    /// A strategy to compute the round again with.
    pub strategy: Option<String>,
    pub params: Option<String>,
}

impl Page {
    pub fn title(&self) -> String {
        match self {
            Self::Overview => "Overview".into(),
            Self::Tiers => "Tiers".into(),
            Self::Devices(_) => "Devices".into(),
            Self::Device(name) => format!("Device {name}"),
            Self::Rounds(_) => "Rounds".into(),
            Self::Round(round) => format!("Round {}", round.round),
        }
    }

    /// Whether it changes while the run goes on.
    pub fn follows(&self) -> bool {
        !matches!(self, Self::Round(_))
    }

    /// The parts of the page, from the top.
    pub fn parts(&self, view: &View<'_>) -> Vec<Part> {
        match self {
            Self::Overview => overview::parts(view),
            Self::Tiers => tiers::parts(view),
            Self::Devices(query) => devices::parts(view, query),
            Self::Device(name) => device::parts(view, name),
            Self::Rounds(page) => rounds::parts(view, *page),
            Self::Round(round) => round::parts(view, round),
        }
    }

    /// The whole page.
    pub fn html(&self, view: &View<'_>) -> String {
        let parts: Vec<Element> = self.parts(view).into_iter().map(|part| part.element).collect();
        document(view, self, parts)
    }
}

#[cfg(test)]
mod tests;
