//! State machines that receive invalid messages in any order: no panic, and only delivered updates are combined. The
//! fleet in memory checks the latter at the end of every round.

use common::{
    Budget, Code, Codec, Duration, RunId, Tier, TransferId,
    brief::{Brief, GroupReport, Laplace, Optimizer, Product, Signal},
    message::{
        Ack, Alone, Assignment, Blob, DataSummary, Fetch, Hello, Offer, PlanPart, Progress, Receipt, Refusal,
        Scalars, Task, Ticket, ToAggregator, ToDevice, Welcome,
    },
    plan::{Activation, BackwardStep, Grad, Op, Pass},
    rng::{Rng, derive},
    wire,
};
use fleet::{
    memory::{Recipient, Setup, World},
    seeds::for_seeds,
};
use serde::Serialize;

const RUN: &str = "run = { rounds = 2 }\ntraining = { batch = 8 }";

fn disturb(seed: u64, sides: &[Recipient]) {
    let mut setup = Setup::new(RUN).disturbed(seed);
    setup.may_fail = true;
    setup.config.round.quorum = 0.4.into();
    setup.config.round.deadline_s = 2.0.into();
    let mut world = World::new(&setup);
    let mut rng = Rng::new(derive(seed, 9));
    let run = world.run_id();
    for _ in 0..4000 {
        if rng.below(4) == 0 {
            let side = sides[rng.below(sides.len() as u64) as usize];
            let frame = nonsense(&mut rng, &world, run, side);
            world.inject(rng.below(5) as usize, frame, side);
        }
        if !world.step() {
            return;
        }
    }
    assert!(world.outcome().parameters.iter().all(|value| value.is_finite()));
}

#[test]
fn devices_survive_invalid_messages() {
    for_seeds(60, |seed| disturb(seed, &[Recipient::Device]));
}

#[test]
fn the_aggregator_survives_invalid_messages() {
    for_seeds(60, |seed| disturb(seed, &[Recipient::Aggregator]));
}

#[test]
fn both_sides_survive_invalid_messages() {
    for_seeds(40, |seed| disturb(seed, &[Recipient::Aggregator, Recipient::Device]));
}

/// Random bytes, and chunks and messages that would be valid in another state.
fn nonsense(rng: &mut Rng, world: &World, run: RunId, side: Recipient) -> Vec<u8> {
    match (rng.below(8), side) {
        (0, _) => (0..rng.below(80)).map(|_| rng.next_u64() as u8).collect(),
        (1, _) => {
            let body: Vec<u8> = (0..rng.below(60)).map(|_| rng.next_u64() as u8).collect();
            let mut frame = [&[wire::FRAME_FORMAT, rng.below(3) as u8][..], &body].concat();
            frame.extend(wire::crc32(&frame).to_le_bytes());
            frame
        }
        (2, _) => chunk(rng),
        (_, Recipient::Device) => framed(&to_device(rng, world, run)),
        (_, Recipient::Aggregator) => framed(&to_aggregator(rng, run)),
    }
}

fn chunk(rng: &mut Rng) -> Vec<u8> {
    let data: Vec<u8> = (0..rng.below(300)).map(|_| rng.next_u64() as u8).collect();
    let mut frame = vec![0; data.len() + wire::CHUNK_OVERHEAD];
    let (transfer, offset) = (TransferId(rng.below(4) as u32), offset(rng));
    wire::encode_chunk(transfer, offset, data.len(), &mut frame, |to| to.copy_from_slice(&data)).unwrap();
    frame
}

fn framed(message: &impl Serialize) -> Vec<u8> {
    let mut frame = vec![0; wire::MAX_CONTROL];
    let len = wire::encode_control(message, &mut frame).unwrap();
    frame.truncate(len);
    frame
}

