//! Samples from a sensor instead of flash: a stream of labelled windows, of which a Shard keeps a fair choice.
//!
//! ```text
//! SampleSource -> Reservoir (RAM) -> Shard, which the trainer reads
//! ```
//! A [`Reservoir`] keeps each window that ever came with the same probability (Vitter's algorithm R), so a
//! device that listens for weeks trains on weeks, not on the last minute. The worked example is an
//! [`Accelerometer`]'s windows: what is read sits in `i8`, a quarter of the RAM that numbers would take.
//!
//! Fill it between rounds only: while an Assignment is worked on, an index must give the same sample.

use common::rng::Rng;

use crate::data::{DataError, Part, Shard};

/// Where labelled windows come from.
pub trait SampleSource<const INPUTS: usize> {
    /// The next window and its label, once there is one.
    fn poll(&mut self) -> Option<([i8; INPUTS], u8)>;
}

/// A fair choice of all windows so far. Every fourth place is for tests.
#[derive(Clone, Debug)]
pub struct Reservoir<const ROOM: usize, const INPUTS: usize> {
    windows: [[i8; INPUTS]; ROOM],
    labels: [u8; ROOM],
    seen: u64,
    rng: Rng,
    classes: u32,
}

/// One place in this many is for tests.
const TEST_EVERY: usize = 4;
/// `feature = byte / 128`, so that windows lie in [-1, 1).
const SCALE: f32 = 1.0 / 128.0;

impl<const ROOM: usize, const INPUTS: usize> Reservoir<ROOM, INPUTS> {
    /// For labels below `classes`.
    pub fn new(classes: u32, seed: u64) -> Self {
        Self { windows: [[0; INPUTS]; ROOM], labels: [0; ROOM], seen: 0, rng: Rng::new(seed), classes }
    }

    /// Windows that are kept now.
    pub fn kept(&self) -> usize {
        usize::try_from(self.seen).unwrap_or(ROOM).min(ROOM)
    }

    /// Takes what the source has; gives how many windows came. Labels beyond the classes are not taken.
    pub fn fill(&mut self, source: &mut impl SampleSource<INPUTS>) -> usize {
        let mut count = 0;
        while let Some((window, label)) = source.poll() {
            count += 1;
            if u32::from(label) < self.classes {
                self.offer(window, label);
            }
        }
        count
    }

    fn offer(&mut self, window: [i8; INPUTS], label: u8) {
        let at = if self.kept() < ROOM { self.kept() as u64 } else { self.rng.below(self.seen + 1) };
        self.seen += 1;
        let at = usize::try_from(at).unwrap_or(ROOM);
        if let (Some(place), Some(old)) = (self.windows.get_mut(at), self.labels.get_mut(at)) {
            (*place, *old) = (window, label);
        }
    }

    fn tests(&self) -> usize {
        self.kept() / TEST_EVERY
    }

    /// Places 3, 7, 11 .. are for tests, the others for training.
    fn place(&self, part: Part, index: u32) -> Result<usize, DataError> {
        let missing = DataError::NoSample { index, len: self.len(part) };
        if index >= self.len(part) {
            return Err(missing);
        }
        let (index, tests) = (index as usize, self.tests());
        Ok(match part {
            Part::Test => index * TEST_EVERY + TEST_EVERY - 1,
            Part::Train => {
                let before = (index / (TEST_EVERY - 1)).min(tests);
                index + before
            }
        })
    }
}

impl<const ROOM: usize, const INPUTS: usize> Shard for Reservoir<ROOM, INPUTS> {
    fn train_len(&self) -> u32 {
        (self.kept() - self.tests()) as u32
    }

    fn test_len(&self) -> u32 {
        self.tests() as u32
    }

    fn inputs(&self) -> u32 {
        INPUTS as u32
    }

    fn classes(&self) -> u32 {
        self.classes
    }

    fn label(&self, part: Part, index: u32) -> Result<u32, DataError> {
        let missing = DataError::NoSample { index, len: self.len(part) };
        self.labels.get(self.place(part, index)?).map(|&label| label.into()).ok_or(missing)
    }

    fn sample(&self, part: Part, index: u32, out: &mut [f32]) -> Result<u32, DataError> {
        let window = self.windows.get(self.place(part, index)?);
        if out.len() != INPUTS {
            return Err(DataError::Room { inputs: INPUTS, room: out.len() });
        }
        for (out, &byte) in out.iter_mut().zip(window.into_iter().flatten()) {
            *out = f32::from(byte) * SCALE;
        }
        self.label(part, index)
    }
}

