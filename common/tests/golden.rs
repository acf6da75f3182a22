//! The exact bytes of every message and of a chunk. A change here is a change of the protocol: raise
//! `PROTOCOL_VERSION`, and only then write the new bytes down (run with `BLESS=1`).
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{fmt::Write, fs, path::Path};

use fairtier_common::{
    Budget, Code, Codec, Duration, RunId, Tier, TransferId,
    brief::{Brief, GroupReport, Laplace, Objective, Optimizer, Product, PropFair, Signal},
    message::{
        Ack, Alone, Assignment, Blob, DataSummary, Errors, Fetch, Hello, Offer, PlanPart, Progress, Receipt,
        Refusal, Scalars, Score, Task, Ticket, ToAggregator, ToDevice, Validation, Welcome,
    },
    plan::{
        Activation, Arithmetic, ArithmeticKind, Arrange, BackwardStep, Constant, Conv, Gate, Grad, Gru, Loss,
        Node, Op, Operand, PRelu, Pass, PlanInfo, Recurrent, RecurrentKind, Segments, Spread, Standardize,
        Window,
    },
    version::{PROTOCOL_VERSION, Versions},
    wire::{self, FRAME_FORMAT, Frame, MAX_CONTROL},
};
use serde::{Serialize, de::DeserializeOwned};

const TICKET: Ticket = Ticket { run: RunId(0x0123_4567_89ab_cdef), round: 7, exchange: 0, attempt: 1 };
const BLOB: Blob = Blob { transfer: TransferId(7), bytes: 9640, check: 0xcafe_f00d };

fn to_aggregator() -> Vec<(&'static str, ToAggregator)> {
    let hello = Hello {
        device: "cam-1".parse().unwrap(),
        budget: Budget { ram: 65_536, flash: 262_144, macs_per_s: 1_000_000, link_bytes_per_s: 11_520 },
        data: DataSummary {
            train_samples: 300,
            test_samples: 75,
            inputs: 64,
            classes: 10,
            ..DataSummary::default()
        },
        max_chunk: 256,
        max_nodes: 64,
    };
    let scalars = Scalars {
        samples: 300,
        loss_before: 0.75,
        loss_after: Some(0.5),
        test: Some(Score { samples: 75, correct: 60, loss: 0.625 }),
        steps: 19,
        ..Scalars::default()
    };
    // An answer with every optional field, at its longest.
    let full = Scalars {
        samples: u32::MAX,
        steps: u32::MAX,
        gap: Some(-0.125),
        mass: Some(300.5),
        personal: Some(Score { samples: u32::MAX, correct: u32::MAX, loss: 0.25 }),
        group_losses: heapless::Vec::from_slice(&[1.5; 16]).unwrap(),
        group_counts: heapless::Vec::from_slice(&[u32::MAX; 16]).unwrap(),
        trials: heapless::Vec::from_slice(&[0.5; 12]).unwrap(),
        ..scalars.clone()
    };
    vec![
        ("Hello", ToAggregator::Hello(hello)),
        ("PlanRequest", ToAggregator::PlanRequest { node: 4, step: 2 }),
        ("Ready", ToAggregator::Ready),
        ("Fetch", ToAggregator::Fetch(Fetch { transfer: TransferId(7), offset: 1024 })),
        ("Ack", ToAggregator::Ack(Ack { transfer: TransferId(7), next: 2048 })),
        ("Progress", ToAggregator::Progress(Progress { ticket: TICKET, step: 3, steps: 24 })),
        (
            "Offer",
            ToAggregator::Offer(Offer { ticket: TICKET, update: BLOB, model_check: 0xdead_beef, scalars }),
        ),
        (
            "Offer.full",
            ToAggregator::Offer(Offer {
                ticket: Ticket {
                    run: RunId(u64::MAX),
                    round: u32::MAX,
                    exchange: u8::MAX,
                    attempt: u16::MAX,
                },
                update: Blob { transfer: TransferId(u32::MAX), bytes: u32::MAX, check: u32::MAX },
                model_check: u32::MAX,
                scalars: full,
            }),
        ),
        ("Refusal", ToAggregator::Refusal(Refusal { code: Code::DoesNotFit, need: 40_000, have: 16_384 })),
        ("PullOnnx", ToAggregator::PullOnnx),
        ("Goodbye", ToAggregator::Goodbye),
    ]
}

