//! Flow-control windows, shorter as the fleet grows.

use quinn::{Connection, VarInt};

/// Bytes that one connection may have in flight in either direction. Lists in quinn and tokio never shrink. With thousands of
/// connections, long windows cost memory that grows round after round; with a few, short ones cost time. The tight windows hold
/// fewer than 32 packets, or acknowledgements of them, which is what tokio's queues allocate at a time. At 200 ms they still
/// carry 180 KB per second.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Windows {
    /// Received bytes that may wait to be read.
    pub receive: u32,
    /// Bytes on their way to the device. They are shared between devices, but every packet is tracked until it is acknowledged.
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

/// Sets the windows of a connection that suit this many connections.
pub fn set_windows(connection: &Connection, connections: usize) {
    let Windows { receive, send } = Windows::among(connections);
    connection.set_receive_window(VarInt::from_u32(receive));
    connection.set_send_window(send.into());
}
