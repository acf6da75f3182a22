//! A board under the control of a test: sealed frames over a line into a real bridge, without a Session.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use client::serial::{
    MAX_CHUNK, MAX_PACKET,
    line::{Decoder, Encoder},
};
use common::{
    Code,
    message::{Hello, ToAggregator, ToDevice, Welcome},
    sealed::{BoardIdentity, Initiator, InitiatorEvent, Nonces, SEAL_HEAD, SEAL_OVERHEAD, SealError},
    wire::{self, Frame},
};

use crate::{
    process::{PATIENCE, wait_for},
    raw::{control, hello},
};

pub mod first;

/// Time without an answer after which a packet is sent again.
const PAUSE: Duration = Duration::from_millis(200);

/// A board on a line.
#[derive(Debug)]
pub struct Board {
    identity: BoardIdentity,
    initiator: AnyInitiator,
    line: UnixStream,
    decoder: Decoder<{ MAX_PACKET + 4 }>,
    packets: Vec<Vec<u8>>,
}

/// The seal of current firmware, or of older firmware.
#[derive(Debug)]
enum AnyInitiator {
    Second(Initiator),
    First(first::Initiator),
}

impl AnyInitiator {
    fn hail(&mut self, out: &mut [u8]) -> usize {
        match self {
            Self::Second(initiator) => initiator.hail(out),
            Self::First(initiator) => initiator.hail(out),
        }
    }

    fn seal(&mut self, packet: &mut [u8], len: usize) -> Option<usize> {
        match self {
            Self::Second(initiator) => initiator.seal(packet, len),
            Self::First(initiator) => initiator.seal(packet, len),
        }
    }

    fn handle<'a>(&mut self, packet: &'a mut [u8]) -> InitiatorEvent<'a> {
        match self {
            Self::Second(initiator) => initiator.handle(packet),
            Self::First(initiator) => initiator.handle(packet),
        }
    }
}

/// The next event of a board's session.
#[derive(Debug)]
pub enum Answer {
    Message(Box<ToDevice>),
    /// There is no session, or it has ended.
    Lost,
    Refused(Code),
}

impl Board {
    /// Connects a board with an identity of `fairtier gateway enroll --serial` to a bridge's socket.
    pub fn plug(identity: &Path, socket: &Path) -> Self {
        let identity = BoardIdentity::decode(&fs::read(identity).unwrap()).unwrap();
        let line = wait_for("the bridge's socket", || UnixStream::connect(socket).ok());
        line.set_read_timeout(Some(PAUSE)).unwrap();
        // All boards of a test have different seeds.
        let initiator = Initiator::new(identity.device.clone(), identity.key, Nonces::new(identity.seed, 0));
        let initiator = AnyInitiator::Second(initiator);
        Self { identity, initiator, line, decoder: Decoder::default(), packets: vec![] }
    }

    /// The same board with older firmware: version 1 of the seal, protocol 4.
    pub fn plug_older(identity: &Path, socket: &Path) -> Self {
        let board = Self::plug(identity, socket);
        let initiator =
            first::Initiator::new(board.identity.device.clone(), board.identity.key, board.identity.seed);
        Self { initiator: AnyInitiator::First(initiator), ..board }
    }

    pub fn identity(&self) -> &BoardIdentity {
        &self.identity
    }

    /// Requests a session until it is open or refused, or the gateway does not know the board's key.
    pub fn hail(&mut self) -> Result<(), Code> {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "the hail is not answered");
            let mut packet = [0; 64];
            let len = self.initiator.hail(&mut packet);
            self.put(&packet[..len]);
            while let Some(mut packet) = self.next_packet() {
                match self.initiator.handle(&mut packet) {
                    InitiatorEvent::Connected => return Ok(()),
                    InitiatorEvent::Refused(code) => return Err(code),
                    InitiatorEvent::Rejected(SealError::Forged) => return Err(Code::UnknownDevice),
                    _ => {}
                }
            }
        }
    }

    pub fn say(&mut self, message: &ToAggregator) {
        let frame = control(message);
        let mut packet = vec![0; frame.len() + SEAL_OVERHEAD];
        packet[SEAL_HEAD..SEAL_HEAD + frame.len()].copy_from_slice(&frame);
        let len = self.initiator.seal(&mut packet, frame.len()).unwrap();
        self.put(&packet[..len]);
    }

    /// Waits for the next answer.
    pub fn hear(&mut self) -> Answer {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "no answer arrives");
            let Some(mut packet) = self.next_packet() else { continue };
            match self.initiator.handle(&mut packet) {
                InitiatorEvent::Frame(frame) => match Frame::decode(frame).unwrap() {
                    Frame::Control(body) => return Answer::Message(Box::new(wire::control(body).unwrap().0)),
                    Frame::Chunk { .. } => {}
                },
                InitiatorEvent::Lost => return Answer::Lost,
                InitiatorEvent::Refused(code) => return Answer::Refused(code),
                _ => {}
            }
        }
    }

    /// Opens a session and says Hello as a board with ample memory.
    pub fn join(&mut self) -> Welcome {
        self.try_join().unwrap_or_else(|code| panic!("refused: {code}"))
    }

    /// Like [`Board::join`], but returns a refusal.
    pub fn try_join(&mut self) -> Result<Welcome, Code> {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "no Welcome arrives");
            self.hail()?;
            self.say(&self.hello());
            loop {
                match self.hear() {
                    Answer::Message(message) => {
                        if let ToDevice::Welcome(welcome) = *message {
                            return Ok(welcome);
                        }
                    }
                    // The bridge has opened another stream.
                    Answer::Lost => break,
                    Answer::Refused(code) => return Err(code),
                }
            }
        }
    }

    pub fn hello(&self) -> ToAggregator {
        let hello = Hello { max_chunk: MAX_CHUNK, ..hello(self.identity.device.as_str()) };
        ToAggregator::Hello(hello)
    }

    /// Waits until the session is lost.
    pub fn wait_lost(&mut self) {
        while !matches!(self.hear(), Answer::Lost) {}
    }

    /// Sends any packet.
    pub fn put(&mut self, packet: &[u8]) {
        let bytes: Vec<u8> = Encoder::new(packet).collect();
        self.line.write_all(&bytes).unwrap();
    }

    /// The next packet; `None` if none arrives for a while.
    pub fn next_packet(&mut self) -> Option<Vec<u8>> {
        let mut bytes = [0; 1024];
        while self.packets.is_empty() {
            let len = self.line.read(&mut bytes).ok()?;
            assert!(len > 0, "the bridge has closed the line");
            for &byte in &bytes[..len] {
                if let Some(Ok(packet)) = self.decoder.push(byte) {
                    self.packets.push(packet.to_vec());
                }
            }
        }
        Some(self.packets.remove(0))
    }
}