fn to_device() -> Vec<(&'static str, ToDevice)> {
    let plan = PlanInfo {
        digest: 0x1234_5678,
        inputs: 64,
        outputs: 10,
        loss: Loss::Softmax { classes: 10 },
        batch: 16,
        params: 2410,
        stats: 8,
        segments: Segments {
            anchor: Some(2410),
            grads: Some(4820),
            stats: Some(7230),
            ..Segments::default()
        },
        input: 7238,
        logits: 8262,
        arena: 9000,
        nodes: 3,
        forward: 2,
        schedule: 2,
    };
    let window = Window { height: 8, width: 8, kernel: [3, 3], stride: [1, 2], pad: [1, 1, 1, 0] };
    let conv = Conv { inputs: 1, outputs: 4, groups: 1, window, weight: 0, bias: Some(36) };
    let dense = Node {
        op: Op::Dense { rows: 1, inputs: 64, outputs: 32, weight: 0, bias: Some(2048) },
        input: Operand { at: 7238, grad: None },
        second: None,
        output: 8262,
        output_grad: Some(8774),
        keep: None,
        scratch: None,
    };
    let relu = Node {
        op: Op::Activate { kind: Activation::LeakyRelu { slope: 0.25 }, len: 32 },
        input: Operand { at: 8262, grad: Some(Grad { at: 8774, add: true }) },
        ..dense
    };
    let conv = Node { op: Op::Conv(conv), ..dense };
    let brief = Brief {
        optimizer: Optimizer::ADAM,
        clip: Some(5.0),
        objective: Objective {
            weight: -0.5,
            prox: 0.25,
            align: 0.5,
            transform: Some(PropFair { m: 5.0, eps: 0.25 }),
            groups: heapless::Vec::from_slice(&[1.0, 0.5]).unwrap(),
            robust: None,
        },
        product: Product::FirstStep,
        loss_after: true,
        running: true,
        codec: Codec::Int8,
        ..Brief::sgd(1, 16, 0.1, 42)
    };
    let assignment = |task| {
        let (model, codec, guide) = (BLOB, Codec::F32, None);
        ToDevice::Assignment(Assignment { ticket: TICKET, task, model, codec, guide })
    };
    let full = Brief {
        optimizer: Optimizer::ADAM,
        objective: Objective {
            groups: heapless::Vec::from_slice(&[0.5; 16]).unwrap(),
            ..brief.objective.clone()
        },
        product: Product::Both,
        groups: Some(GroupReport { signal: Signal::CrossEntropy, cap: 5.0 }),
        gap: true,
        personal: Some(0.5),
        privacy: Some(Laplace { sums: 10.0, clip_l1: 1.0, update: 4.0 }),
        ..brief.clone()
    };
    vec![
        ("Welcome", ToDevice::Welcome(Welcome { run: TICKET.run, tier: Tier::new(2).unwrap(), plan })),
        (
            "PlanPart",
            ToDevice::PlanPart(PlanPart {
                digest: plan.digest,
                node: 0,
                step: 1,
                nodes: heapless::Vec::from_slice(&[dense, relu, conv]).unwrap(),
                steps: heapless::Vec::from_slice(&[
                    BackwardStep { node: 2, pass: Pass::Forward },
                    BackwardStep { node: 1, pass: Pass::Backward },
                ])
                .unwrap(),
            }),
        ),
        ("Assignment.Train", assignment(Task::Train(brief))),
        ("Assignment.full", assignment(Task::Train(full.clone()))),
        ("Assignment.Evaluate", assignment(Task::Evaluate(None))),
        ("Assignment.groups", assignment(Task::Evaluate(full.groups))),
        ("Assignment.Alone", assignment(Task::Alone(Alone { brief: full, window: 10, tolerance: 1e-4 }))),
        (
            "Assignment.Try",
            ToDevice::Assignment(Assignment {
                ticket: Ticket { exchange: 1, ..TICKET },
                task: Task::Try(heapless::Vec::from_slice(&[1.0, 0.5, 0.25]).unwrap()),
                model: BLOB,
                codec: Codec::F32,
                guide: Some(Blob { transfer: TransferId(9), ..BLOB }),
            }),
        ),
        ("Wait", ToDevice::Wait(Duration::from_secs(20))),
        ("Fetch", ToDevice::Fetch(Fetch { transfer: TransferId(7), offset: 0 })),
        ("Ack", ToDevice::Ack(Ack { transfer: TransferId(7), next: 512 })),
        ("Receipt", ToDevice::Receipt(Receipt { ticket: TICKET, refused: None })),
        (
            "Receipt.refused",
            ToDevice::Receipt(Receipt { ticket: TICKET, refused: Some(Code::NonFiniteUpdate) }),
        ),
        ("Refusal", ToDevice::Refusal(Code::UnknownDevice.into())),
        ("Onnx", ToDevice::Onnx(BLOB)),
        ("Finished", ToDevice::Finished { round: 100 }),
    ]
}

