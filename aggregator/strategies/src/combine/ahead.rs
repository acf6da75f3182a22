//! Updates in groups, one group after the other, the next one being read while the present one is in use.
//!
//! Reading an update back (copy and checksum) takes as long as adding it up, and between two rounds the other cores have
//! nothing to do. The order stays that of the rows.

use std::{
    sync::mpsc::{channel, sync_channel},
    thread,
};

use crate::updates::{Packed, Row, Updates, Vector};

/// Numbers of all updates together from which on a thread is worth its price.
const WORTH: usize = 1 << 20;
/// Bytes of a group, so that memory does not grow with the fleet; one update at least.
const GROUP: usize = 1 << 20;
/// Updates of a group.
const MOST: usize = 16;

/// Calls `take` with all rows and what they hold, group by group, until it fails. `numbers` are those of all rows together.
pub(super) fn each<'r, U: Updates, E>(
    updates: &mut U,
    rows: Vec<Row<'r>>,
    numbers: usize,
    mut take: impl FnMut(&[(Row<'r>, Vector<'_, U::Value>)]) -> Result<(), E>,
    failed: impl Fn(U::Error) -> E,
) -> Result<(), E> {
    if !U::AHEAD || numbers < WORTH || rows.len() < 2 {
        let mut buffer = Vec::new();
        return rows.into_iter().try_for_each(|row| {
            let update = updates.read(row, &mut buffer).map_err(&failed)?;
            take(&[(row, Vector::Numbers(update))])
        });
    }
    thread::scope(|scope| {
        let (filled, ready) = sync_channel(1);
        let (free, groups) = channel::<Vec<Packed<U::Value>>>();
        // One that is filled and one that is in use; whoever hangs up ends the other side, too.
        let _ = free.send(Vec::new());
        let _ = free.send(Vec::new());
        scope.spawn(move || {
            let mut rest = rows.as_slice();
            while !rest.is_empty() {
                let Ok(mut group) = groups.recv() else { return };
                let read = fill(updates, rest, &mut group).map(|count| {
                    let (now, later) = rest.split_at(count);
                    rest = later;
                    (now.to_vec(), group)
                });
                let failed = read.is_err();
                if filled.send(read).is_err() || failed {
                    return;
                }
            }
        });
        for read in ready {
            let (rows, group) = read.map_err(&failed)?;
            let held: Vec<_> = rows.into_iter().zip(group.iter().map(Packed::vector)).collect();
            take(&held)?;
            drop(held);
            let _ = free.send(group);
        }
        Ok(())
    })
}

/// Reads the first of `rows` that make a group; says how many.
fn fill<U: Updates>(
    updates: &mut U,
    rows: &[Row<'_>],
    group: &mut Vec<Packed<U::Value>>,
) -> Result<usize, U::Error> {
    let mut bytes = 0;
    group.resize_with(group.len().max(rows.len().min(MOST)), Packed::default);
    for (count, (row, packed)) in rows.iter().zip(group).enumerate() {
        updates.load(*row, packed)?;
        bytes += packed.bytes();
        // The next one may be as long.
        if bytes + packed.bytes() > GROUP {
            return Ok(count + 1);
        }
    }
    Ok(rows.len().min(MOST))
}
