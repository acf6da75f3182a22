//! Text that a peer supplies, made fit for a log or a terminal: one line, a bounded length, no control characters.
//!
//! A peer chooses the reason of a QUIC close, and a board chooses its name. PrintableLine ends in them would forge lines of the
//! log, and escape sequences would reach the operator's terminal.

use core::fmt::{self, Write};
use std::string::String;

/// Characters that are shown at most.
pub const MAX_PRINTED: usize = 200;
/// Stands for the rest.
const CUT: &str = "..";

/// What `text` shows, with everything but printable ASCII escaped, cut after [`MAX_PRINTED`] characters.
pub fn printable(text: &(impl fmt::Display + ?Sized)) -> String {
    let mut line = PrintableLine(String::new());
    // It fails where the line is full, which is the end of it.
    let _ = write!(line, "{text}");
    line.0
}

struct PrintableLine(String);

impl PrintableLine {
    fn push(&mut self, escaped: &str) -> fmt::Result {
        // Everything in it is ASCII, so that bytes are characters.
        if self.0.len() + escaped.len() > MAX_PRINTED {
            self.0.push_str(CUT);
            return Err(fmt::Error);
        }
        self.0.push_str(escaped);
        Ok(())
    }
}

impl Write for PrintableLine {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                // Escaped as well, so that an escape in the line is always ours.
                '\\' => self.push("\\\\")?,
                ' '..='~' => self.push(character.encode_utf8(&mut [0; 4]))?,
                other => {
                    let escaped: String = other.escape_default().collect();
                    self.push(&escaped)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_plain_text_stays() {
        let plain = "aborted by peer: the \"fleet\" is over (0x100)";
        assert_eq!(printable(plain), plain);
        let forged = "over\n2026-01-01T00:00:00Z  INFO joined device=cam-1\r\u{1b}[2J\u{9b}31m\u{202e}\\n";
        let shown = printable(forged);
        assert!(shown.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{shown}");
        assert_eq!(
            shown,
            "over\\n2026-01-01T00:00:00Z  INFO joined device=cam-1\\r\\u{1b}[2J\\u{9b}31m\\u{202e}\\\\n"
        );
    }

    #[test]
    fn a_long_text_is_cut() {
        assert_eq!(printable(&"x".repeat(MAX_PRINTED)), "x".repeat(MAX_PRINTED));
        for text in ["x".repeat(MAX_PRINTED + 1), "x".repeat(1 << 20)] {
            assert_eq!(printable(&text), "x".repeat(MAX_PRINTED) + CUT);
        }
        let lines = printable(&"\n".repeat(1 << 20));
        assert_eq!(lines.len(), MAX_PRINTED + CUT.len());
    }
}
