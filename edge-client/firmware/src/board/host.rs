//! What QEMU lends an emulated board, through semihosting: a file as its flash, and faults that a test orders.
//!
//! The first argument of `-semihosting-config` is the order, then comes the file:
//!
//! | order | effect |
//! |---|---|
//! | `run` | none |
//! | `cut=N` | the power is cut in the middle of the N-th change of the flash after this start: QEMU ends |
//! | `panic` | the firmware panics when it begins to run, except in safe mode |

use core::{arch::asm, cell::RefCell};

use client::keep::{FlashModelError, Store};
use critical_section::Mutex;

const OPEN: usize = 0x01;
const WRITE: usize = 0x05;
const READ: usize = 0x06;
const SEEK: usize = 0x0a;
const LENGTH: usize = 0x0c;
const COMMAND_LINE: usize = 0x15;
const EXIT: usize = 0x18;
/// `r+b` of C.
const READ_WRITE: usize = 3;
/// The power is off: ADP_Stopped_ApplicationExit.
const STOPPED: usize = 0x2_0026;

/// One call, with a block of arguments.
fn call(operation: usize, arguments: &mut [usize]) -> usize {
    let mut result = operation;
    // SAFETY: the host reads and writes the block and what it points to, which the callers below lend for the call.
    unsafe { asm!("bkpt #0xab", inout("r0") result, in("r1") arguments.as_mut_ptr(), options(nostack)) };
    result
}

/// What a test orders.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Nothing.
    Run,
    /// Changes of the flash until the power is cut.
    Cut(u32),
    /// Panics when it begins to run.
    Panic,
}

static LINE: Mutex<RefCell<[u8; 256]>> = Mutex::new(RefCell::new([0; 256]));

/// The order, and the file behind the flash if it can be opened.
pub fn lent() -> (Order, Option<HostFile>) {
    critical_section::with(|cs| {
        let mut line = LINE.borrow_ref_mut(cs);
        // The host ends the text with a zero, which the length does not count.
        let mut block = [line.as_mut_ptr().expose_provenance(), line.len() - 1];
        if call(COMMAND_LINE, &mut block) != 0 {
            return (Order::Run, None);
        }
        let text = line.get(..block[1]).unwrap_or_default();
        let end = text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
        let (order, path) = text.split_at(end);
        let order = match order {
            b"panic" => Order::Panic,
            [b'c', b'u', b't', b'=', digits @ ..] => Order::Cut(
                digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit.wrapping_sub(b'0'))),
            ),
            _ => Order::Run,
        };
        let path = path.get(1..).unwrap_or_default();
        let mut block = [path.as_ptr().expose_provenance(), READ_WRITE, path.len()];
        let handle = call(OPEN, &mut block);
        if path.is_empty() || handle == usize::MAX {
            return (order, None);
        }
        let length = call(LENGTH, &mut [handle]);
        (order, (length != usize::MAX).then_some(HostFile { handle, length: length as u32 }))
    })
}

/// A file of the host.
#[derive(Debug)]
pub struct HostFile {
    handle: usize,
    length: u32,
}

impl HostFile {
    fn seek(&self, at: u32) -> Result<(), FlashModelError> {
        let outcome = call(SEEK, &mut [self.handle, at as usize]);
        if outcome == 0 { Ok(()) } else { Err(FlashModelError::Store) }
    }
}

impl Store for HostFile {
    fn read(&mut self, at: u32, out: &mut [u8]) -> Result<(), FlashModelError> {
        self.seek(at)?;
        let left = call(READ, &mut [self.handle, out.as_mut_ptr().expose_provenance(), out.len()]);
        if left == 0 { Ok(()) } else { Err(FlashModelError::Store) }
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), FlashModelError> {
        self.seek(at)?;
        let left = call(WRITE, &mut [self.handle, bytes.as_ptr().expose_provenance(), bytes.len()]);
        if left == 0 { Ok(()) } else { Err(FlashModelError::Store) }
    }

    fn capacity(&self) -> u32 {
        self.length
    }

    fn end(&mut self) {
        // On a 32-bit host call, the reason is the argument itself.
        let mut result = EXIT;
        // SAFETY: the program ends here.
        unsafe { asm!("bkpt #0xab", inout("r0") result, in("r1") STOPPED, options(nostack)) };
        let _ = result;
    }
}
