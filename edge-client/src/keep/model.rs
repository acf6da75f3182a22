//! A model of NOR flash: bits can be cleared one by one and set only page by page, and the power can be cut at any byte.
//!
//! Tests hold its bytes in memory, emulated boards in a file of the host. A cut leaves the byte that was being written half
//! written, and a page that was being erased partly erased.

use embedded_storage::nor_flash::{ErrorType, NorFlash, NorFlashError, NorFlashErrorKind, ReadNorFlash};

/// Where the bytes are.
pub trait Store {
    /// Reads bytes.
    fn read(&mut self, at: u32, out: &mut [u8]) -> Result<(), FlashModelError>;
    /// Replaces bytes.
    fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), FlashModelError>;
    /// Number of bytes.
    fn capacity(&self) -> u32;
    /// The power has been cut: an emulated board ends here.
    fn end(&mut self) {}
}

/// Why the model refuses.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum FlashModelError {
    #[error("outside of the flash, or not aligned")]
    Range,
    #[error("a write would set a bit; erase the page first")]
    SetsBits,
    #[error("the power is cut")]
    Cut,
    #[error("the bytes behind the model cannot be read or written")]
    Store,
}

impl NorFlashError for FlashModelError {
    fn kind(&self) -> NorFlashErrorKind {
        match self {
            Self::Range => NorFlashErrorKind::OutOfBounds,
            Self::SetsBits | Self::Cut | Self::Store => NorFlashErrorKind::Other,
        }
    }
}

/// NOR flash with pages of 1 KiB, written in words.
#[derive(Debug)]
pub struct FlashModel<S> {
    store: S,
    /// Changes of a word or of a 64-byte stretch of a page until the power is cut.
    left: Option<u32>,
    cut: bool,
}

const PAGE: usize = 1024;
const WORD: usize = 4;
const STRETCH: usize = 64;

impl<S: Store> FlashModel<S> {
    /// `cut_after`: the power is cut in the middle of this many changes and one more.
    pub fn new(store: S, cut_after: Option<u32>) -> Self {
        Self { store, left: cut_after, cut: false }
    }

    /// The bytes, for the next start.
    pub fn into_store(self) -> S {
        self.store
    }

    /// Whether the power was cut.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    fn change(&mut self, at: u32, bytes: &[u8], half: &[u8]) -> Result<(), FlashModelError> {
        if self.left == Some(0) {
            self.cut = true;
            self.store.write(at, half)?;
            self.store.end();
            return Err(FlashModelError::Cut);
        }
        self.left = self.left.map(|left| left - 1);
        self.store.write(at, bytes)
    }

    fn check(&self, from: u32, len: usize, align: usize) -> Result<(), FlashModelError> {
        if self.cut {
            return Err(FlashModelError::Cut);
        }
        let inside = u64::from(from) + len as u64 <= u64::from(self.store.capacity());
        let aligned = (from as usize).is_multiple_of(align) && len.is_multiple_of(align);
        if inside && aligned { Ok(()) } else { Err(FlashModelError::Range) }
    }
}

impl<S: Store> ErrorType for FlashModel<S> {
    type Error = FlashModelError;
}

impl<S: Store> ReadNorFlash for FlashModel<S> {
    const READ_SIZE: usize = 1;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), FlashModelError> {
        self.check(offset, bytes.len(), 1)?;
        self.store.read(offset, bytes)
    }

    fn capacity(&self) -> usize {
        self.store.capacity() as usize
    }
}

impl<S: Store> NorFlash for FlashModel<S> {
    const WRITE_SIZE: usize = WORD;
    const ERASE_SIZE: usize = PAGE;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), FlashModelError> {
        self.check(from, (to as usize).saturating_sub(from as usize), PAGE)?;
        for at in (from..to).step_by(STRETCH) {
            let mut half = [0; STRETCH];
            self.store.read(at, &mut half)?;
            // Each second bit is not erased yet.
            half.iter_mut().for_each(|byte| *byte |= 0x55);
            self.change(at, &[0xff; STRETCH], &half)?;
        }
        Ok(())
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), FlashModelError> {
        self.check(offset, bytes.len(), WORD)?;
        for (at, new) in (offset..).step_by(WORD).zip(bytes.as_chunks::<WORD>().0) {
            let mut old = [0; WORD];
            self.store.read(at, &mut old)?;
            let sets = old.iter().zip(new).any(|(old, new)| new & !old != 0);
            if sets {
                return Err(FlashModelError::SetsBits);
            }
            let mut half = *new;
            half.iter_mut().zip(old).for_each(|(new, old)| *new |= old & 0x0f);
            self.change(at, new, &half)?;
        }
        Ok(())
    }
}
