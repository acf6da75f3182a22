//! Updates one after the other, the next one being read while the present one is in use.
//!
//! Reading an update back (copy, checksum, decoding) takes as long as adding it up, and between two rounds the other
//! cores have nothing to do. The order stays that of the rows.

use std::{
    sync::mpsc::{channel, sync_channel},
    thread,
};

use super::{Row, Updates};

/// Numbers of all updates together from which on a thread is worth its price.
const WORTH: usize = 1 << 20;

/// Calls `take` with every row and its numbers, until it fails.
pub(super) fn each<'r, U: Updates, E>(
    updates: &mut U,
    rows: Vec<Row<'r>>,
    numbers: usize,
    mut take: impl FnMut(Row<'r>, &[U::Value]) -> Result<(), E>,
    failed: impl Fn(U::Error) -> E,
) -> Result<(), E> {
    if !U::AHEAD || numbers < WORTH || rows.len() < 2 {
        let mut buffer = Vec::new();
        return rows
            .into_iter()
            .try_for_each(|row| take(row, updates.read(row, &mut buffer).map_err(&failed)?));
    }
    thread::scope(|scope| {
        let (filled, ready) = sync_channel(1);
        let (free, buffers) = channel();
        // One that is filled and one that is in use; whoever hangs up ends the other side, too.
        let _ = free.send(Vec::new());
        let _ = free.send(Vec::new());
        scope.spawn(move || {
            for row in rows {
                let Ok(mut buffer) = buffers.recv() else { return };
                let read = updates.fill(row, &mut buffer).map(|()| buffer);
                if filled.send((row, read)).is_err() {
                    return;
                }
            }
        });
        for (row, read) in ready {
            let buffer = read.map_err(&failed)?;
            take(row, &buffer)?;
            let _ = free.send(buffer);
        }
        Ok(())
    })
}
