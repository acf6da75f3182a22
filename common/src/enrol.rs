//! How a device gets a certificate: one request and one answer on a QUIC connection with its own ALPN.
//!
//! ```text
//! device  -> EnrolRequest (postcard), end of stream
//! device <-  certificates in PEM: the device's, then the authority's; end of stream. Or the connection is closed with a Code.
//! ```

use heapless::Vec;
use serde::{Deserialize, Serialize};

/// The ALPN of the enrolment protocol.
pub const ALPN: &[u8] = b"fairtier-enrol/1";

/// Prefix of a line in an identity file. The line holds the time of issue (seconds since 1970) of the newest known server
/// certificate; the device refuses older ones. It is outside the PEM sections, so PEM readers ignore it.
pub const SERVER_ISSUED: &str = "server-issued: ";

/// Asks for a certificate.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolRequest {
    /// The secret of the token; `None` to renew the certificate that the connection was made with.
    pub secret: Option<[u8; 32]>,
    /// The device's public key: an uncompressed point of P-256.
    pub key: Vec<u8, 65>,
}

impl core::fmt::Debug for EnrolRequest {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EnrolRequest").field("token", &self.secret.is_some()).finish_non_exhaustive()
    }
}
