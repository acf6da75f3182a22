//! Fetches the device's sub-model as an ONNX file.

use common::{
    TransferId,
    message::{Blob, ToAggregator, ToDevice},
    transfer::{Arrival, Incoming},
    wire::{self, Frame, crc32},
};

/// The download of one file.
#[derive(Debug, Default)]
pub(super) struct Pull {
    file: Option<(Blob, Incoming, Vec<u8>)>,
}

/// What to do after a frame.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "looked at once and dropped")]
pub(super) enum PullStep {
    /// The frame does not belong to the download.
    Other,
    /// Send this message.
    Say(ToAggregator),
    /// Nothing to send.
    Quiet,
    /// The file is complete.
    Done(Vec<u8>),
}

/// Largest file in bytes, above the export of the largest model that a transfer can carry.
const MAX_FILE: u32 = 1 << 30;

impl Pull {
    pub(super) fn handle_frame(&mut self, bytes: &[u8]) -> PullStep {
        match Frame::decode(bytes) {
            Ok(Frame::Control(body)) => match wire::control::<ToDevice>(body) {
                Ok((ToDevice::Onnx(blob), _)) if blob.bytes <= MAX_FILE => {
                    let mut incoming = Incoming::new(blob.transfer, blob.bytes);
                    let fetch = incoming.fetch();
                    self.file = Some((blob, incoming, Vec::new()));
                    PullStep::Say(ToAggregator::Fetch(fetch))
                }
                _ => PullStep::Other,
            },
            Ok(Frame::Chunk { transfer, offset, data }) => self.handle_chunk(transfer, offset, data),
            Err(_) => PullStep::Other,
        }
    }

    fn handle_chunk(&mut self, transfer: TransferId, offset: u32, data: &[u8]) -> PullStep {
        let Some((blob, incoming, file)) = &mut self.file else { return PullStep::Other };
        match incoming.handle_chunk(transfer, offset, data.len()) {
            Arrival::Foreign => return PullStep::Other,
            Arrival::Gap => {
                return incoming.refetch().map_or(PullStep::Quiet, |f| PullStep::Say(ToAggregator::Fetch(f)));
            }
            Arrival::Fresh => file.extend_from_slice(data),
            Arrival::Known => {}
        }
        if !incoming.is_done() {
            return PullStep::Say(ToAggregator::Ack(incoming.ack()));
        }
        if crc32(file) == blob.check {
            let file = std::mem::take(file);
            self.file = None;
            PullStep::Done(file)
        } else {
            *incoming = Incoming::new(blob.transfer, blob.bytes);
            file.clear();
            PullStep::Say(ToAggregator::Fetch(incoming.fetch()))
        }
    }
}