fn lines<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    way: &str,
    messages: &[(&str, T)],
) -> String {
    let mut text = String::new();
    for (name, message) in messages {
        let mut frame = [0; MAX_CONTROL];
        let len = wire::encode_control(message, &mut frame).unwrap();
        let Ok(Frame::Control(body)) = Frame::decode(&frame[..len]) else { panic!("{name}") };
        assert_eq!(wire::message::<T>(body).as_ref(), Ok(message), "{name}");
        writeln!(text, "{way}.{name} {}", hex(&frame[..len])).unwrap();
    }
    text
}

/// Parts of Plans with the operations that came after version 6.
fn operations() -> Vec<(&'static str, ToDevice)> {
    let operand = Operand { at: 100, grad: Some(Grad { at: 200, add: false }) };
    let node = |op| Node {
        op,
        input: operand,
        second: None,
        output: 300,
        output_grad: Some(400),
        keep: None,
        scratch: None,
    };
    let with_second = |op| Node { second: Some(Operand { at: 500, grad: None }), ..node(op) };
    let activate = |kind| node(Op::Activate { kind, len: 32 });
    let spread = Spread { len: 48, channels: 3, inner: 16 };
    let arithmetic = |kind, with| node(Op::Arithmetic(Arithmetic { kind, len: 48, with }));
    let each = Constant::Each { channels: 3, inner: 16, at: 2 };
    let part = |nodes: [Node; 3]| {
        let nodes = heapless::Vec::from_slice(&nodes).unwrap();
        ToDevice::PlanPart(PlanPart {
            digest: 0x1234_5678,
            node: 0,
            step: 0,
            nodes,
            steps: heapless::Vec::new(),
        })
    };
    let recurrent = |kind, bias| {
        let (steps, inputs, units) = (5, 3, 2);
        node(Op::Recurrent(Recurrent { kind, steps, inputs, units, weight: 0, recurrent: 24, bias }))
    };
    let standardize = |instances, scale| {
        node(Op::Standardize(Standardize { instances, channels: 48 / instances, epsilon: 1e-5, scale }))
    };
    use Activation as A;
    vec![
        ("PlanPart.gelu", part([A::Gelu, A::GeluTanh, A::Silu].map(activate))),
        (
            "PlanPart.hard",
            part([A::Mish, A::HardSwish, A::HardSigmoid { alpha: 0.25, beta: 0.5 }].map(activate)),
        ),
        (
            "PlanPart.elu",
            part([A::Clip { min: 0.0, max: f32::INFINITY }, A::Elu { alpha: 1.0 }, A::Selu].map(activate)),
        ),
        ("PlanPart.soft", part([A::Celu { alpha: 0.5 }, A::Softplus, A::Softsign].map(activate))),
        (
            "PlanPart.prelu",
            part([
                node(Op::PRelu(PRelu { spread, slope: 9 })),
                arithmetic(ArithmeticKind::Add, Constant::One(0.5)),
                arithmetic(ArithmeticKind::Sub, each),
            ]),
        ),
        (
            "PlanPart.arithmetic",
            part([
                arithmetic(ArithmeticKind::Mul, each),
                arithmetic(ArithmeticKind::Div, Constant::One(-2.0)),
                arithmetic(ArithmeticKind::Div, each),
            ]),
        ),
        (
            "PlanPart.recurrent",
            part([
                recurrent(RecurrentKind::Lstm, Some(40)),
                recurrent(RecurrentKind::Tanh, Some(40)),
                recurrent(RecurrentKind::Lstm, None),
            ]),
        ),
        (
            "PlanPart.arrange",
            part([
                with_second(Op::Arrange(Arrange::Concat { rows: 2, first: 8, second: 300 })),
                node(Op::Arrange(Arrange::Part { rows: 1, width: 24, start: 7, len: 10 })),
                node(Op::Arrange(Arrange::Pad { rows: 4, width: 12, before: 0, after: 5 })),
            ]),
        ),
        (
            "PlanPart.gate",
            part([
                node(Op::Arrange(Arrange::Transpose { rows: 1, height: 3, width: 16 })),
                with_second(Op::Gate(Gate { channels: 3, inner: 16 })),
                with_second(Op::Gate(Gate { channels: 48, inner: 1 })),
            ]),
        ),
        (
            "PlanPart.standardize",
            part([standardize(1, None), standardize(3, None), standardize(1, Some(300))]),
        ),
    ]
}

