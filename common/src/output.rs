//! Printing to standard output, and tables that fit a terminal.

use std::io::{self, ErrorKind, Write};

/// Prints to standard output. Unlike `println!`, a closed pipe, as in `| head`, is not an error.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// Columns of a terminal that tables fit.
pub const COLUMNS: usize = 80;

/// Rows as aligned columns: the first `left` columns are left-aligned, the others right-aligned. Columns that do not fit
/// into `columns` characters follow below in a second table, which repeats the first column.
pub fn table(rows: &[Vec<String>], left: usize, columns: usize) -> String {
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..).map_while(width).collect();
    let Some((&first, others)) = widths.split_first() else { return String::new() };
    let mut blocks = Vec::from([(1..1, first)]);
    for (at, width) in (1..).zip(others) {
        match blocks.last_mut() {
            Some((block, used)) if block.start == block.end || *used + 2 + width <= columns => {
                (block.end, *used) = (at + 1, *used + 2 + width);
            }
            _ => blocks.push((at..at + 1, first + 2 + width)),
        }
    }
    let mut text = String::new();
    for (number, (block, _)) in blocks.into_iter().enumerate() {
        if number > 0 {
            text.push('\n');
        }
        for row in rows {
            let mut line = format!("{:<first$}", row.first().map_or("", String::as_str));
            for (at, (cell, width)) in row.iter().zip(&widths).enumerate().take(block.end).skip(block.start) {
                line += &if at < left { format!("  {cell:<width$}") } else { format!("  {cell:>width$}") };
            }
            text += line.trim_end();
            text.push('\n');
        }
    }
    text
}

/// Text in lines of at most `columns` characters, broken at blanks. Lines after the first begin with `indent` blanks; the
/// caller prints as many characters before the first. A word that is longer than a line stays whole.
pub fn wrap(text: &str, indent: usize, columns: usize) -> String {
    let (mut out, mut used) = (String::new(), indent);
    for (number, word) in text.split(' ').enumerate() {
        let width = word.chars().count();
        if number > 0 && used + 1 + width > columns {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            used = indent;
        } else if number > 0 {
            out.push(' ');
            used += 1;
        }
        out += word;
        used += width;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(cells: &[&[&str]]) -> Vec<Vec<String>> {
        cells.iter().map(|row| row.iter().map(|cell| String::from(*cell)).collect()).collect()
    }

    #[test]
    fn columns_that_do_not_fit_follow_below() {
        let rows = rows(&[&["", "a", "bb", "c"], &["x", "1", "2", "333"]]);
        assert_eq!(table(&rows, 1, 80), "   a  bb    c\nx  1   2  333\n");
        assert_eq!(table(&rows, 1, 8), "   a  bb\nx  1   2\n\n     c\nx  333\n");
        // A column that is wider than the terminal stays whole.
        assert_eq!(table(&rows, 1, 1), "   a\nx  1\n\n   bb\nx   2\n\n     c\nx  333\n");
        assert_eq!(table(&rows, 2, 80), "   a  bb    c\nx  1   2  333\n");
        assert_eq!(table(&[], 1, 80), "");
    }

    #[test]
    fn text_is_broken_at_blanks() {
        assert_eq!(wrap("one two three", 4, 11), "one two\n    three");
        assert_eq!(wrap("a-word-that-is-too-long b", 2, 10), "a-word-that-is-too-long\n  b");
        assert_eq!(wrap("", 4, 10), "");
    }
}
