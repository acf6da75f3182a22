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

    pub fn serve(self, _: Handle) -> Self {
        self
    }

    pub fn stop(&self) {}
}
