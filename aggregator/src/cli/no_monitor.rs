//! A program without the feature `dashboard` has no HTTP side.

use anyhow::Result;

use crate::{config::Config, server::Handle, worker::Observer};

#[derive(clap::Args, Debug)]
pub(super) struct MonitorArgs {}

impl MonitorArgs {
    pub async fn bind(&self, _: &Config) -> Result<Option<Monitor>> {
        Ok(None)
    }
}

pub(super) enum Monitor {}

impl Monitor {
    pub fn observer(&self) -> Observer {
        match *self {}
    }

    #[cfg(feature = "cluster")]
    pub fn stand_by(self) -> Monitored {
        match self {}
    }

    pub fn serve(self, _: Handle) -> Monitored {
        match self {}
    }
}

#[derive(Clone)]
pub(super) enum Monitored {}

impl Monitored {
    #[cfg(feature = "cluster")]
    pub fn observer(&self) -> Observer {
        match *self {}
    }

    #[cfg(feature = "cluster")]
    pub fn serve(&self, _: Option<Handle>) {}

    pub fn stop(&self) {}
}
