//! The random number generator of the nRF51, as in the micro:bit.

const RNG: usize = 0x4000_d000;
const START: usize = 0x000;
const STOP: usize = 0x004;
const READY: usize = 0x100;
const CONFIG: usize = 0x504;
const VALUE: usize = 0x508;
/// Polls before giving up: a byte takes less than a millisecond, so a chip that takes longer is broken.
const LOOKS: u32 = 1_000_000;

fn read(register: usize) -> u32 {
    // SAFETY: a register of the generator.
    unsafe { core::ptr::with_exposed_provenance::<u32>(RNG + register).read_volatile() }
}

fn write(register: usize, value: u32) {
    // SAFETY: as above.
    unsafe { core::ptr::with_exposed_provenance_mut::<u32>(RNG + register).write_volatile(value) }
}

/// Mixes random bytes into `bytes`; leaves them unchanged if the generator does not answer.
pub(super) fn stir(bytes: &mut [u8]) {
    // Correct the bias, so that ones are as frequent as zeros.
    write(CONFIG, 1);
    write(START, 1);
    for byte in bytes {
        write(READY, 0);
        if (0..LOOKS).any(|_| read(READY) != 0) {
            *byte ^= read(VALUE) as u8;
        }
    }
    write(STOP, 1);
}
