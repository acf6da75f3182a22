//! Copies between the whole model and the packed parameters of one tier, in the caller's buffers.

use crate::{layout::Layout, mask::WidthMask, region::RegionSpans};

/// A buffer has the wrong length.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected {expected} parameters, got {got}")]
pub struct WrongLength {
    /// Number of parameters that the layout and the mask give.
    pub expected: usize,
    /// Length of the buffer.
    pub got: usize,
}

/// Copies the parameters that `mask` keeps out of the whole model.
pub fn gather<T: Copy>(
    layout: Layout<'_>,
    mask: &WidthMask,
    full: &[T],
    slice: &mut [T],
) -> Result<(), WrongLength> {
    check(layout, mask, full.len(), slice.len())?;
    let mut rest = slice;
    for (start, len) in kept(layout, mask) {
        let (head, tail) = rest.split_at_mut(len);
        head.copy_from_slice(&full[start..start + len]);
        rest = tail;
    }
    Ok(())
}

/// Copies packed parameters back to their places; everything else keeps its value.
pub fn scatter<T: Copy>(
    layout: Layout<'_>,
    mask: &WidthMask,
    slice: &[T],
    full: &mut [T],
) -> Result<(), WrongLength> {
    check(layout, mask, full.len(), slice.len())?;
    let mut rest = slice;
    for (start, len) in kept(layout, mask) {
        let (head, tail) = rest.split_at(len);
        full[start..start + len].copy_from_slice(head);
        rest = tail;
    }
    Ok(())
}

/// The ranges of the whole model that `mask` keeps, as `(start, length)`.
fn kept<'a>(layout: Layout<'a>, mask: &'a WidthMask) -> impl Iterator<Item = (usize, usize)> {
    RegionSpans::new(layout, core::slice::from_ref(mask))
        .filter(|span| !span.tiers.is_empty())
        .map(|span| (span.start, span.len))
}

fn check(layout: Layout<'_>, mask: &WidthMask, full: usize, slice: usize) -> Result<(), WrongLength> {
    let lengths = [(layout.len(), full), (layout.slice_len(mask), slice)];
    match lengths.into_iter().find(|(expected, got)| expected != got) {
        Some((expected, got)) => Err(WrongLength { expected, got }),
        None => Ok(()),
    }
}