/// Readings of an accelerometer: x, y and z in 1/64 g.
pub trait Accelerometer {
    /// The next reading and what the wearer does, as a button or an earlier model says.
    fn read(&mut self) -> Option<([i8; 3], u8)>;
}

/// Windows of `STEPS` readings that overlap by half; one whose readings differ in label is left out.
#[derive(Clone, Debug)]
pub struct Windows<A, const STEPS: usize, const INPUTS: usize> {
    sensor: A,
    window: [i8; INPUTS],
    /// Readings in the window, and for how many the label has been the same.
    filled: usize,
    label: u8,
    same: usize,
}

impl<A: Accelerometer, const STEPS: usize, const INPUTS: usize> Windows<A, STEPS, INPUTS> {
    const FITS: () = assert!(INPUTS == 3 * STEPS && STEPS >= 2, "three numbers per reading");

    pub fn new(sensor: A) -> Self {
        let () = Self::FITS;
        Self { sensor, window: [0; INPUTS], filled: 0, label: 0, same: 0 }
    }
}

impl<A: Accelerometer, const STEPS: usize, const INPUTS: usize> SampleSource<INPUTS>
    for Windows<A, STEPS, INPUTS>
{
    fn poll(&mut self) -> Option<([i8; INPUTS], u8)> {
        loop {
            let (reading, label) = self.sensor.read()?;
            self.same = if label == self.label { self.same + 1 } else { 1 };
            self.label = label;
            if let Some(place) = self.window.get_mut(3 * self.filled..3 * self.filled + 3) {
                place.copy_from_slice(&reading);
                self.filled += 1;
            }
            if self.filled < STEPS {
                continue;
            }
            let (window, half) = (self.window, STEPS / 2);
            self.window.copy_within(3 * half.., 0);
            self.filled = STEPS - half;
            if self.same >= STEPS {
                return Some((window, label));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lies still (0) or shakes (1), in turns of 40 readings.
    struct Wrist {
        time: u32,
        end: u32,
    }

    impl Accelerometer for Wrist {
        fn read(&mut self) -> Option<([i8; 3], u8)> {
            if self.time == self.end {
                return None;
            }
            self.time += 1;
            let shakes = self.time / 40 % 2 == 1;
            let swing = if shakes && self.time % 4 < 2 { 60 } else { 0 };
            Some(([swing, -swing, 64], u8::from(shakes)))
        }
    }

    #[test]
    fn windows_overlap_and_do_not_mix_labels() {
        let mut windows = Windows::<_, 8, 24>::new(Wrist { time: 0, end: 400 });
        let mut counts = [0; 2];
        while let Some((window, label)) = windows.poll() {
            counts[usize::from(label)] += 1;
            let shakes = window.iter().step_by(3).any(|&x| x != 0);
            assert_eq!(shakes, label == 1);
        }
        // Nine or ten windows fit a turn of 40 with steps of four.
        assert!(counts.iter().all(|count| (40..=50).contains(count)), "{counts:?}");
    }

    #[test]
    fn the_reservoir_is_a_fair_choice_and_a_shard() {
        struct Numbers(u8);
        impl SampleSource<1> for Numbers {
            fn poll(&mut self) -> Option<([i8; 1], u8)> {
                self.0 += 1;
                (self.0 <= 100).then_some(([self.0 as i8], u8::from(self.0 > 50)))
            }
        }
        let mut old = 0;
        for seed in 0..200 {
            let mut kept = Reservoir::<16, 1>::new(2, seed);
            assert_eq!(kept.fill(&mut Numbers(0)), 100);
            assert_eq!((kept.train_len(), kept.test_len()), (12, 4));
            let mut values = std::collections::BTreeSet::new();
            let mut row = [0.0];
            for (part, len) in [(Part::Train, 12), (Part::Test, 4)] {
                for index in 0..len {
                    let label = kept.sample(part, index, &mut row).unwrap();
                    assert_eq!(label, u32::from(row[0] * 128.0 > 50.0));
                    assert!(values.insert((row[0] * 128.0) as u32));
                    old += usize::from(label == 0);
                }
                assert!(kept.sample(part, len, &mut row).is_err());
            }
            assert_eq!(values.len(), 16);
        }
        assert!((1450..1750).contains(&old), "{old} of 3,200 are of the first half");
    }

    #[test]
    fn a_label_that_no_model_knows_is_not_kept() {
        let mut kept = Reservoir::<4, 24>::new(1, 0);
        kept.fill(&mut Windows::<_, 8, 24>::new(Wrist { time: 0, end: 200 }));
        assert!((0..kept.train_len()).all(|index| kept.label(Part::Train, index) == Ok(0)));
    }
}
