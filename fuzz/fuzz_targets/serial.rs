//! The ends of a serial line: packets among the bytes, sealed frames, board identities, samples, and the aggregator's key files.
#![no_main]

use aggregator::ca::SerialCredential;
use client::{
    Profile,
    data::{BytesShard, DataSplit, Shard},
    serial::{
        MAX_CHUNK, MAX_PACKET, SAMPLES, STATUS, SerialDevice, Status, Taken, limits,
        line::{Decoder, Encoder},
    },
    session::HeapArena,
};
use common::{
    Budget, Instant, TierSet,
    message::DataSummary,
    privacy::Privacy,
    sealed::{
        BoardIdentity, Hail, Initiator, InitiatorEvent, MAX_PLAIN, Nonces, Responder, ResponderEvent,
        SEAL_HEAD, SEAL_OVERHEAD,
    },
};
use libfuzzer_sys::fuzz_target;

const KEY: [u8; 32] = [7; 32];
const ROOM: usize = 512;
/// Most packets of one input, because sealing them takes most of the time.
const TURNS: usize = 24;

fuzz_target!(|data: &[u8]| {
    line(data);
    board(data);
    responder(data);
    samples(data);
    status(data);
    if let Ok(identity) = BoardIdentity::decode(data) {
        assert_eq!(BoardIdentity::decode(&identity.encode()), Ok(identity));
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Some(member) = SerialCredential::decode(text)
    {
        // A grant without an expiry cannot be written.
        let whole = member.expires.is_some() || member.tiers == TierSet::ALL;
        assert!(!whole || SerialCredential::decode(&member.encode()) == Some(member));
    }
});

/// Packets that are decoded from arbitrary bytes survive encoding and decoding.
fn line(data: &[u8]) {
    let (mut short, mut long) = (Decoder::<32>::default(), Decoder::<{ MAX_PACKET + 4 }>::default());
    for &byte in data {
        let _ = short.push(byte);
        if let Some(Ok(packet)) = long.push(byte) {
            let packet = packet.to_vec();
            let mut decoder = Decoder::<{ MAX_PACKET + 4 }>::default();
            let again = Encoder::new(&packet)
                .find_map(|byte| decoder.push(byte).map(|found| found.map(|found| found.to_vec())));
            assert_eq!(again, Some(Ok(packet)));
        }
    }
}

type Board = SerialDevice<HeapArena, 64>;

/// A board that receives the bytes as they are, then as valid packets, then as sealed frames of its aggregator.
fn board(data: &[u8]) {
    let privacy = Privacy::simulated(1);
    let identity = BoardIdentity { device: "m4".parse().expect("a name"), key: KEY, seed: [1; 16], privacy };
    let budget = Budget { ram: 1 << 15, flash: 1 << 15, ..Budget::UNLIMITED };
    let summary = DataSummary { train_samples: 10, inputs: 64, classes: 10, ..DataSummary::default() };
    let profile = Profile { device: identity.device.clone(), budget, data: summary, privacy };
    let mut board: Board = Board::new(
        identity,
        profile,
        "fuzz",
        HeapArena::new(budget.ram),
        limits(MAX_CHUNK),
        Nonces::new([1; 16], 0),
    );
    let mut room = vec![0; ROOM];
    board.handle_bytes(data, &mut room, Instant::ZERO);
    for packet in fuzz::pieces(data).take(TURNS) {
        hear(&mut board, packet, &mut room, Instant::ZERO);
    }
    assert!(board.samples(&room).is_none(), "nothing of this is sealed");
    // After any input it still opens a session, with the aggregator or with the holder of its board identity.
    let holder = data.first().is_some_and(|first| first % 2 == 1);
    let (mut responder, mut reply) =
        (if holder { Responder::for_samples() } else { Responder::default() }, [0; MAX_PLAIN]);
    for (turn, piece) in (1..).zip(fuzz::pieces(data).take(TURNS)) {
        let now = Instant::from_millis(3000 * turn);
        board.handle_timeout(now);
        for _ in 0..8 {
            let Some(bytes) = board.poll_transmit(now).map(Iterator::collect::<Vec<u8>>) else { break };
            let mut decoder = Decoder::<{ MAX_PACKET + 4 }>::default();
            let Some(mut packet) =
                bytes.iter().find_map(|&byte| decoder.push(byte)?.ok().map(|packet| packet.to_vec()))
            else {
                continue;
            };
            if let ResponderEvent::Reply(len) =
                responder.handle(&mut packet, &mut reply, |_| Some(KEY), || [turn as u8; 16])
            {
                hear(&mut board, &reply[..len], &mut room, now);
            }
        }
        let frame = if holder { [&[SAMPLES], piece].concat() } else { fuzz::frame(piece) };
        let mut packet = vec![0; frame.len() + SEAL_OVERHEAD];
        packet[SEAL_HEAD..SEAL_HEAD + frame.len()].copy_from_slice(&frame);
        if let Some(len) = responder.seal(&mut packet, frame.len()) {
            hear(&mut board, &packet[..len], &mut room, now);
        }
    }
    let _ = board.samples(&room);
}

fn hear(board: &mut Board, packet: &[u8], room: &mut [u8], now: Instant) {
    board.handle_bytes(&Encoder::new(packet).collect::<Vec<_>>(), room, now);
}

/// Arbitrary packets at the aggregator's end, and arbitrary answers to a board that hails.
fn responder(data: &[u8]) {
    let (mut responder, mut reply) = (Responder::default(), [0; MAX_PLAIN]);
    let mut initiator = Initiator::new("m4".parse().expect("a name"), KEY, Nonces::new([1; 16], 0));
    let mut hail = [0; MAX_PACKET];
    for piece in fuzz::pieces(data).take(TURNS) {
        let _ = Hail::decode(piece);
        let mut packet = piece.to_vec();
        let event = responder.handle(&mut packet, &mut reply, |_| Some(KEY), || [2; 16]);
        assert!(
            !matches!(event, ResponderEvent::Frame { .. }),
            "a packet without the session's key is accepted"
        );
        let _ = initiator.hail(&mut hail);
        let mut packet = piece.to_vec();
        let event = initiator.handle(&mut packet);
        assert!(
            !matches!(
                event,
                InitiatorEvent::Frame(_)
                    | InitiatorEvent::Piece(_)
                    | InitiatorEvent::Connected
                    | InitiatorEvent::Provisioning
            ),
            "a packet without the key is accepted"
        );
    }
}

fn samples(data: &[u8]) {
    let Ok(shard) = BytesShard::parse(data) else { return };
    assert_eq!(BytesShard::parse(&shard.encode()).map(|again| again.encode()), Ok(shard.encode()));
    let mut sample = vec![0.0; shard.inputs() as usize];
    for part in [DataSplit::Train, DataSplit::Test] {
        for index in 0..shard.len(part).min(4) {
            let label = shard.sample(part, index, &mut sample).expect("a sample that is there");
            assert!(label < shard.classes());
        }
    }
}

/// A status with a valid checksum.
fn status(data: &[u8]) {
    let _ = Taken::decode(data);
    let _ = Status::decode(data);
    let packet = [&[STATUS], &fuzz::frame(data)[..]].concat();
    if let Some(status) = Status::decode(&packet) {
        let mut again = vec![0; MAX_PACKET];
        let len = status.encode(&mut again);
        assert_eq!(Status::decode(&again[..len]), Some(status));
    }
}
