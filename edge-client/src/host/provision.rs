//! Sends samples and questions to a board over the serial line, sealed with the key of its identity; see
//! [`crate::serial::Taken`] and [`crate::serial::BoardAnswer`].

use std::time::Duration;

use common::{
    Code, DeviceId,
    sealed::{
        BoardIdentity, Hail, MAX_PLAIN, Responder, ResponderEvent, SEAL_HEAD, SEAL_OVERHEAD, SEAL_VERSION,
        STRANGER,
    },
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::serial::{
    BoardAnswer, MAX_PACKET, PIECE, QUESTION, QUESTION_PIECE, SAMPLES, Taken,
    line::{Decoder, Encoder},
};

/// Time before a piece is repeated, which allows for a batch on the board; and the number of repetitions.
const PIECE_TIMEOUT: Duration = Duration::from_secs(2);
const TRIES: u32 = 15;
/// Answered HAILs after which the board is assumed to reject the key.
const ANSWERS: u32 = 4;

/// Why a board does not get samples.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum ProvisionError {
    #[error("the samples take {need} bytes, the board has room for {have}; use fewer samples")]
    Room { need: usize, have: u32 },
    #[error("the board refuses the samples: {0}; write them with `fairtier board shard`")]
    Refused(Code),
    #[error("the board is {board}, the identity is that of {identity}; use the identity of this board")]
    OtherBoard { board: DeviceId, identity: DeviceId },
    #[error("{0} does not accept the key of this identity; use the one that was flashed last")]
    OtherKey(DeviceId),
    #[error("the board's firmware is older than this program; flash the matching image")]
    Older,
    #[error("the board does not answer; check that its firmware is running and that no bridge uses the port")]
    Silent,
    #[error("the board takes {board} numbers per sample, this sample has {sample}")]
    Width { board: u32, sample: usize },
    #[error("the board has no model yet; it gets one in its first round")]
    NoModel,
    #[error("the board does not predict: {0}")]
    NoAnswer(Code),
    #[error("the board's firmware has no predictions; flash an image with `ask` among its extras")]
    NoQuestions,
    #[error("the operating system gives no random numbers")]
    Randomness,
    #[error("serial line: {0}")]
    Line(#[from] std::io::Error),
}

/// Sends a file of samples and returns when the board has accepted all of it. `identity` is that of the board. `progress` gets
/// the number of bytes that the board has.
pub async fn provision<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    identity: &BoardIdentity,
    file: &[u8],
    mut progress: impl FnMut(usize),
) -> Result<(), ProvisionError> {
    let mut board = Cable::new(stream, identity);
    let (mut next, mut tries) = (None, 0);
    while next.is_none_or(|next| next < file.len()) {
        match next {
            // Makes a board with an earlier session begin a new one at once.
            None => board.put(&[STRANGER]).await?,
            Some(next) => board.send_piece(file, next).await?,
        }
        let taken = match tokio::time::timeout(PIECE_TIMEOUT, board.answer()).await {
            Ok(taken) => taken?,
            Err(_) => {
                tries += 1;
                if tries >= TRIES {
                    return Err(ProvisionError::Silent);
                }
                continue;
            }
        };
        match taken.refused {
            Some(Code::DoesNotFit) => {
                return Err(ProvisionError::Room { need: file.len(), have: taken.room });
            }
            Some(code) => return Err(ProvisionError::Refused(code)),
            None => {}
        }
        let there = (taken.next as usize).min(file.len());
        tries = if next == Some(there) { tries + 1 } else { 0 };
        if tries >= TRIES {
            return Err(ProvisionError::Silent);
        }
        next = Some(there);
        progress(there);
    }
    // Ends the session, so that the board hails at once instead of waiting for more samples.
    board.put(&[STRANGER]).await
}

/// Asks a board about samples, one after another, and returns its answers. `identity` is that of the board.
pub async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    identity: &BoardIdentity,
    samples: &[Vec<f32>],
) -> Result<Vec<BoardAnswer>, ProvisionError> {
    let mut board = Cable::new(stream, identity);
    let mut tries = 0;
    board.put(&[STRANGER]).await?;
    // The board greets with the room that it has for samples.
    loop {
        match tokio::time::timeout(PIECE_TIMEOUT, board.answer()).await {
            Ok(greeting) => break greeting.map(|_| ())?,
            Err(_) if tries >= TRIES => return Err(ProvisionError::Silent),
            Err(_) => tries += 1,
        }
        board.put(&[STRANGER]).await?;
    }
    let mut answers = vec![];
    for (number, sample) in samples.iter().enumerate() {
        answers.push(board.question(number as u16, sample).await?);
    }
    // Ends the session, so that the board joins the gateway again at once.
    board.put(&[STRANGER]).await?;
    Ok(answers)
}

/// The numbers per sample that a board's model takes.
pub async fn inputs<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    identity: &BoardIdentity,
) -> Result<u32, ProvisionError> {
    match ask(stream, identity, &[vec![]]).await {
        Err(ProvisionError::Width { board, .. }) => Ok(board),
        Err(error) => Err(error),
        // A model without inputs.
        Ok(_) => Ok(0),
    }
}

