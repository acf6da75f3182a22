//! Predictions between batches, and a model that survives resets and power cuts.

use proptest::prelude::*;

use super::*;
use crate::{
    keep::{FlashModel, FlashModelError, KeepError, Keeper, Kept, Slots, Store},
    session::ModelPlace,
};

const SLOTS: Slots = Slots { start: 1024, length: 2048, every: 1 };
const SAMPLE: [f32; 2] = [0.75, 0.125];

/// Flash in memory, with something else around the slots.
#[derive(Clone, PartialEq, Debug)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn blank() -> Self {
        Self(vec![0xff; 6 * 1024])
    }
}

impl Store for Bytes {
    fn read(&mut self, at: u32, out: &mut [u8]) -> Result<(), FlashModelError> {
        out.copy_from_slice(&self.0[at as usize..][..out.len()]);
        Ok(())
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), FlashModelError> {
        self.0[at as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn capacity(&self) -> u32 {
        self.0.len() as u32
    }
}

fn open(bytes: &Bytes, cut_after: Option<u32>, slots: Slots) -> Keeper<FlashModel<Bytes>> {
    Keeper::open(FlashModel::new(bytes.clone(), cut_after), slots).unwrap()
}

fn bytes_of(model: [f32; 6]) -> Vec<u8> {
    model.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The model of a round, all different.
fn model_of(round: u32) -> [f32; 6] {
    MODEL.map(|value| value + round as f32 / 8.0)
}

impl Device<'_> {
    fn assign_round(&mut self, round: u32) {
        let model = Blob { transfer: TransferId(1), bytes: 24, check: crc32(&bytes_of(model_of(round))) };
        let ticket = Ticket { round, ..TICKET };
        self.hear(&ToDevice::Assignment(Assignment { ticket, model, ..assignment() }));
    }

    fn receive(&mut self, round: u32) {
        self.assign_round(round);
        for (number, chunk) in bytes_of(model_of(round)).chunks(8).enumerate() {
            self.hear_chunk(number as u32 * 8, chunk);
        }
        self.say();
    }

    fn answer(&mut self) -> Result<(Vec<u32>, u32, bool), Code> {
        let input = self.session.input();
        if input.is_empty() {
            return Err(Code::NotReady);
        }
        input.copy_from_slice(&SAMPLE);
        let answered = self.session.predict(&mut Portable::plain())?;
        let bits = answered.outputs.iter().map(|value| value.to_bits()).collect();
        Ok((bits, answered.round, answered.trained))
    }
}

/// `W x + b` of the model of a round.
fn outputs(round: u32) -> Vec<u32> {
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    device.join();
    device.receive(round);
    let (bits, of, trained) = device.answer().unwrap();
    let m = model_of(round);
    let y = |row: usize| m[4 + row] + (m[2 * row] * SAMPLE[0] + m[2 * row + 1] * SAMPLE[1]);
    assert!((f32::from_bits(bits[0]) - y(0)).abs() < 1e-6 && (f32::from_bits(bits[1]) - y(1)).abs() < 1e-6);
    assert_eq!((of, trained), (round, false));
    bits
}

#[test]
fn predictions_between_batches_use_the_received_model_and_change_no_result() {
    let run = |asks: bool| {
        let mut arena = [0.0; 26];
        let mut device = Device::new(&mut arena);
        assert_eq!(device.answer(), Err(Code::NotReady));
        device.join();
        device.assign_round(1);
        assert_eq!(device.answer(), Err(Code::NotReady), "the model is arriving");
        device.receive(1);
        let mut places = vec![];
        while device.session.has_work() {
            if asks {
                places.push(device.session.model_place());
                assert_eq!(device.answer(), Ok((outputs(1), 1, false)));
            }
            device.session.work(&shard(), &mut Portable::plain(), device.now).unwrap();
        }
        if asks {
            assert!(places.contains(&ModelPlace::Weights) && places.contains(&ModelPlace::Anchor));
            let (bits, round, trained) = device.answer().unwrap();
            assert!(round == 1 && trained && bits != outputs(1), "the trained model answers");
        }
        device.hear(&ToDevice::Fetch(Fetch { transfer: TransferId(1), offset: 0 }));
        let said = device.say();
        (said, device.session.weights().to_vec())
    };
    let (asked, quiet) = (run(true), run(false));
    assert!(!quiet.0.1.is_empty());
    assert_eq!(asked, quiet);
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    device.join();
    device.receive(1);
    device.session.input().copy_from_slice(&[f32::NAN, 0.0]);
    assert_eq!(device.session.predict(&mut Portable::plain()).err(), Some(Code::WrongData));
}

/// After training, and while another model arrives, the kept model answers; the download begins again.
#[test]
fn the_kept_model_answers_when_it_is_no_longer_in_ram() {
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    device.join();
    device.receive(1);
    let mut keeper = open(&Bytes::blank(), None, SLOTS);
    assert_eq!(keeper.keep(&mut device.session), Ok(true));
    assert_eq!(keeper.keep(&mut device.session), Ok(false), "at most once per round");
    device.train();
    assert_eq!(keeper.keep(&mut device.session), Ok(false), "a trained model is not kept");
    keeper.take_back(&mut device.session);
    assert_eq!(device.answer(), Ok((outputs(1), 1, false)));
    device.hear(&ToDevice::Receipt(Receipt { ticket: TICKET, refused: None }));
    device.say();

    device.assign_round(2);
    device.hear_chunk(0, &bytes_of(model_of(2))[..8]);
    device.say();
    assert_eq!(device.answer(), Err(Code::NotReady));
    keeper.take_back(&mut device.session);
    assert_eq!(device.answer(), Ok((outputs(1), 1, false)));
    // The next piece does not follow, so the model is fetched from its beginning.
    device.hear_chunk(8, &bytes_of(model_of(2))[8..16]);
    assert_eq!(device.say().0, [ToAggregator::Fetch(Fetch { transfer: TransferId(1), offset: 0 })]);
    device.receive(2);
    assert_eq!(device.session.weights(), model_of(2));
    assert_eq!(device.answer(), Ok((outputs(2), 2, false)));
    assert_eq!(keeper.keep(&mut device.session), Ok(true));
    assert_eq!(keeper.kept(), Some(Kept { round: 2, writes: 2 }));
}

/// Without a link it predicts; with one, it trains on the model that it has, without fetching it.
#[test]
fn a_reset_goes_on_with_the_kept_model() {
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    device.join();
    device.receive(3);
    let mut keeper = open(&Bytes::blank(), None, SLOTS);
    assert_eq!(keeper.keep(&mut device.session), Ok(true));
    let offer = device.train();
    let flash = keeper.flash_bytes();

    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    assert!(open(&flash, None, SLOTS).go_on(&mut device.session));
    assert_eq!(device.answer(), Ok((outputs(3), 3, false)));
    device.connect(TICKET.run);
    assert_eq!(device.say().0.last(), Some(&ToAggregator::Ready), "the Plan is there, too");
    device.assign_round(3);
    assert!(device.session.has_work(), "the model is not fetched again");
    assert_eq!(device.train(), offer);

    // Another run or an arena that is too small: as if nothing were kept.
    let mut arena = [0.0; 25];
    let mut device = Device::new(&mut arena);
    assert!(!open(&flash, None, SLOTS).go_on(&mut device.session));
    assert_eq!(device.answer(), Err(Code::NotReady));
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    assert!(open(&flash, None, SLOTS).go_on(&mut device.session));
    device.connect(RunId(77));
    assert_eq!(device.answer(), Err(Code::NotReady));
}

#[test]
fn slots_are_checked_and_written_as_often_as_asked() {
    let whole = |slots| Keeper::open(FlashModel::new(Bytes::blank(), None), slots).err();
    for (start, length) in [(0, 1000), (100, 2048), (4096, 2048), (0, 0), (u32::MAX - 1023, 1024)] {
        assert_eq!(whole(Slots { start, length, every: 1 }), Some(KeepError::Pages), "{start} {length}");
    }
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    device.join();
    let mut rounds = vec![];
    let mut keeper = open(&Bytes::blank(), None, Slots { every: 3, ..SLOTS });
    for round in [1, 2, 3, 4, 5, 6, 7, 3] {
        device.session.job = super::super::Job::Free;
        device.receive(round);
        if keeper.keep(&mut device.session).unwrap() {
            rounds.push(round);
        }
    }
    assert_eq!(rounds, [1, 4, 7, 3], "a rollback is kept at once");
    assert_eq!(keeper.kept(), Some(Kept { round: 3, writes: 4 }));
    let mut never = open(&Bytes::blank(), None, Slots { every: 0, ..SLOTS });
    assert_eq!((never.keep(&mut device.session), never.kept()), (Ok(false), None));
    // A flash that fails is not worn out by attempts.
    let mut broken = open(&Bytes::blank(), Some(0), SLOTS);
    assert_eq!(broken.keep(&mut device.session), Err(KeepError::Flash));
    assert_eq!(broken.keep(&mut device.session), Ok(false));
}

impl Keeper<FlashModel<Bytes>> {
    fn flash_bytes(self) -> Bytes {
        self.into_flash().into_store()
    }
}

/// The round and weights that a start finds.
fn found(flash: &Bytes) -> Option<(u32, Vec<f32>)> {
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    let mut keeper = open(flash, None, SLOTS);
    let round = keeper.kept()?.round;
    assert!(keeper.go_on(&mut device.session), "what is kept can be used");
    Some((round, device.session.weights().to_vec()))
}

/// Keeps the model of a round in this flash; the power is cut after some changes.
fn keep_cut(flash: &Bytes, round: u32, cut_after: Option<u32>) -> (Bytes, bool) {
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    device.join();
    device.receive(round);
    let mut keeper = open(flash, cut_after, SLOTS);
    let written = keeper.keep(&mut device.session) == Ok(true);
    (keeper.flash_bytes(), written)
}

/// Every change of every byte, for the first three writes: an empty flash, then each slot in turn.
#[test]
fn a_power_cut_at_any_write_leaves_the_old_or_the_new_model() {
    let mut flash = Bytes::blank();
    for round in 1..4 {
        let old = found(&flash);
        let new = Some((round, model_of(round).to_vec()));
        let mut cuts = 0;
        let written = loop {
            let (cut, written) = keep_cut(&flash, round, Some(cuts));
            let now = found(&cut);
            if written {
                assert_eq!(now, new);
                break cut;
            }
            assert!(now == old || now == new, "cut {cuts} of round {round}: {now:?}");
            // The next start writes the model as if there had been no cut.
            let (again, written) = keep_cut(&cut, round, None);
            assert!((written || now == new) && found(&again) == new, "cut {cuts} of round {round}");
            // Nothing outside of the slots changes.
            assert!(cut.0[..1024].iter().chain(&cut.0[5120..]).all(|&byte| byte == 0xff));
            cuts += 1;
        };
        assert!(cuts > 100, "{cuts}");
        flash = written;
    }
}

proptest! {
    /// Cuts upon cuts, at any place, over many rounds.
    #[test]
    fn repeated_power_cuts_never_lose_the_last_whole_model(
        cuts in prop::collection::vec(prop::option::weighted(0.7, 0u32..160), 1..24)
    ) {
        let (mut flash, mut last) = (Bytes::blank(), None);
        for (round, cut_after) in (1..).zip(cuts) {
            let (next, written) = keep_cut(&flash, round, cut_after);
            let now = found(&next);
            let new = Some((round, model_of(round).to_vec()));
            prop_assert!(if written { now == new } else { now == last || now == new }, "{:?} {:?}", now, last);
            (flash, last) = (next, now);
        }
    }

    /// Flipped bits are noticed.
    #[test]
    fn a_damaged_slot_is_ignored(at in 0usize..4096, bit in 0u8..8) {
        let (first, _) = keep_cut(&Bytes::blank(), 1, None);
        let (mut both, _) = keep_cut(&first, 2, None);
        both.0[1024 + at] ^= 1 << bit;
        let now = found(&both);
        let (one, two) = (Some((1, model_of(1).to_vec())), Some((2, model_of(2).to_vec())));
        prop_assert!(now == one || now == two, "{:?}", now);
    }
}
