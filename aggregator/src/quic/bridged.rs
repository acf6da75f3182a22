//! Devices behind a bridge: one stream each, frames sealed with the device's own key.
//!
//! The bridge proves with its certificate that it may connect, and no more: whose frames it carries is
//! decided by the seal, device by device. A stream carries packets with their length before them.

use std::{sync::Arc, time::Duration};

use common::{
    Code, DeviceId,
    sealed::{Gate, HAIL, Knock, MAX_PLAIN, Nonce, REFUSED, SEAL_HEAD, SEAL_OVERHEAD},
    transfer::LinkLimits,
    wire,
};
use quinn::{Connection, RecvStream, SendStream, VarInt};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::{sync::mpsc, task::JoinSet, time::MissedTickBehavior};
use tracing::{debug, info, warn};

use super::{End, REVOCATION};
use crate::{
    ca::{Authority, SerialMember},
    fleet::ConnId,
    hub::{Hub, Line},
};

/// Lines of one bridge.
const MAX_LINES: u32 = 256;
/// A line on which nothing is taken for so long is given up: two chunks at a time are on their way to a board.
const UNREAD: Duration = Duration::from_secs(60);
const MAX_PACKET: usize = LinkLimits::QUIC.chunk as usize + wire::CHUNK_OVERHEAD + SEAL_OVERHEAD;

/// Serves a bridge until its connection ends.
pub(super) async fn serve(connection: &Connection, hub: &Arc<Hub>, authority: &Authority, bridge: &DeviceId) {
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(MAX_LINES));
    info!(%bridge, "bridge connected");
    let mut lines = JoinSet::new();
    loop {
        let (send, receive) = match connection.accept_bi().await {
            Ok(streams) => streams,
            Err(reason) => {
                info!(%bridge, "bridge is gone: {reason}");
                return;
            }
        };
        while lines.try_join_next().is_some() {}
        let line = BridgedLine::new(hub.clone(), authority.clone());
        lines.spawn(line.serve(send, receive));
    }
}

/// One device, or whoever claims to be one.
struct BridgedLine {
    hub: Arc<Hub>,
    authority: Authority,
    gate: Gate,
    /// With what the last device that hailed was known.
    hailed: Option<SerialMember>,
    /// The device whose session is open.
    device: Option<Seated>,
}

/// A device that has proved itself.
struct Seated {
    device: DeviceId,
    /// With this; the session ends when it changes.
    member: SerialMember,
    conn: ConnId,
    line: Arc<Line>,
}

impl BridgedLine {
    fn new(hub: Arc<Hub>, authority: Authority) -> Self {
        Self { hub, authority, gate: Gate::default(), hailed: None, device: None }
    }

