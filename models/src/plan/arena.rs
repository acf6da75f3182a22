//! Places buffers with known live ranges in one arena.
//!
//! Interval packing is NP-hard, so this is a heuristic: in several orders, it puts every buffer into the smallest sufficient gap
//! between the buffers that are live at the same time, and keeps the shortest arena. No result is longer than all buffers
//! side by side.

use std::cmp::Reverse;

/// One buffer, by its place in [`Buffers`].
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct BufferId(usize);

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct LiveRange {
    len: u64,
    first: usize,
    last: usize,
}

impl LiveRange {
    fn meets(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Buffers with their live ranges.
#[derive(Clone, Debug, Default)]
pub struct Buffers(Vec<LiveRange>);

impl Buffers {
    /// A buffer that is live from instruction `first` to instruction `last`, both included.
    pub fn add(&mut self, len: u64, first: usize, last: usize) -> BufferId {
        self.0.push(LiveRange { len, first, last });
        BufferId(self.0.len() - 1)
    }

    /// Extends the live range of a buffer to this instruction.
    pub fn extend(&mut self, buffer: BufferId, instruction: usize) {
        let live = &mut self.0[buffer.0];
        live.first = live.first.min(instruction);
        live.last = live.last.max(instruction);
    }

    /// Length, first and last instruction.
    pub fn of(&self, buffer: BufferId) -> (u64, usize, usize) {
        let LiveRange { len, first, last } = self.0[buffer.0];
        (len, first, last)
    }

    /// Finds an offset for every buffer; buffers that are live together do not overlap.
    pub fn place(&self) -> ArenaLayout {
        let mut by_size: Vec<usize> = (0..self.0.len()).collect();
        by_size.sort_by_key(|&buffer| (Reverse(self.0[buffer].len), self.0[buffer].first));
        let mut by_duration = by_size.clone();
        by_duration.sort_by_key(|&buffer| Reverse(self.0[buffer].last - self.0[buffer].first));
        let mut by_start = by_size.clone();
        by_start.sort_by_key(|&buffer| self.0[buffer].first);
        let [first, others @ ..] = [by_size, by_duration, by_start].map(|order| self.place_in(&order));
        others.into_iter().fold(first, |best, other| if other.len < best.len { other } else { best })
    }

    fn place_in(&self, order: &[usize]) -> ArenaLayout {
        let mut offsets = vec![0; self.0.len()];
        let mut arena = 0;
        for (turn, &buffer) in order.iter().enumerate() {
            let live = self.0[buffer];
            let mut taken: Vec<(u64, u64)> = order[..turn]
                .iter()
                .filter(|&&other| live.meets(&self.0[other]))
                .map(|&other| (offsets[other], offsets[other] + self.0[other].len))
                .collect();
            taken.sort_unstable();
            let offset = best_gap(&taken, live.len);
            arena = arena.max(offset + live.len);
            offsets[buffer] = offset;
        }
        ArenaLayout { offsets, len: arena }
    }
}

/// The start of the smallest gap of at least `len` between sorted ranges, or else their end.
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

/// The offset of every buffer.
#[derive(Clone, Debug, Default)]
pub struct ArenaLayout {
    offsets: Vec<u64>,
    /// Length of the arena.
    pub len: u64,
}

impl ArenaLayout {
    /// Where a buffer starts.
    pub fn offset(&self, buffer: BufferId) -> u64 {
        self.offsets[buffer.0]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_gap_is_reused() {
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
            let ids: Vec<BufferId> =
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
