//! Reads updates in groups; the next group is read while the present one is in use.
//!
//! Reading an update (copy and checksum) takes as long as adding it up, and the other cores are idle between two rounds. The
//! order of the rows is kept.

use std::{
    sync::mpsc::{channel, sync_channel},
    thread,
};

use crate::updates::{UpdateRef, Updates, Vector, VectorBuffer};

/// Total numbers of all updates from which a second thread pays off.
const MIN_NUMBERS: usize = 1 << 20;
/// Bytes of a group, so that memory does not grow with the fleet. A longer update is a group of its own.
const GROUP_BYTES: usize = 1 << 20;
/// Most updates of a group.
const GROUP_LEN: usize = 16;

/// Calls `take` with the updates of all `devices`, group by group, until it fails. `which` states what is read of a device, and
/// `numbers` the total count of numbers.
pub(super) fn for_each_group<'r, U: Updates, E>(
    updates: &mut U,
    devices: &[usize],
    numbers: usize,
    which: impl Fn(usize) -> UpdateRef<'r> + Sync,
    mut take: impl FnMut(&[(usize, Vector<'_, U::Value>)]) -> Result<(), E>,
    failed: impl Fn(U::Error) -> E,
) -> Result<(), E> {
    if !U::READ_AHEAD || numbers < MIN_NUMBERS || devices.len() < 2 {
        let mut buffer = Vec::new();
        return devices.iter().try_for_each(|&device| {
            let update = updates.read(which(device), &mut buffer).map_err(&failed)?;
            take(&[(device, Vector::Numbers(update))])
        });
    }
    thread::scope(|scope| {
        let (filled, ready) = sync_channel(1);
        let (free, groups) = channel::<Vec<VectorBuffer<U::Value>>>();
        // One group is filled while the other is in use. If one side ends early, its closed channel ends the other side.
        let _ = free.send(Vec::new());
        let _ = free.send(Vec::new());
        let which = &which;
        scope.spawn(move || {
            let mut rest = devices;
            while !rest.is_empty() {
                let Ok(mut group) = groups.recv() else { return };
                let read = fill(updates, rest, which, &mut group).map(|count| {
                    let (now, later) = rest.split_at(count);
                    rest = later;
                    (now, group)
                });
                let failed = read.is_err();
                if filled.send(read).is_err() || failed {
                    return;
                }
            }
        });
        for read in ready {
            let (devices, group) = read.map_err(&failed)?;
            let loaded: Vec<_> =
                devices.iter().copied().zip(group.iter().map(VectorBuffer::vector)).collect();
            take(&loaded)?;
            drop(loaded);
            let _ = free.send(group);
        }
        Ok(())
    })
}

/// Reads the updates of the first devices that fit in a group, and returns how many these are.
fn fill<'r, U: Updates>(
    updates: &mut U,
    devices: &[usize],
    which: impl Fn(usize) -> UpdateRef<'r>,
    group: &mut Vec<VectorBuffer<U::Value>>,
) -> Result<usize, U::Error> {
    let mut bytes = 0;
    group.resize_with(group.len().max(devices.len().min(GROUP_LEN)), VectorBuffer::default);
    for (count, (&device, buffer)) in devices.iter().zip(group).enumerate() {
        updates.load(which(device), buffer)?;
        bytes += buffer.bytes();
        // The next one may be as long.
        if bytes + buffer.bytes() > GROUP_BYTES {
            return Ok(count + 1);
        }
    }
    Ok(devices.len().min(GROUP_LEN))
}
