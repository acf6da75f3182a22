//! Gets the fleet's schema from the gateway, and agrees on scales, before the device joins.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use common::{
    Code, DeviceId,
    schema::{ALPN, ColumnScale, MAX_BYTES, SchemaAnswer, SchemaQuestion},
    wire,
};
use quinn::VarInt;

use super::{
    ReconnectBackoff,
    gateways::{GatewayAddresses, Route, Turn},
    identity::Identity,
    quic::{self, LinkError, Sockets},
    watch::ReadBy,
};
use crate::data::schema::{DecodeError, Schema};

/// Time between two questions for a scale that is not agreed on yet.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// How long a device that has joined asks how the run reads files, before it trusts its samples.
const COMPARE: Duration = Duration::from_secs(30);

/// Why a device gets no schema.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum SchemaLinkError {
    #[error("cannot open a socket: {0}")]
    Socket(io::Error),
    #[error("the gateway tells no schema: {0}")]
    Refused(Code),
    #[error("no schema from the gateway: {0}; check that it is running, and --server")]
    GaveUp(String),
    #[error("the gateway's schema: {0}")]
    Decode(#[from] DecodeError),
    #[error("the gateway's scales do not fit its schema; update the older of gateway and device")]
    Scales,
}

/// The schema that a gateway tells.
#[derive(Clone, PartialEq, Debug)]
pub struct ToldSchema {
    /// As in the configuration of the gateway.
    pub schema: Schema,
    /// With the scales of the fleet, once they are agreed on.
    pub scaled: Option<Schema>,
}

/// How a device reaches the gateway before it joins.
#[derive(Copy, Clone, Debug)]
pub struct SchemaLink<'a> {
    /// Addresses of the fleet's gateways.
    pub gateways: &'a GatewayAddresses,
    /// Who the device is.
    pub identity: &'a Identity,
    /// Its name, from which pauses follow.
    pub device: &'a DeviceId,
    /// Idle timeout of the link.
    pub silence: Duration,
    /// How long to try; forever if not given.
    pub give_up_after: Option<Duration>,
}

impl SchemaLink<'_> {
    /// The schema of the run, if it has one.
    pub async fn schema(&self) -> Result<Option<ToldSchema>, SchemaLinkError> {
        ToldSchema::of(&self.ask(&SchemaQuestion::default(), &mut self.route()).await?)
    }

    /// Whether samples that were read in this way suit the run that the gateway serves. A gateway of a version without schemas
    /// does not speak their protocol.
    pub(super) async fn suits(&self, read_by: ReadBy<'_>) -> Result<bool, SchemaLinkError> {
        if read_by == ReadBy::Unknown {
            return Ok(true);
        }
        let route = self.route();
        let mut sockets = Sockets::open(route.addresses()).map_err(SchemaLinkError::Socket)?;
        let told = match self.ask_once(&SchemaQuestion::default(), &mut sockets, route.address()).await {
            Ok(answer) => ToldSchema::of(&answer)?,
            Err(LinkError::OtherProtocol(_)) => None,
            Err(_) => SchemaLink { give_up_after: Some(COMPARE), ..*self }.schema().await?,
        };
        Ok(match (told, read_by) {
            (None, _) | (_, ReadBy::Unknown) => true,
            (Some(_), ReadBy::NoSchema) => false,
            (Some(told), ReadBy::Schema(used)) => told.scaled.as_ref().unwrap_or(&told.schema) == used,
        })
    }

    /// Tells the gateway what this device's file holds, and waits until the fleet has agreed on its scales.
    pub async fn agree(
        &self,
        schema: &Schema,
        summaries: Vec<ColumnScale>,
    ) -> Result<Schema, SchemaLinkError> {
        let (question, mut route, mut told) = (SchemaQuestion { summaries }, self.route(), false);
        loop {
            let answer = self.ask(&question, &mut route).await?;
            if !answer.scales.is_empty() {
                return resolve(schema, &answer.scales);
            }
            if !std::mem::replace(&mut told, true) {
                tracing::info!("waiting until enough devices have told the range of their columns");
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Asks until there is an answer. A refusal of an authenticated gateway is final.
    async fn ask(
        &self,
        question: &SchemaQuestion,
        route: &mut Route,
    ) -> Result<SchemaAnswer, SchemaLinkError> {
        let (began, mut backoff) = (Instant::now(), ReconnectBackoff::new(self.device));
        let mut sockets = Sockets::open(route.addresses()).map_err(SchemaLinkError::Socket)?;
        loop {
            let problem = match self.ask_once(question, &mut sockets, route.address()).await {
                Ok(answer) => return Ok(answer),
                Err(LinkError::Refused(code @ (Code::UnknownDevice | Code::BadMessage))) => {
                    return Err(SchemaLinkError::Refused(code));
                }
                Err(error) => error,
            };
            if self.give_up_after.is_some_and(|limit| began.elapsed() >= limit) {
                return Err(SchemaLinkError::GaveUp(problem.to_string()));
            }
            let pause = match route.note_end(problem.is_turned_away(), false) {
                Turn::AtOnce => Duration::ZERO,
                Turn::AfterPause => backoff.pause(false),
            };
            tracing::warn!(
                "no schema from the gateway: {problem}; next attempt in {:.1} s",
                pause.as_secs_f32()
            );
            tokio::time::sleep(pause).await;
        }
    }

    fn route(&self) -> Route {
        Route::new(self.gateways, self.device.as_str())
    }

    async fn ask_once(
        &self,
        question: &SchemaQuestion,
        sockets: &mut Sockets,
        server: SocketAddr,
    ) -> Result<SchemaAnswer, LinkError> {
        let exchange = async {
            let connection = quic::connect(sockets, server, self.identity, &[ALPN], self.silence).await?;
            let (mut send, mut receive) = connection.open_bi().await?;
            let lost = |error: &dyn std::fmt::Display| LinkError::lost(error);
            let bytes = postcard::to_extend(question, Vec::new()).map_err(|error| lost(&error))?;
            send.write_all(&bytes).await.map_err(|error| lost(&error))?;
            send.finish().map_err(|error| lost(&error))?;
            let answer = receive
                .read_to_end(MAX_BYTES)
                .await
                .map_err(|error| connection.close_reason().map_or_else(|| lost(&error), LinkError::from))?;
            connection.close(VarInt::from_u32(0), b"");
            wire::message(&answer).map_err(|error| lost(&error))
        };
        let answer = tokio::time::timeout(Duration::from_secs(20), exchange).await;
        answer.unwrap_or_else(|_| Err(LinkError::Lost("no answer within 20 s".into())))
    }
}

impl ToldSchema {
    fn of(answer: &SchemaAnswer) -> Result<Option<Self>, SchemaLinkError> {
        if answer.schema.is_empty() {
            return Ok(None);
        }
        let schema = Schema::decode(&answer.schema)?;
        let scaled = match answer.scales.is_empty() {
            true => None,
            false => Some(resolve(&schema, &answer.scales)?),
        };
        Ok(Some(Self { schema, scaled }))
    }
}

fn resolve(schema: &Schema, scales: &[ColumnScale]) -> Result<Schema, SchemaLinkError> {
    let scales: Vec<(f32, f32)> = scales.iter().map(|scale| (scale.mean, scale.deviation)).collect();
    schema.with_scales(&scales).ok_or(SchemaLinkError::Scales)
}
