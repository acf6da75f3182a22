//! Commands for boards: bridge, flash, monitor, shard.

use std::{
    convert::Infallible,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use crate::{
    data::{BytesShard, Quantised, Shard, load::LIMIT},
    host::{
        Identity,
        args::{DataArgs, PrivacyArgs},
        board::{Board, Precision, pack_shard, quantise_shard, refreshed_identity},
        bridge::{
            Bridge, Traffic,
            port::{self, PortSpec},
            report, report_health,
        },
        provision,
        refusals::LEAVE_AFTER,
    },
    serial::{
        Health, MAX_PACKET, PING, Status,
        line::{Decoder, Encoder},
    },
};
use anyhow::{Context, Result, anyhow, ensure};
use common::{
    files::{self, MAX_CREDENTIAL, Secrecy},
    sealed::BoardIdentity,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{print, resolve, stop_signal};

/// How often `flash` looks whether QEMU has ended.
const QEMU_PAUSE: Duration = Duration::from_millis(100);
/// How long `monitor` waits for the health of a board, which follows its status if the board has any.
const HEALTH_PAUSE: Duration = Duration::from_millis(500);

#[derive(clap::Args, Debug)]
pub(super) struct BridgeArgs {
    /// Address of the gateway; several of one fleet as HOST:PORT,HOST:PORT
    #[arg(long, default_value = "127.0.0.1:4433")]
    server: String,
    /// Identity file that `fairtier gateway enroll` wrote for the bridge
    #[arg(long)]
    identity: PathBuf,
    /// Where boards are: /dev/ttyACM0, '/dev/ttyUSB*@921600', unix:PATH, tcp:ADDRESS, connect:ADDRESS
    #[arg(long = "port", required = true)]
    ports: Vec<PortSpec>,
    /// Log the status of boards every N seconds
    #[arg(long)]
    ask: Option<u64>,
    /// Seconds over which the gateway must answer "not enrolled" (E30), at least five times, before the bridge exits
    #[arg(long, default_value_t = LEAVE_AFTER.as_secs())]
    leave_after: u64,
}

pub(super) fn bridge(args: &BridgeArgs) -> Result<()> {
    let bridge = Bridge {
        gateways: resolve(&args.server)?,
        identity: Identity::load(&args.identity)?,
        ports: args.ports.clone(),
        ask: args.ask.filter(|&seconds| seconds > 0).map(Duration::from_secs),
        leave_after: Duration::from_secs(args.leave_after),
        traffic: Traffic::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { Ok(bridge.run(stop_signal()?).await?) })
}

/// Refuses the earlier name of `--identity`.
fn renamed_page(file: &str) -> Result<Infallible, String> {
    Err(format!("--page is now --identity; use `--identity {file}`"))
}

#[derive(clap::Args, Debug)]
pub(super) struct FlashArgs {
    /// Kind of board, as in mps2-an386
    board: String,
    /// Board identity that `fairtier gateway enroll --serial` wrote
    #[arg(long)]
    identity: PathBuf,
    #[arg(long = "page", hide = true, value_parser = renamed_page)]
    _page: Option<Infallible>,
    /// Samples that `fairtier board shard` wrote
    #[arg(long)]
    shard: PathBuf,
    /// Directory in which `scripts/firmware` has put the images
    #[arg(long, default_value = "target/firmware")]
    images: PathBuf,
    /// Emulated boards: QEMU's end of the serial line, as in unix:PATH or tcp:ADDRESS of a bridge
    #[arg(long, default_value = "unix:boards.sock")]
    serial: String,
    /// Emulated boards: the file behind the flash in which the board keeps its model [default: NAME.flash beside the identity]
    #[arg(long)]
    flash: Option<PathBuf>,
    #[command(flatten)]
    privacy: PrivacyArgs,
}

pub(super) fn flash(args: &FlashArgs) -> Result<()> {
    let board = Board::by_name(&args.board)?;
    let image = board.image(&args.images);
    ensure!(
        image.exists(),
        "{} is missing; build it with `scripts/firmware {}`",
        image.display(),
        board.name
    );
    board.check_shard(&args.shard).with_context(|| args.shard.display().to_string())?;
    let dir = tempfile::tempdir()?;
    let identity = dir.path().join("identity");
    let original =
        files::read(&args.identity, MAX_CREDENTIAL).with_context(|| args.identity.display().to_string())?;
    let privacy = args.privacy.beside(&args.identity)?;
    fs::write(
        &identity,
        refreshed_identity(&original, privacy).with_context(|| args.identity.display().to_string())?,
    )?;
    let file = args.flash.clone().unwrap_or_else(|| args.identity.with_extension("flash"));
    let Some(arguments) = board.qemu(&image, &identity, &args.shard, &args.serial, &file) else {
        return Ok(board.download(&image, &identity, &args.shard)?);
    };
    board.make_flash(&file).with_context(|| file.display().to_string())?;
    let mut qemu = Command::new("qemu-system-arm");
    qemu.args(arguments).stdin(Stdio::null());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = stop_signal()?;
        tokio::pin!(stop);
        let mut qemu = qemu
            .spawn()
            .map_err(|error| anyhow!("qemu-system-arm: {error}; install the package of that name"))?;
        loop {
            tokio::select! {
                // QEMU ends with this program.
                () = &mut stop => {
                    qemu.kill()?;
                    qemu.wait()?;
                    return Ok(());
                }
                () = tokio::time::sleep(QEMU_PAUSE) => if let Some(status) = qemu.try_wait()? {
                    ensure!(status.success(), "QEMU: {status}");
                    return Ok(());
                },
            }
        }
    })
}

