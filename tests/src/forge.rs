//! Packets that an attacker on the path can forge: QUIC Initials, whose keys derive from public data (RFC 9001,
//! section 5.2). They are built by hand, so that no QUIC library checks them.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use ring::{
    aead::{self, LessSafeKey, UnboundKey, quic::HeaderProtectionKey},
    hkdf,
};

/// The salt of QUIC version 1 (RFC 9001).
const SALT: [u8; 20] = [
    0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc,
    0xbb, 0x7f, 0x0a,
];
const LONGEST: usize = 1500;

/// Keys of the Initial packets of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InitialKeys {
    pub key: [u8; 16],
    pub iv: [u8; 12],
    pub header: [u8; 16],
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label of TLS 1.3 without a context.
fn expand<const N: usize>(prk: &hkdf::Prk, label: &str) -> [u8; N] {
    let label = format!("tls13 {label}");
    let info = [&(N as u16).to_be_bytes()[..], &[label.len() as u8], label.as_bytes(), &[0]].concat();
    let mut out = [0; N];
    prk.expand(&[&info], Length(N)).unwrap().fill(&mut out).unwrap();
    out
}

impl InitialKeys {
    /// The server's keys, from the connection id that the client chose for it.
    pub fn of_server(destination: &[u8]) -> Self {
        let initial = hkdf::Salt::new(hkdf::HKDF_SHA256, &SALT).extract(destination);
        let secret: [u8; 32] = expand(&initial, "server in");
        let secret = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &secret);
        Self {
            key: expand(&secret, "quic key"),
            iv: expand(&secret, "quic iv"),
            header: expand(&secret, "quic hp"),
        }
    }
}

/// Destination and source connection ids of a client's Initial packet.
fn ids(packet: &[u8]) -> Option<(&[u8], &[u8])> {
    let [first, 0, 0, 0, 1, rest @ ..] = packet else { return None };
    // Long header, type Initial.
    if first & 0xf0 != 0xc0 {
        return None;
    }
    let (&len, rest) = rest.split_first()?;
    let (destination, rest) = rest.split_at_checked(len.into())?;
    let (&len, rest) = rest.split_first()?;
    Some((destination, rest.get(..len.into())?))
}

/// A server's Initial packet that closes the connection of the client that sent `initial`.
pub fn close(initial: &[u8], error: u16, reason: &[u8]) -> Option<Vec<u8>> {
    let (destination, source) = ids(initial)?;
    let keys = InitialKeys::of_server(destination);
    // CONNECTION_CLOSE: error as a varint of two bytes, no frame type, the reason.
    let mut payload =
        [&[0x1c][..], &(0x4000 | error).to_be_bytes(), &[0], &[reason.len() as u8], reason].concat();
    payload.resize(payload.len().max(4), 0);
    let mut head = vec![0xc0, 0, 0, 0, 1, source.len() as u8];
    head.extend_from_slice(source);
    // No source id and no token; then the length and a packet number of one byte.
    head.extend_from_slice(&[0, 0]);
    head.extend_from_slice(&(0x4000 | (1 + payload.len() + 16) as u16).to_be_bytes());
    head.push(0);
    let key = LessSafeKey::new(UnboundKey::new(&aead::AES_128_GCM, &keys.key).unwrap());
    let nonce = aead::Nonce::assume_unique_for_key(keys.iv);
    key.seal_in_place_append_tag(nonce, aead::Aad::from(&head), &mut payload).unwrap();
    let number = head.len() - 1;
    let mut packet = [head, payload].concat();
    let protection = HeaderProtectionKey::new(&aead::quic::AES_128, &keys.header).unwrap();
    let mask = protection.new_mask(packet.get(number + 4..number + 20)?).unwrap();
    packet[0] ^= mask[0] & 0x0f;
    packet[number] ^= mask[1];
    Some(packet)
}

/// An attacker between devices and a gateway: answers the first Initials with forged closes, then forwards
/// everything.
#[derive(Debug)]
pub struct Forger {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU32>,
    worker: Option<thread::JoinHandle<()>>,
}

impl Forger {
    /// Closes `times` connections with this TLS alert and reason before the gateway receives them.
    pub fn start(gateway: &str, times: u32, error: u16, reason: &'static [u8]) -> Self {
        let outside = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = outside.local_addr().unwrap();
        let inside = UdpSocket::bind("127.0.0.1:0").unwrap();
        inside.connect(gateway).unwrap();
        for socket in [&outside, &inside] {
            socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        }
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (stopped, count) = (stop.clone(), sent.clone());
        let worker = thread::spawn(move || {
            let (mut packet, mut device) = ([0; LONGEST], None);
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((len, from)) = outside.recv_from(&mut packet) {
                    if let Some(forged) = close(&packet[..len], error, reason)
                        && count.load(Ordering::Relaxed) < times
                    {
                        outside.send_to(&forged, from).unwrap();
                        count.fetch_add(1, Ordering::Relaxed);
                    } else if count.load(Ordering::Relaxed) >= times {
                        device = Some(from);
                        let _ = inside.send(&packet[..len]);
                    }
                }
                while let (Ok(len), Some(to)) = (inside.recv(&mut packet), device) {
                    let _ = outside.send_to(&packet[..len], to);
                }
            }
        });
        Self { address, stop, sent, worker: Some(worker) }
    }

    /// Number of forged packets so far.
    pub fn sent(&self) -> u32 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9001, appendix A.1.
    #[test]
    fn keys_match_the_rfc() {
        let keys = InitialKeys::of_server(&[0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08]);
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(&keys.key), "cf3a5331653c364c88f0f379b6067e37");
        assert_eq!(hex(&keys.iv), "0ac1493ca1905853b0bba03e");
        assert_eq!(hex(&keys.header), "c206b8d9b9f0f37644430b490eeaa314");
    }
}
