//! The server's UDP socket, with short bursts.
//!
//! Every connection of quinn permanently keeps a buffer for the longest burst of packets that its socket takes. With thousands
//! of devices these buffers are most of the memory of a connection.

use std::{
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use quinn::{
    AsyncUdpSocket, Runtime, UdpPoller,
    udp::{RecvMeta, Transmit},
};

/// Packets that are handed to the system at once.
const BURST: usize = 4;

/// Passes everything but the length of bursts to the runtime's own socket.
#[derive(Debug)]
pub(super) struct Socket(Arc<dyn AsyncUdpSocket>);

impl Socket {
    pub fn new(socket: UdpSocket, runtime: &dyn Runtime) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self(runtime.wrap_udp_socket(socket)?)))
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.0.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.0.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_recv(cx, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.0.max_transmit_segments().min(BURST)
    }

    fn max_receive_segments(&self) -> usize {
        self.0.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.0.may_fragment()
    }
}
