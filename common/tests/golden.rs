//! The exact bytes of every message and of a chunk. A change here is a change of the protocol: raise
//! `PROTOCOL_VERSION`, and only then write the new bytes down (run with `BLESS=1`).
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{fmt::Write, fs, path::Path};

use common::{
    Budget, Code, Codec, Duration, RunId, Tier,
    message::{
        Ack, Assignment, Blob, Brief, DataSummary, Fetch, Hello, Offer, PlanPart, Progress, Receipt, Refusal,
        Scalars, Score, Task, Ticket, ToAggregator, ToDevice, Welcome,
    },
    plan::{Node, Op, PlanInfo},
    wire::{self, Frame, MAX_CONTROL, PROTOCOL_VERSION},
};
use serde::{Serialize, de::DeserializeOwned};

const TICKET: Ticket = Ticket { run: RunId(0x0123_4567_89ab_cdef), round: 7, attempt: 1 };
const BLOB: Blob = Blob { transfer: 7, bytes: 9640, check: 0xcafe_f00d };

fn to_aggregator() -> Vec<(&'static str, ToAggregator)> {
    let hello = Hello {
        device: "cam-1".parse().unwrap(),
        budget: Budget { ram: 65_536, flash: 262_144, macs_per_s: 1_000_000, link_bytes_per_s: 11_520 },
        data: DataSummary { train_samples: 300, test_samples: 75, inputs: 64, classes: 10 },
        max_chunk: 256,
        max_nodes: 64,
    };
    let scalars = Scalars {
        samples: 300,
        loss_before: 0.75,
        loss_after: Some(0.5),
        test: Some(Score { samples: 75, correct: 60, loss: 0.625 }),
        steps: 19,
    };
    vec![
        ("Hello", ToAggregator::Hello(hello)),
        ("PlanRequest", ToAggregator::PlanRequest { from: 4 }),
        ("Ready", ToAggregator::Ready),
        ("Fetch", ToAggregator::Fetch(Fetch { transfer: 7, offset: 1024 })),
        ("Ack", ToAggregator::Ack(Ack { transfer: 7, next: 2048 })),
        ("Progress", ToAggregator::Progress(Progress { ticket: TICKET, step: 3, steps: 24 })),
        (
            "Offer",
            ToAggregator::Offer(Offer { ticket: TICKET, update: BLOB, model_check: 0xdead_beef, scalars }),
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
        batch: 16,
        params: 2410,
        anchor: Some(2410),
        grads: Some(4820),
        residual: None,
        input: 7230,
        logits: 8254,
        arena: 9000,
        nodes: 3,
    };
    let dense = Node {
        op: Op::Dense { inputs: 64, outputs: 32, weight: 0, bias: Some(2048) },
        input: 7230,
        output: 8254,
        input_grad: None,
        output_grad: Some(8766),
    };
    let relu = Node {
        op: Op::Relu { len: 32 },
        input: 8254,
        output: 8254,
        input_grad: Some(8766),
        output_grad: Some(8766),
    };
    let brief = Brief { epochs: 1, batch: 16, lr: 0.1, seed: 42, loss_after: true, codec: Codec::Int8 };
    let assignment =
        |task| ToDevice::Assignment(Assignment { ticket: TICKET, task, model: BLOB, codec: Codec::F32 });
    vec![
        ("Welcome", ToDevice::Welcome(Welcome { run: TICKET.run, tier: Tier::new(2).unwrap(), plan })),
        (
            "PlanPart",
            ToDevice::PlanPart(PlanPart {
                digest: plan.digest,
                from: 0,
                nodes: heapless::Vec::from_slice(&[dense, relu]).unwrap(),
            }),
        ),
        ("Assignment.Train", assignment(Task::Train(brief))),
        ("Assignment.Evaluate", assignment(Task::Evaluate)),
        ("Wait", ToDevice::Wait(Duration::from_secs(20))),
        ("Fetch", ToDevice::Fetch(Fetch { transfer: 7, offset: 0 })),
        ("Ack", ToDevice::Ack(Ack { transfer: 7, next: 512 })),
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_frame_has_the_bytes_written_down() {
    let mut chunk = [0; 64];
    let len = wire::encode_chunk(7, 1024, 5, &mut chunk, |out| out.copy_from_slice(b"bytes")).unwrap();
    let actual = format!(
        "version {PROTOCOL_VERSION}\n{}{}chunk {}\n",
        lines("ToAggregator", &to_aggregator()),
        lines("ToDevice", &to_device()),
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
    let far = Node {
        op: Op::Dense { inputs: u32::MAX, outputs: u32::MAX, weight: u32::MAX, bias: Some(u32::MAX) },
        input: u32::MAX,
        output: u32::MAX,
        input_grad: Some(u32::MAX),
        output_grad: Some(u32::MAX),
    };
    let nodes = heapless::Vec::from_slice(&[far; common::message::PLAN_PART]).unwrap();
    let part = ToDevice::PlanPart(PlanPart { digest: u32::MAX, from: u16::MAX, nodes });
    let mut frame = [0; MAX_CONTROL];
    assert!(wire::encode_control(&part, &mut frame).unwrap() < MAX_CONTROL / 2);
}
