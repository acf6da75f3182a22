//! Flow-control windows, shorter as the fleet grows.

use quinn::{Connection, VarInt};

/// What one connection may have on its way in either direction. Lists in quinn and tokio stay as long as they ever
/// were, so with thousands of connections long windows cost memory that fills up round after round; with a few, short
/// ones cost time. The tight windows are less than 32 packets, or acknowledgements of them, which is what tokio's queues
/// allocate at a time; at 200 ms they still carry 180 KB per second.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Windows {
    /// Bytes that may wait for us.
    pub receive: u32,
    /// Bytes on their way to the device: shared between devices, but every packet is remembered until it is acknowledged.
    pub send: u32,
}

impl Windows {
    pub const TIGHT: Self = Self { receive: 36 << 10, send: 64 << 10 };
    pub const ROOMY: Self = Self { receive: 128 << 10, send: 256 << 10 };
    /// For all connections together.
    const ALL: Self = Self { receive: 16 << 20, send: 32 << 20 };

    pub fn among(connections: usize) -> Self {
        let connections = u32::try_from(connections).unwrap_or(u32::MAX).max(1);
        let (tight, roomy) = (Self::TIGHT, Self::ROOMY);
        Self {
            receive: (Self::ALL.receive / connections).clamp(tight.receive, roomy.receive),
            send: (Self::ALL.send / connections).clamp(tight.send, roomy.send),
        }
    }
}

/// Gives a connection the windows that are right among so many.
pub fn set_windows(connection: &Connection, connections: usize) {
    let Windows { receive, send } = Windows::among(connections);
    connection.set_receive_window(VarInt::from_u32(receive));
    connection.set_send_window(send.into());
}