    async fn serve(mut self, mut send: SendStream, receive: RecvStream) {
        let (sender, mut packets) = mpsc::channel(16);
        // Reading is not cancel safe, so it has a task of its own.
        let reader = tokio::spawn(read_packets(receive, sender));
        let mut clock = tokio::time::interval(REVOCATION);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = loop {
            let woken = async {
                match &self.device {
                    Some(Seated { line, .. }) => line.woken().await,
                    None => std::future::pending().await,
                }
            };
            let outcome = tokio::select! {
                packet = packets.recv() => match packet {
                    Some(packet) => self.handle(packet, &mut send).await,
                    None => break End::Link("line closed".into()),
                },
                () = woken => Ok(()),
                _ = clock.tick() => match &self.device {
                    Some(Seated { device, member, .. }) => match self.check(device, member) {
                        // Nobody can tell now.
                        Err(End::Refused(Code::NotReady)) => Ok(()),
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
        match (&self.device, end) {
            (Some(Seated { device, .. }), End::Refused(code)) => warn!(%device, "dropped: {code}"),
            (Some(Seated { device, .. }), End::Link(reason)) => debug!(%device, "line ended: {reason}"),
            (None, _) => {}
        }
        self.leave();
        let _ = send.finish();
    }

    async fn handle(&mut self, mut packet: Vec<u8>, send: &mut SendStream) -> Result<(), End> {
        let mut reply = [0; MAX_PLAIN];
        // Without randomness nobody is let in: an old conversation could be played again.
        let nonce = if packet.first() == Some(&HAIL) { fresh_nonce() } else { None };
        let (authority, hailed, mut unclear) = (&self.authority, &mut self.hailed, None);
        let key_of = |device: &DeviceId| {
            let member = nonce.map_or(Ok(None), |_| authority.serial_member(device));
            let member = member.unwrap_or_else(|error| {
                unclear = Some(error);
                None
            });
            if member.is_none() {
                warn!(%device, "refused: {}", Code::UnknownDevice);
            }
            // Whoever hailed before may still prove itself.
            *hailed = Some(member?);
            hailed.as_ref().map(|member| member.key)
        };
        let knock = self.gate.handle(&mut packet, &mut reply, key_of, || nonce.unwrap_or_default());
        if let Some(error) = unclear {
            warn!("{error}");
            let [a, b] = Code::NotReady.number().to_le_bytes();
            return write_packet(send, &[REFUSED, a, b]).await;
        }
        match knock {
            Knock::Nothing => Ok(()),
            Knock::Reply(len) => write_packet(send, reply.get(..len).unwrap_or_default()).await,
            Knock::Rejected(error) => {
                warn!(device = ?self.device.as_ref().map(|seated| &seated.device), "{error}");
                Ok(())
            }
            Knock::Frame { device, fresh, frame } => {
                let frame = frame.to_vec();
                if fresh {
                    self.leave();
                    let Some(member) = self.hailed.take() else { return Ok(()) };
                    // Its key may have been removed since it hailed.
                    self.check(&device, &member)?;
                    let (conn, line) = self.hub.connect(device.clone(), member.tiers);
                    info!(%device, "joined over a serial line");
                    self.device = Some(Seated { device, member, conn, line });
                }
                let Some(Seated { conn, .. }) = &self.device else { return Ok(()) };
                let (hub, conn) = (self.hub.clone(), *conn);
                if let Err(code) = hub.with(|coordinator, now| coordinator.handle_frame(conn, &frame, now)) {
                    // The refusal still has to be delivered.
                    self.transmit(send).await?;
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    return Err(End::Refused(code));
                }
                Ok(())
            }
        }
    }

    /// Whether a device is still a member: not revoked, expired or enrolled anew.
    fn check(&self, device: &DeviceId, member: &SerialMember) -> Result<(), End> {
        match self.authority.serial_member(device) {
            Ok(Some(present)) if present == *member => Ok(()),
            Ok(_) => Err(End::Refused(Code::UnknownDevice)),
            Err(error) => {
                warn!(%device, "{error}");
                Err(End::Refused(Code::NotReady))
            }
        }
    }

    /// Sends what the Coordinator has for the device.
    async fn transmit(&mut self, send: &mut SendStream) -> Result<(), End> {
        let Some(Seated { conn, line, .. }) = &self.device else { return Ok(()) };
        while let Some((_, frame)) = self.hub.next_frame(*conn, true) {
            let mut packet = vec![0; frame.len() + SEAL_OVERHEAD];
            if let Some(place) = packet.get_mut(SEAL_HEAD..SEAL_HEAD + frame.len()) {
                place.copy_from_slice(&frame);
            }
            // A session that has used up its counter ends; the device begins another.
            let len = self.gate.seal(&mut packet, frame.len()).ok_or(End::Refused(Code::Unexpected))?;
            write_packet(send, packet.get(..len).unwrap_or_default()).await?;
        }
        if line.is_closing() { Err(End::Link("closed by the aggregator".into())) } else { Ok(()) }
    }

    fn leave(&mut self) {
        if let Some(Seated { conn, .. }) = self.device.take() {
            self.hub.disconnect(conn);
        }
    }
}

impl Drop for BridgedLine {
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

async fn write_packet(stream: &mut SendStream, packet: &[u8]) -> Result<(), End> {
    let write = async {
        stream.write_all(&wire::frame_prefix(packet.len())).await?;
        stream.write_all(packet).await
    };
    // Nothing else happens on this line meanwhile.
    tokio::time::timeout(UNREAD, write).await??;
    Ok(())
}

fn fresh_nonce() -> Option<Nonce> {
    let mut nonce = [0; 16];
    match SystemRandom::new().fill(&mut nonce) {
        Ok(()) => Some(nonce),
        Err(_) => {
            tracing::error!("the system has no randomness; serial devices can not join");
            None
        }
    }
}
