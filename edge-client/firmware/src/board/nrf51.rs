//! The UART of the nRF51, as in the micro:bit.

use core::sync::atomic::{AtomicBool, Ordering};

use super::UART;

const START_RX: usize = 0x000;
const START_TX: usize = 0x008;
const RECEIVED: usize = 0x108;
const SENT: usize = 0x11c;
const INT_SET: usize = 0x304;
const ENABLE: usize = 0x500;
const PIN_TX: usize = 0x50c;
const PIN_RX: usize = 0x514;
const RXD: usize = 0x518;
const TXD: usize = 0x51c;
const BAUD: usize = 0x524;

/// The first byte is sent at once; each later one waits for the byte before it.
static BUSY: AtomicBool = AtomicBool::new(false);

fn read(register: usize) -> u32 {
    // SAFETY: a register of the UART at the address that the board's description gives.
    unsafe { core::ptr::with_exposed_provenance::<u32>(UART + register).read_volatile() }
}

fn write(register: usize, value: u32) {
    // SAFETY: as above.
    unsafe { core::ptr::with_exposed_provenance_mut::<u32>(UART + register).write_volatile(value) }
}

pub(super) fn start() {
    // The micro:bit's pins, and 115,200 baud.
    write(PIN_TX, 24);
    write(PIN_RX, 25);
    write(BAUD, 0x01d7_e000);
    write(ENABLE, 4);
    write(START_RX, 1);
    write(START_TX, 1);
    write(INT_SET, 1 << 2 | 1 << 7);
}

pub(super) fn receive() -> Option<u8> {
    if read(RECEIVED) == 0 {
        return None;
    }
    // Cleared before the byte is read, so that the event of the next byte is not lost.
    write(RECEIVED, 0);
    Some(read(RXD) as u8)
}

pub(super) fn can_send() -> bool {
    !BUSY.load(Ordering::Relaxed)
}

pub(super) fn send(byte: u8) {
    BUSY.store(true, Ordering::Relaxed);
    write(TXD, byte.into());
}

pub(super) fn acknowledge_sent() {
    if read(SENT) != 0 {
        write(SENT, 0);
        BUSY.store(false, Ordering::Relaxed);
    }
}

/// Does nothing: the interrupt stays enabled. It occurs once per byte.
pub(super) fn announce_room(_wanted: bool) {}
