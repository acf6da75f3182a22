//! The memory of a Session: a static array on a board, the heap on a host.

/// One block of memory for everything a Plan computes with.
pub trait Arena {
    /// Makes room for `len` numbers, all zero. The error is the number that it has room for.
    fn reserve(&mut self, len: usize) -> Result<(), usize>;

    /// The reserved numbers.
    fn floats(&mut self) -> &mut [f32];
}

impl Arena for &mut [f32] {
    fn reserve(&mut self, len: usize) -> Result<(), usize> {
        match self.get_mut(..len) {
            Some(used) => {
                used.fill(0.0);
                Ok(())
            }
            None => Err(self.len()),
        }
    }

    fn floats(&mut self) -> &mut [f32] {
        self
    }
}

/// An arena on the heap that grows to the size of the Plan, up to the device's budget.
#[cfg(feature = "host")]
#[derive(Clone, Debug)]
pub struct HeapArena {
    floats: std::vec::Vec<f32>,
    limit: usize,
}

#[cfg(feature = "host")]
impl HeapArena {
    /// At most `bytes` bytes.
    pub fn new(bytes: u64) -> Self {
        Self { floats: std::vec::Vec::new(), limit: usize::try_from(bytes / 4).unwrap_or(usize::MAX) }
    }
}

#[cfg(feature = "host")]
impl Arena for HeapArena {
    fn reserve(&mut self, len: usize) -> Result<(), usize> {
        if len > self.limit {
            return Err(self.limit);
        }
        self.floats.clear();
        self.floats.shrink_to(len);
        self.floats.resize(len, 0.0);
        Ok(())
    }

    fn floats(&mut self) -> &mut [f32] {
        &mut self.floats
    }
}
