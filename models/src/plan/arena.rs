//! Places buffers with known live ranges in one arena.
//!
//! Interval packing is NP-hard, so: in several plausible orders, put every buffer into the smallest gap
//! that fits between the buffers which are live at the same time, and keep the shortest arena. No
//! result is longer than all buffers side by side.

use std::cmp::Reverse;

/// One buffer, by its place in [`Buffers`].
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Buffer(usize);

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Live {
    len: u64,
    first: usize,
    last: usize,
}

impl Live {
    fn meets(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Buffers and the steps in which they hold something.
#[derive(Clone, Debug, Default)]
pub struct Buffers(Vec<Live>);

impl Buffers {
    /// A buffer that is live from step `first` to step `last`, both included.
    pub fn add(&mut self, len: u64, first: usize, last: usize) -> Buffer {
        self.0.push(Live { len, first, last });
        Buffer(self.0.len() - 1)
    }

    /// The buffer is needed in this step, too.
    pub fn extend(&mut self, buffer: Buffer, step: usize) {
        if let Some(live) = self.0.get_mut(buffer.0) {
            live.first = live.first.min(step);
            live.last = live.last.max(step);
        }
    }

    /// Length, first and last step.
    pub fn of(&self, buffer: Buffer) -> (u64, usize, usize) {
        self.0.get(buffer.0).map_or((0, 0, 0), |live| (live.len, live.first, live.last))
    }

    pub fn place(&self) -> Placed {
        let mut by_size: Vec<usize> = (0..self.0.len()).collect();
        by_size.sort_by_key(|&buffer| (Reverse(self.0[buffer].len), self.0[buffer].first));
        let mut by_duration = by_size.clone();
        by_duration.sort_by_key(|&buffer| Reverse(self.0[buffer].last - self.0[buffer].first));
        let mut by_start = by_size.clone();
        by_start.sort_by_key(|&buffer| self.0[buffer].first);
        let placed = [by_size, by_duration, by_start].map(|order| self.place_in(&order));
        placed.into_iter().min_by_key(|placed| placed.len).unwrap_or_default()
    }

    fn place_in(&self, order: &[usize]) -> Placed {
        let mut offsets: Vec<Option<u64>> = vec![None; self.0.len()];
        let mut arena = 0;
        for &buffer in order {
            let live = self.0[buffer];
            let mut taken: Vec<(u64, u64)> = self
                .0
                .iter()
                .zip(&offsets)
                .filter(|(other, _)| live.meets(other))
                .filter_map(|(other, offset)| offset.map(|at| (at, at + other.len)))
                .collect();
            taken.sort_unstable();
            let offset = best_gap(&taken, live.len);
            arena = arena.max(offset + live.len);
            offsets[buffer] = Some(offset);
        }
        Placed { offsets: offsets.into_iter().map(|at| at.unwrap_or(0)).collect(), len: arena }
    }
}

/// The start of the smallest gap between sorted stretches that holds `len`, or else their end.
fn best_gap(taken: &[(u64, u64)], len: u64) -> u64 {
    let mut end = 0;
    let mut best: Option<(u64, u64)> = None;
    for &(from, to) in taken {
        let gap = from.saturating_sub(end);
        if gap >= len && best.is_none_or(|(smallest, _)| gap < smallest) {
            best = Some((gap, end));
        }
        end = end.max(to);
    }
    best.map_or(end, |(_, at)| at)
}

/// Where every buffer lies.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    offsets: Vec<u64>,
    /// Length of the arena.
    pub len: u64,
}

impl Placed {
    pub fn offset(&self, buffer: Buffer) -> u64 {
        self.offsets.get(buffer.0).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_gap_is_used_again() {
        let mut buffers = Buffers::default();
        let early = buffers.add(10, 0, 1);
        let long = buffers.add(5, 0, 9);
        let late = buffers.add(8, 2, 3);
        let placed = buffers.place();
        assert_eq!(placed.len, 15);
        assert_eq!(placed.offset(early), placed.offset(late).min(placed.offset(early)));
        assert!(placed.offset(long) >= 10 || placed.offset(early) >= 5);
    }

    proptest! {
        #[test]
        fn live_buffers_never_share(ranges in prop::collection::vec((1u64..50, 0usize..12, 0usize..6), 1..20)) {
            let mut buffers = Buffers::default();
            let ids: Vec<Buffer> =
                ranges.iter().map(|&(len, first, more)| buffers.add(len, first, first + more)).collect();
            let placed = buffers.place();
            prop_assert!(placed.len <= ranges.iter().map(|range| range.0).sum());
            let mut floor = 0;
            for step in 0..18 {
                let mut cells = vec![false; placed.len as usize];
                let mut live = 0;
                for (&(len, first, more), &id) in ranges.iter().zip(&ids) {
                    if !(first..=first + more).contains(&step) {
                        continue;
                    }
                    live += len;
                    for cell in &mut cells[placed.offset(id) as usize..][..len as usize] {
                        prop_assert!(!std::mem::replace(cell, true));
                    }
                }
                floor = floor.max(live);
            }
            prop_assert!(placed.len >= floor);
        }
    }
}
