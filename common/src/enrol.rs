//! How a device gets a certificate: one question and one answer on a QUIC connection of its own protocol.
//!
//! ```text
//! device  -> EnrolRequest (postcard), end of stream
//! device <-  certificates in PEM: the device's, then the authority's; end of stream. Or the connection is closed with a Code.
//! ```

use heapless::Vec;
use serde::{Deserialize, Serialize};

/// How peers name this protocol in their handshake.
pub const ALPN: &[u8] = b"fairtier-enrol/1";

/// How the line of an identity file begins that says when the newest server certificate was issued that is known
/// (seconds since 1970): the device refuses those before it. It stands outside the PEM sections, so that readers of those
/// pass over it.
pub const SERVER_ISSUED: &str = "server-issued: ";

/// Asks for a certificate.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolRequest {
    /// Of the token; none on a connection with a certificate, which is renewed.
    pub secret: Option<[u8; 32]>,
    /// The device's public key: an uncompressed point of P-256.
    pub key: Vec<u8, 65>,
}

impl core::fmt::Debug for EnrolRequest {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EnrolRequest").field("token", &self.secret.is_some()).finish_non_exhaustive()
    }
}
