//! The only task of a board: receives bytes, sends bytes, and computes a batch in between.
//!
//! Its samples come from any [`SampleSource`]: [`Flashed`] samples, or what a sensor delivers. With the feature `keep` a
//! [`Keeper`](client::keep::Keeper) has the model of the last round in flash.
//!
//! The line waits for one batch at most, while the UART's interrupt stores what arrives. The aggregator never has more than
//! two chunks and a message in flight, so room for four chunks is enough.

use core::{future::poll_fn, pin::pin, task::Poll};

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
    select::{Either3, select3},
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
    /// Feeds the watchdog. Called before every batch and packet.
    #[cfg(feature = "health")]
    pub feed: fn(),
    /// Called when an update was accepted: what crashed before is over.
    #[cfg(feature = "health")]
    pub well: fn(),
}

impl Limits {
    /// No stack measured, no watchdog.
    pub const fn new(board: &'static str, chunk: u32) -> Self {
        Self {
            board,
            chunk,
            flash: 64 << 10,
            stack: || 0,
            #[cfg(feature = "health")]
            feed: || {},
            #[cfg(feature = "health")]
            well: || {},
        }
    }
}

/// Where a board's samples come from.
pub trait SampleSource {
    /// The samples at one time.
    type Shard<'a>: Shard
    where
        Self: 'a;

    /// The samples. They must not change while a round is under way.
    fn shard(&self) -> Self::Shard<'_>;

    /// Whether it ever has other samples than at the start and from the line. Firmware without such a source carries no code for it.
    const CHANGES: bool = true;

    /// Waits until there are others. May be dropped and called again.
    fn changed(&mut self) -> impl Future<Output = ()> {
        core::future::pending()
    }

    /// Takes up other samples, while no round is under way. True if their number has changed, so that the gateway must be told.
    fn refresh(&mut self) -> bool {
        false
    }

    /// Room for samples that arrive over the serial line.
    fn room(&mut self) -> &mut [u8] {
        &mut []
    }

    /// How many bytes of the room are a file of samples now.
    fn arrived(&mut self, _len: Option<usize>) {}
}

/// Samples in flash, until others arrive over the serial line.
#[derive(Debug)]
pub struct Flashed {
    baked: BytesShard<'static>,
    room: &'static mut [u8],
    /// Bytes of a file in the room, or 0.
    arrived: usize,
}

impl Flashed {
    /// With room for samples that arrive.
    pub fn new(baked: BytesShard<'static>, room: &'static mut [u8]) -> Self {
        Self { baked, room, arrived: 0 }
    }
}

impl SampleSource for Flashed {
    type Shard<'a> = BytesShard<'a>;

    const CHANGES: bool = false;

    fn shard(&self) -> BytesShard<'_> {
        // An empty file is none.
        BytesShard::parse(self.room.get(..self.arrived).unwrap_or_default()).unwrap_or(self.baked)
    }

    fn room(&mut self) -> &mut [u8] {
        self.room
    }

    fn arrived(&mut self, len: Option<usize>) {
        self.arrived = len.unwrap_or(0);
    }
}

/// Keeps the model of the last round.
pub trait Keep {
    /// Called once, before the board joins.
    fn start<const NODES: usize, const SEND: usize>(&mut self, _device: &mut Device<NODES, SEND>) {}
    /// Called between two batches.
    fn serve<const NODES: usize, const SEND: usize>(&mut self, _device: &mut Device<NODES, SEND>) {}
}

/// Keeps nothing: after a reset the model comes with the next round.
#[derive(Copy, Clone, Debug, Default)]
pub struct KeepNothing;

impl Keep for KeepNothing {}

#[cfg(feature = "keep")]
impl<F: embedded_storage::nor_flash::NorFlash> Keep for client::keep::Keeper<F> {
    fn start<const NODES: usize, const SEND: usize>(&mut self, device: &mut Device<NODES, SEND>) {
        self.go_on(device.session());
        device.note_kept(self.kept());
    }

    fn serve<const NODES: usize, const SEND: usize>(&mut self, device: &mut Device<NODES, SEND>) {
        // A model that does not fit its slot is not kept; the status says so.
        if self.keep(device.session()) == Ok(true) {
            device.note_kept(self.kept());
        }
        if device.is_questioned() {
            self.take_back(device.session());
        }
    }
}

#[cfg(feature = "keep")]
impl<K: Keep> Keep for Option<K> {
    fn start<const NODES: usize, const SEND: usize>(&mut self, device: &mut Device<NODES, SEND>) {
        if let Some(keeper) = self {
            keeper.start(device);
        }
    }

    fn serve<const NODES: usize, const SEND: usize>(&mut self, device: &mut Device<NODES, SEND>) {
        if let Some(keeper) = self {
            keeper.serve(device);
        }
    }
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
    shard: &impl Shard,
) -> Device<NODES, SEND> {
    let ram = size_of_val(arena) as u64;
    let budget = Budget { ram, flash: limits.flash, macs_per_s: 0, link_bytes_per_s: 0 };
    let profile =
        Profile { device: identity.device.clone(), budget, data: shard.summary(), privacy: identity.privacy };
    let link = serial::limits(limits.chunk);
    SerialDevice::new(identity, profile, limits.board, arena, link, nonces)
}

/// Takes part in rounds for ever.
pub async fn run<const NODES: usize, const SEND: usize, S: SampleSource>(
    mut uart: impl Read + Write,
    device: &mut Device<NODES, SEND>,
    limits: Limits,
    source: &mut S,
    keep: &mut impl Keep,
    backend: &mut impl Backend<f32>,
) -> ! {
    let mut bytes = [0; 64];
    keep.start(device);
    #[cfg(feature = "health")]
    let mut accepted = device.status().accepted;
    loop {
        #[cfg(feature = "health")]
        (limits.feed)();
        if device.is_asked() {
            device.note_stack((limits.stack)());
        }
        while let Some(line) = device.poll_transmit(now()) {
            send(&mut uart, line, &mut bytes).await;
        }
        #[cfg(feature = "health")]
        if device.status().accepted != accepted {
            accepted = device.status().accepted;
            (limits.well)();
        }
        let idle = S::CHANGES && !device.session().is_under_way();
        if idle && source.refresh() {
            device.replace_data(source.shard().summary(), now());
        }
        let working = device.has_work();
        let wait = async {
            match device.poll_timeout() {
                _ if working => {}
                Some(at) => Timer::at(embassy_time::Instant::from_millis(at.as_millis())).await,
                None => core::future::pending().await,
            }
        };
        let event = {
            let mut others = pin!(source.changed());
            let changed = poll_fn(|context| if idle { others.as_mut().poll(context) } else { Poll::Pending });
            select3(uart.read(&mut bytes), wait, changed).await
        };
        match event {
            Either3::First(Ok(len)) => {
                device.handle_bytes(&bytes[..len], source.room(), now());
                source.arrived(device.arrived());
            }
            // Noise on the line, or a full buffer: lost bytes are requested again.
            Either3::First(Err(_)) | Either3::Third(()) => {}
            Either3::Second(()) => {
                device.handle_timeout(now());
                if working {
                    keep.serve(device);
                    // The session reports the error to the aggregator, and this device waits for the next round.
                    let _ = device.work(&source.shard(), backend, now());
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