/// What a board says in a session with the holder of its identity.
enum Reply {
    Taken(Taken),
    Answer(BoardAnswer),
}

/// The line to a board, and the session on it.
struct Cable<'a, S> {
    stream: &'a mut S,
    identity: &'a BoardIdentity,
    responder: Responder,
    decoder: Decoder<{ MAX_PACKET + 4 }>,
    /// Bytes that have arrived and are not decoded yet.
    bytes: Vec<u8>,
    /// HAILs that were answered since the last valid packet of the board.
    answers: u32,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin> Cable<'a, S> {
    fn new(stream: &'a mut S, identity: &'a BoardIdentity) -> Self {
        Self {
            stream,
            identity,
            responder: Responder::for_samples(),
            decoder: Decoder::default(),
            bytes: vec![],
            answers: 0,
        }
    }

    async fn put(&mut self, packet: &[u8]) -> Result<(), ProvisionError> {
        self.stream.write_all(&Encoder::new(packet).collect::<Vec<u8>>()).await?;
        Ok(self.stream.flush().await?)
    }

    async fn send_piece(&mut self, file: &[u8], offset: usize) -> Result<(), ProvisionError> {
        let piece = &file[offset..file.len().min(offset + PIECE)];
        let head = [(offset as u32).to_le_bytes(), (file.len() as u32).to_le_bytes()].concat();
        self.send_frame(&[&[SAMPLES][..], &head, piece].concat()).await
    }

    /// Sends a sample, and returns the answer to it.
    async fn question(&mut self, number: u16, sample: &[f32]) -> Result<BoardAnswer, ProvisionError> {
        let (mut next, mut tries, mut heard) = (0, 0, false);
        loop {
            let piece = sample.iter().skip(next).take(QUESTION_PIECE).flat_map(|value| value.to_le_bytes());
            let head = [(sample.len() as u32).to_le_bytes(), (next as u32).to_le_bytes()].concat();
            let frame: Vec<u8> =
                [QUESTION].into_iter().chain(number.to_le_bytes()).chain(head).chain(piece).collect();
            self.send_frame(&frame).await?;
            let answer = match tokio::time::timeout(PIECE_TIMEOUT, self.reply()).await {
                Ok(reply) => match reply? {
                    Reply::Answer(answer) if answer.number == number => Some(answer),
                    _ => None,
                },
                Err(_) => None,
            };
            let Some(answer) = answer else {
                tries += 1;
                match tries {
                    TRIES.. if heard => return Err(ProvisionError::Silent),
                    // Firmware without predictions ignores questions.
                    4.. if !heard && number == 0 => return Err(ProvisionError::NoQuestions),
                    TRIES.. => return Err(ProvisionError::Silent),
                    _ => continue,
                }
            };
            heard = true;
            match answer.refused {
                Some(Code::NotReady) => return Err(ProvisionError::NoModel),
                Some(Code::WrongData) if answer.inputs as usize != sample.len() => {
                    return Err(ProvisionError::Width { board: answer.inputs, sample: sample.len() });
                }
                Some(code) => return Err(ProvisionError::NoAnswer(code)),
                None if answer.prediction.is_some() => return Ok(answer),
                None => {}
            }
            tries = if answer.next as usize > next { 0 } else { tries + 1 };
            if tries >= TRIES {
                return Err(ProvisionError::Silent);
            }
            next = (answer.next as usize).min(sample.len());
        }
    }

    async fn send_frame(&mut self, frame: &[u8]) -> Result<(), ProvisionError> {
        let mut packet = [&[0; SEAL_HEAD][..], frame, &[0; SEAL_OVERHEAD]].concat();
        match self.responder.seal(&mut packet, frame.len()) {
            Some(len) => self.put(&packet[..len]).await,
            None => Ok(()),
        }
    }

    /// Waits for the board's answer to a piece of samples or to a new session.
    async fn answer(&mut self) -> Result<Taken, ProvisionError> {
        loop {
            if let Reply::Taken(taken) = self.reply().await? {
                return Ok(taken);
            }
        }
    }

    /// Waits for what the board says. Answers HAILs meanwhile.
    async fn reply(&mut self) -> Result<Reply, ProvisionError> {
        loop {
            let mut packet = self.next_packet().await?;
            if let Some(hail) = Hail::decode(&packet) {
                self.check(hail)?;
            }
            let (mut reply, nonce) = ([0; MAX_PLAIN], fresh_nonce()?);
            let (ours, key) = (&self.identity.device, self.identity.key);
            let key_of = |device: &DeviceId| (device == ours).then_some(key);
            match self.responder.handle(&mut packet, &mut reply, key_of, || nonce) {
                ResponderEvent::Reply(len) => self.put(&reply[..len]).await?,
                ResponderEvent::Frame { frame, .. } => {
                    self.answers = 0;
                    if let Some(taken) = Taken::decode(frame) {
                        return Ok(Reply::Taken(taken));
                    }
                    if let Some(answer) = BoardAnswer::decode(frame) {
                        return Ok(Reply::Answer(answer));
                    }
                }
                ResponderEvent::Nothing | ResponderEvent::Rejected(_) => {}
            }
        }
    }

    fn check(&mut self, hail: Hail) -> Result<(), ProvisionError> {
        if hail.device != self.identity.device {
            let identity = self.identity.device.clone();
            return Err(ProvisionError::OtherBoard { board: hail.device, identity });
        }
        if hail.version != SEAL_VERSION {
            return Err(ProvisionError::Older);
        }
        self.answers += 1;
        if self.answers > ANSWERS { Err(ProvisionError::OtherKey(hail.device)) } else { Ok(()) }
    }

    async fn next_packet(&mut self) -> Result<Vec<u8>, ProvisionError> {
        loop {
            let mut bytes = std::mem::take(&mut self.bytes).into_iter();
            let packet = bytes.find_map(|byte| Some(self.decoder.push(byte)?.ok()?.to_vec()));
            self.bytes = bytes.collect();
            if let Some(packet) = packet {
                return Ok(packet);
            }
            let mut bytes = [0; 256];
            let len = self.stream.read(&mut bytes).await?;
            if len == 0 {
                return Err(ProvisionError::Silent);
            }
            self.bytes.extend(bytes.iter().take(len));
        }
    }
}

