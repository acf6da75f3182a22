//! Devices behind a bridge: one stream each, frames sealed with the device's own key.
//!
//! The certificate of a bridge proves only that the bridge may connect. The seal of each frame proves which device sent it. A
//! stream carries packets, each preceded by its length.
//!
//! A bridge cannot find out which devices are enrolled. A hail with an unknown name gets a challenge like any other, made with
//! a random key and after the same time ([`HAIL_TAKES`]). The operator's log has the name.

use std::{sync::Arc, time::Duration};

use common::{
    Code, DeviceId,
    printable::printable,
    sealed::{self, HAIL, Key, MAX_PLAIN, Nonce, ResponderEvent, SEAL_HEAD, SEAL_OVERHEAD, SEAL_VERSION},
    wire,
};
use quinn::{Connection, RecvStream, SendStream, VarInt};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
    time::MissedTickBehavior,
};
use tracing::{debug, info, warn};

use super::{Context, Peer, SessionEnd, revocation::REVOCATION_INTERVAL};
use crate::{
    admission::{ConnectionKey, Refusal},
    ca::SerialCredential,
    driver::ConnectionSignals,
};
use coordinator::fleet::ConnId;

/// Lines of one bridge.
const MAX_LINES: u32 = 256;
/// A line that takes no bytes for this long is given up. At most two chunks are on their way to a board.
const UNREAD: Duration = Duration::from_secs(60);
/// Longest packet: no board has room for a longer message or chunk.
const MAX_PACKET: usize = wire::MAX_CONTROL + SEAL_OVERHEAD;
/// Packets of a line that are queued: a board has two chunks on their way. Further packets stay with the bridge.
const WAITING: usize = 2;
/// Time from a hail to its answer, so that it does not reveal whether a key was found.
const HAIL_TAKES: Duration = Duration::from_millis(5);

/// Serves a bridge until its connection ends.
pub(super) async fn serve(connection: &Connection, context: &Arc<Context>, bridge: &DeviceId) {
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(MAX_LINES));
    info!(%bridge, "bridge connected");
    let mut lines = JoinSet::new();
    loop {
        let (send, receive) = match connection.accept_bi().await {
            Ok(streams) => streams,
            Err(reason) => {
                info!(%bridge, "bridge is gone: {}", printable(&reason));
                return;
            }
        };
        while lines.try_join_next().is_some() {}
        let line = BoardLine::new(context.clone());
        lines.spawn(line.serve(send, receive));
    }
}

/// One serial line: a device, or a peer that claims to be one.
struct BoardLine {
    context: Arc<Context>,
    seal: sealed::Responder,
    /// The device whose session is open.
    session: Option<BoardSession>,
}

/// A device that has proved its key.
struct BoardSession {
    device: DeviceId,
    /// Its credential; the session ends when it changes.
    member: SerialCredential,
    conn: ConnId,
    key: ConnectionKey,
    signals: Arc<ConnectionSignals>,
    /// Notified when the device has too many connections.
    displaced: Arc<Notify>,
}

impl BoardLine {
    fn new(context: Arc<Context>) -> Self {
        Self { context, seal: sealed::Responder::default(), session: None }
    }

