//! The Session against a scripted aggregator, message by message.

use common::{
    Code, Codec, Duration, Instant, RunId, Tier, TransferId, Versions,
    brief::Brief,
    message::{
        Ack, Assignment, Blob, Fetch, Offer, PlanPart, Receipt, Refusal, Task, Ticket, ToAggregator,
        ToDevice, Welcome,
    },
    plan::{Loss, Node, Op, Operand, PlanInfo, Segments},
    privacy::Privacy,
    transfer::{Lane, LinkLimits},
    wire::{self, Frame, crc32},
};

use super::{Event, Profile, Session};
use crate::{
    data::{BytesShard, Images, Shard},
    train::Portable,
};

mod exchanges;
#[cfg(feature = "keep")]
mod kept;
mod privacy;
mod versions;

const LIMITS: LinkLimits = LinkLimits { chunk: 8, window: 64, timeout: Duration::from_millis(100) };
const TICKET: Ticket = Ticket { run: RunId(9), round: 1, exchange: 0, attempt: 0 };
/// `y = W x + b` with two inputs and two classes.
const PLAN: PlanInfo = PlanInfo {
    digest: 5,
    inputs: 2,
    outputs: 2,
    loss: Loss::Softmax { classes: 2 },
    batch: 2,
    params: 6,
    stats: 0,
    segments: Segments {
        anchor: Some(6),
        guide: None,
        grads: Some(12),
        residual: None,
        moment1: None,
        moment2: None,
        personal: None,
        stats: None,
    },
    input: 18,
    logits: 22,
    arena: 26,
    nodes: 1,
    forward: 1,
    schedule: 0,
};
const NODE: Node = Node {
    op: Op::Dense { rows: 1, inputs: 2, outputs: 2, weight: 0, bias: Some(4) },
    input: Operand { at: 18, grad: None },
    second: None,
    output: 22,
    output_grad: Some(22),
    keep: None,
    scratch: None,
};
const MODEL: [f32; 6] = [0.5, -0.5, 0.25, 0.0, 0.1, -0.1];

fn shard() -> BytesShard<'static> {
    let samples = Images::new(&[0, 200, 200, 0, 10, 180, 190, 20], &[0, 1, 0, 1], 2).unwrap();
    BytesShard::new(samples, Images::new(&[0, 255], &[0], 2).unwrap(), 1.0 / 255.0).unwrap()
}

/// A session, the time, and the messages that it has sent.
struct Device<'a> {
    session: Session<&'a mut [f32], 4>,
    now: Instant,
    plan: PlanInfo,
    node: Node,
    shard: BytesShard<'static>,
}

impl<'a> Device<'a> {
    fn new(arena: &'a mut [f32]) -> Self {
        Self::with(arena, PLAN, NODE, shard())
    }

    fn owned(arena: &'a mut [f32], privacy: Privacy) -> Self {
        let mut device = Self::new(arena);
        device.session.own.secret = privacy.secret;
        device.session.profile.privacy = privacy;
        device
    }

    fn with(arena: &'a mut [f32], plan: PlanInfo, node: Node, shard: BytesShard<'static>) -> Self {
        let device = "d1".parse().unwrap();
        let budget = common::Budget { ram: 104, ..common::Budget::UNLIMITED };
        let profile = Profile { device, budget, data: shard.summary(), privacy: Privacy::default() };
        Self { session: Session::new(profile, arena), now: Instant::ZERO, plan, node, shard }
    }

    fn hear(&mut self, message: &ToDevice) {
        let mut frame = [0; wire::MAX_CONTROL];
        let len = wire::encode_control(message, &mut frame).unwrap();
        self.session.handle_frame(&frame[..len], self.now).unwrap();
    }

    fn hear_chunk(&mut self, offset: u32, data: &[u8]) {
        self.hear_transfer(TransferId(1), offset, data);
    }

    fn hear_transfer(&mut self, transfer: TransferId, offset: u32, data: &[u8]) {
        let (mut frame, fill) = ([0; 64], |out: &mut [u8]| out.copy_from_slice(data));
        let len = wire::encode_chunk(transfer, offset, data.len(), &mut frame, fill).unwrap();
        self.session.handle_frame(&frame[..len], self.now).unwrap();
    }

