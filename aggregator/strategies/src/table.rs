//! A dense table of numbers.

/// `rows x columns` numbers. Panics on a row or column that does not exist.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Table {
    rows: usize,
    columns: usize,
    /// Row by row.
    values: Vec<f64>,
}

impl Table {
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Self { rows, columns, values: vec![0.0; rows * columns] }
    }

    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// All numbers, row by row.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    pub fn values_mut(&mut self) -> &mut [f64] {
        &mut self.values
    }

    pub fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }

    pub fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.values[row * self.columns..(row + 1) * self.columns]
    }

    pub fn at(&self, row: usize, column: usize) -> f64 {
        self.row(row)[column]
    }

    pub fn at_mut(&mut self, row: usize, column: usize) -> &mut f64 {
        &mut self.row_mut(row)[column]
    }

    pub fn reserve(&mut self, rows: usize) {
        self.values.reserve_exact(rows * self.columns);
    }

    /// Inserts a row before row `at`. The row must have as many numbers as there are columns.
    pub fn insert(&mut self, at: usize, row: &[f64]) {
        assert_eq!(row.len(), self.columns, "a row of a table with {} columns", self.columns);
        let start = at * self.columns;
        self.values.splice(start..start, row.iter().copied());
        self.rows += 1;
    }

    pub fn remove(&mut self, row: usize) {
        self.values.drain(row * self.columns..(row + 1) * self.columns);
        self.rows -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_inserted_and_removed() {
        let mut table = Table::zeros(0, 2);
        table.insert(0, &[3.0, 4.0]);
        table.insert(0, &[1.0, 2.0]);
        *table.at_mut(1, 0) += 10.0;
        assert_eq!((table.shape(), table.row(1), table.at(0, 1)), ((2, 2), &[13.0, 4.0][..], 2.0));
        table.remove(0);
        assert_eq!((table.shape(), table.values()), ((1, 2), &[13.0, 4.0][..]));
    }

    #[test]
    #[should_panic = "index out of bounds"]
    fn a_column_out_of_bounds_panics() {
        Table::zeros(2, 2).at(0, 2);
    }
}
