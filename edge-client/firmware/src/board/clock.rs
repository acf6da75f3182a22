//! Time from SysTick: a tick of 10 ms, and the counter between ticks, which counts instructions.

use core::cell::{Cell, RefCell};

use cortex_m::peripheral::{Peripherals, SYST, syst::SystClkSource};
use cortex_m_rt::exception;
use critical_section::{CriticalSection, Mutex};
use embassy_time_driver::Driver;
use embassy_time_queue_utils::Queue;

use super::SYSTICK_HZ;

const TICK_MS: u64 = 10;
const RELOAD: u32 = SYSTICK_HZ / 1000 * TICK_MS as u32;

struct Clock {
    ticks: Mutex<Cell<u64>>,
    queue: Mutex<RefCell<Queue>>,
}

embassy_time_driver::time_driver_impl!(static CLOCK: Clock = Clock {
    ticks: Mutex::new(Cell::new(0)),
    queue: Mutex::new(RefCell::new(Queue::new())),
});

impl Driver for Clock {
    fn now(&self) -> u64 {
        critical_section::with(|cs| self.ticks.borrow(cs).get() * TICK_MS)
    }

    fn schedule_wake(&self, at: u64, waker: &core::task::Waker) {
        // Every tick checks the queue, so there is no alarm to set.
        critical_section::with(|cs| {
            self.queue.borrow(cs).borrow_mut().schedule_wake(at, waker);
        });
    }
}

impl Clock {
    fn tick(&self, cs: CriticalSection<'_>) {
        let ticks = self.ticks.borrow(cs);
        ticks.set(ticks.get() + 1);
        self.queue.borrow(cs).borrow_mut().next_expiration(ticks.get() * TICK_MS);
    }
}

/// Starts the clock. To be called once, before the executor runs.
pub fn start() {
    let Some(peripherals) = Peripherals::take() else { return };
    let mut syst = peripherals.SYST;
    syst.set_clock_source(SystClkSource::Core);
    syst.set_reload(RELOAD - 1);
    syst.clear_current();
    syst.enable_counter();
    syst.enable_interrupt();
}

#[exception]
fn SysTick() {
    critical_section::with(|cs| CLOCK.tick(cs));
}

/// SysTick periods since the start.
pub fn counts() -> u64 {
    critical_section::with(|cs| {
        let before = SYST::get_current();
        // A tick that is pending and not handled yet.
        let due = u64::from(cortex_m::peripheral::SCB::is_pendst_pending());
        let now = if due == 1 { SYST::get_current() } else { before };
        (CLOCK.ticks.borrow(cs).get() + due) * u64::from(RELOAD) + u64::from(RELOAD - 1 - now.min(RELOAD - 1))
    })
}
