//! The only task of a board: receives bytes, sends bytes, and computes a batch in between.
//!
//! The line waits for one batch at most, while the UART's interrupt stores what arrives. The aggregator never has more than
//! two chunks and a message in flight, so room for four chunks is enough.

use client::{
    Profile,
    data::{BytesShard, Shard},
    serial::{self, SerialDevice},
    train::Backend,
};
use common::{
    Budget, Instant,
    sealed::{BoardIdentity, Nonces},
};
use embassy_futures::{
    select::{Either, select},
    yield_now,
};
use embassy_time::Timer;
use embedded_io_async::{Read, Write};

/// Properties of the board.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// The kind of board, as in `boards/`.
    pub board: &'static str,
    /// Longest chunk on the line.
    pub chunk: u32,
    /// Bytes of flash that may hold parameters.
    pub flash: u64,
    /// Most bytes of stack that were in use so far, or 0.
    pub stack: fn() -> u32,
}

/// Size of the send buffer for chunks of this length; see [`SerialDevice`].
pub const fn send_room(chunk: u32) -> usize {
    let chunk = chunk as usize + 43;
    if chunk > 264 { chunk } else { 264 }
}

/// A board without its UART, arena and samples.
pub type Device<const NODES: usize, const SEND: usize> = SerialDevice<&'static mut [f32], NODES, SEND>;

/// Creates the device. To be called inside a task, so that it is created in the task's static memory. A future that holds it
/// would be on the stack first, perhaps twice.
#[inline(never)]
pub fn device<const NODES: usize, const SEND: usize>(
    identity: BoardIdentity,
    nonces: Nonces,
    limits: &Limits,
    arena: &'static mut [f32],
    baked: &BytesShard<'static>,
) -> Device<NODES, SEND> {
    let ram = size_of_val(arena) as u64;
    let budget = Budget { ram, flash: limits.flash, macs_per_s: 0, link_bytes_per_s: 0 };
    let profile =
        Profile { device: identity.device.clone(), budget, data: baked.summary(), privacy: identity.privacy };
    let link = serial::limits(limits.chunk);
    SerialDevice::new(identity, profile, limits.board, arena, link, nonces)
}

/// Takes part in rounds for ever, with the samples that were flashed (`baked`) until others arrive in `room`.
pub async fn run<const NODES: usize, const SEND: usize>(
    mut uart: impl Read + Write,
    device: &mut Device<NODES, SEND>,
    limits: Limits,
    baked: BytesShard<'static>,
    room: &'static mut [u8],
    backend: &mut impl Backend<f32>,
) -> ! {
    let mut bytes = [0; 64];
    loop {
        if device.is_asked() {
            device.note_stack((limits.stack)());
        }
        while let Some(line) = device.poll_transmit(now()) {
            send(&mut uart, line, &mut bytes).await;
        }
        let working = device.has_work();
        let wait = async {
            match device.poll_timeout() {
                _ if working => {}
                Some(at) => Timer::at(embassy_time::Instant::from_millis(at.as_millis())).await,
                None => core::future::pending().await,
            }
        };
        match select(uart.read(&mut bytes), wait).await {
            Either::First(Ok(len)) => {
                device.handle_bytes(&bytes[..len], room, now());
            }
            // Noise on the line, or a full buffer: lost bytes are requested again.
            Either::First(Err(_)) => {}
            Either::Second(()) => {
                device.handle_timeout(now());
                if working {
                    // The session reports the error to the aggregator, and this device waits for the next round.
                    let shard = device.samples(room).unwrap_or(baked);
                    let _ = device.work(&shard, backend, now());
                    yield_now().await;
                }
            }
        }
    }
}

async fn send(uart: &mut impl Write, line: impl Iterator<Item = u8>, bytes: &mut [u8]) {
    let mut line = line.peekable();
    while line.peek().is_some() {
        let mut len = 0;
        for (place, byte) in bytes.iter_mut().zip(line.by_ref()) {
            *place = byte;
            len += 1;
        }
        let _ = uart.write_all(&bytes[..len]).await;
    }
}

fn now() -> Instant {
    Instant::from_millis(embassy_time::Instant::now().as_millis())
}
