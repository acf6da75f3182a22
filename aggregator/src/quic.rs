//! The QUIC server: one task group per connection, mutual TLS, frames in and out.
//!
//! The device opens one bidirectional stream for control frames. Each side opens a unidirectional stream per transfer for its
//! chunks. Every frame is preceded by its length. On a second bidirectional stream the device may ask for a new certificate. A
//! bridge, which speaks another ALPN, opens a bidirectional stream per serial device instead. Enrolment and schemas have ALPNs of
//! their own, with one question and one answer.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use common::{Code, DeviceId, TierSet, printable::printable, wire};
use quinn::{Connection, Endpoint, VarInt};
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
};
use tracing::{debug, info, warn};

use crate::{
    admission::{AddedConnection, Admission, Decision, DeviceConnections, Permit, Refusal},
    ca::Authority,
    driver::{ConnectionSignals, Driver},
    scales::FleetSchema,
};
use coordinator::fleet::ConnId;

mod bridged;
mod endpoint;
mod enrolment;
mod identify;
mod reader;
mod revocation;
mod schema;
mod server_certificate;
mod socket;
#[cfg(feature = "cluster")]
mod standby;
mod windows;
mod writer;

pub use endpoint::{QuicError, check_server_certificate, listen, listen_as};
use identify::{AuthenticatedDevice, identify};
#[cfg(feature = "cluster")]
pub use standby::StandbyEndpoint;
pub use windows::set_windows;
use writer::Writer;

/// Time between two checks for refusals to log.
const REFUSALS_INTERVAL: Duration = Duration::from_secs(1);

/// Timeouts for peers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// Until a peer has proved who it is.
    pub handshake: Duration,
    /// Until its first message.
    pub hello: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { handshake: Duration::from_secs(20), hello: Duration::from_secs(20) }
    }
}

/// A peer that has proved who it is.
#[derive(Clone, Debug)]
pub enum Peer {
    /// A device or a bridge.
    Direct(Connection),
    /// A board behind a bridge. Its session ends when it is notified.
    Board(Arc<Notify>),
}

impl Peer {
    fn disconnect(&self, code: Code) {
        match self {
            Self::Direct(connection) => close(connection, code),
            Self::Board(end) => end.notify_one(),
        }
    }
}

/// What all connections share.
#[derive(Debug)]
pub struct Context {
    /// Takes the messages of all devices.
    pub driver: Arc<Driver>,
    /// Knows which certificates and board keys are valid now.
    pub authority: Arc<Authority>,
    /// Decides which handshakes go on.
    pub admission: Admission,
    /// Open connections by device, so that a revoked device is disconnected.
    pub devices: DeviceConnections<Peer>,
    /// Places for models that are being sent.
    pub downloads: Semaphore,
    /// How long silent peers are waited for; 20 s each by default.
    pub timeouts: Timeouts,
    /// What the columns of the devices' files mean.
    pub schema: Arc<FleetSchema>,
}

/// Accepts connections until the endpoint is closed.
pub async fn accept(endpoint: Endpoint, context: Context) {
    let context = Arc::new(context);
    let mut tasks = JoinSet::new();
    tasks.spawn(revocation::disconnect_revoked(context.clone()));
    tasks.spawn(log_refusals(context.clone()));
    while let Some(incoming) = endpoint.accept().await {
        while tasks.try_join_next().is_some() {}
        let peer = incoming.remote_address();
        let validated = incoming.remote_address_validated();
        let mut permit = match context.admission.decide(peer.ip(), validated, Instant::now()) {
            Decision::Accept(permit) => permit,
            Decision::Retry if incoming.may_retry() => {
                // Cannot fail: `may_retry` is true.
                let _ = incoming.retry();
                continue;
            }
            // The address has answered a Retry already.
            Decision::Retry => {
                incoming.refuse();
                continue;
            }
            Decision::Refuse(refusal) => {
                debug!(%peer, "refused: {}", refusal.text());
                incoming.refuse();
                continue;
            }
        };
        let context = context.clone();
        tasks.spawn(async move {
            let limit = context.timeouts.handshake;
            match tokio::time::timeout(limit, incoming.into_future()).await {
                Ok(Ok(connection)) => serve(connection, &context, &mut permit).await,
                Ok(Err(error)) => {
                    context
                        .admission
                        .count_refusal(Refusal::Handshake, &format_args!("{peer}: {}", printable(&error)));
                }
                Err(_) => context.admission.count_refusal(
                    Refusal::Handshake,
                    &format_args!("{peer}: no handshake within {limit:?}"),
                ),
            }
            drop(permit);
        });
    }
}

