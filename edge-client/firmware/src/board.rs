//! The boards that QEMU emulates. `boards/*.toml` describes their differences, and each UART has a file for its registers.
//! This module holds what they share: start-up, identity, samples, arena, and sleeping.
#![allow(unsafe_code, reason = "registers, linker symbols and the one mutable static of the arena")]

use core::{
    cell::UnsafeCell,
    ptr, slice,
    sync::atomic::{AtomicBool, Ordering},
};

use cortex_m::{asm, interrupt, peripheral::SCB};
#[cfg(not(feature = "health"))]
use cortex_m_rt::ExceptionFrame;
use cortex_m_rt::exception;
use embassy_executor::raw;

pub mod clock;
#[cfg(feature = "keep")]
pub mod host;
#[cfg_attr(uart = "cmsdk", path = "board/cmsdk.rs")]
#[cfg_attr(uart = "pl011", path = "board/pl011.rs")]
#[cfg_attr(uart = "nrf51", path = "board/nrf51.rs")]
mod registers;
mod ring;
#[cfg(uart = "nrf51")]
mod rng;
#[cfg_attr(feature = "health", path = "board/record.rs")]
#[cfg_attr(not(feature = "health"), path = "board/starts.rs")]
pub mod starts;
mod uart;

pub use uart::Uart;

include!(concat!(env!("OUT_DIR"), "/board.rs"));

/// Bytes of flash that are read for the board identity and for the shard.
const IDENTITY_ROOM: usize = 0x1000;
const SHARD_ROOM: usize = 0x1f000;

/// The flash region of the board identity.
pub fn identity() -> &'static [u8] {
    // SAFETY: the board's description reserves this flash for the identity; nothing writes it while the program runs.
    unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(IDENTITY), IDENTITY_ROOM) }
}

/// The flash region of the samples.
pub fn shard() -> &'static [u8] {
    // SAFETY: as above.
    unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(SHARD), SHARD_ROOM) }
}

/// The large buffers: what training needs, and samples that arrive over the serial line.
struct Buffers {
    taken: AtomicBool,
    floats: UnsafeCell<[f32; ARENA / 4]>,
    samples: UnsafeCell<[u8; SAMPLES]>,
}

// SAFETY: only one caller ever gets the memory; see `buffers`.
unsafe impl Sync for Buffers {}

static BUFFERS: Buffers = Buffers {
    taken: AtomicBool::new(false),
    floats: UnsafeCell::new([0.0; ARENA / 4]),
    samples: UnsafeCell::new([0; SAMPLES]),
};

/// The arena and the buffer for samples that arrive over the serial line, on the first call; empty afterwards.
pub fn buffers() -> (&'static mut [f32], &'static mut [u8]) {
    // With interrupts off, because a Cortex-M0 has no atomic swap.
    let taken = interrupt::free(|_| {
        let taken = BUFFERS.taken.load(Ordering::Relaxed);
        BUFFERS.taken.store(true, Ordering::Relaxed);
        taken
    });
    if taken {
        return (&mut [], &mut []);
    }
    // SAFETY: the flag was clear, so these are the only references there ever are.
    unsafe { (&mut *BUFFERS.floats.get(), &mut *BUFFERS.samples.get()) }
}

/// The seed of the board's nonces at this start: that of its identity, mixed with random bytes where the chip has a generator.
pub fn seed(stored: [u8; 16]) -> [u8; 16] {
    #[cfg_attr(not(uart = "nrf51"), allow(unused_mut, reason = "other parts have no generator"))]
    let mut seed = stored;
    #[cfg(uart = "nrf51")]
    rng::stir(&mut seed);
    seed
}

/// The properties of this board.
pub fn limits() -> crate::node::Limits {
    let limits = crate::node::Limits { stack: stack_used, ..crate::node::Limits::new(NAME, CHUNK) };
    #[cfg(feature = "health")]
    let limits = crate::node::Limits { well: starts::well, ..limits };
    limits
}

/// Nothing is kept.
#[cfg(not(feature = "keep"))]
pub fn keeper(limits: crate::node::Limits, _safe: bool) -> (crate::node::KeepNothing, crate::node::Limits) {
    (crate::node::KeepNothing, limits)
}