#[derive(clap::Args, Debug)]
pub(super) struct MonitorArgs {
    /// Port of the board, as for `bridge`; no bridge may have it open (a bridge has --ask)
    port: PortSpec,
    /// Ask this many times; without this option, until Ctrl-C
    #[arg(long)]
    count: Option<u32>,
    /// Seconds between two requests
    #[arg(long, default_value_t = 1)]
    every: u64,
}

pub(super) fn monitor(args: &MonitorArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (arrived, mut ports) = tokio::sync::mpsc::channel(1);
        let watcher = tokio::spawn(port::watch(args.port.clone(), arrived));
        let mut port = ports.recv().await.ok_or_else(|| anyhow!("the port cannot be opened"))?;
        let stop = stop_signal()?;
        tokio::pin!(stop);
        let mut clock = tokio::time::interval(Duration::from_secs(args.every.max(1)));
        let mut decoder = Decoder::<{ MAX_PACKET + 4 }>::default();
        let (mut bytes, mut answers, mut enough) = ([0; 256], 0, false);
        loop {
            tokio::select! {
                () = &mut stop => break,
                () = tokio::time::sleep(HEALTH_PAUSE), if enough => break,
                _ = clock.tick(), if !enough => {
                    let ping: Vec<u8> = Encoder::new(&[PING]).collect();
                    port.stream.write_all(&ping).await?;
                }
                len = port.stream.read(&mut bytes) => {
                    let len = len?;
                    ensure!(len > 0, "the board has closed the line");
                    for &byte in bytes.iter().take(len) {
                        let Some(Ok(packet)) = decoder.push(byte) else { continue };
                        if let Some(status) = Status::decode(packet) {
                            report(&port.name, &status);
                            answers += 1;
                            enough = args.count.is_some_and(|count| answers >= count);
                        } else if let Some(health) = Health::decode(packet) {
                            report_health(&port.name, &health);
                            if enough {
                                return Ok(());
                            }
                        }
                    }
                }
            }
        }
        watcher.abort();
        Ok(())
    })
}