/// Logs refusals, so that an operator finds limits that are too low for the fleet.
async fn log_refusals(context: Arc<Context>) {
    loop {
        tokio::time::sleep(REFUSALS_INTERVAL).await;
        if let Some(refused) = context.admission.poll_refusals(Instant::now()) {
            warn!("connections refused: {refused}");
        }
    }
}

async fn serve(connection: Connection, context: &Arc<Context>, permit: &mut Permit) {
    let Context { driver, authority, admission, devices, .. } = &**context;
    let peer = connection.remote_address();
    if protocol(&connection).as_deref() == Some(common::enrol::ALPN) {
        return enrolment::serve(&connection, authority, admission).await;
    }
    let AuthenticatedDevice { device, grant } = match identify(&connection, authority).await {
        Ok(known) => known,
        Err(error) => {
            admission.count_refusal(error.refusal(), &format_args!("{peer}: {error}"));
            return close(&connection, error.code());
        }
    };
    if !permit.admit() {
        return close(&connection, Code::Busy);
    }
    if protocol(&connection).as_deref() == Some(common::schema::ALPN) {
        return schema::serve(&connection, &context.schema, &device).await;
    }
    let AddedConnection { key, displaced } = devices.add(&device, Peer::Direct(connection.clone()));
    if let Some(oldest) = displaced {
        oldest.disconnect(Code::Displaced);
    }
    if protocol(&connection).as_deref() == Some(wire::BRIDGE_ALPN) {
        bridged::serve(&connection, context, &device).await;
        return devices.remove(&key);
    }
    let (conn, signals) = driver.connect(device.clone(), grant.map_or(TierSet::ALL, |grant| grant.tiers));
    debug!(%device, %peer, "connected");
    let end = serve_device(&connection, context, conn, &signals, &device).await;
    devices.remove(&key);
    driver.disconnect(conn);
    match end {
        // The reason is logged once for each device, with its figures.
        Err(SessionEnd::Refused(code)) => {
            debug!(%device, %peer, "dropped: {code}");
            close(&connection, code);
        }
        Err(SessionEnd::Displaced) => {
            info!(%device, %peer, "joined again; its earlier connection is closed");
            close(&connection, Code::Displaced);
        }
        Err(SessionEnd::Link(reason)) => {
            // The connection states the reason more precisely than a stream.
            let reason = connection.close_reason().map_or(reason, |why| printable(&why));
            debug!(%device, "connection ended: {reason}");
        }
        Ok(()) => close(&connection, Code::Unexpected),
    }
}

/// Why a session has ended.
enum SessionEnd {
    Refused(Code),
    /// The device has joined on another connection.
    Displaced,
    Link(String),
}

impl<E: std::error::Error> From<E> for SessionEnd {
    /// The peer may have chosen the text, so it is made printable.
    fn from(error: E) -> Self {
        Self::Link(printable(&error))
    }
}

async fn serve_device(
    connection: &Connection,
    context: &Context,
    conn: ConnId,
    signals: &ConnectionSignals,
    device: &DeviceId,
) -> Result<(), SessionEnd> {
    // A connection without a message is closed.
    let first = tokio::time::timeout(context.timeouts.hello, connection.accept_bi()).await?;
    let (send, receive) = first?;
    info!(%device, "joined");
    tokio::select! {
        end = reader::messages(receive, &context.driver, conn) => end,
        end = reader::transfers(connection, &context.driver, conn) => end,
        end = Writer::new(connection, send, context, conn, signals).run() => end,
        end = enrolment::renewals(connection, device, &context.authority, &context.admission) => Err(end.into()),
        () = signals.displaced() => Err(SessionEnd::Displaced),
    }
}

/// The protocol that the peers have agreed on.
fn protocol(connection: &Connection) -> Option<Vec<u8>> {
    let data = connection.handshake_data()?.downcast::<quinn::crypto::rustls::HandshakeData>().ok()?;
    data.protocol
}

fn close(connection: &Connection, code: Code) {
    connection.close(VarInt::from_u32(code.number().into()), code.text().as_bytes());
}

#[cfg(test)]
mod tests;