    async fn serve(mut self, mut send: SendStream, receive: RecvStream) {
        let (sender, mut packets) = mpsc::channel(WAITING);
        // Reading is not cancel safe, so it has a task of its own.
        let reader = tokio::spawn(read_packets(receive, sender));
        let mut clock = tokio::time::interval(REVOCATION_INTERVAL);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = loop {
            let woken = async {
                match &self.session {
                    Some(BoardSession { signals, displaced, .. }) => tokio::select! {
                        () = signals.woken() => Ok(()),
                        () = displaced.notified() => Err(SessionEnd::Refused(Code::Busy)),
                    },
                    None => std::future::pending().await,
                }
            };
            let outcome = tokio::select! {
                packet = packets.recv() => match packet {
                    Some(packet) => self.handle(packet, &mut send).await,
                    None => break SessionEnd::Link("line closed".into()),
                },
                woken = woken => woken,
                _ = clock.tick() => match &self.session {
                    Some(BoardSession { device, member, .. }) => match self.check(device, member) {
                        // The files cannot be read now: the session stays open.
                        Err(SessionEnd::Refused(Code::NotReady)) => Ok(()),
                        checked => checked,
                    },
                    None => Ok(()),
                },
            };
            let sent = match outcome {
                Ok(()) => self.transmit(&mut send).await,
                failed => failed,
            };
            if let Err(end) = sent {
                break end;
            }
        };
        reader.abort();
        match (&self.session, end) {
            (Some(BoardSession { device, .. }), SessionEnd::Refused(code)) => {
                debug!(%device, "dropped: {code}");
            }
            (Some(BoardSession { device, .. }), SessionEnd::Displaced) => {
                debug!(%device, "joined on another line");
            }
            (Some(BoardSession { device, .. }), SessionEnd::Link(reason)) => {
                debug!(%device, "line ended: {reason}");
            }
            (None, _) => {}
        }
        self.leave();
        let _ = send.finish();
    }

    async fn handle(&mut self, mut packet: Vec<u8>, send: &mut SendStream) -> Result<(), SessionEnd> {
        let mut reply = [0; MAX_PLAIN];
        if packet.first() == Some(&HAIL) {
            let answer_at = tokio::time::Instant::now() + HAIL_TAKES;
            let answer = self.answer_hail(&mut packet, &mut reply);
            tokio::time::sleep_until(answer_at).await;
            return match answer {
                Ok(0) => Ok(()),
                Ok(len) => write_packet(send, &reply[..len]).await,
                Err(code) => write_packet(send, &sealed::refusal(code)).await,
            };
        }
        let event = self.seal.handle(&mut packet, &mut reply, |_| None, Nonce::default);
        match event {
            ResponderEvent::Nothing => Ok(()),
            ResponderEvent::Reply(len) => write_packet(send, &reply[..len]).await,
            ResponderEvent::Rejected(error) => {
                if let Some(BoardSession { device, .. }) = &self.session {
                    self.context.admission.count_refusal(Refusal::Seal, &format_args!("{device}: {error}"));
                }
                Ok(())
            }
            ResponderEvent::Frame { device, fresh, frame } => {
                let frame = frame.to_vec();
                if fresh {
                    self.leave();
                    let member = self.member(&device)?;
                    let (conn, signals) = self.context.driver.connect(device.clone(), member.tiers);
                    let displaced = Arc::new(Notify::new());
                    let added = self.context.devices.add(&device, Peer::Board(displaced.clone()));
                    if let Some(oldest) = added.displaced {
                        oldest.disconnect(Code::Busy);
                    }
                    info!(%device, "joined over a serial line");
                    if self.seal.version() != Some(SEAL_VERSION) {
                        warn!(%device, "firmware uses the older seal version 1; flash a current image");
                    }
                    self.session =
                        Some(BoardSession { device, member, conn, key: added.key, signals, displaced });
                }
                let Some(BoardSession { conn, .. }) = &self.session else { return Ok(()) };
                let (driver, conn) = (self.context.driver.clone(), *conn);
                if let Err(code) = driver.with(|coordinator, now| coordinator.handle_frame(conn, &frame, now))
                {
                    // The refusal still has to be delivered.
                    self.transmit(send).await?;
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    return Err(SessionEnd::Refused(code));
                }
                Ok(())
            }
        }
    }