/// The slots of the model, in a flash that the host lends; and the faults that a test orders.
#[cfg(feature = "keep")]
pub fn keeper(
    limits: crate::node::Limits,
    safe: bool,
) -> (Option<client::keep::Keeper<client::keep::FlashModel<host::HostFile>>>, crate::node::Limits) {
    use client::keep::{FlashModel, Keeper, Slots};
    let (order, file) = host::lent();
    let cut = if let host::Order::Cut(changes) = order { Some(changes) } else { None };
    let slots = Slots { start: 0, length: KEEP_LENGTH, every: KEEP_EVERY };
    let keeper = file.and_then(|file| Keeper::open(FlashModel::new(file, cut), slots).ok());
    let feed = if order == host::Order::Panic && !safe { fail } else { limits.feed };
    (keeper, crate::node::Limits { feed, ..limits })
}

#[cfg(feature = "keep")]
fn fail() {
    panic!("ordered by a test");
}

unsafe extern "C" {
    /// End of static data; the stack grows down to here.
    static mut __sheap: u32;
    static mut _stack_start: u32;
}

const PAINT: u32 = 0xc0de_cafe;

/// Fills the unused stack with a pattern, from which [`stack_used`] finds how deep it got.
///
/// Harmless at any time: it writes below the stack pointer only, where nothing lives. The 128 bytes that it leaves are for its
/// own frame. An interrupt may use and leave the memory in between; its frames are then painted over.
pub fn paint_stack() {
    let mut place = ptr::addr_of_mut!(__sheap);
    let end = cortex_m::register::msp::read() as usize - 128;
    while (place as usize) < end {
        // SAFETY: the range between static data and the current stack pointer is unused.
        unsafe {
            place.write_volatile(PAINT);
            place = place.add(1);
        }
    }
}

/// The most bytes of stack that were in use since [`paint_stack`].
pub fn stack_used() -> u32 {
    let mut place = ptr::addr_of!(__sheap);
    let end = ptr::addr_of!(_stack_start) as usize;
    // SAFETY: reads RAM up to the stack's end.
    while (place as usize) < end && unsafe { place.read_volatile() } == PAINT {
        // SAFETY: as above.
        place = unsafe { place.add(1) };
    }
    (end - place as usize) as u32
}

static PENDING: AtomicBool = AtomicBool::new(false);

#[unsafe(export_name = "__pender")]
fn pender(_context: *mut ()) {
    PENDING.store(true, Ordering::Relaxed);
}

/// Runs tasks for ever and sleeps when there is nothing to do. Uses WFI, because QEMU runs WFE as a busy loop.
pub fn run(start: impl FnOnce(embassy_executor::Spawner)) -> ! {
    let executor = raw::Executor::new(ptr::null_mut());
    // SAFETY: this function never returns, so the executor lives as long as the program.
    let executor: &'static raw::Executor = unsafe { &*ptr::addr_of!(executor) };
    start(executor.spawner());
    loop {
        PENDING.store(false, Ordering::Relaxed);
        // SAFETY: the only place that polls.
        unsafe { executor.poll() };
        interrupt::free(|_| {
            // An interrupt that arrives now still wakes the core, and is handled afterwards.
            if !PENDING.load(Ordering::Relaxed) {
                asm::wfi();
            }
        });
    }
}

const INTERRUPTS: usize = (if UART_RX_IRQ > UART_TX_IRQ { UART_RX_IRQ } else { UART_TX_IRQ }) as usize + 1;

/// The vector table after the core's own exceptions. All entries are the UART's; no other interrupt is enabled.
#[unsafe(link_section = ".vector_table.interrupts")]
#[unsafe(no_mangle)]
static __INTERRUPTS: [unsafe extern "C" fn(); INTERRUPTS] = [uart_interrupt; INTERRUPTS];

extern "C" fn uart_interrupt() {
    uart::interrupt();
}

#[exception]
unsafe fn DefaultHandler(_irq: i16) {
    SCB::sys_reset();
}

#[cfg(not(feature = "health"))]
#[exception]
unsafe fn HardFault(_frame: &ExceptionFrame) -> ! {
    SCB::sys_reset();
}

/// Resets the board. It then joins again and resumes the round from the aggregator's state.
#[cfg(not(feature = "health"))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    SCB::sys_reset();
}
