//! Known answers from `tests/fixtures/noise.py`, an independent implementation.

use common::RunId;

use super::*;
use crate::data::{Samples, VecShard};

const TICKET: Ticket = Ticket { run: RunId(0x0102_0304_0506_0708), round: 3, exchange: 1, attempt: 9 };

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn question() -> QuestionKey {
    let secret = Secret::new(core::array::from_fn(|at| at as u8));
    let parts = ["task", "plan", "model", "guide", "samples"].map(|part| Sha256::digest(part).into());
    QuestionKey::of(&secret, TICKET, &parts)
}

#[test]
fn keys_and_draws_are_those_of_another_implementation() {
    let (question, sums, update) =
        (question(), HiddenDigest::sums(&[0.5, 0.25]), HiddenDigest::update(&[1.5, -2.0]));
    assert_eq!(hex(&question.0), "21e3220c94bd8f93195ef569d038478abd8aca3d2ffc042d822b7c19e77f63b0");
    let draws = |mut noise: Noise| [(); 5].map(|()| noise.hide(0.0, 1.0) * 4096.0);
    assert_eq!(draws(question.noise_of_sums(sums)), [-781.0, -3666.0, 6441.0, 8547.0, -1761.0]);
    assert_eq!(draws(question.noise_of_update(sums, update)), [-1582.0, 524.0, -2921.0, -5898.0, -2928.0]);
    let charge = Charge { question: 0xe5ba_e749_7326_4a14, answer: 0x4245_e734_1551_04d2 };
    assert_eq!((question.id(), question.charge(sums, update)), (charge.question, charge));
}

#[test]
fn samples_are_told_apart_by_numbers_targets_and_groups() {
    let train = |features: [f32; 4], labels: [u32; 2], attributes: [u32; 2]| {
        let samples = Samples::new(features.to_vec(), labels.to_vec(), 2).unwrap();
        let shard =
            VecShard::new(samples.with_attributes(&attributes, 2).unwrap(), Samples::default()).unwrap();
        hex(&samples_of(&shard))
    };
    let base = train([1.0, -2.0, 0.5, 0.25], [1, 0], [1, 0]);
    assert_eq!(base, "6e9175f665f37b3090eb3266bf3738d13422aadce8eda3e7cec69ae350a0660a");
    for other in [
        train([1.0, -2.0, 0.5, 0.250_000_03], [1, 0], [1, 0]),
        train([1.0, -2.0, 0.5, 0.25], [1, 1], [1, 0]),
        train([1.0, -2.0, 0.5, 0.25], [1, 0], [1, 1]),
        train([0.5, 0.25, 1.0, -2.0], [0, 1], [0, 1]),
    ] {
        assert_ne!(base, other);
    }
}

fn samples_of(shard: &VecShard) -> [u8; 32] {
    samples(shard, &mut [0.0; 2]).unwrap()
}

#[test]
fn a_task_is_hashed_as_it_is_sent() {
    let steps = heapless::Vec::from_slice(&[0.5, -1.0]).unwrap();
    let task = Task::Try(steps);
    let mut sent = [0; 64];
    let sent = postcard::to_slice(&task, &mut sent).unwrap();
    assert_eq!(words(&task).unwrap(), <[u8; 32]>::from(Sha256::digest(sent)));
}

#[test]
fn keys_are_not_printed() {
    let shown = format!("{:?} {:?}", question(), HiddenDigest::sums(&[1.0]));
    assert_eq!(shown, "QuestionKey HiddenDigest");
}
