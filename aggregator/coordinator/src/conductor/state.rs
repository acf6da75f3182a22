//! What a commit keeps besides the model: the state of the method, and what is remembered of devices.
//!
//! ```text
//! method alone:   its bytes
//! both:           "FTG1"  length of the method's bytes (u32, little endian)  method  guard
//! ```

const MARK: &[u8; 4] = b"FTG1";

/// The state to commit.
pub fn join(method: Vec<u8>, guard: &[u8]) -> Vec<u8> {
    let Ok(len) = u32::try_from(method.len()) else { return method };
    if guard.is_empty() {
        return method;
    }
    [MARK.as_slice(), &len.to_le_bytes(), &method, guard].concat()
}

/// The bytes of the method and those of the guard.
pub fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let parts = bytes.strip_prefix(MARK).and_then(<[u8]>::split_first_chunk);
    let parts = parts.and_then(|(len, rest)| rest.split_at_checked(u32::from_le_bytes(*len) as usize));
    parts.unwrap_or((bytes, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parts_are_restored_and_older_states_belong_to_the_method() {
        for (method, guard) in [(&b"abc"[..], &b"de"[..]), (b"", b"x"), (b"abc", b""), (b"", b"")] {
            assert_eq!(split(&join(method.to_vec(), guard)), (method, guard));
        }
        assert_eq!(split(b"FTG1\xff\xff\xff\xffab"), (&b"FTG1\xff\xff\xff\xffab"[..], &b""[..]));
    }
}