#[test]
fn operations_are_marked_with_their_version() {
    for (name, message) in operations() {
        let ToDevice::PlanPart(part) = message else { panic!("{name}") };
        let since = if name == "PlanPart.standardize" { 8 } else { 7 };
        assert!(part.nodes.iter().all(|node| node.op.since() == since), "{name}");
    }
    for (_, message) in to_device() {
        if let ToDevice::PlanPart(part) = message {
            assert!(part.nodes.iter().all(|node| node.op.since() == 4));
        }
    }
}

/// The messages that have tails, with them.
fn tails() -> String {
    let (hello, welcome) = (&to_aggregator()[0].1, &to_device()[0].1);
    let mut frame = [0; MAX_CONTROL];
    let mut text = String::new();
    let len = wire::encode_control(&(hello, Versions { oldest: 4, newest: 5 }), &mut frame).unwrap();
    writeln!(text, "ToAggregator.Hello.versions {}", hex(&frame[..len])).unwrap();
    let Ok(Frame::Control(body)) = Frame::decode(&frame[..len]) else { panic!() };
    let (message, tail) = wire::control::<ToAggregator>(body).unwrap();
    assert_eq!((&message, wire::tail(tail)), (hello, Some(Versions { oldest: 4, newest: 5 })));
    let len = wire::encode_control(&(welcome, 5u8), &mut frame).unwrap();
    writeln!(text, "ToDevice.Welcome.version {}", hex(&frame[..len])).unwrap();
    let Ok(Frame::Control(body)) = Frame::decode(&frame[..len]) else { panic!() };
    let (message, tail) = wire::control::<ToDevice>(body).unwrap();
    assert_eq!((&message, wire::tail(tail)), (welcome, Some(5u8)));
    let len = validating("Assignment.full").encode(&mut frame).unwrap();
    writeln!(text, "ToDevice.Assignment.validate {}", hex(&frame[..len])).unwrap();
    let len = validated("Offer.full").encode(&mut frame).unwrap();
    writeln!(text, "ToAggregator.Offer.validation {}", hex(&frame[..len])).unwrap();
    let len = with_errors(validated("Offer.full")).encode(&mut frame).unwrap();
    writeln!(text, "ToAggregator.Offer.errors {}", hex(&frame[..len])).unwrap();
    text
}

