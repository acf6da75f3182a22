//! What a start needs to know of those before it, in RAM that the start-up code does not clear: how many there were, and
//! why the last one ended.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use client::serial::{Crash, Health, MOST_CRASHES, ResetCause};
use cortex_m::peripheral::SCB;
use cortex_m_rt::{ExceptionFrame, exception};

const MARK: u32 = 0x4845_414c;
const FILE: usize = 6;

/// Numbers alone, so that any content is valid and no reference to uninitialised memory is needed.
struct Record {
    mark: AtomicU32,
    starts: AtomicU32,
    /// Why this start ends, as far as it knows.
    ends: AtomicU32,
    crashes: AtomicU32,
    /// 1 if there was a crash.
    crashed: AtomicU32,
    line: AtomicU32,
    /// The end of the file's name, four bytes each, filled with zeros.
    file: [AtomicU32; FILE],
}

const EXTERNAL: u32 = 0;
const PANIC: u32 = 1;
const FAULT: u32 = 2;

#[unsafe(link_section = ".uninit.RECORD")]
static RECORD: Record = Record {
    mark: AtomicU32::new(0),
    starts: AtomicU32::new(0),
    ends: AtomicU32::new(0),
    crashes: AtomicU32::new(0),
    crashed: AtomicU32::new(0),
    line: AtomicU32::new(0),
    file: [const { AtomicU32::new(0) }; FILE],
};

/// Counts this start. The number differs from start to start until the power is cut. Call it once per start.
pub fn count() -> u32 {
    let next = if RECORD.mark.load(Relaxed) == MARK {
        RECORD.starts.load(Relaxed).wrapping_add(1)
    } else {
        for field in [&RECORD.crashes, &RECORD.crashed, &RECORD.ends] {
            field.store(0, Relaxed);
        }
        0
    };
    RECORD.mark.store(MARK, Relaxed);
    RECORD.starts.store(next, Relaxed);
    next
}

/// How the board fares. To be called once, after [`count`]: from then on an end without a crash is a reset from outside.
pub fn health() -> Health {
    let restarts = RECORD.starts.load(Relaxed);
    let ends = RECORD.ends.load(Relaxed);
    RECORD.ends.store(EXTERNAL, Relaxed);
    let cause = match ends {
        _ if restarts == 0 => ResetCause::Power,
        PANIC => ResetCause::Panic,
        FAULT => ResetCause::Fault,
        _ => ResetCause::External,
    };
    if cause == ResetCause::External {
        // A reset by hand leaves safe mode.
        well();
    }
    let crashes = u8::try_from(RECORD.crashes.load(Relaxed)).unwrap_or(u8::MAX);
    let crash = (RECORD.crashed.load(Relaxed) == 1).then(|| {
        let mut crash = Crash { line: RECORD.line.load(Relaxed), ..Crash::default() };
        let bytes = RECORD.file.iter().flat_map(|part| part.load(Relaxed).to_le_bytes());
        for byte in bytes.filter(u8::is_ascii_graphic) {
            let _ = crash.file.push(byte.into());
        }
        crash
    });
    Health { restarts: Some(restarts), cause, crashes, crash, safe: crashes >= MOST_CRASHES, kept: None }
}

/// The board works, so earlier crashes no longer count.
pub fn well() {
    RECORD.crashes.store(0, Relaxed);
}

fn crash(cause: u32, file: &str, line: u32) -> ! {
    RECORD.ends.store(cause, Relaxed);
    RECORD.crashed.store(1, Relaxed);
    // No addition in place: a Cortex-M0 has none.
    RECORD.crashes.store(RECORD.crashes.load(Relaxed).saturating_add(1), Relaxed);
    RECORD.line.store(line, Relaxed);
    let file = file.as_bytes();
    let mut tail = file.get(file.len().saturating_sub(4 * FILE)..).unwrap_or_default().iter();
    for part in &RECORD.file {
        let mut bytes = [0; 4];
        bytes.iter_mut().zip(&mut tail).for_each(|(place, byte)| *place = *byte);
        part.store(u32::from_le_bytes(bytes), Relaxed);
    }
    SCB::sys_reset();
}

#[exception]
unsafe fn HardFault(frame: &ExceptionFrame) -> ! {
    crash(FAULT, "", frame.pc());
}

/// Notes where it was, and resets the board. It then joins again and resumes the round from the aggregator's state.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    match info.location() {
        Some(location) => crash(PANIC, location.file(), location.line()),
        None => crash(PANIC, "?", 0),
    }
}