#[derive(clap::Args, Debug)]
pub(super) struct ProvisionArgs {
    /// Port of the board, as for `bridge`
    port: PortSpec,
    /// Board identity that `fairtier gateway enroll --serial` wrote; samples are sealed with its key
    #[arg(long)]
    identity: PathBuf,
    #[arg(long = "page", hide = true, value_parser = renamed_page)]
    _page: Option<Infallible>,
    /// Samples that `fairtier board shard` wrote; without this option, they are selected with the options of that command
    #[arg(long)]
    shard: Option<PathBuf>,
    #[command(flatten)]
    data: DataArgs,
    /// Features are whole multiples of 1/LEVELS: 16 for the built-in digits, 255 for images
    #[arg(long, default_value_t = 16)]
    levels: u8,
}

pub(super) fn provision(args: &ProvisionArgs) -> Result<()> {
    let file = match &args.shard {
        Some(path) => files::read(path, LIMIT).with_context(|| path.display().to_string())?,
        None => pack_shard(&args.data.shard()?, args.levels)?,
    };
    // Checked before waiting for a board.
    BytesShard::parse(&file)
        .context("not a file of samples for a board; write one with `fairtier board shard`")?;
    let at = || args.identity.display().to_string();
    let identity = BoardIdentity::decode(&fs::read(&args.identity).with_context(at)?).with_context(at)?;
    eprintln!("waiting for the board");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (arrived, mut ports) = tokio::sync::mpsc::channel(1);
        let watcher = tokio::spawn(port::watch(args.port.clone(), arrived));
        let mut port = ports.recv().await.ok_or_else(|| anyhow!("the port cannot be opened"))?;
        let progress = |there: usize| eprint!("\r{there} of {} bytes", file.len());
        let sent = provision::provision(&mut port.stream, &identity, &file, progress).await;
        eprintln!();
        watcher.abort();
        sent?;
        Ok(print(&format!("{}: {} bytes of samples\n", port.name, file.len()))?)
    })
}

#[derive(clap::Args, Debug)]
pub(super) struct ShardArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Features are whole multiples of 1/LEVELS: 16 for the built-in digits, 255 for images
    #[arg(long, default_value_t = 16)]
    levels: u8,
    /// Round features to whole numbers of this kind, each with its own scale and zero point, and print what is lost; the
    /// firmware needs `quantised` among its extras
    #[arg(long, conflicts_with = "levels")]
    quantise: Option<Kind>,
    #[arg(long)]
    out: PathBuf,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Kind {
    U8,
    I8,
    I16,
}

pub(super) fn shard(args: &ShardArgs) -> Result<()> {
    let shard = args.data.shard()?;
    let kind = args.quantise.map(|kind| match kind {
        Kind::U8 => Quantised::U8,
        Kind::I8 => Quantised::I8,
        Kind::I16 => Quantised::I16,
    });
    let (file, lost) = match kind {
        None => (pack_shard(&shard, args.levels)?, None),
        Some(kind) => {
            let (file, lost) = quantise_shard(&shard, kind)?;
            (file, Some(lost))
        }
    };
    // Only the owner may read the device's samples.
    files::write_file(&args.out, &file, Secrecy::Secret).with_context(|| args.out.display().to_string())?;
    let (train, test, bytes) = (shard.train_len(), shard.test_len(), file.len());
    let out = args.out.display();
    print(&format!("{out}: {train} training and {test} test samples, {bytes} bytes\n"))?;
    if let Some(Precision { largest, relative, feature }) = lost {
        let percent = 100.0 * relative;
        print(&format!(
            "rounding changes a feature by {largest} at most; feature {feature} loses most, {percent:.3} % of its standard deviation\n"
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Cli {
        #[command(flatten)]
        board: super::super::Board,
    }

    #[test]
    fn the_earlier_name_of_identity_is_refused_with_a_hint() {
        for command in [&["flash", "microbit"][..], &["provision", "unix:board.sock"]] {
            let arguments = [&["board"], command, &["--page", "m4.page", "--shard", "m4.shard"]].concat();
            let error = Cli::try_parse_from(arguments).unwrap_err().to_string();
            assert!(error.contains("use `--identity m4.page`"), "{error}");
        }
    }
}
