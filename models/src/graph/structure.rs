//! The nodes that a [`Builder`] adds to join, cut, pad, transpose and multiply values.

use common::{Dim, plan::PoolKind};

use super::{
    GraphError, Op, ValueId,
    build::{Builder, MAX_LEN},
    uncut::Reason,
};

impl Builder {
    /// Two values one behind the other along an axis; the other axes become one.
    pub fn concat(&mut self, name: &str, a: ValueId, b: ValueId, axis: u8) -> Result<ValueId, GraphError> {
        let (x, y) = (self.sizes(a), self.sizes(b));
        let at = usize::from(axis);
        let others = |sizes: &[usize]| {
            let others = sizes.iter().enumerate().filter(|(place, _)| *place != at);
            others.map(|(_, &size)| size).collect::<Vec<_>>()
        };
        if at >= x.len() || x.len() != y.len() || others(&x) != others(&y) {
            return Err(self.wrong(name, format!("joins shapes {x:?} and {y:?} along axis {axis}")));
        }
        if a == b {
            return Err(self.wrong(name, "joins a value to itself, which is not supported"));
        }
        let (mut dims, second) = (self.shape(a).dims.clone(), self.shape(b).dims.clone());
        for (place, (a, b)) in dims.iter_mut().zip(&second).enumerate() {
            if place == at {
                *a = self.axes.concat(a, b, name);
            } else {
                self.axes.unify(a, b, name);
            }
        }
        self.fits(&dims)?;
        Ok(self.push(name, Op::Concat { axis }, &[a, b], &dims))
    }

    /// `len` indices of an axis, from `start` on.
    pub fn part(
        &mut self,
        name: &str,
        input: ValueId,
        axis: u8,
        start: u32,
        len: u32,
    ) -> Result<ValueId, GraphError> {
        let (start, len, at) = (start as usize, len as usize, usize::from(axis));
        let sizes = self.sizes(input);
        let size = sizes.get(at).copied().unwrap_or(0);
        if len == 0 || start.saturating_add(len) > size {
            let end = start.saturating_add(len);
            return Err(self.wrong(name, format!("takes {start}..{end} of axis {axis} of {sizes:?}")));
        }
        if len == size {
            return Ok(input);
        }
        let mut dims = self.shape(input).dims.clone();
        let (before, taken) = self.axes.take(&dims[at], start, len, name);
        dims[at] = taken;
        Ok(self.push(name, Op::Part { axis, before }, &[input], &dims))
    }

    /// Zeros before and after an axis.
    pub fn pad(
        &mut self,
        name: &str,
        input: ValueId,
        axis: u8,
        before: u32,
        after: u32,
    ) -> Result<ValueId, GraphError> {
        let mut dims = self.shape(input).dims.clone();
        let Some(dim) = dims.get_mut(usize::from(axis)) else {
            return Err(self.wrong(name, format!("pads axis {axis} of {:?}", self.sizes(input))));
        };
        if before == 0 && after == 0 {
            return Ok(input);
        }
        if u64::from(before).max(after.into()) > MAX_LEN {
            return Err(GraphError::TooLarge(before.max(after).into()));
        }
        let padded = self.axes.concat(&Dim::fixed(before), dim, name);
        *dim = self.axes.concat(&padded, &Dim::fixed(after), name);
        self.fits(&dims)?;
        Ok(self.push(name, Op::Pad { axis, before, after }, &[input], &dims))
    }

    /// Values are addressed with 32 bits.
    fn fits(&self, dims: &[Dim]) -> Result<(), GraphError> {
        let sizes = self.axes.sizes(dims).into_iter();
        match sizes.fold(1u64, |len, size| len.saturating_mul(size as u64)) {
            len if len > MAX_LEN => Err(GraphError::TooLarge(len)),
            _ => Ok(()),
        }
    }

    /// Of the axes after the first `kept`, the first `moved` go to the end.
    pub fn transpose(
        &mut self,
        name: &str,
        input: ValueId,
        kept: u8,
        moved: u8,
    ) -> Result<ValueId, GraphError> {
        let mut dims = self.shape(input).dims.clone();
        match dims.get_mut(kept.into()..).filter(|rest| usize::from(moved) < rest.len() && moved > 0) {
            Some(rest) => rest.rotate_left(moved.into()),
            None => return Err(self.wrong(name, format!("transposes {:?}", self.sizes(input)))),
        }
        Ok(self.push(name, Op::Transpose { kept, moved }, &[input], &dims))
    }

    /// `[width]`: the mean or maximum over the steps of `[steps][width]`.
    pub fn step_pool(&mut self, name: &str, input: ValueId, kind: PoolKind) -> Result<ValueId, GraphError> {
        let sizes = self.sizes(input);
        let (&[steps, width], true) = (&self.shape(input).dims[..], sizes[0] <= u16::MAX.into()) else {
            return Err(
                self.wrong(name, format!("pools [steps, numbers], but its input has shape {sizes:?}"))
            );
        };
        self.axes.pin(&steps, name, Reason::Positions);
        let kind = if kind == PoolKind::Max { kind } else { PoolKind::Average };
        Ok(self.push(name, Op::StepPool { kind }, &[input], &[width]))
    }

    /// The product of two values of equal shape, whose axes become one; or of an image and `[channels][1][1]`.
    pub fn mul(&mut self, name: &str, a: ValueId, b: ValueId) -> Result<ValueId, GraphError> {
        let (x, y) = (self.sizes(a), self.sizes(b));
        if a == b {
            return Err(self.wrong(name, "multiplies a value by itself, which is not supported"));
        }
        let per_channel =
            x.len() == y.len() && x.first() == y.first() && y.iter().skip(1).all(|&size| size == 1);
        if x != y && !per_channel {
            let text = format!(
                "multiplies shapes {x:?} and {y:?}; only equal ones, or one number per channel, are supported"
            );
            return Err(self.wrong(name, text));
        }
        let (dims, second) = (self.shape(a).dims.clone(), self.shape(b).dims.clone());
        let agreeing = if x == y { dims.len() } else { 1 };
        for (a, b) in dims.iter().zip(&second).take(agreeing) {
            self.axes.unify(a, b, name);
        }
        Ok(self.push(name, Op::Mul, &[a, b], &dims))
    }
}
