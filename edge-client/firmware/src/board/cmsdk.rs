//! The CMSDK APB UART of Arm's MPS boards.

use super::UART;

const DATA: usize = 0x00;
const STATE: usize = 0x04;
const CTRL: usize = 0x08;
const INT: usize = 0x0c;
const BAUD: usize = 0x10;

const FULL_TX: u32 = 1;
const FULL_RX: u32 = 2;
const ENABLE: u32 = 0b1011;
const TX_INT: u32 = 0b100;

fn read(register: usize) -> u32 {
    // SAFETY: a register of the UART at the address that the board's description gives.
    unsafe { core::ptr::with_exposed_provenance::<u32>(UART + register).read_volatile() }
}

fn write(register: usize, value: u32) {
    // SAFETY: as above.
    unsafe { core::ptr::with_exposed_provenance_mut::<u32>(UART + register).write_volatile(value) }
}

pub(super) fn start() {
    write(BAUD, super::SYSTICK_HZ / 115_200);
    write(CTRL, ENABLE);
}

pub(super) fn receive() -> Option<u8> {
    write(INT, 2);
    (read(STATE) & FULL_RX != 0).then(|| read(DATA) as u8)
}

pub(super) fn can_send() -> bool {
    read(STATE) & FULL_TX == 0
}

pub(super) fn send(byte: u8) {
    write(DATA, byte.into());
}

pub(super) fn acknowledge_sent() {
    write(INT, 1);
}

/// Enables or disables the interrupt that signals room for another byte.
pub(super) fn announce_room(wanted: bool) {
    write(CTRL, if wanted { ENABLE | TX_INT } else { ENABLE });
}