fn to_device(rng: &mut Rng, world: &World, run: RunId) -> ToDevice {
    let plan = &world.model().plans[rng.below(5) as usize];
    match rng.below(11) {
        0 => {
            let mut plan = plan.info;
            match rng.below(6) {
                0 => plan.params = word(rng),
                1 => plan.arena = word(rng),
                2 => plan.nodes = rng.below(80) as u16,
                3 => plan.segments.anchor = Some(word(rng)),
                4 => (plan.batch, plan.inputs) = (rng.below(20) as u16, word(rng)),
                _ => {}
            }
            let tier = Tier::new(rng.below(6) as usize).unwrap();
            ToDevice::Welcome(Welcome { run: some_run(rng, run), tier, plan })
        }
        1 => {
            let mut nodes: heapless::Vec<_, 3> = plan.nodes.iter().take(3).copied().collect();
            if let Some(node) = nodes.get_mut(rng.below(3) as usize) {
                match rng.below(4) {
                    0 => node.output = word(rng),
                    1 => node.input.grad = Some(Grad { at: word(rng), add: rng.below(2) == 0 }),
                    2 => node.op = Op::Activate { kind: Activation::Relu, len: word(rng) },
                    _ => {}
                }
            }
            nodes.truncate(rng.below(4) as usize);
            let step = BackwardStep { node: rng.below(6) as u16, pass: Pass::Backward };
            let steps = (0..rng.below(3)).map(|_| step).collect();
            let (node, step) = (rng.below(5) as u16, rng.below(3) as u16);
            ToDevice::PlanPart(PlanPart { digest: plan.info.digest, node, step, nodes, steps })
        }
        2 | 3 => {
            let codec = codec(rng);
            let right = codec.encoded_len(plan.info.params as usize).unwrap();
            let bytes = if rng.below(4) == 0 { word(rng) } else { right };
            let model = Blob { transfer: TransferId(rng.below(4) as u32), bytes, check: word(rng) };
            let guide =
                (rng.below(3) == 0).then(|| Blob { transfer: TransferId(rng.below(9) as u32), ..model });
            let groups = (rng.below(3) == 0)
                .then(|| GroupReport { signal: Signal::CrossEntropy, cap: loss(rng) as f32 });
            let task = match rng.below(6) {
                0 => Task::Evaluate(groups),
                1 => Task::Try((0..rng.below(13)).map(|_| loss(rng) as f32).collect()),
                2 => Task::Alone(Alone {
                    brief: Brief::sgd(rng.below(9) as u16, 8, 0.1, 1),
                    window: rng.below(3) as u16,
                    tolerance: loss(rng) as f32,
                }),
                _ => Task::Train(Brief {
                    product: [Product::Update, Product::FirstStep, Product::Gradient, Product::Both]
                        [rng.below(4) as usize],
                    groups,
                    gap: rng.below(4) == 0,
                    personal: (rng.below(4) == 0).then(|| loss(rng) as f32),
                    privacy: (rng.below(4) == 0).then(|| Laplace {
                        sums: loss(rng) as f32,
                        clip_l1: loss(rng) as f32,
                        update: 1.0,
                    }),
                    optimizer: if rng.below(3) == 0 { Optimizer::ADAM } else { Optimizer::default() },
                    clip: (rng.below(3) == 0).then(|| loss(rng) as f32),
                    loss_after: rng.below(2) == 0,
                    codec: self::codec(rng),
                    ..Brief::sgd(rng.below(4) as u16, rng.below(20) as u16, loss(rng) as f32, rng.next_u64())
                }),
            };
            ToDevice::Assignment(Assignment { ticket: ticket(rng, run), task, model, codec, guide })
        }
        4 => ToDevice::Wait(Duration::from_millis(rng.below(100))),
        5 => ToDevice::Fetch(fetch(rng)),
        6 => ToDevice::Ack(ack(rng)),
        7 => ToDevice::Receipt(Receipt { ticket: ticket(rng, run), refused: refused(rng) }),
        8 => ToDevice::Refusal(refusal(rng)),
        9 => ToDevice::Onnx(Blob { transfer: TransferId(word(rng)), bytes: word(rng), check: 0 }),
        _ => ToDevice::Finished { round: rng.below(4) as u32 },
    }
}

