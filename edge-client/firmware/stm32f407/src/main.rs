//! Firmware of the STM32F407G-DISC1: USART2 on PA2 (out) and PA3 (in), 115,200 baud.
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
use embassy_stm32::{
    bind_interrupts,
    flash::Flash,
    peripherals,
    rcc::{Hse, HseMode, Pll, PllMul, PllPDiv, PllPreDiv, PllQDiv, PllSource, Sysclk},
    rng::{self, Rng},
    time::Hertz,
    usart::{self, BufferedUart},
};
use firmware::{
    Best,
    node::{self, Device, Flashed, Limits},
};
use static_cell::ConstStaticCell;

const CHUNK: u32 = 256;
/// Where `fairtier board flash` writes them; see `boards/stm32f407.toml`.
const IDENTITY: usize = 0x080c_0000;
const SHARD: usize = 0x080e_0000;
/// Two slots for the model, each a sector of 128 KB, from the start of the flash; see there, too. A sector takes about a second
/// to erase, during which the line waits.
const SLOTS: Slots = Slots { start: 0x8_0000, length: 0x2_0000, every: 1 };

bind_interrupts!(struct Irqs {
    USART2 => usart::BufferedInterruptHandler<peripherals::USART2>;
    RNG => rng::InterruptHandler<peripherals::RNG>;
});

static ARENA: ConstStaticCell<[f32; 16_384]> = ConstStaticCell::new([0.0; 16_384]);
static RECEIVED: ConstStaticCell<[u8; 1024]> = ConstStaticCell::new([0; 1024]);
static ROOM: ConstStaticCell<[u8; 16_384]> = ConstStaticCell::new([0; 16_384]);
static TO_SEND: ConstStaticCell<[u8; 128]> = ConstStaticCell::new([0; 128]);

#[embassy_executor::main]
async fn main(_spawner: Spawner) {
    // 168 MHz from the board's crystal of 8 MHz; the generator needs the 48 MHz of the PLL's Q output.
    let mut config = embassy_stm32::Config::default();
    config.rcc.hse = Some(Hse { freq: Hertz(8_000_000), mode: HseMode::Oscillator });
    config.rcc.pll_src = PllSource::HSE;
    config.rcc.pll = Some(Pll {
        prediv: PllPreDiv::DIV4,
        mul: PllMul::MUL168,
        divp: Some(PllPDiv::DIV2),
        divq: Some(PllQDiv::DIV7),
        divr: None,
    });
    config.rcc.ahb_pre = embassy_stm32::rcc::AHBPrescaler::DIV1;
    config.rcc.apb1_pre = embassy_stm32::rcc::APBPrescaler::DIV4;
    config.rcc.apb2_pre = embassy_stm32::rcc::APBPrescaler::DIV2;
    config.rcc.sys = Sysclk::PLL1_P;
    let p = embassy_stm32::init(config);
    let mut seed = [0; 16];
    if Rng::new(p.RNG, Irqs).async_fill_bytes(&mut seed).await.is_err() {
        SCB::sys_reset();
    }
    let config = usart::Config::default();
    let Ok(uart) = BufferedUart::new(p.USART2, p.PA3, p.PA2, TO_SEND.take(), RECEIVED.take(), Irqs, config)
    else {
        return;
    };
    let Ok(identity) = BoardIdentity::decode(identity()) else { return };
    let shard = BytesShard::parse(shard()).unwrap_or(BytesShard::EMPTY);
    let limits = Limits::new("stm32f407", CHUNK);
    let nonces = Nonces::new(seed, 0);
    let backend = &mut Best::default();
    let mut device: Device<24, { node::send_room(CHUNK) }> =
        node::device(identity, nonces, &limits, ARENA.take(), &shard);
    let mut keeper = Keeper::open(Flash::new_blocking(p.FLASH), SLOTS).ok();
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
