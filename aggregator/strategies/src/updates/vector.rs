//! A packed vector as its source keeps it: as numbers, or in `int8`, which is decoded only while it is added up.

use common::{Codec, codec::BLOCK};

use crate::kernel::{self, Scalar};

/// Numbers that are added up at a time, of every vector of a group in turn: their sums stay in the processor's first cache. A
/// multiple of the block length of every codec.
pub(crate) const STRETCH: usize = 32 * BLOCK;

/// A buffer for one vector, reused for the next.
#[derive(Clone, Debug, Default)]
pub struct VectorBuffer<T> {
    numbers: Vec<T>,
    bytes: Vec<u8>,
    /// The bytes are the vector.
    encoded: bool,
}

impl<T: Scalar> VectorBuffer<T> {
    /// A buffer for numbers, which are the vector from now on.
    pub fn numbers(&mut self) -> &mut Vec<T> {
        self.encoded = false;
        &mut self.numbers
    }

    /// A buffer for bytes in `int8`, which are the vector from now on.
    pub fn int8(&mut self) -> &mut Vec<u8> {
        self.encoded = true;
        &mut self.bytes
    }

    /// Memory that the vector takes.
    pub(crate) fn bytes(&self) -> usize {
        if self.encoded { self.bytes.len() } else { size_of_val(self.numbers.as_slice()) }
    }

    /// A view of what the buffer holds.
    pub fn vector(&self) -> Vector<'_, T> {
        match self.encoded {
            true => Vector::Int8(&self.bytes),
            false => Vector::Numbers(&self.numbers),
        }
    }
}

/// A view of a packed vector.
#[derive(Copy, Clone, Debug)]
pub enum Vector<'a, T> {
    /// The numbers themselves.
    Numbers(&'a [T]),
    /// Whole blocks of [`Codec::Int8`], except for the last.
    Int8(&'a [u8]),
}

impl<T: Scalar> Vector<'_, T> {
    /// How many numbers there are; 0 for bytes that end inside a block's head.
    pub fn len(self) -> usize {
        match self {
            Self::Numbers(numbers) => numbers.len(),
            Self::Int8(bytes) => Codec::Int8.count_in(bytes.len()).unwrap_or(0),
        }
    }

    /// True if there are no numbers.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// `acc += weight * self[start..]`, up to the length of `acc`; `start` is a multiple of [`STRETCH`] and not beyond the end.
    pub(crate) fn add_to(self, acc: &mut [f64], weight: f64, start: usize) {
        match self {
            Self::Numbers(numbers) => kernel::axpy(acc, weight, &numbers[start..]),
            Self::Int8(bytes) => {
                let first = Codec::Int8.encoded_len(start).expect("a place in a vector that is there");
                kernel::int8::axpy(acc, weight, &bytes[first as usize..]);
            }
        }
    }

    /// The whole vector as numbers, in `room` if it must be decoded.
    pub(crate) fn decoded<'b>(self, room: &'b mut Vec<T>) -> &'b [T]
    where
        Self: 'b,
    {
        match self {
            Self::Numbers(numbers) => numbers,
            Self::Int8(bytes) => {
                room.clear();
                room.resize(self.len(), T::default());
                common::codec::int8::each(bytes, room, |place, value| *place = T::narrow(value.into()));
                room
            }
        }
    }
}