fn to_aggregator(rng: &mut Rng, run: RunId) -> ToAggregator {
    match rng.below(11) {
        0 => ToAggregator::Hello(Hello {
            device: format!("device-{:02}", rng.below(6)).parse().unwrap(),
            budget: Budget { ram: u64::from(word(rng)), ..Budget::UNLIMITED },
            data: DataSummary {
                train_samples: rng.below(30) as u32,
                test_samples: rng.below(30) as u32,
                inputs: if rng.below(4) == 0 { word(rng) } else { 64 },
                classes: rng.below(12) as u32,
                groups: (0..rng.below(17)).map(|_| word(rng)).collect(),
            },
            max_chunk: word(rng),
            max_nodes: rng.below(80) as u16,
        }),
        1 => ToAggregator::PlanRequest { node: word(rng) as u16, step: word(rng) as u16 },
        2 => ToAggregator::Ready,
        3 => ToAggregator::Fetch(fetch(rng)),
        4 => ToAggregator::Ack(ack(rng)),
        5 => ToAggregator::Progress(Progress { ticket: ticket(rng, run), step: word(rng), steps: word(rng) }),
        6 | 7 => ToAggregator::Offer(Offer {
            ticket: ticket(rng, run),
            update: Blob { transfer: TransferId(rng.below(4) as u32), bytes: word(rng), check: 0 },
            model_check: word(rng),
            scalars: Scalars {
                samples: rng.below(30) as u32,
                loss_before: loss(rng),
                loss_after: (rng.below(2) == 0).then(|| loss(rng)),
                test: None,
                steps: word(rng),
                gap: (rng.below(2) == 0).then(|| loss(rng)),
                mass: (rng.below(2) == 0).then(|| loss(rng)),
                group_losses: (0..rng.below(17)).map(|_| loss(rng)).collect(),
                group_counts: (0..rng.below(17)).map(|_| word(rng)).collect(),
                trials: (0..rng.below(13)).map(|_| loss(rng)).collect(),
                ..Scalars::default()
            },
        }),
        8 => ToAggregator::Refusal(refusal(rng)),
        9 => ToAggregator::PullOnnx,
        _ => ToAggregator::Goodbye,
    }
}

fn word(rng: &mut Rng) -> u32 {
    [0, 1, 4, 9640, 1 << 16, u32::MAX - 3, u32::MAX, rng.next_u64() as u32][rng.below(8) as usize]
}

fn offset(rng: &mut Rng) -> u32 {
    if rng.below(3) == 0 { word(rng) } else { 200 * rng.below(50) as u32 }
}

fn loss(rng: &mut Rng) -> f64 {
    [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300, 2.3][rng.below(6) as usize]
}

fn codec(rng: &mut Rng) -> Codec {
    Codec::ALL[rng.below(3) as usize]
}

fn some_run(rng: &mut Rng, run: RunId) -> RunId {
    if rng.below(4) == 0 { RunId(rng.next_u64()) } else { run }
}

fn ticket(rng: &mut Rng, run: RunId) -> Ticket {
    let attempt = u16::from(rng.below(8) == 0);
    Ticket { run: some_run(rng, run), round: rng.below(5) as u32, exchange: 0, attempt }
}

fn fetch(rng: &mut Rng) -> Fetch {
    Fetch { transfer: TransferId(rng.below(4) as u32), offset: offset(rng) }
}

fn ack(rng: &mut Rng) -> Ack {
    Ack { transfer: TransferId(rng.below(4) as u32), next: offset(rng) }
}

fn refused(rng: &mut Rng) -> Option<Code> {
    (rng.below(2) == 0).then(|| Code::ALL[rng.below(Code::ALL.len() as u64) as usize])
}

fn refusal(rng: &mut Rng) -> Refusal {
    let code = Code::ALL[rng.below(Code::ALL.len() as u64) as usize];
    Refusal { code, need: rng.next_u64(), have: 0 }
}
