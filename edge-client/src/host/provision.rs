//! Gives a board its samples over the serial line; see [`crate::serial::Taken`].

use std::time::Duration;

use common::Code;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::serial::{
    MAX_PACKET, PIECE, SAMPLES, Taken,
    line::{Decoder, Encoder},
};

/// How long a board may take over a batch before a piece is repeated, and how often that is done.
const PATIENCE: Duration = Duration::from_secs(2);
const TRIES: u32 = 15;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProvisionError {
    #[error("the samples take {need} bytes, the board has room for {have}; give it fewer")]
    Room { need: usize, have: u32 },
    #[error("the board refuses the samples: {0}; write them with `edge-client shard`")]
    Refused(Code),
    #[error("the board does not answer; is its firmware running, and is no bridge using the port?")]
    Silent,
    #[error("the line: {0}")]
    Line(#[from] std::io::Error),
}

/// Sends a file of samples and returns when they are the board's. `progress` hears how many bytes are there.
pub async fn provision<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    file: &[u8],
    mut progress: impl FnMut(usize),
) -> Result<(), ProvisionError> {
    let mut decoder = Decoder::<{ MAX_PACKET + 4 }>::default();
    let (mut next, mut tries) = (0, 0);
    while next < file.len() {
        let piece = &file[next..file.len().min(next + PIECE)];
        let head = [(next as u32).to_le_bytes(), (file.len() as u32).to_le_bytes()].concat();
        let packet = [&[SAMPLES][..], &head, piece].concat();
        stream.write_all(&Encoder::new(&packet).collect::<Vec<u8>>()).await?;
        stream.flush().await?;
        let Ok(taken) = tokio::time::timeout(PATIENCE, answer(stream, &mut decoder)).await else {
            tries += 1;
            if tries >= TRIES {
                return Err(ProvisionError::Silent);
            }
            continue;
        };
        let taken = taken?;
        match taken.refused {
            Some(Code::DoesNotFit) => {
                return Err(ProvisionError::Room { need: file.len(), have: taken.room });
            }
            Some(code) => return Err(ProvisionError::Refused(code)),
            None => {}
        }
        tries = if taken.next as usize == next { tries + 1 } else { 0 };
        next = (taken.next as usize).min(file.len());
        progress(next);
    }
    Ok(())
}

async fn answer<S: AsyncRead + Unpin, const ROOM: usize>(
    stream: &mut S,
    decoder: &mut Decoder<ROOM>,
) -> Result<Taken, ProvisionError> {
    let mut bytes = [0; 256];
    loop {
        let len = stream.read(&mut bytes).await?;
        if len == 0 {
            return Err(ProvisionError::Silent);
        }
        let mut last = None;
        for &byte in bytes.iter().take(len) {
            if let Some(Ok(packet)) = decoder.push(byte) {
                last = Taken::decode(packet).or(last);
            }
        }
        if let Some(taken) = last {
            return Ok(taken);
        }
    }
}