/// An Assignment that asks for the validation loss.
fn validating(name: &str) -> ToDevice {
    let (_, mut message) = to_device().into_iter().find(|(known, _)| *known == name).unwrap();
    let ToDevice::Assignment(assignment) = &mut message else { panic!("{name}") };
    assignment.task.set_validate(true);
    assert!(assignment.task.validates());
    message
}

/// An Offer that reports it.
fn validated(name: &str) -> ToAggregator {
    let (_, mut message) = to_aggregator().into_iter().find(|(known, _)| *known == name).unwrap();
    let ToAggregator::Offer(offer) = &mut message else { panic!("{name}") };
    offer.scalars.validation = Some(Validation { loss: 0.75, error: 0.015625 });
    message
}

/// The Offer of a device that predicts numbers.
fn with_errors(mut message: ToAggregator) -> ToAggregator {
    let ToAggregator::Offer(offer) = &mut message else { panic!("no offer") };
    offer.scalars.errors = Some(Errors { absolute: 12.5, squared: 0.25, mean: -0.5, variance: 1.5 });
    message
}

fn body(encode: impl FnOnce(&mut [u8]) -> Result<usize, wire::WireError>) -> Vec<u8> {
    let mut frame = [0; MAX_CONTROL];
    let len = encode(&mut frame).unwrap();
    let Ok(Frame::Control(body)) = Frame::decode(&frame[..len]) else { panic!("no message") };
    body.to_vec()
}

#[test]
fn validation_travels_in_tails_from_version_6_on() {
    let (asks, reports) = (validating("Assignment.Train"), validated("Offer"));
    let (asked, reported) = (body(|out| asks.encode(out)), body(|out| reports.encode(out)));
    for version in 4..=PROTOCOL_VERSION {
        let (asks_then, reports_then) =
            (asks.clone().for_version(version).unwrap(), reports.clone().for_version(version).unwrap());
        let (asked_then, reported_then) =
            (body(|out| asks_then.encode(out)), body(|out| reports_then.encode(out)));
        // Left-over bytes are an error here, so peers of older versions get none.
        let strict = wire::message::<ToDevice>(&asked_then).is_ok();
        assert_eq!(strict, wire::message::<ToAggregator>(&reported_then).is_ok());
        assert_eq!(strict, version < 6);

        // A tail means nothing on a link of an older version.
        let (mut message, tail) = wire::control::<ToDevice>(&asked).unwrap();
        message.read_tail(tail, version);
        assert_eq!(message, asks_then);
        let (mut message, tail) = wire::control::<ToAggregator>(&reported).unwrap();
        message.read_tail(tail, version);
        assert_eq!(message, reports_then);
    }
    // A tail that ends early is none, and one that goes on is of a later version.
    for cut in 1..17 {
        let (mut message, tail) = wire::control::<ToAggregator>(&reported).unwrap();
        message.read_tail(&tail[..tail.len() - cut], PROTOCOL_VERSION);
        assert_eq!(Some(message), reports.clone().for_version(5), "{cut}");
    }
    let longer = [&reported[..], b"more"].concat();
    let (mut message, tail) = wire::control::<ToAggregator>(&longer).unwrap();
    message.read_tail(tail, PROTOCOL_VERSION);
    assert_eq!(message, reports);
}

