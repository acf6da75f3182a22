//! Boards that keep their model: one is reset every second round, one loses power while it writes its slot. At the end every
//! board is asked over its line, and asked again after a reset without a gateway.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use client::host::{
    board::{Board, ORDER},
    provision::ask,
};
use common::sealed::BoardIdentity;
use tokio::{
    io::AsyncWriteExt,
    net::{UnixListener, UnixStream},
    sync::watch,
};

use super::boards::Emulated;

/// What a board's outputs are, sample by sample.
pub type Outputs = Vec<Vec<f32>>;

/// What happens to which board, and what the boards answer.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The samples that boards are asked about.
    pub samples: Vec<Vec<f32>>,
    /// Reset after every second round.
    pub reset: String,
    /// Loses power in the middle of this change of its flash.
    pub cut: (String, u32),
    pub answers: Arc<Mutex<BTreeMap<String, Answers>>>,
    /// Resets and power cuts that have happened.
    pub done: Arc<Mutex<(u32, u32)>>,
}

/// The answers of one board.
#[derive(Clone, PartialEq, Debug)]
pub struct Answers {
    /// Of the model of this round.
    pub round: u32,
    pub outputs: Outputs,
    /// The same after a reset, before any gateway has answered.
    pub after_reset: Outputs,
}

/// One emulated board, from its first start to its last answer.
pub async fn live(
    watched: Watched,
    (board, dir, identity, shard): (Board, PathBuf, Vec<u8>, Vec<u8>),
    bridge: PathBuf,
    rounds: watch::Receiver<u32>,
    mut ended: watch::Receiver<bool>,
) {
    let name = BoardIdentity::decode(&identity).unwrap().device.to_string();
    let line = dir.join("line");
    std::fs::create_dir_all(&dir).unwrap();
    let listener = UnixListener::bind(&line).unwrap();
    let start = |order: &str| {
        let serial = format!("unix:{}", line.display());
        Emulated::start_with(&board, &dir, &identity, &shard, &serial, order)
    };
    let cut = (watched.cut.0 == name).then(|| format!("cut={}", watched.cut.1));
    let mut emulated = start(cut.as_deref().unwrap_or(ORDER));
    let resets = tokio::spawn(reset_at(watched.clone(), name.clone(), dir.join("monitor"), rounds));
    let mut stream = loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut uplink = UnixStream::connect(&bridge).await.unwrap();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut stream, &mut uplink) => {
                // QEMU has ended, because the power was cut.
                emulated.wait();
                watched.done.lock().unwrap().1 += 1;
                emulated = start(ORDER);
            }
            _ = ended.wait_for(|ended| *ended) => break stream,
        }
    };
    resets.abort();
    let identity = BoardIdentity::decode(&identity).unwrap();
    let answers = ask(&mut stream, &identity, &watched.samples).await.unwrap();
    let round = answers[0].round;
    assert!(answers.iter().all(|answer| answer.round == round && !answer.trained), "{answers:?}");
    let outputs: Outputs = answers.into_iter().map(|answer| answer.outputs).collect();
    reset(&dir.join("monitor")).await;
    let again = ask(&mut stream, &identity, &watched.samples).await.unwrap();
    let after_reset = again.into_iter().map(|answer| answer.outputs).collect();
    watched.answers.lock().unwrap().insert(name, Answers { round, outputs, after_reset });
    drop(emulated);
}

async fn reset_at(watched: Watched, name: String, monitor: PathBuf, mut rounds: watch::Receiver<u32>) {
    while name == watched.reset && rounds.changed().await.is_ok() {
        if rounds.borrow_and_update().is_multiple_of(2) {
            reset(&monitor).await;
            watched.done.lock().unwrap().0 += 1;
        }
    }
}

/// Resets an emulated board through QEMU's monitor.
async fn reset(monitor: &Path) {
    let mut monitor = UnixStream::connect(monitor).await.unwrap();
    monitor.write_all(b"system_reset\n").await.unwrap();
    // QEMU has executed the command when it prompts for the next one.
    let (mut text, mut bytes) = (String::new(), [0; 256]);
    while text.matches("(qemu)").count() < 2 {
        let len = tokio::io::AsyncReadExt::read(&mut monitor, &mut bytes).await.unwrap();
        assert!(len > 0, "QEMU has closed its monitor");
        text.push_str(&String::from_utf8_lossy(&bytes[..len]));
    }
}
