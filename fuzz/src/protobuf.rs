//! Writes fields of Protocol Buffers, for targets that fill in a message.

/// A whole number; a negative one is `value as u64`.
pub fn number(field: u8, value: u64) -> Vec<u8> {
    [varint(u64::from(field) << 3), varint(value)].concat()
}

/// A text, bytes, or a message inside.
pub fn bytes(field: u8, content: &[u8]) -> Vec<u8> {
    [varint(u64::from(field) << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = vec![];
    while value >= 128 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
    out
}
