//! A file that says which device has which sample: a CSV file with the columns `row` and `device`.

use std::path::Path;

use trainer::data::load::{BoundedFile, CsvRows, LIMIT, LoadError};

use super::{DataSet, SetError};

impl DataSet {
    /// Assigns every training sample to the device that the file names. Rows count the samples from 1.
    pub fn with_owners(mut self, path: &Path) -> Result<Self, SetError> {
        let samples = self.train.len();
        let owners = read(path, samples)?;
        let mut names: Vec<String> = owners.clone();
        names.sort_unstable();
        names.dedup();
        // Every owner is among the names.
        let place = |owner: &String| names.binary_search(owner).unwrap_or_default() as u32;
        let clients = owners.iter().map(place).collect();
        let fault = |source| SetError::Data { name: self.name.clone(), source };
        self.train = self.train.with_clients(clients).map_err(fault)?;
        self.client_names = names;
        Ok(self)
    }
}

/// The device of every sample.
fn read(path: &Path, samples: usize) -> Result<Vec<String>, SetError> {
    let mut rows = CsvRows::detect(BoundedFile::open(path, LIMIT)?)?;
    let mut places = None;
    let mut owners: Vec<Option<String>> = vec![None; samples];
    while let Some((line, row)) = rows.read()? {
        let wrong = |problem: String| SetError::line(path, line, problem);
        let Some((row_at, device_at)) = places else {
            let find = |name: &str| row.iter().position(|field| field.eq_ignore_ascii_case(name));
            let found = find("row").zip(find("device"));
            places =
                Some(found.ok_or_else(|| wrong("the header needs the columns `row` and `device`".into()))?);
            continue;
        };
        let field = |at: usize| row.get(at).unwrap_or_default();
        let number: Option<usize> = field(row_at).parse().ok();
        let number = number.filter(|number| (1..=samples).contains(number));
        let Some(number) = number else {
            let text = field(row_at);
            return Err(wrong(format!("row `{text}` is no sample; the data has the rows 1 to {samples}")));
        };
        let device = field(device_at);
        if device.is_empty() {
            return Err(wrong(format!("row {number} has no device; name one")));
        }
        if let Some(other) = owners[number - 1].replace(device.to_owned()) {
            return Err(wrong(format!(
                "row {number} is already on device `{other}`; remove one of the lines"
            )));
        }
    }
    let missing = owners.iter().position(Option::is_none).map(|at| at + 1);
    if let Some(row) = missing {
        let problem = format!("row {row} has no device; list all {samples} samples of the training data");
        return Err(LoadError::Format { path: path.into(), problem }.into());
    }
    Ok(owners.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::data::{Features, Records};

    fn assign(text: &str) -> Result<DataSet, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("owners.csv");
        fs::write(&path, text).unwrap();
        let train = Records::new(Features::Floats(vec![0.0; 3]), vec![0, 1, 0], 1, 1).unwrap();
        let set = DataSet::new("x", vec![1], 2, train, Records::default()).unwrap();
        let error = |error: SetError| error.to_string();
        set.with_owners(&path).map_err(error)
    }

    #[test]
    fn every_row_has_one_device() {
        let set = assign("device;row\nnorth;2\nsouth;3\nnorth;1\n").unwrap();
        assert_eq!(
            (set.train.clients(), set.client_names),
            (&[0, 0, 1][..], vec!["north".into(), "south".into()])
        );
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_line() {
        for (text, problem) in [
            ("row,site\n1,a\n", "owners.csv:1: the header needs"),
            ("row,device\n4,a\n", "owners.csv:2: row `4` is no sample; the data has the rows 1 to 3"),
            ("row,device\n0,a\n", ":2: row `0` is no sample"),
            ("row,device\n1,\n", ":2: row 1 has no device"),
            ("row,device\n1,a\n1,b\n", ":3: row 1 is already on device `a`"),
            ("row,device\n1,a\n3,b\n", "row 2 has no device; list all 3 samples"),
            ("", "row 1 has no device"),
        ] {
            let error = assign(text).unwrap_err();
            assert!(error.contains(problem), "{text:?}: {error}");
        }
    }
}
