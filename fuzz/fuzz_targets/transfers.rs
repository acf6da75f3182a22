//! Both ends of a transfer under arbitrary events, and codecs on arbitrary bytes.
#![no_main]

use common::{
    Codec, Duration, Instant, TransferId,
    message::{Ack, Fetch},
    transfer::{Arrival, Incoming, LinkLimits, Outgoing},
};
use libfuzzer_sys::fuzz_target;

const CODECS: [Codec; 3] = [Codec::F32, Codec::F16, Codec::Int8];

fuzz_target!(|data: &[u8]| {
    let Some((head, events)) = data.split_first_chunk::<10>() else { return };
    let &[l0, l1, l2, l3, c0, c1, w0, w1, codec, shift] = head;
    let codec = CODECS[usize::from(codec) % CODECS.len()];
    let len = u32::from_le_bytes([l0, l1, l2, l3]) >> (shift % 32);
    let limits = LinkLimits {
        chunk: u16::from_le_bytes([c0, c1]).into(),
        window: u16::from_le_bytes([w0, w1]).into(),
        timeout: Duration::from_secs(1),
    };
    let mut out = Outgoing::new(TransferId(7), len, codec.align(), limits);
    let mut inc = Incoming::new(TransferId(7), len);
    let mut now = Instant::ZERO;
    for event in events.as_chunks::<6>().0 {
        let &[kind, transfer, a, b, c, d] = event;
        let (transfer, number) = (TransferId(transfer.into()), u32::from_le_bytes([a, b, c, d]));
        match kind % 6 {
            0 => out.handle_fetch(Fetch { transfer, offset: number }, now),
            1 => out.handle_ack(Ack { transfer, next: number }, now),
            2 => {
                now = now + Duration::from_secs(u64::from(a));
                out.handle_timeout(now);
            }
            3 => {
                if let Some(range) = out.poll_chunk() {
                    assert!(range.start < range.end && range.end <= len, "{range:?} of {len}");
                    if inc.handle_chunk(TransferId(7), range.start, range.len()) == Arrival::Gap {
                        let _ = inc.refetch();
                    }
                    if let Some(ack) = inc.poll_ack(limits, now) {
                        out.handle_ack(ack, now);
                    }
                }
            }
            4 => out.handle_fetch(inc.fetch(), now),
            _ => {
                let before = inc.received();
                let fresh = inc.handle_chunk(transfer, number, usize::from(b)) == Arrival::Fresh;
                assert_eq!(inc.received() > before, fresh);
            }
        }
        assert!(inc.received() <= len);
    }
    decode(codec, events);
});

fn decode(codec: Codec, bytes: &[u8]) {
    if let Some(count) = codec.count_in(bytes.len()) {
        let mut values = vec![0.0; count];
        let _ = codec.decode(bytes, &mut values);
    }
}