#[test]
fn errors_travel_in_the_tail_from_version_8_on() {
    let (_, plain) = to_aggregator().into_iter().find(|(name, _)| *name == "Offer").unwrap();
    for message in [with_errors(plain), with_errors(validated("Offer"))] {
        let sent = body(|out| message.encode(out));
        for version in 4..=PROTOCOL_VERSION {
            let then = message.clone().for_version(version).unwrap();
            let ToAggregator::Offer(Offer { scalars, .. }) = &then else { panic!("no offer") };
            assert_eq!(scalars.errors.is_some(), version >= 8, "{version}");
            let (mut read, tail) = wire::control::<ToAggregator>(&sent).unwrap();
            read.read_tail(tail, version);
            assert_eq!(read, then, "{version}");
            let (mut read, tail) = body_and_tail(&then);
            read.read_tail(&tail, version);
            assert_eq!(read, then, "{version}");
        }
    }
}

fn body_and_tail(message: &ToAggregator) -> (ToAggregator, Vec<u8>) {
    let body = body(|out| message.encode(out));
    let (message, tail) = wire::control::<ToAggregator>(&body).unwrap();
    (message, tail.to_vec())
}

#[test]
fn unknown_fields_of_a_tail_are_ignored() {
    let hello = &to_aggregator()[0].1;
    let mut frame = [0; MAX_CONTROL];
    let later = (hello, Versions { oldest: 5, newest: 9 }, [1u64; 4], "more");
    let len = wire::encode_control(&later, &mut frame).unwrap();
    let Ok(Frame::Control(body)) = Frame::decode(&frame[..len]) else { panic!() };
    let (message, tail) = wire::control::<ToAggregator>(body).unwrap();
    assert_eq!((&message, wire::tail(tail)), (hello, Some(Versions { oldest: 5, newest: 9 })));
}

/// The frame format does not change with the protocol version.
#[test]
fn frames_have_the_format_that_peers_of_version_4_read() {
    assert_eq!(FRAME_FORMAT, 4);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_frame_has_its_golden_bytes() {
    let mut chunk = [0; 64];
    let len =
        wire::encode_chunk(TransferId(7), 1024, 5, &mut chunk, |out| out.copy_from_slice(b"bytes")).unwrap();
    let actual = format!(
        "version {PROTOCOL_VERSION}\n{}{}{}{}chunk {}\n",
        lines("ToAggregator", &to_aggregator()),
        lines("ToDevice", &to_device()),
        tails(),
        lines("ToDevice", &operations()),
        hex(&chunk[..len])
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/frames.txt");
    if std::env::var_os("BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &actual).unwrap();
    }
    assert_eq!(actual, fs::read_to_string(&path).unwrap());
}

#[test]
fn the_largest_plan_part_fits_a_control_frame() {
    let most = u32::MAX;
    let port = Operand { at: most, grad: Some(Grad { at: most, add: true }) };
    let window = Window {
        height: most,
        width: most,
        kernel: [u16::MAX; 2],
        stride: [u16::MAX; 2],
        pad: [u16::MAX; 4],
    };
    let conv = Conv { inputs: most, outputs: most, groups: most, window, weight: most, bias: Some(most) };
    let far = Node {
        op: Op::Conv(conv),
        input: port,
        second: Some(port),
        output: most,
        output_grad: Some(most),
        keep: Some(most),
        scratch: Some(most),
    };
    let steps = [BackwardStep { node: u16::MAX, pass: Pass::Backward }; fairtier_common::message::PLAN_STEPS];
    let part = ToDevice::PlanPart(PlanPart {
        digest: most,
        node: u16::MAX,
        step: u16::MAX,
        nodes: heapless::Vec::from_slice(&[far; fairtier_common::message::PLAN_PART]).unwrap(),
        steps: heapless::Vec::from_slice(&steps).unwrap(),
    });
    let mut frame = [0; MAX_CONTROL];
    assert!(wire::encode_control(&part, &mut frame).is_ok());
    let gru = Gru { steps: 1, inputs: 2, units: 3, reset_after: true, weight: 0, recurrent: 0, bias: None };
    assert!(core::mem::size_of_val(&gru) < core::mem::size_of::<Op>(), "a convolution is the largest op");
}
