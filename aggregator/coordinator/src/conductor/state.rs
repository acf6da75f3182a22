//! What a commit keeps besides the model: the state of the method, and what is remembered of devices.
//!
//! ```text
//! method alone:    its bytes
//! more than that:  "FTG1"  length of the method's bytes (u32, little endian)  method  guard  tail
//! tail, if any:    watch  length of the watch's bytes (u32, little endian)  "FTW1"
//! ```
//! The guard ignores bytes behind its own, so a program that does not know the tail reads the rest.

const MARK: &[u8; 4] = b"FTG1";
const TAIL: &[u8; 4] = b"FTW1";

/// The parts of a state.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StateParts<'a> {
    /// Of the strategy and its target.
    pub method: &'a [u8],
    /// What the guard remembers of devices.
    pub guard: &'a [u8],
    /// What is remembered to notice divergence.
    pub watch: &'a [u8],
}

impl<'a> StateParts<'a> {
    /// The parts of a state that was committed.
    pub fn split(bytes: &'a [u8]) -> Self {
        let parts = bytes.strip_prefix(MARK).and_then(<[u8]>::split_first_chunk);
        let parts = parts.and_then(|(len, rest)| rest.split_at_checked(u32::from_le_bytes(*len) as usize));
        let Some((method, rest)) = parts else { return Self { method: bytes, ..Self::default() } };
        let watch = rest.strip_suffix(TAIL).and_then(<[u8]>::split_last_chunk).and_then(|(before, len)| {
            before.split_at_checked(before.len().checked_sub(u32::from_le_bytes(*len) as usize)?)
        });
        let (guard, watch) = watch.unwrap_or((rest, &[]));
        Self { method, guard, watch }
    }

    /// The state to commit.
    pub fn join(self) -> Vec<u8> {
        let Self { method, guard, watch } = self;
        let lengths = u32::try_from(method.len()).ok().zip(u32::try_from(watch.len()).ok());
        let Some((len, tail)) = lengths.filter(|_| !(guard.is_empty() && watch.is_empty())) else {
            return method.to_vec();
        };
        let state = [MARK.as_slice(), &len.to_le_bytes(), method, guard].concat();
        if watch.is_empty() { state } else { [&state, watch, &tail.to_le_bytes(), TAIL].concat() }
    }

    /// Neither the strategy nor the guard has a state yet.
    pub fn is_fresh(self) -> bool {
        self.method.is_empty() && self.guard.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_restored_and_older_states_belong_to_the_method() {
        for method in [&b"abc"[..], b""] {
            for guard in [&b"de"[..], b"x", b""] {
                for watch in [&b"watch"[..], b"FTW1", b""] {
                    let parts = StateParts { method, guard, watch };
                    assert_eq!(StateParts::split(&parts.join()), parts);
                }
            }
        }
        let damaged = StateParts::split(b"FTG1\xff\xff\xff\xffab");
        assert_eq!(damaged, StateParts { method: b"FTG1\xff\xff\xff\xffab", ..StateParts::default() });
        let damaged = StateParts::split(b"FTG1\0\0\0\0ab\xff\xff\xff\xffFTW1");
        assert_eq!((damaged.guard.len(), damaged.watch), (10, &b""[..]));
    }

    /// The bytes of earlier versions stay as they are where there is nothing to watch.
    #[test]
    fn without_a_watch_the_bytes_are_those_of_earlier_versions() {
        let parts = StateParts { method: b"abc", guard: b"de", watch: b"" };
        assert_eq!(parts.join(), b"FTG1\x03\0\0\0abcde");
        assert_eq!(StateParts { guard: b"", ..parts }.join(), b"abc");
    }
}
