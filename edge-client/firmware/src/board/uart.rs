//! A UART with interrupts: received bytes go to a ring at once, and sent bytes leave as the UART accepts them.

use core::{cell::RefCell, convert::Infallible, future::poll_fn, task::Poll};

use cortex_m::peripheral::NVIC;
use critical_section::Mutex;
use embassy_sync::waitqueue::WakerRegistration;
use embedded_io_async::{ErrorType, Read, Write};

use super::{CHUNK, UART_RX_IRQ, UART_TX_IRQ, registers, ring::Ring};

/// Room for two chunks with their framing, and a message.
const RX_BUFFER: usize = 4 * CHUNK as usize;
const TX_BUFFER: usize = 128;

struct State {
    received: Ring<RX_BUFFER>,
    to_send: Ring<TX_BUFFER>,
    reader: WakerRegistration,
    writer: WakerRegistration,
}

static STATE: Mutex<RefCell<State>> = Mutex::new(RefCell::new(State {
    received: Ring::new(),
    to_send: Ring::new(),
    reader: WakerRegistration::new(),
    writer: WakerRegistration::new(),
}));

fn with<R>(call: impl FnOnce(&mut State) -> R) -> R {
    critical_section::with(|cs| call(&mut STATE.borrow_ref_mut(cs)))
}

/// Called by the interrupts of the UART.
pub(super) fn interrupt() {
    with(|state| {
        while let Some(byte) = registers::receive() {
            state.received.push(byte);
            state.reader.wake();
        }
        state.pump();
    });
}

impl State {
    /// Sends bytes until the UART is full. Its interrupt is enabled only while bytes wait. It is enabled before the check for
    /// room, so that a byte that leaves in between is not missed.
    fn pump(&mut self) {
        registers::announce_room(!self.to_send.is_empty());
        registers::acknowledge_sent();
        while !self.to_send.is_empty() && registers::can_send() {
            if let Some(byte) = self.to_send.pop() {
                registers::send(byte);
                self.writer.wake();
            }
        }
        registers::announce_room(!self.to_send.is_empty());
    }
}

/// The board's UART.
#[derive(Debug)]
pub struct Uart(());

impl Uart {
    /// Starts the UART. To be called once.
    pub fn start() -> Self {
        registers::start();
        for irq in [UART_RX_IRQ, UART_TX_IRQ] {
            // SAFETY: no critical section relies on these interrupts being masked.
            unsafe { NVIC::unmask(Irq(irq)) };
        }
        Self(())
    }
}

#[derive(Copy, Clone)]
struct Irq(i16);

// SAFETY: the number comes from the board's description and is one of its interrupts.
unsafe impl cortex_m::interrupt::InterruptNumber for Irq {
    fn number(self) -> u16 {
        self.0 as u16
    }
}

impl ErrorType for Uart {
    type Error = Infallible;
}

impl Read for Uart {
    async fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Infallible> {
        poll_fn(|context| {
            with(|state| {
                let mut len = 0;
                for place in bytes.iter_mut() {
                    let Some(byte) = state.received.pop() else { break };
                    *place = byte;
                    len += 1;
                }
                if len > 0 || bytes.is_empty() {
                    return Poll::Ready(Ok(len));
                }
                state.reader.register(context.waker());
                Poll::Pending
            })
        })
        .await
    }
}

impl Write for Uart {
    async fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        poll_fn(|context| {
            with(|state| {
                let len = bytes.iter().take_while(|byte| state.to_send.push(**byte)).count();
                state.pump();
                if len > 0 || bytes.is_empty() {
                    return Poll::Ready(Ok(len));
                }
                state.writer.register(context.waker());
                Poll::Pending
            })
        })
        .await
    }

    async fn flush(&mut self) -> Result<(), Infallible> {
        poll_fn(|context| {
            with(|state| {
                if state.to_send.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                state.writer.register(context.waker());
                Poll::Pending
            })
        })
        .await
    }
}
