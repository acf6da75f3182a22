//! The aggregator's process in its own directory.

use std::{
    fs, future,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use aggregator::config::Config;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, ChildStdout, Command},
};

use super::{LoadError, LoadOptions, PATIENCE};

const GATEWAY: &str = "fairtier gateway";
/// Interval at which a process that is ending is checked.
const LOOK: Duration = Duration::from_millis(20);

/// A directory for an aggregator.
#[derive(Debug)]
pub(super) struct Gateway {
    program: PathBuf,
    dir: PathBuf,
    /// It shows its run to browsers.
    shows: bool,
}

#[derive(Debug)]
pub(super) struct RunningGateway {
    child: Child,
    pub address: SocketAddr,
    /// Of its pages.
    pub dashboard: Option<SocketAddr>,
    pub pid: Option<u32>,
}

/// The configuration. It has one tier, so that every device has the whole model.
pub(super) fn config(options: &LoadOptions) -> Result<Config, LoadError> {
    let LoadOptions { devices, codec, model, strategy, fairness, seed, .. } = options;
    // There is one tier, so losses of devices are compared.
    let fairness = fairness
        .map_or_else(String::new, |target| format!("[fairness]\ntarget = {target}\nscope = \"devices\"\n"));
    let rounds = options.schedule().total();
    let text = format!(
        "[model]\nsource = \"{model}\"\ntiers = [1.0]\n[run]\nrounds = {rounds}\nmin_devices = {devices}\nseed = {seed}\n\
         [strategy]\nname = \"{strategy}\"\n[wire]\ndown = \"{codec}\"\nup = \"{codec}\"\n\
         [server]\nmax_connections = {most}\nmax_per_address = {most}\n{fairness}",
        codec = codec.name(),
        most = devices + 64,
    );
    Ok(Config::parse(&text)?)
}

impl Gateway {
    pub fn prepare(dir: &Path, config: &Config, shows: bool) -> Result<Self, LoadError> {
        let path = dir.join("fairtier.toml");
        let text = toml::to_string(config)?;
        fs::write(&path, text)
            .map_err(|source| LoadError::Io { what: path.display().to_string(), source })?;
        Ok(Self { program: program()?, dir: dir.to_owned(), shows })
    }

    pub async fn start(self) -> Result<RunningGateway, LoadError> {
        let mut command = Command::new(&self.program);
        command.args([
            "gateway",
            "--log",
            "warn",
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--exit-when-done",
            "--dir",
        ]);
        command.stdin(Stdio::null()).arg(&self.dir);
        if self.shows {
            command.args(["--dashboard", "127.0.0.1:0"]);
        }
        let (child, address, mut output) = start(GATEWAY, &mut command).await?;
        let dashboard = if self.shows { Some(dashboard(&mut output).await?) } else { None };
        // Reads all further output, so that the process never blocks on a full pipe.
        tokio::spawn(async move { output.read_to_end(&mut vec![]).await });
        Ok(RunningGateway { pid: child.id(), child, address, dashboard })
    }
}

impl RunningGateway {
    /// Waits until the process fails; never returns if it does not.
    pub async fn failed(&mut self) -> LoadError {
        match self.ended().await {
            Err(failed) => failed,
            Ok(()) => future::pending().await,
        }
    }

    /// Waits until the process ends, and calls `look` meanwhile. It ends once all devices have left; otherwise it
    /// ends with this process.
    pub async fn stop(mut self, look: impl Fn()) -> Result<(), LoadError> {
        let looked_at = async {
            loop {
                look();
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            ended = tokio::time::timeout(PATIENCE, self.ended()) => {
                ended.map_err(|_| LoadError::Lingers(GATEWAY))?
            }
            () = looked_at => Ok(()),
        }
    }

    async fn ended(&mut self) -> Result<(), LoadError> {
        let status = self.child.wait().await;
        let status = status.map_err(|source| LoadError::Io { what: GATEWAY.into(), source })?;
        if status.success() { Ok(()) } else { Err(LoadError::Failed { program: GATEWAY, status }) }
    }
}

/// Starts a program and waits until it prints its address; also returns its further output.
pub(super) async fn start(
    program: &'static str,
    command: &mut Command,
) -> Result<(Child, SocketAddr, BufReader<ChildStdout>), LoadError> {
    let failed = |source| LoadError::Io { what: program.into(), source };
    command.stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    let ended = |said: String| LoadError::Process { program, said };
    let mut output = BufReader::new(child.stdout.take().ok_or_else(|| ended(String::new()))?);
    let mut said = String::new();
    let address = loop {
        let mut line = String::new();
        if output.read_line(&mut line).await.map_err(failed)? == 0 {
            return Err(ended(said));
        }
        if let Some(address) = line.strip_prefix("listening on ") {
            break address.trim().parse().map_err(|_| ended(line.clone()))?;
        }
        said += &line;
    };
    Ok((child, address, output))
}

/// Waits until the gateway prints the address of its pages.
async fn dashboard(output: &mut BufReader<ChildStdout>) -> Result<SocketAddr, LoadError> {
    let mut said = String::new();
    loop {
        let mut line = String::new();
        let len = output.read_line(&mut line).await;
        if len.map_err(|source| LoadError::Io { what: GATEWAY.into(), source })? == 0 {
            return Err(LoadError::Process { program: GATEWAY, said });
        }
        if let Some(url) = line.strip_prefix("dashboard on http://") {
            let address = url.trim().trim_end_matches('/').parse();
            return address.map_err(|_| LoadError::Process { program: GATEWAY, said: line.clone() });
        }
        said += &line;
    }
}

/// The path of this program, which contains the gateway.
pub fn program() -> Result<PathBuf, LoadError> {
    std::env::current_exe().map_err(|source| LoadError::Io { what: "this program's path".into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that prints an address and ends with this exit code.
    async fn serving(code: u8) -> RunningGateway {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("echo listening on 127.0.0.1:1; exit {code}")]);
        let (child, address, _) = start(GATEWAY, &mut command).await.unwrap();
        RunningGateway { pid: child.id(), child, address, dashboard: None }
    }

    #[tokio::test]
    async fn a_failed_aggregator_process_is_reported() {
        assert!(serving(0).await.stop(|| {}).await.is_ok());
        let error = serving(3).await.stop(|| {}).await.unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
        // It does not wait for devices.
        let mut failing = serving(4).await;
        assert!(matches!(failing.failed().await, LoadError::Failed { .. }));
    }
}
