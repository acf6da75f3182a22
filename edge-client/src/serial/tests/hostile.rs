//! What a bridge without the board's key can do to a board.

use common::{
    Budget, Code, Instant, Versions,
    message::{ToAggregator, ToDevice},
    sealed::{
        BoardIdentity, CHALLENGE, MAX_PLAIN, Nonces, Responder, ResponderEvent, SEAL_HEAD, SEAL_OVERHEAD,
        SEALED, STRANGER, refusal,
    },
    wire::{self, Frame},
};

use super::*;
use crate::{
    Profile,
    data::{BytesShard, Images, Shard},
    session::HeapArena,
};

type Board = SerialDevice<HeapArena, 16>;

const KEY: [u8; 32] = [7; 32];

/// A board, the buffer for its samples, and the bridge's view of its line.
struct Bench {
    board: Board,
    room: [u8; 512],
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let identity = BoardIdentity {
            device: "m4".parse().unwrap(),
            key: KEY,
            seed: [1; 16],
            privacy: common::privacy::Privacy::default(),
        };
        let budget = Budget { ram: 1 << 15, ..Budget::UNLIMITED };
        let data = BytesShard::EMPTY.summary();
        let profile = Profile {
            device: identity.device.clone(),
            budget,
            data,
            privacy: common::privacy::Privacy::default(),
        };
        let arena = HeapArena::new(budget.ram);
        let board = Board::new(identity, profile, "host", arena, limits(256), Nonces::new([1; 16], 0));
        Self { board, room: [0; 512], now: Instant::ZERO }
    }

    fn hear(&mut self, packet: &[u8]) {
        self.board.handle_bytes(&line(packet), &mut self.room, self.now);
    }

    /// The packets that the board sends within `millis` milliseconds.
    fn after(&mut self, millis: u64) -> Vec<Vec<u8>> {
        self.now = self.now + Duration::from_millis(millis);
        self.board.handle_timeout(self.now);
        let mut said = vec![];
        while let Some(bytes) = self.board.poll_transmit(self.now).map(Iterator::collect::<Vec<u8>>) {
            said.extend(packets(&mut Decoder::<1024>::default(), &bytes).into_iter().map(Result::unwrap));
        }
        said
    }

    fn hail(&mut self, millis: u64) -> Vec<u8> {
        let said = self.after(millis);
        assert!(said.iter().all(|packet| packet[0] == common::sealed::HAIL), "{said:?}");
        said.into_iter().next().expect("the board hails")
    }

    /// Answers a HAIL and passes the answer to the board.
    fn challenge(&mut self, responder: &mut Responder, mut hail: Vec<u8>) {
        let mut reply = [0; MAX_PLAIN];
        let ResponderEvent::Reply(len) = responder.handle(&mut hail, &mut reply, |_| Some(KEY), || [5; 16])
        else {
            panic!("no challenge")
        };
        self.hear(&reply[..len]);
    }
}

fn samples() -> Vec<u8> {
    let train = Images::new(&[1; 40], &[3; 20], 2).unwrap();
    BytesShard::new(train, Images::new(&[], &[], 2).unwrap(), 0.5).unwrap().encode()
}

fn piece(file: &[u8]) -> Vec<u8> {
    let len = (file.len() as u32).to_le_bytes();
    [&[SAMPLES, 0, 0, 0, 0], &len[..], file].concat()
}

fn seal(responder: &mut Responder, frame: &[u8]) -> Vec<u8> {
    let mut packet = [&[0; SEAL_HEAD][..], frame, &[0; SEAL_OVERHEAD]].concat();
    let len = responder.seal(&mut packet, frame.len()).unwrap();
    packet[..len].to_vec()
}

#[test]
fn a_board_takes_only_samples_sealed_with_its_key() {
    let mut bench = Bench::new();
    let file = samples();
    // Before there is a session, while the board hails, and in a session.
    bench.hear(&piece(&file));
    assert!(bench.board.samples(&bench.room).is_none(), "before its first session");
    let hail = bench.hail(0);
    bench.hear(&piece(&file));
    let mut responder = Responder::default();
    bench.challenge(&mut responder, hail);
    let mut said = bench.after(1);
    assert_eq!(said[0][0], SEALED, "{said:?}");
    bench.hear(&piece(&file));
    let mut reply = [0; MAX_PLAIN];
    let event = responder.handle(&mut said[0], &mut reply, |_| None, Default::default);
    assert!(matches!(event, ResponderEvent::Frame { .. }));
    // Not even from the aggregator, in a session for frames.
    let sealed = seal(&mut responder, &piece(&file));
    bench.hear(&sealed);
    assert!(bench.board.samples(&bench.room).is_none());
    assert_eq!(bench.room, [0; 512]);
    assert_eq!(bench.board.status().train_samples, 0);
}

#[test]
fn a_holder_of_the_board_identity_gives_samples_and_the_board_hails_with_them() {
    let mut bench = Bench::new();
    let (hail, mut holder) = (bench.hail(0), Responder::for_samples());
    bench.challenge(&mut holder, hail);
    for turn in 0..2 {
        let said = bench.after(1);
        let [mut answer] = <[Vec<u8>; 1]>::try_from(said).unwrap();
        let mut reply = [0; MAX_PLAIN];
        let event = holder.handle(&mut answer, &mut reply, |_| None, Default::default);
        let ResponderEvent::Frame { frame, .. } = event else { panic!("{event:?}") };
        let next = if turn == 0 { 0 } else { samples().len() as u32 };
        assert_eq!(Taken::decode(frame), Some(Taken { refused: None, next, room: 512 }));
        if turn == 0 {
            let sealed = seal(&mut holder, &piece(&samples()));
            bench.hear(&sealed);
        }
    }
    assert_eq!(bench.board.samples(&bench.room).unwrap().train_len(), 20);
    bench.hear(&[STRANGER]);
    bench.hail(0);
    // If nothing arrives, it waits for more samples, but not for ever.
    let mut bench = Bench::new();
    let hail = bench.hail(0);
    bench.challenge(&mut Responder::for_samples(), hail);
    assert_eq!(bench.after(1).len(), 1);
    bench.hail(20_000);
}

