//! Firmware of the nRF52840 DK: UARTE0 on P0.06 (out) and P0.08 (in), 115,200 baud. The board's debugger exposes it as a
//! serial port.
//!
//! It builds and links, but its authors have not run it on hardware. The seed of the nonces comes from the chip's random
//! number generator at every start.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

use client::{
    data::BytesShard,
    keep::{Keeper, Slots},
};
use common::sealed::{BoardIdentity, Nonces};
use cortex_m::peripheral::SCB;
use embassy_executor::Spawner;
use embassy_nrf::{
    bind_interrupts, buffered_uarte,
    buffered_uarte::BufferedUarte,
    nvmc::Nvmc,
    peripherals,
    rng::Rng,
    uarte::{Baudrate, Config},
};
use firmware::{
    Best,
    node::{self, Device, Flashed, Limits},
};
use static_cell::ConstStaticCell;

const CHUNK: u32 = 256;
/// Where `fairtier board flash` writes them; see `boards/nrf52840.toml`.
const IDENTITY: usize = 0xd_8000;
const SHARD: usize = 0xd_9000;
/// Two slots for the model, in pages of 4 KB; see there, too.
const SLOTS: Slots = Slots { start: 0xc_8000, length: 0x8000, every: 1 };

bind_interrupts!(struct Irqs {
    UARTE0 => buffered_uarte::InterruptHandler<peripherals::UARTE0>;
});

static ARENA: ConstStaticCell<[f32; 16_384]> = ConstStaticCell::new([0.0; 16_384]);
static RECEIVED: ConstStaticCell<[u8; 1024]> = ConstStaticCell::new([0; 1024]);
static ROOM: ConstStaticCell<[u8; 16_384]> = ConstStaticCell::new([0; 16_384]);
static TO_SEND: ConstStaticCell<[u8; 128]> = ConstStaticCell::new([0; 128]);

#[embassy_executor::main]
async fn main(_spawner: Spawner) {
    let p = embassy_nrf::init(embassy_nrf::config::Config::default());
    let mut seed = [0; 16];
    Rng::new_blocking(p.RNG).blocking_fill_bytes(&mut seed);
    let mut config = Config::default();
    config.baudrate = Baudrate::Baud115200;
    let uart = BufferedUarte::new(
        p.UARTE0,
        p.TIMER0,
        p.PPI_CH0,
        p.PPI_CH1,
        p.PPI_GROUP0,
        p.P0_08,
        p.P0_06,
        Irqs,
        config,
        RECEIVED.take(),
        TO_SEND.take(),
    );
    let Ok(identity) = BoardIdentity::decode(identity()) else { return };
    let shard = BytesShard::parse(shard()).unwrap_or(BytesShard::EMPTY);
    let limits = Limits::new("nrf52840", CHUNK);
    let nonces = Nonces::new(seed, 0);
    let backend = &mut Best::default();
    let mut device: Device<24, { node::send_room(CHUNK) }> =
        node::device(identity, nonces, &limits, ARENA.take(), &shard);
    let mut keeper = Keeper::open(Nvmc::new(p.NVMC), SLOTS).ok();
    let mut source = Flashed::new(shard, ROOM.take());
    node::run(uart, &mut device, limits, &mut source, &mut keeper, backend).await
}

/// The flash region of the board identity.
#[allow(unsafe_code, reason = "flash that the memory map keeps free of the program")]
fn identity() -> &'static [u8] {
    // SAFETY: the range is in flash outside the program and the slots, and nothing writes it while the program runs.
    unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance(IDENTITY), 0x1000) }
}

/// The flash region of the samples.
#[allow(unsafe_code, reason = "flash that the memory map keeps free of the program")]
fn shard() -> &'static [u8] {
    // SAFETY: as above.
    unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance(SHARD), 0x1f000) }
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    SCB::sys_reset();
}
