//! The changed copy of a sample that self-regularisation compares with it.

use common::{brief::Augment, rng::Rng};

/// Writes the copy of a sample, which has the same length. Draws one random number per number for noise, three per sample for
/// images.
pub(in crate::train) fn augment(kind: Augment, sample: &[f32], copy: &mut [f32], rng: &mut Rng) {
    match kind {
        Augment::Noise(deviation) => {
            for (copy, &x) in copy.iter_mut().zip(sample) {
                *copy = x + deviation * rng.normal() as f32;
            }
        }
        Augment::Shift { height, width, pixels, flip, .. } => {
            let step = |word: u64| word as i32 - i32::from(pixels);
            let range = 2 * u64::from(pixels) + 1;
            let (down, right) = (step(rng.below(range)), step(rng.below(range)));
            // Always drawn, so that shifts do not depend on this setting.
            let mirrored = rng.below(2) == 1 && flip;
            shift(sample, copy, (height, width), (down, right), mirrored);
        }
    }
}

/// Mirrors and then shifts every plane of `height x width` numbers; pixels from outside are 0.
fn shift(
    sample: &[f32],
    copy: &mut [f32],
    (height, width): (u16, u16),
    (down, right): (i32, i32),
    mirrored: bool,
) {
    let (height, width) = (usize::from(height), usize::from(width));
    let plane = (height * width).max(1);
    let from = |place: usize, by: i32, size: usize| {
        let place = i32::try_from(place).ok()?.checked_sub(by)?;
        usize::try_from(place).ok().filter(|&place| place < size)
    };
    for (image, copy) in sample.chunks(plane).zip(copy.chunks_mut(plane)) {
        for (y, row) in copy.chunks_mut(width.max(1)).enumerate() {
            let start = from(y, down, height).map(|y| y * width);
            for (x, pixel) in row.iter_mut().enumerate() {
                let column = from(x, right, width).map(|x| if mirrored { width - 1 - x } else { x });
                let place = start.zip(column).map(|(start, column)| start + column);
                *pixel = place.and_then(|place| image.get(place)).copied().unwrap_or(0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two channels of 2 x 3.
    const IMAGE: [f32; 12] = [1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12.];
    const SHIFT: Augment = Augment::Shift { channels: 2, height: 2, width: 3, pixels: 2, flip: true };

    fn moved(by: (i32, i32), mirrored: bool) -> [f32; 12] {
        let mut copy = [f32::NAN; 12];
        shift(&IMAGE, &mut copy, (2, 3), by, mirrored);
        copy
    }

    #[test]
    fn every_channel_moves_and_zeros_come_in() {
        assert_eq!(moved((0, 0), false), IMAGE);
        assert_eq!(moved((1, 0), false), [0., 0., 0., 1., 2., 3., 0., 0., 0., 7., 8., 9.]);
        assert_eq!(moved((0, -1), false), [2., 3., 0., 5., 6., 0., 8., 9., 0., 11., 12., 0.]);
        assert_eq!(moved((-1, 2), false), [0., 0., 4., 0., 0., 0., 0., 0., 10., 0., 0., 0.]);
        assert_eq!(moved((0, 0), true), [3., 2., 1., 6., 5., 4., 9., 8., 7., 12., 11., 10.]);
        assert_eq!(moved((0, 1), true), [0., 3., 2., 0., 6., 5., 0., 9., 8., 0., 12., 11.]);
        assert_eq!(moved((5, 0), false), [0.0; 12]);
    }

    #[test]
    fn draws_follow_the_seed_and_stay_in_bounds() {
        let draw = |kind: Augment, seed: u64| {
            let mut copy = [f32::NAN; 12];
            augment(kind, &IMAGE, &mut copy, &mut Rng::new(seed));
            copy
        };
        assert_eq!(draw(SHIFT, 3), draw(SHIFT, 3));
        let all: Vec<[f32; 12]> = (-2..=2)
            .flat_map(|down| (-2..=2).map(move |right| (down, right)))
            .flat_map(|by| [moved(by, false), moved(by, true)])
            .collect();
        let mut seen: Vec<[f32; 12]> = Vec::new();
        for copy in (0..1000).map(|seed| draw(SHIFT, seed)) {
            assert!(all.contains(&copy), "{copy:?}");
            if !seen.contains(&copy) {
                seen.push(copy);
            }
        }
        assert!(all.iter().all(|copy| seen.contains(copy)), "{} of the copies", seen.len());
        let unflipped = Augment::Shift { channels: 2, height: 2, width: 3, pixels: 0, flip: false };
        assert!((0..50).all(|seed| draw(unflipped, seed) == IMAGE));
        let noisy = draw(Augment::Noise(0.05), 1);
        assert!(noisy.iter().zip(IMAGE).all(|(a, b)| *a != b && (a - b).abs() < 0.5));
    }

    #[test]
    fn samples_of_a_pass_move_on_their_own() {
        let mut rng = Rng::new(5);
        let mut copies = [[0.0f32; 12]; 8];
        copies.iter_mut().for_each(|copy| augment(SHIFT, &IMAGE, copy, &mut rng));
        assert!(copies.iter().any(|copy| *copy != copies[0]));
    }

    #[test]
    fn wrong_image_sizes_do_not_panic() {
        for (height, width) in [(0, 0), (0, 3), (5, 0), (7, 7), (u16::MAX, u16::MAX)] {
            let mut copy = [f32::NAN; 12];
            shift(&IMAGE, &mut copy, (height, width), (1, -1), true);
            assert!(copy.iter().all(|x| x.is_finite()), "{height} {width}");
        }
    }
}
