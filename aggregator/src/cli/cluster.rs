//! `fairtier gateway cluster`: the database of a cluster, and what its gateways share.

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

use super::{Format, examples};

#[cfg(feature = "cluster")]
mod commands;

#[derive(Subcommand, Debug)]
pub(super) enum ClusterCommand {
    /// Make the tables, and link the certificates and revocations that all gateways share; once on every gateway
    ///
    /// The first gateway gives its certificates to cluster.shared, every other one takes them from there. Certificates that
    /// this gateway had before are kept as identity.before. Repeating the command changes nothing.
    #[command(after_help = examples::CLUSTER_INIT)]
    Init {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Bring the tables up to date after an update of the program
    #[command(after_help = examples::CLUSTER_MIGRATE)]
    Migrate {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Show which gateway leads, which others there are, and where the run stands
    #[command(after_help = examples::CLUSTER_STATUS)]
    Status {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
    },
}

impl ClusterCommand {
    #[cfg(feature = "cluster")]
    pub fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.block_on(async {
            match self {
                Self::Init { dir, format } => commands::init(&dir, format).await,
                Self::Migrate { dir, format } => commands::migrate(&dir, format).await,
                Self::Status { dir, format } => commands::status(&dir, format).await,
            }
        })
    }

    #[cfg(not(feature = "cluster"))]
    pub fn run(self) -> Result<()> {
        let (Self::Init { dir, .. } | Self::Migrate { dir, .. } | Self::Status { dir, .. }) = self;
        anyhow::bail!(
            "this program is built without the feature `cluster`, so {} can only be a gateway alone",
            dir.display()
        )
    }
}