    /// All control messages and all chunk bytes that are due.
    fn say(&mut self) -> (Vec<ToAggregator>, Vec<u8>) {
        let (mut messages, mut bytes, mut out) = (vec![], vec![], [0; wire::MAX_CONTROL]);
        while let Some((lane, len)) = self.session.poll_transmit(&mut out) {
            match (lane, Frame::decode(&out[..len]).unwrap()) {
                (Lane::Control, Frame::Control(body)) => messages.push(wire::control(body).unwrap().0),
                (Lane::Transfer(lane), Frame::Chunk { transfer, data, .. }) if lane == transfer => {
                    bytes.extend_from_slice(data);
                }
                other => panic!("{other:?}"),
            }
        }
        (messages, bytes)
    }

    fn wait(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
        self.session.handle_timeout(self.now);
    }

    fn join(&mut self) {
        self.connect(TICKET.run);
        let nodes = heapless::Vec::from_slice(&[self.node]).unwrap();
        self.hear(&ToDevice::PlanPart(PlanPart {
            digest: self.plan.digest,
            node: 0,
            step: 0,
            nodes,
            steps: heapless::Vec::new(),
        }));
        self.say();
    }

    fn connect(&mut self, run: RunId) {
        self.session.handle_connected(LIMITS, Versions::OURS, self.now);
        self.hear(&ToDevice::Welcome(Welcome { run, tier: Tier::new(3).unwrap(), plan: self.plan }));
    }

    fn download(&mut self) {
        let bytes = model_bytes();
        self.hear(&ToDevice::Assignment(assignment()));
        for (number, chunk) in bytes.chunks(8).enumerate() {
            self.hear_chunk(number as u32 * 8, chunk);
        }
        self.say();
    }

    fn train(&mut self) -> Offer {
        let mut batches = 0;
        while self.session.has_work() {
            self.session.work(&self.shard, &mut Portable::plain(), self.now).unwrap();
            batches += 1;
            assert!(batches < 100);
        }
        match self.say().0.as_slice() {
            [ToAggregator::Offer(offer)] => offer.clone(),
            other => panic!("{other:?}"),
        }
    }
}

