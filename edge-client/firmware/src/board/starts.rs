//! The number of starts, in RAM that the start-up code does not clear.

use core::sync::atomic::{AtomicU32, Ordering};

const MARK: u32 = 0x5741_524d;

#[unsafe(link_section = ".uninit.STARTS")]
static STARTS: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

/// Counts this start. The number differs from start to start until the power is cut. Call it once per start.
pub fn count() -> u32 {
    let [mark, count] = &STARTS;
    let next =
        if mark.load(Ordering::Relaxed) == MARK { count.load(Ordering::Relaxed).wrapping_add(1) } else { 0 };
    mark.store(MARK, Ordering::Relaxed);
    count.store(next, Ordering::Relaxed);
    next
}
