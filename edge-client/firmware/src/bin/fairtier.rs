//! The firmware of an emulated board: identity and samples from flash, training over the UART.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use client::data::BytesShard;
use common::sealed::{BoardIdentity, Nonces};
use cortex_m_rt::entry;
use firmware::{
    Best,
    board::{self, Uart, clock},
    node::{self, Device, Flashed},
};

#[entry]
fn main() -> ! {
    board::paint_stack();
    clock::start();
    board::run(|spawner| {
        if let Ok(token) = take_part() {
            spawner.spawn(token);
        }
    })
}

#[embassy_executor::task]
async fn take_part() {
    let uart = Uart::start();
    // Without an identity the board stays silent. Without samples it starts anyway, because they may arrive later.
    let Ok(identity) = BoardIdentity::decode(board::identity()) else { return };
    let shard = BytesShard::parse(board::shard()).unwrap_or(BytesShard::EMPTY);
    let starts = board::starts::count();
    let nonces = Nonces::new(board::seed(identity.seed), u64::from(starts) << 32);
    let limits = board::limits();
    let (arena, room) = board::buffers();
    let mut device: Device<{ board::NODES }, { node::send_room(board::CHUNK) }> =
        node::device(identity, nonces, &limits, arena, &shard);
    #[cfg(feature = "health")]
    device.set_health(board::starts::health());
    let (mut keeper, limits) = board::keeper(limits, device.is_safe());
    let mut source = Flashed::new(shard, room);
    node::run(uart, &mut device, limits, &mut source, &mut keeper, &mut Best::default()).await
}