fn model_bytes() -> Vec<u8> {
    MODEL.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn assignment() -> Assignment {
    let brief = Brief { loss_after: true, ..Brief::sgd(2, 2, 0.5, 3) };
    let model = Blob { transfer: TransferId(1), bytes: 24, check: crc32(&model_bytes()) };
    Assignment { ticket: TICKET, task: Task::Train(brief), model, codec: Codec::F32, guide: None }
}

#[test]
fn a_whole_round() {
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    device.session.handle_connected(LIMITS, Versions::OURS, device.now);
    assert!(matches!(device.say().0.as_slice(), [ToAggregator::Hello(hello)] if hello.max_nodes == 4));
    device.join();
    assert_eq!(
        device.session.poll_event(),
        Some(Event::Joined { run: TICKET.run, tier: Tier::new(3).unwrap(), parameters: 6 })
    );
    device.download();
    assert_eq!(device.session.weights(), MODEL);
    assert_eq!(device.session.poll_event(), Some(Event::Assigned { round: 1 }));
    let offer = device.train();
    assert_eq!((offer.update.bytes, offer.model_check), (24, crc32(&model_bytes())));
    assert!(offer.scalars.loss_after.unwrap() < offer.scalars.loss_before);
    assert_eq!(offer.scalars.steps, 4);

    device.hear(&ToDevice::Fetch(Fetch { transfer: TransferId(1), offset: 0 }));
    let (_, bytes) = device.say();
    let update: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let trained = device.session.weights().to_vec();
    let expected: Vec<f32> = trained.iter().zip(MODEL).map(|(new, old)| new - old).collect();
    assert_eq!(update, expected);

    device.hear(&ToDevice::Receipt(Receipt { ticket: TICKET, refused: None }));
    assert!(matches!(device.session.poll_event(), Some(Event::Answered { round: 1, refused: None, .. })));
    assert_eq!(device.say().0, [ToAggregator::Ready]);
}

#[test]
fn requests_are_repeated_until_they_are_answered() {
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    device.session.handle_connected(LIMITS, Versions::OURS, device.now);
    device.say();
    device.wait(99);
    assert!(device.say().0.is_empty());
    device.wait(1);
    assert!(matches!(device.say().0.as_slice(), [ToAggregator::Hello(_)]));
    device.join();
    device.wait(100);
    assert_eq!(device.say().0, [ToAggregator::Ready]);
    device.hear(&ToDevice::Wait(Duration::from_secs(7)));
    assert_eq!(device.session.poll_timeout(), Some(device.now + Duration::from_secs(7)));
}

/// A restarted aggregator announces the round that the device is working on.
#[test]
fn a_deferred_request_is_repeated_when_the_round_is_announced() {
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    device.join();
    device.hear(&ToDevice::Assignment(assignment()));
    let fetch = ToAggregator::Fetch(Fetch { transfer: TransferId(1), offset: 0 });
    assert_eq!(device.say().0, std::slice::from_ref(&fetch));
    device.hear(&ToDevice::Assignment(assignment()));
    assert_eq!(device.say().0, [], "it is being answered");
    device.hear(&ToDevice::Wait(Duration::from_secs(7)));
    assert_eq!(device.say().0, []);
    device.hear(&ToDevice::Assignment(assignment()));
    assert_eq!(device.say().0, [fetch]);
}

#[test]
fn a_lost_link_resumes_download_and_upload_where_they_were() {
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    device.join();
    device.hear(&ToDevice::Assignment(assignment()));
    device.hear_chunk(0, &model_bytes()[..8]);
    device.say();
    device.session.handle_disconnected();
    assert_eq!(device.session.poll_timeout(), None);
    device.session.handle_connected(LIMITS, Versions::OURS, device.now);
    device.hear(&ToDevice::Welcome(Welcome { run: TICKET.run, tier: Tier::new(3).unwrap(), plan: PLAN }));
    assert_eq!(
        device.say().0.last(),
        Some(&ToAggregator::Fetch(Fetch { transfer: TransferId(1), offset: 8 }))
    );
    device.hear_chunk(8, &model_bytes()[8..16]);
    device.hear_chunk(16, &model_bytes()[16..]);
    device.say();

    let offer = device.train();
    device.hear(&ToDevice::Fetch(Fetch { transfer: TransferId(1), offset: 0 }));
    let (_, whole) = device.say();
    device.hear(&ToDevice::Ack(Ack { transfer: TransferId(1), next: 16 }));
    device.session.handle_disconnected();
    device.session.handle_connected(LIMITS, Versions::OURS, device.now);
    device.hear(&ToDevice::Welcome(Welcome { run: TICKET.run, tier: Tier::new(3).unwrap(), plan: PLAN }));
    assert_eq!(device.say().0.last(), Some(&ToAggregator::Offer(offer)));
    device.hear(&ToDevice::Fetch(Fetch { transfer: TransferId(1), offset: 16 }));
    assert_eq!(device.say().1, whole[16..]);
}

#[test]
fn a_damaged_model_is_fetched_again() {
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    device.join();
    let mut wrong = assignment();
    wrong.model.check ^= 1;
    device.hear(&ToDevice::Assignment(wrong));
    device.say();
    for (number, chunk) in model_bytes().chunks(8).enumerate() {
        device.hear_chunk(number as u32 * 8, chunk);
    }
    assert!(!device.session.has_work());
    assert_eq!(
        device.say().0.last(),
        Some(&ToAggregator::Fetch(Fetch { transfer: TransferId(1), offset: 0 }))
    );
}

#[test]
fn a_plan_that_does_not_fit_is_refused_with_the_figures() {
    let mut arena = [0.0; 25];
    let mut device = Device::new(&mut arena);
    device.join();
    let refusal = Refusal { code: Code::DoesNotFit, need: 104, have: 100 };
    assert_eq!(device.session.poll_event(), Some(Event::Refused(refusal)));
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    device.session.handle_connected(LIMITS, Versions::OURS, device.now);
    let plan = PlanInfo { nodes: 5, forward: 5, ..PLAN };
    device.hear(&ToDevice::Welcome(Welcome { run: TICKET.run, tier: Tier::new(0).unwrap(), plan }));
    assert_eq!(device.session.poll_event(), Some(Event::Refused(Code::BadPlan.into())));
}

#[test]
fn an_evaluation_offers_scores_and_no_update() {
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    device.join();
    device.hear(&ToDevice::Assignment(Assignment { task: Task::Evaluate(None), ..assignment() }));
    for (number, chunk) in model_bytes().chunks(8).enumerate() {
        device.hear_chunk(number as u32 * 8, chunk);
    }
    device.say();
    let offer = device.train();
    assert_eq!((offer.update.bytes, offer.scalars.steps), (0, 0));
    assert_eq!(offer.scalars.test.unwrap().samples, 1);
    assert_eq!(device.session.weights(), MODEL);
}