/// Refusals are not authenticated.
#[test]
fn refusals_only_delay_a_board() {
    let mut bench = Bench::new();
    let mut hails = 0;
    for _ in 0..100 {
        bench.hear(&refusal(Code::UnknownDevice));
        hails += bench.after(1000).len();
    }
    assert!(hails >= 4, "{hails} hails in 100 seconds of refusals");
    bench.hear(&[STRANGER]);
    // A challenge is accepted at once.
    let hail = bench.hail(20_000);
    bench.hear(&refusal(Code::UnknownDevice));
    bench.challenge(&mut Responder::default(), hail);
    assert_eq!(bench.after(0)[0][0], SEALED);
    // A session that is reported as lost is opened again at once.
    for _ in 0..100 {
        bench.hear(&[STRANGER]);
        bench.hear(&[STRANGER]);
        let hail = bench.hail(0);
        bench.hear(&[STRANGER]);
        bench.challenge(&mut Responder::default(), hail);
        assert_eq!(bench.after(0)[0][0], SEALED);
    }
}

#[test]
fn the_status_of_a_board_reports_that_it_is_not_enrolled() {
    let mut bench = Bench::new();
    bench.hail(0);
    bench.hear(&[&[CHALLENGE][..], &[3; 32]].concat());
    let status = bench.board.status();
    assert_eq!((status.refused, status.rejected), (Some(Code::UnknownDevice), 1));
    bench.hail(5000);
}

/// The gateway closes the line after a refusal, and the bridge opens it again at once.
#[test]
fn a_refused_board_tries_less_and_less_often_and_says_why() {
    let mut bench = Bench::new();
    let mut tries = vec![];
    while bench.now < Instant::from_millis(200_000) {
        let Some(hail) = bench.after(100).pop() else { continue };
        tries.push(bench.now.as_millis());
        let mut responder = Responder::default();
        bench.challenge(&mut responder, hail);
        let (mut hello, mut reply) = (bench.after(0).remove(0), [0; MAX_PLAIN]);
        responder.handle(&mut hello, &mut reply, |_| None, Default::default);
        let mut frame = [0; 64];
        let refusal = ToDevice::Refusal(Code::EmptyShard.into());
        let len = wire::encode_control(&refusal, &mut frame).unwrap();
        let sealed = seal(&mut responder, &frame[..len]);
        bench.hear(&sealed);
        assert_eq!(bench.board.status().refused, Some(Code::EmptyShard));
        bench.hear(&[STRANGER]);
    }
    let pauses: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.is_sorted() && pauses[0] >= 4000, "{pauses:?}");
    assert!(pauses[4..].iter().all(|&pause| pause == 20_000), "{pauses:?}");
    // With other samples it tries at once.
    let (hail, mut holder) = (bench.hail(20_000), Responder::for_samples());
    bench.challenge(&mut holder, hail);
    let mut answer = bench.after(1).remove(0);
    holder.handle(&mut answer, &mut [0; MAX_PLAIN], |_| None, Default::default);
    let sealed = seal(&mut holder, &piece(&samples()));
    bench.hear(&sealed);
    bench.hear(&[STRANGER]);
    bench.hail(0);
}

#[test]
fn a_board_names_its_protocol_versions() {
    let mut bench = Bench::new();
    let (hail, mut responder) = (bench.hail(0), Responder::default());
    bench.challenge(&mut responder, hail);
    let (mut packet, mut reply) = (bench.after(0).remove(0), [0; MAX_PLAIN]);
    let ResponderEvent::Frame { frame, .. } =
        responder.handle(&mut packet, &mut reply, |_| None, Default::default)
    else {
        panic!("no frame")
    };
    let Ok(Frame::Control(body)) = Frame::decode(frame) else { panic!("no message") };
    let (message, tail) = wire::control(body).unwrap();
    assert!(matches!(message, ToAggregator::Hello(_)), "{message:?}");
    assert_eq!(wire::tail(tail), Some(Versions::OURS));
}

/// A board in safe mode answers status requests and nothing else.
#[test]
fn a_board_in_safe_mode_answers_monitor_alone() {
    let mut bench = Bench::new();
    let crash = Crash { file: "src/board.rs".try_into().unwrap(), line: 7 };
    let health = Health { safe: true, crashes: 3, crash: Some(crash), ..Health::default() };
    bench.board.set_health(health.clone());
    assert_eq!(bench.after(60_000), Vec::<Vec<u8>>::new());
    bench.hear(&[PING]);
    let said = bench.after(0);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(!Status::decode(&said[0]).unwrap().open);
    assert_eq!(Health::decode(&said[1]), Some(health));
    // Older programs take it for no status.
    assert_eq!(Status::decode(&said[1]), None);
    bench.hear(&[STRANGER]);
    assert_eq!(bench.after(60_000), Vec::<Vec<u8>>::new());
    assert!(!bench.board.has_work());
}
