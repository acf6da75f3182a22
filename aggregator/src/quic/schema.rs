//! Tells devices the fleet's schema: a connection of its own protocol ([`common::schema::ALPN`]) with one question and one
//! answer ([`common::schema`]).

use std::{sync::Arc, time::Duration};

use common::{
    Code, DeviceId,
    schema::{MAX_BYTES, SchemaAnswer, SchemaQuestion},
    wire,
};
use quinn::Connection;
use tracing::warn;

use super::close;
use crate::scales::FleetSchema;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves one connection of an enrolled device.
pub(super) async fn serve(connection: &Connection, schema: &Arc<FleetSchema>, device: &DeviceId) {
    let answered = tokio::time::timeout(ANSWER_TIMEOUT, answer(connection, schema, device)).await;
    match answered.unwrap_or(Err(Code::BadMessage)) {
        // The device closes once it has everything.
        Ok(()) => drop(tokio::time::timeout(ANSWER_TIMEOUT, connection.closed()).await),
        Err(code) => close(connection, code),
    }
}

async fn answer(connection: &Connection, schema: &Arc<FleetSchema>, device: &DeviceId) -> Result<(), Code> {
    let (mut send, mut receive) = connection.accept_bi().await.map_err(|_| Code::BadMessage)?;
    let question = receive.read_to_end(MAX_BYTES).await.map_err(|_| Code::BadMessage)?;
    let question: SchemaQuestion = wire::message(&question).map_err(|_| Code::BadMessage)?;
    let (schema, device) = (schema.clone(), device.clone());
    // Agreeing on a scale waits for the disk.
    let answered = tokio::task::spawn_blocking(move || schema.answer(&device, &question)).await;
    let answer: SchemaAnswer = match answered {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            warn!("a device gets no schema: {error}");
            return Err(Code::NotReady);
        }
        Err(_) => return Err(Code::NotReady),
    };
    let bytes = postcard::to_extend(&answer, Vec::new()).map_err(|_| Code::NotReady)?;
    send.write_all(&bytes).await.map_err(|_| Code::BadMessage)?;
    send.finish().map_err(|_| Code::BadMessage)
}
