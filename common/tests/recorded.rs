//! Frames that were recorded from programs of protocol versions 4 to 6. They are never regenerated: a later version must still
//! understand them, or refuse them with a reason.
#![allow(clippy::unwrap_used, reason = "tests")]

use fairtier_common::{
    Versions,
    message::{ToAggregator, ToDevice},
    wire::{self, Frame, MAX_CONTROL},
};
use serde::{Serialize, de::DeserializeOwned};

const DIALOGUE: &str = include_str!("fixtures/dialogue-4.txt");
const FRAMES: &str = include_str!("fixtures/frames-4.txt");
const FRAMES_5: &str = include_str!("fixtures/frames-5.txt");
const FRAMES_6: &str = include_str!("fixtures/frames-6.txt");

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Decodes a frame; encoded again it must be the same bytes.
fn check<T: Serialize + DeserializeOwned>(frame: &[u8]) {
    match Frame::decode(frame).unwrap() {
        Frame::Control(body) => {
            let mut again = [0; MAX_CONTROL];
            let len = wire::encode_control(&wire::message::<T>(body).unwrap(), &mut again).unwrap();
            assert_eq!(&again[..len], frame);
        }
        Frame::Chunk { transfer, offset, data } => {
            let mut again = vec![0; frame.len()];
            let fill = |out: &mut [u8]| out.copy_from_slice(data);
            wire::encode_chunk(transfer, offset, data.len(), &mut again, fill).unwrap();
            assert_eq!(again, frame);
        }
    }
}

#[test]
fn a_recorded_run_of_version_4_is_understood() {
    let frames = DIALOGUE.lines().filter(|line| !line.starts_with('#'));
    let mut seen = [0, 0];
    for line in frames {
        let [way, _, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        match way {
            ">" => check::<ToAggregator>(&bytes(hex)),
            _ => check::<ToDevice>(&bytes(hex)),
        }
        seen[usize::from(way == ">")] += 1;
    }
    assert_eq!(seen, [85, 79]);
}

#[test]
fn every_message_of_version_4_is_understood() {
    let frames: Vec<_> = FRAMES.lines().filter_map(|line| line.split_once(' ')).collect();
    assert_eq!(frames[0], ("version", "4"));
    for (name, hex) in &frames[1..] {
        match name.split_once('.').unwrap_or((name, "")).0 {
            "ToAggregator" => check::<ToAggregator>(&bytes(hex)),
            _ => check::<ToDevice>(&bytes(hex)),
        }
    }
    assert_eq!(frames.len(), 29);
}

#[test]
fn every_message_of_version_5_is_understood() {
    let frames: Vec<_> = FRAMES_5.lines().filter_map(|line| line.split_once(' ')).collect();
    assert_eq!(frames[0], ("version", "5"));
    for (name, hex) in &frames[1..] {
        let frame = bytes(hex);
        match *name {
            "ToAggregator.Hello.versions" => {
                let Ok(Frame::Control(body)) = Frame::decode(&frame) else { panic!("{name}") };
                let (_, tail) = wire::control::<ToAggregator>(body).unwrap();
                assert_eq!(wire::tail(tail), Some(Versions { oldest: 4, newest: 5 }));
            }
            "ToDevice.Welcome.version" => {
                let Ok(Frame::Control(body)) = Frame::decode(&frame) else { panic!("{name}") };
                let (_, tail) = wire::control::<ToDevice>(body).unwrap();
                assert_eq!(wire::tail(tail), Some(5u8));
            }
            name if name.starts_with("ToAggregator") => check::<ToAggregator>(&frame),
            _ => check::<ToDevice>(&frame),
        }
    }
    assert_eq!(frames.len(), 31);
}

/// Version 6 has more tails, which are read by version and not decoded here.
#[test]
fn every_message_of_version_6_is_understood() {
    let frames: Vec<_> = FRAMES_6.lines().filter_map(|line| line.split_once(' ')).collect();
    assert_eq!(frames[0], ("version", "6"));
    let tails = ["Hello.versions", "Welcome.version", "Assignment.validate", "Offer.validation"];
    for (name, hex) in &frames[1..] {
        let frame = bytes(hex);
        let (way, kind) = name.split_once('.').unwrap_or((name, ""));
        match (way, tails.contains(&kind)) {
            ("ToAggregator", false) => check::<ToAggregator>(&frame),
            (_, false) => check::<ToDevice>(&frame),
            (_, true) => {
                let Ok(Frame::Control(body)) = Frame::decode(&frame) else { panic!("{name}") };
                let tail = match way {
                    "ToAggregator" => wire::control::<ToAggregator>(body).unwrap().1,
                    _ => wire::control::<ToDevice>(body).unwrap().1,
                };
                assert!(!tail.is_empty(), "{name}");
            }
        }
    }
    assert_eq!(frames.len(), 33);
}