    /// The length of the answer to a hail (0 if the packet is not a hail), or why there is none now.
    fn answer_hail(&mut self, packet: &mut [u8], reply: &mut [u8; MAX_PLAIN]) -> Result<usize, Code> {
        // Without randomness there is no session: an old one could be replayed.
        let (nonce, decoy) =
            random::<{ size_of::<Nonce>() }>().zip(random::<{ size_of::<Key>() }>()).ok_or(Code::NotReady)?;
        let (context, mut unclear) = (&self.context, false);
        let key_of = |device: &DeviceId| match context.authority.serial_credential(device) {
            Ok(Some(member)) => Some(member.key),
            Ok(None) => {
                context.admission.count_refusal(Refusal::Unknown, device);
                Some(decoy)
            }
            Err(error) => {
                unclear = true;
                context.admission.count_refusal(Refusal::Unclear, &error);
                None
            }
        };
        match self.seal.handle(packet, reply, key_of, || nonce) {
            ResponderEvent::Reply(len) => Ok(len),
            _ if unclear => Err(Code::NotReady),
            _ => Ok(0),
        }
    }

    /// A device that has just proved its key. The key may have been removed or replaced since it hailed.
    fn member(&self, device: &DeviceId) -> Result<SerialCredential, SessionEnd> {
        match self.context.authority.serial_credential(device) {
            Ok(Some(member)) if self.seal.is_opened_with(&member.key) => Ok(member),
            Ok(_) => Err(SessionEnd::Refused(Code::UnknownDevice)),
            Err(error) => {
                self.context.admission.count_refusal(Refusal::Unclear, &error);
                Err(SessionEnd::Refused(Code::NotReady))
            }
        }
    }

    /// Whether a device is still a member: not revoked, expired or enrolled anew.
    fn check(&self, device: &DeviceId, member: &SerialCredential) -> Result<(), SessionEnd> {
        match self.context.authority.serial_credential(device) {
            Ok(Some(present)) if present == *member => Ok(()),
            Ok(_) => Err(SessionEnd::Refused(Code::UnknownDevice)),
            Err(error) => {
                self.context.admission.count_refusal(Refusal::Unclear, &error);
                Err(SessionEnd::Refused(Code::NotReady))
            }
        }
    }

    /// Sends what the Coordinator has for the device.
    async fn transmit(&mut self, send: &mut SendStream) -> Result<(), SessionEnd> {
        let Some(BoardSession { conn, signals, .. }) = &self.session else { return Ok(()) };
        while let Some((_, frame)) = self.context.driver.next_frame(*conn, true) {
            let mut packet = vec![0; frame.len() + SEAL_OVERHEAD];
            packet[SEAL_HEAD..][..frame.len()].copy_from_slice(&frame);
            // A session that has used up its counter ends; the device begins another.
            let len =
                self.seal.seal(&mut packet, frame.len()).ok_or(SessionEnd::Refused(Code::Unexpected))?;
            write_packet(send, &packet[..len]).await?;
        }
        if signals.is_closing() { Err(SessionEnd::Link("closed by the aggregator".into())) } else { Ok(()) }
    }

    fn leave(&mut self) {
        if let Some(BoardSession { conn, key, .. }) = self.session.take() {
            self.context.devices.remove(&key);
            self.context.driver.disconnect(conn);
        }
    }
}

impl Drop for BoardLine {
    fn drop(&mut self) {
        self.leave();
    }
}

async fn read_packets(mut stream: RecvStream, packets: mpsc::Sender<Vec<u8>>) {
    let mut prefix = [0; 4];
    while stream.read_exact(&mut prefix).await.is_ok() {
        let len = u32::from_le_bytes(prefix) as usize;
        if len == 0 || len > MAX_PACKET {
            return;
        }
        let mut packet = vec![0; len];
        if stream.read_exact(&mut packet).await.is_err() || packets.send(packet).await.is_err() {
            return;
        }
    }
}

async fn write_packet(stream: &mut SendStream, packet: &[u8]) -> Result<(), SessionEnd> {
    let write = async {
        stream.write_all(&wire::frame_prefix(packet.len())).await?;
        stream.write_all(packet).await
    };
    // The line does nothing else meanwhile.
    tokio::time::timeout(UNREAD, write).await??;
    Ok(())
}

fn random<const LEN: usize>() -> Option<[u8; LEN]> {
    let mut bytes = [0; LEN];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => Some(bytes),
        Err(_) => {
            tracing::error!("the system has no randomness; serial devices cannot join");
            None
        }
    }
}
