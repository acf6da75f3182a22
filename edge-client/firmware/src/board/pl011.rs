//! Arm's PL011, as in the Stellaris LM3S6965.

use super::UART;

const DATA: usize = 0x00;
const FLAGS: usize = 0x18;
const BAUD_WHOLE: usize = 0x24;
const BAUD_PART: usize = 0x28;
const LINE: usize = 0x2c;
const CTRL: usize = 0x30;
const MASK: usize = 0x38;
const CLEAR: usize = 0x44;
/// Clocks of UART0 and of its pins.
const CLOCK_UART: usize = 0x400f_e104;
const CLOCK_PINS: usize = 0x400f_e108;
const PINS_FUNCTION: usize = 0x4000_4420;
const PINS_DIGITAL: usize = 0x4000_451c;

const EMPTY_RX: u32 = 1 << 4;
const FULL_TX: u32 = 1 << 5;
const RX_INT: u32 = 1 << 4 | 1 << 6;
const TX_INT: u32 = 1 << 5;

fn read_at(address: usize) -> u32 {
    // SAFETY: a register of the chip, from its data sheet.
    unsafe { core::ptr::with_exposed_provenance::<u32>(address).read_volatile() }
}

fn write_at(address: usize, value: u32) {
    // SAFETY: as above.
    unsafe { core::ptr::with_exposed_provenance_mut::<u32>(address).write_volatile(value) }
}

pub(super) fn start() {
    write_at(CLOCK_UART, read_at(CLOCK_UART) | 1);
    write_at(CLOCK_PINS, read_at(CLOCK_PINS) | 1);
    write_at(PINS_FUNCTION, read_at(PINS_FUNCTION) | 0b11);
    write_at(PINS_DIGITAL, read_at(PINS_DIGITAL) | 0b11);
    // The divisor counts 1/64 of 16 clocks.
    let divisor = super::SYSTICK_HZ * 4 / 115_200;
    write_at(UART + BAUD_WHOLE, divisor / 64);
    write_at(UART + BAUD_PART, divisor % 64);
    // Eight bits and the FIFOs; then enable everything.
    write_at(UART + LINE, 0b111 << 4);
    write_at(UART + CTRL, 1 | 1 << 8 | 1 << 9);
    write_at(UART + MASK, RX_INT);
}

pub(super) fn receive() -> Option<u8> {
    write_at(UART + CLEAR, RX_INT);
    (read_at(UART + FLAGS) & EMPTY_RX == 0).then(|| read_at(UART + DATA) as u8)
}

pub(super) fn can_send() -> bool {
    read_at(UART + FLAGS) & FULL_TX == 0
}

pub(super) fn send(byte: u8) {
    write_at(UART + DATA, byte.into());
}

pub(super) fn acknowledge_sent() {
    write_at(UART + CLEAR, TX_INT);
}

/// Enables or disables the interrupt that signals room for another byte.
pub(super) fn announce_room(wanted: bool) {
    write_at(UART + MASK, if wanted { RX_INT | TX_INT } else { RX_INT });
}