fn fresh_nonce() -> Result<[u8; 16], ProvisionError> {
    let mut nonce = [0; 16];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut nonce).map_err(|_| ProvisionError::Randomness)?;
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use common::{Budget, Instant, sealed::Nonces};

    use super::*;
    use crate::{
        Profile,
        data::{BytesShard, Images, Shard},
        serial::{SerialDevice, limits},
        session::HeapArena,
    };

    fn identity(name: &str) -> BoardIdentity {
        BoardIdentity {
            device: name.parse().unwrap(),
            key: [7; 32],
            seed: [1; 16],
            privacy: common::privacy::Privacy::default(),
        }
    }

    fn samples() -> Vec<u8> {
        let train = Images::new(&[1; 800], &[3; 400], 2).unwrap();
        BytesShard::new(train, Images::new(&[], &[], 2).unwrap(), 0.5).unwrap().encode()
    }

    /// Provisions a simulated board; returns the result and its number of samples.
    async fn give(identity: &BoardIdentity, file: &[u8]) -> (Result<(), ProvisionError>, u32) {
        let (mut host, mut cable) = tokio::io::duplex(256);
        let own = self::identity("m4");
        let budget = Budget { ram: 1 << 15, ..Budget::UNLIMITED };
        let data = BytesShard::EMPTY.summary();
        let profile = Profile {
            device: own.device.clone(),
            budget,
            data,
            privacy: common::privacy::Privacy::default(),
        };
        let arena = HeapArena::new(budget.ram);
        let mut board: SerialDevice<_, 16> =
            SerialDevice::new(own, profile, "host", arena, limits(256), Nonces::new([1; 16], 0));
        let (mut room, start) = (vec![0; 4096], tokio::time::Instant::now());
        // The board hails again and again.
        let now = || Instant::from_millis(20 * start.elapsed().as_millis() as u64);
        let run = async {
            let mut bytes = [0; 64];
            loop {
                while let Some(line) = board.poll_transmit(now()) {
                    let line: Vec<u8> = line.collect();
                    cable.write_all(&line).await.unwrap();
                }
                let wait = tokio::time::sleep(Duration::from_millis(5));
                tokio::select! {
                    len = cable.read(&mut bytes) => board.handle_bytes(&bytes[..len.unwrap()], &mut room, now()),
                    () = wait => board.handle_timeout(now()),
                }
            }
        };
        let outcome = tokio::select! {
            () = run => unreachable!("a board runs for ever"),
            outcome = provision(&mut host, identity, file, |_| {}) => outcome,
        };
        let train = board.samples(&room).map_or(0, |samples| samples.train_len());
        (outcome, train)
    }

    #[tokio::test]
    async fn samples_need_the_identity_of_the_board() {
        let (given, samples_there) = give(&identity("m4"), &samples()).await;
        given.unwrap();
        assert_eq!(samples_there, 400);
        let other = BoardIdentity { key: [8; 32], ..identity("m4") };
        let (given, samples_there) = give(&other, &samples()).await;
        assert!(matches!(given, Err(ProvisionError::OtherKey(_))), "{given:?}");
        assert_eq!(samples_there, 0);
        let (given, _) = give(&identity("m5"), &samples()).await;
        let said = given.unwrap_err().to_string();
        assert_eq!(said, "the board is m4, the identity is that of m5; use the identity of this board");
        let (given, _) = give(&identity("m4"), &vec![0; 5000]).await;
        assert!(matches!(given, Err(ProvisionError::Room { need: 5000, have: 4096 })), "{given:?}");
        let (given, _) = give(&identity("m4"), &[9; 100]).await;
        assert!(matches!(given, Err(ProvisionError::Refused(Code::WrongData))), "{given:?}");
    }
}
