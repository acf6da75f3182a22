//! Text that a peer supplies, made fit for a log or a terminal: one line, a bounded length, no control characters.
//!
//! A peer chooses the reason of a QUIC close, and a board chooses its name. Line breaks in them could forge lines of the log,
//! and escape sequences could reach the operator's terminal.

use core::fmt::{self, Write};
use std::string::String;

/// Most characters that are shown.
pub const MAX_PRINTED: usize = 200;
/// Marks a text that was cut.
const CUT: &str = "..";

/// Formats `text` with everything but printable ASCII escaped, cut after [`MAX_PRINTED`] characters.
pub fn printable(text: &(impl fmt::Display + ?Sized)) -> String {
    let mut line = PrintableLine(String::new());
    // An error means that the line is full.
    let _ = write!(line, "{text}");
    line.0
}

struct PrintableLine(String);

impl PrintableLine {
    fn push(&mut self, escaped: &str) -> fmt::Result {
        // The line is ASCII, so bytes are characters.
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
                // Escaped as well, so that a peer cannot imitate an escape.
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
