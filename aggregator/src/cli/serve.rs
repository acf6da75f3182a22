//! `aggregator serve` and `aggregator resume`.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use aggregator::server::{End, Server, ServerError};
use anyhow::{Error, Result, anyhow};
use tracing::info;

use super::print;

/// How long devices may still fetch their sub-models after the end of the run.
const FETCHING: Duration = Duration::from_secs(30);

#[derive(clap::Args, Debug)]
pub(super) struct ServeArgs {
    #[arg(long, default_value = "gateway")]
    pub dir: PathBuf,
    /// Overrides server.listen
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// Stop when the run is over instead of keeping its models available
    #[arg(long)]
    exit_when_done: bool,
}

pub(super) fn serve(args: &ServeArgs) -> Result<()> {
    let ServeArgs { dir, listen, exit_when_done } = args;
    let mut config = super::load(dir)?;
    if let Some(listen) = *listen {
        config.server.listen = listen;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = Server::start(&config, dir, None).map_err(|failed| advise(failed, dir))?;
        // For scripts and tests that let the system choose the port.
        print(&format!("listening on {}\n", server.address()))?;
        let stop = stop_signal()?;
        tokio::pin!(stop);
        tokio::select! {
            () = &mut stop => info!("stopping"),
            end = server.finished() => match end {
                End::Over => linger(&server, *exit_when_done, stop).await,
                End::Failed => {}
            }
        }
        server.stop().await.map_err(|failed| advise(failed, dir))
    })
}

/// Keeps the models of a run that is over available.
async fn linger(server: &Server, exit_when_done: bool, stop: impl Future<Output = ()>) {
    let enough = async {
        if exit_when_done {
            let _ = tokio::time::timeout(FETCHING, server.deserted()).await;
        } else {
            info!("the run is over; devices can fetch their models until Ctrl-C");
            stop.await;
        }
    };
    tokio::select! {
        () = enough => {}
        () = server.failed() => {}
    }
}

/// What to do about a run that has stopped.
fn advise(failed: ServerError, dir: &Path) -> Error {
    let again = match &failed {
        ServerError::Store(failed) if failed.is_full() => "free some space, then start again".to_owned(),
        ServerError::Keeper(cause) => {
            let first = if cause.is_full() { "free some space" } else { "remove the cause" };
            let dir = dir.display();
            format!(
                "{first}, then go on with `aggregator resume --dir {dir}`; nothing that was acknowledged is lost"
            )
        }
        _ => return failed.into(),
    };
    anyhow!("{failed}; {again}")
}

/// Resolves on SIGINT or SIGTERM.
fn stop_signal() -> Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
