//! Bytes between an interrupt and a task.

/// A queue of bytes. When it is full, further bytes are lost, and the checksum of the packet detects the loss.
pub(super) struct Ring<const ROOM: usize> {
    bytes: [u8; ROOM],
    first: usize,
    len: usize,
}

impl<const ROOM: usize> Ring<ROOM> {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; ROOM], first: 0, len: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn push(&mut self, byte: u8) -> bool {
        if self.len == ROOM {
            return false;
        }
        let at = (self.first + self.len) % ROOM;
        if let Some(place) = self.bytes.get_mut(at) {
            *place = byte;
        }
        self.len += 1;
        true
    }

    pub(super) fn pop(&mut self) -> Option<u8> {
        if self.len == 0 {
            return None;
        }
        let byte = self.bytes.get(self.first).copied();
        self.first = (self.first + 1) % ROOM;
        self.len -= 1;
        byte
    }
}
