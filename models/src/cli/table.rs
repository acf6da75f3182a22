//! Tables for a terminal: the first columns are aligned left, the others right. Columns beyond 80 characters follow below.

use std::fmt;

use common::output;

#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Columns that are aligned left.
    left: usize,
}

impl Table {
    pub fn new(left: usize, header: &[&str]) -> Self {
        Self { rows: vec![header.iter().map(|&title| title.to_owned()).collect()], left }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in output::table(&self.rows, self.left, output::COLUMNS - 2).lines() {
            let indent = if line.is_empty() { "" } else { "  " };
            writeln!(f, "{indent}{line}")?;
        }
        Ok(())
    }
}

/// Digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_three() {
        assert_eq!(
            [0, 999, 1_000, 178_110, 1_234_567].map(grouped),
            ["0", "999", "1,000", "178,110", "1,234,567"]
        );
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(1, &["name", "n"]);
        table.row(["a".to_owned(), "100".to_owned()]);
        assert_eq!(table.to_string(), "  name    n\n  a     100\n");
    }
}
