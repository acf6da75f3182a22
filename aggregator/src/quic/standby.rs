//! The endpoint of a gateway that does not lead: it refuses, so that devices go to their next address at once.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    path::Path,
    time::Duration,
};

use quinn::{Endpoint, VarInt};
use tokio::{task::JoinHandle, time::sleep};

use super::{QuicError, listen};
use crate::ca::Authority;

/// How often, and how far apart, an address is tried that the endpoint before may still have.
const TRIES: u32 = 500;
const BETWEEN: Duration = Duration::from_millis(10);

/// See the module.
#[derive(Debug)]
pub struct StandbyEndpoint {
    endpoint: Endpoint,
    address: SocketAddr,
    refusing: JoinHandle<()>,
}

impl StandbyEndpoint {
    /// Listens with the certificate of the gateway in `dir`. An address that is taken is waited for, for a few seconds.
    pub async fn listen(dir: &Path, address: SocketAddr) -> Result<Self, QuicError> {
        await_free(address).await?;
        let endpoint = listen(&Authority::open(dir)?, address)?;
        let address = endpoint.local_addr().map_err(|source| QuicError::Listen { address, source })?;
        let accepting = endpoint.clone();
        let refusing = tokio::spawn(async move {
            while let Some(incoming) = accepting.accept().await {
                // A few bytes, less than the peer has sent, and no state.
                incoming.refuse();
            }
        });
        Ok(Self { endpoint, address, refusing })
    }

    /// With port 0, this has the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Frees the address.
    pub async fn close(self) -> Result<(), QuicError> {
        let Self { endpoint, address, refusing } = self;
        endpoint.close(VarInt::from_u32(0), b"");
        // Ends with the endpoint.
        let _ = refusing.await;
        drop(endpoint);
        await_free(address).await
    }
}

/// Waits until an address can be bound.
async fn await_free(address: SocketAddr) -> Result<(), QuicError> {
    for tried in 0.. {
        match UdpSocket::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tried < TRIES => sleep(BETWEEN).await,
            Err(source) => return Err(QuicError::Listen { address, source }),
            Ok(_) => break,
        }
    }
    Ok(())
}
