//! Experiments on files of one's own. The samples are made by this test.

use std::{fmt::Write, fs, path::Path};

use super::*;
use crate::results::ExperimentRecord;

/// Forty samples of three sites; the label follows the sign of `x`.
fn csv() -> String {
    let mut text = "x,colour,site,class\n".to_owned();
    for at in 0..40 {
        let x = f64::from(at % 7) - 3.2;
        let colour = ["red", "blue"][at as usize % 2];
        let site = ["north", "south", "south", "west"][at as usize % 4];
        let class = if x > 0.0 { "yes" } else { "no" };
        writeln!(text, "{x},{colour},{site},{class}").unwrap();
    }
    text
}

fn open(dir: &Path, data: &str, model: &str) -> Result<LoadedExperiment, ExperimentError> {
    let text = format!(
        "title = 'own'\nmodel = '{model}'\nrounds = 2\nseeds = [1]\ndata = {{ {data} }}\n\
         training = {{ epochs = 1, batch = 4, lr = 0.1 }}\n[[strategies]]\nid = 'plain'\nname = 'fedavg'\n"
    );
    let path = dir.join("own.toml");
    fs::write(&path, text).unwrap();
    LoadedExperiment::open(&path.to_string_lossy(), "full", &[])
}

pub(super) fn run_own(dir: &Path, data: &str, model: &str) -> Result<RunOutcome, String> {
    let loaded = open(dir, data, model).map_err(|error| error.to_string())?;
    let options = RunOptions {
        out: dir.join("results"),
        data: None,
        threads: 1,
        registry: strategies::Registry::standard(),
        twin: false,
        runs: None,
    };
    run(&loaded, &options, &mut |_| {}).map_err(|error| error.to_string())
}

#[test]
fn a_column_divides_a_csv_file_and_is_no_input() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("data.csv"), csv()).unwrap();
    let data = "csv = 'data.csv', label = 'class', partition = 'column:site'";
    let ran = run_own(dir.path(), data, "mlp:in-4-out").unwrap();
    let devices = &ran.units[0].last.devices;
    let names: Vec<&str> = devices.iter().map(|device| device.device.as_str()).collect();
    assert_eq!(names, ["north", "south", "west"]);
    let samples = |at: usize| devices[at].train_samples + devices[at].test_samples;
    assert_eq!([samples(0), samples(1), samples(2)], [10, 20, 10]);
    // One number and two colours; the site is no input.
    let error = run_own(dir.path(), data, "mlp:6-4-2").unwrap_err();
    assert!(error.contains("has 6 inputs, the data of data.csv needs 3"), "{error}");
    let error = run_own(dir.path(), data, "mlp:3-4-5").unwrap_err();
    assert!(error.contains("has 5 outputs, the data of data.csv needs 2"), "{error}");
    let ran = run_own(dir.path(), &format!("{data}, clients = 2"), "mlp:in-4-out").unwrap();
    let names: Vec<&str> = ran.units[0].last.devices.iter().map(|device| device.device.as_str()).collect();
    assert_eq!(names, ["south", "north_west"]);
}

#[test]
fn a_file_divides_samples_and_changed_files_are_run_again() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("data.csv"), csv()).unwrap();
    let owners = |split: usize| {
        let row = |row: usize| format!("{row},{}\n", if row <= split { "a" } else { "b" });
        let rows: String = (1..=40).map(row).collect();
        fs::write(dir.path().join("owners.csv"), format!("row,device\n{rows}")).unwrap();
    };
    owners(10);
    let data = "csv = 'data.csv', label = 'class', partition = 'file:owners.csv', testing = 0.5";
    let first = run_own(dir.path(), data, "mlp:in-4-out").unwrap();
    assert_eq!((first.there, first.units[0].last.devices[0].train_samples), (0, 5));
    assert_eq!(run_own(dir.path(), data, "mlp:in-4-out").unwrap().there, 1);
    owners(20);
    let again = run_own(dir.path(), data, "mlp:in-4-out").unwrap();
    assert_eq!((again.there, again.units[0].last.devices[0].train_samples), (0, 10));
}

#[test]
fn an_own_test_file_and_an_inline_schema() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("data.csv"), csv()).unwrap();
    fs::write(dir.path().join("test.csv"), csv()).unwrap();
    let schema = "schema = { task = 'classification', extra = 'ignore', columns = [{ name = 'x', type = 'number', scaling = 'fleet' }, { name = 'class', type = 'label', classes = ['no', 'yes'] }] }";
    let data = format!("csv = 'data.csv', test = 'test.csv', clients = 4, {schema}");
    let ran = run_own(dir.path(), &data, "mlp:in-4-out").unwrap();
    let tested: u32 = ran.units[0].last.devices.iter().map(|device| device.test_samples).sum();
    assert_eq!((tested, ran.units[0].last.global[0].samples), (40, 40));
}

#[test]
fn what_does_not_fit_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("data.csv"), csv()).unwrap();
    let gap = csv().replacen("red,north", "red,", 1);
    fs::write(dir.path().join("gap.csv"), gap).unwrap();
    for (data, problem) in [
        ("csv = 'data.csv', clients = 2", "`label`"),
        ("csv = 'data.csv', label = 'klass', clients = 2", "there is no column `klass`"),
        ("csv = 'data.csv', label = 'class'", "set `clients` in `data`"),
        ("csv = 'data.csv', set = 'digits', clients = 2", "needs one source"),
        ("set = 'digits', label = 'class', clients = 2", "`data.label` is for files of your own"),
        ("csv = 'absent.csv', label = 'class', clients = 2", "absent.csv"),
        (
            "csv = 'data.csv', label = 'class', partition = 'column:sight'",
            "there is no column `sight` to divide by",
        ),
        (
            "csv = 'gap.csv', label = 'class', partition = 'column:site'",
            "gap.csv:2: has no value in column `site`",
        ),
        (
            "csv = 'data.csv', label = 'class', partition = 'column:site', clients = 9",
            "3 values cannot be divided",
        ),
        ("set = 'digits', partition = 'column:site'", "needs data of your own"),
        ("csv = 'data.csv', label = 'x', clients = 2, schema = { task = 'magic', columns = [] }", "magic"),
    ] {
        let error = run_own(dir.path(), data, "mlp:in-4-out").unwrap_err();
        assert!(error.contains(problem), "{data}: {error}");
    }
}

#[test]
fn arrays_and_an_own_model_beside_the_experiment() {
    use common::npy::{Array, Data, write_archive};
    let dir = tempfile::tempdir().unwrap();
    let x: Vec<f32> = (0..80).map(|at| at as f32 / 40.0 - 1.0).collect();
    let arrays = [
        ("x".to_owned(), Array::new(&[20, 4], Data::F32(x)).unwrap()),
        ("y".to_owned(), Array::new(&[20], Data::I64((0..20).map(|at| at % 2).collect())).unwrap()),
        ("site".to_owned(), Array::new(&[20], Data::I64((0..20).map(|at| at / 10).collect())).unwrap()),
    ];
    fs::write(dir.path().join("data.npz"), write_archive(&arrays).unwrap()).unwrap();
    let data = "npz = 'data.npz', partition = 'column:site'";
    let ran = run_own(dir.path(), data, "mlp:in-4-out").unwrap();
    assert_eq!(ran.units[0].last.devices.len(), 2);
    let error = run_own(dir.path(), data, "net.onnx").unwrap_err();
    assert!(error.contains("net.onnx"), "{error}");
}

/// Samples of two classes as one of the files that need no schema.
fn write_pair(dir: &Path) {
    use common::npy::{Array, Data};
    let x: Vec<f32> = (0..80).map(|at| (at % 8) as f32 - 3.5).collect();
    let y: Vec<i64> = (0..20).map(|at| at % 2).collect();
    fs::write(dir.join("x.npy"), Array::new(&[20, 4], Data::F32(x)).unwrap().write()).unwrap();
    fs::write(dir.join("y.npy"), Array::new(&[20], Data::I64(y)).unwrap().write()).unwrap();
    let image = |at: u8| [at % 2 * 200, 10, at, 3];
    let mut images = vec![0, 0, 8, 3, 0, 0, 0, 20, 0, 0, 0, 2, 0, 0, 0, 2];
    images.extend((0..20).flat_map(image));
    let mut labels = vec![0, 0, 8, 1, 0, 0, 0, 20];
    labels.extend((0..20).map(|at| at % 2));
    fs::write(dir.join("images.idx"), images).unwrap();
    fs::write(dir.join("labels.idx"), labels).unwrap();
}

#[test]
fn pairs_of_files_are_divided_by_generated_partitions() {
    let dir = tempfile::tempdir().unwrap();
    write_pair(dir.path());
    for data in ["npy = 'x.npy', labels = 'y.npy'", "idx = 'images.idx', labels = 'labels.idx'"] {
        for partition in ["iid", "dominant:0.8", "shards:2", "pat:1", "dirichlet:5"] {
            let data = format!("{data}, partition = '{partition}', clients = 2, testing = 0.2");
            let ran =
                run_own(dir.path(), &data, "mlp:in-4-out").unwrap_or_else(|error| panic!("{data}: {error}"));
            let devices = &ran.units[0].last.devices;
            assert_eq!(devices.len(), 2, "{data}");
            let samples: u32 = devices.iter().map(|device| device.train_samples + device.test_samples).sum();
            assert!(samples > 0 && samples <= 20, "{data}: {samples}");
        }
    }
    for (data, problem) in [
        ("npy = 'x.npy', clients = 2", "`labels` names the labels of an .npy or IDX file"),
        ("npy = 'x.npy', labels = 'y.npy', partition = 'column:site'", "other formats have no columns"),
        ("npz = 'x.npy', clients = 2", "x.npy"),
        ("idx = 'images.idx', labels = 'labels.idx', label = 'y', clients = 2", "`label` is for CSV files"),
        ("idx = 'images.idx', labels = 'labels.idx', clients = 30", "30 clients cannot share 20 samples"),
    ] {
        let error = run_own(dir.path(), data, "mlp:in-4-out").unwrap_err();
        assert!(error.contains(problem), "{data}: {error}");
    }
}

/// A column that a proposed schema leaves out was not mentioned.
#[test]
fn a_column_that_is_no_input_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = "x,note,class\n".to_owned();
    (0..80).for_each(|at| writeln!(text, "{},text {at},{}", at % 9, ["a", "b"][at % 2]).unwrap());
    fs::write(dir.path().join("data.csv"), text).unwrap();
    let data = "csv = 'data.csv', label = 'class', clients = 2";
    let mut loaded = open(dir.path(), data, "mlp:in-4-out").unwrap();
    loaded.experiment.seeds = vec![1, 2];
    let options = RunOptions {
        out: dir.path().join("results"),
        data: None,
        threads: 1,
        registry: strategies::Registry::standard(),
        twin: false,
        runs: None,
    };
    let mut notes = Vec::new();
    let mut observe = |event| notes.extend(if let RunEvent::Note(note) = event { Some(note) } else { None });
    run(&loaded, &options, &mut observe).unwrap();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].contains("data.csv: column `note` is no input: more than 64 different texts"),
        "{notes:?}"
    );
}

#[test]
fn raw_scales_do_not_stop_training() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = "income,age,class\n".to_owned();
    for at in 0..200 {
        let income = 20_000 + at * 37 % 200 * 300;
        writeln!(text, "{income},{},{}", at % 70, if income > 50_000 { "rich" } else { "poor" }).unwrap();
    }
    fs::write(dir.path().join("data.csv"), text).unwrap();
    let data = "csv = 'data.csv', label = 'class', clients = 4, testing = 0.25";
    let mut loaded = open(dir.path(), data, "mlp:in-8-out").unwrap();
    for setting in &mut loaded.settings {
        setting.base.rounds = 20;
    }
    let options = RunOptions {
        out: dir.path().join("results"),
        data: None,
        threads: 1,
        registry: strategies::Registry::standard(),
        twin: false,
        runs: None,
    };
    let ran = run(&loaded, &options, &mut |_| {}).unwrap();
    let last = &ran.units[0].last;
    let accuracy = last.accuracy.unwrap().mean;
    assert!(accuracy > 0.85 && !ran.units[0].diverged(), "{accuracy}");
}

#[test]
fn a_diverged_run_has_results_and_is_marked() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("data.csv"), csv().replace("1.", "100000.")).unwrap();
    let schema = "schema = { task = 'classification', extra = 'ignore', columns = [{ name = 'x', type = 'number' }, { name = 'class', type = 'label', classes = ['no', 'yes'] }] }";
    let data = format!("csv = 'data.csv', clients = 4, testing = 0.25, {schema}");
    let mut loaded = open(dir.path(), &data, "mlp:in-8-out").unwrap();
    for setting in &mut loaded.settings {
        setting.base.rounds = 6;
        setting.base.training.lr = 1e6;
    }
    let options = RunOptions {
        out: dir.path().join("results"),
        data: None,
        threads: 1,
        registry: strategies::Registry::standard(),
        twin: false,
        runs: None,
    };
    let ran = run(&loaded, &options, &mut |_| {}).unwrap();
    assert!(ran.units[0].diverged(), "{:?}", ran.units[0].last.loss);
    let said = diverged(&ran.record, &ran.units);
    assert!(said.starts_with("diverged: ") && said.contains("lower training.lr"), "{said}");
}

/// A mistyped column left an experiment without results, which every later report showed.
#[test]
fn data_that_cannot_be_read_leaves_no_results() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("data.csv"), csv()).unwrap();
    run_own(dir.path(), "csv = 'data.csv', label = 'klass'", "mlp:in-8-out").unwrap_err();
    assert!(!dir.path().join("results").exists());
}

#[test]
fn a_site_with_one_sample_and_a_group_without_any_are_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("data.csv"), format!("{}9.5,red,island,yes\n", csv())).unwrap();
    let schema = "schema = { task = 'classification', columns = [{ name = 'x', type = 'number' }, \
                  { name = 'colour', type = 'attribute', levels = ['red', 'blue', 'green'] }, { name = 'site', type = 'ignored' }, \
                  { name = 'class', type = 'label', classes = ['no', 'yes'] }] }";
    let data = format!("csv = 'data.csv', partition = 'column:site', testing = 0.25, {schema}");
    let ran = run_own(dir.path(), &data, "mlp:in-4-out").unwrap();
    let last = &ran.units[0].last;
    let island = last.devices.iter().find(|device| device.device == "island").unwrap();
    assert_eq!((island.train_samples, island.test_samples), (1, 0));
    // A device without test samples has no part in the mean.
    let tested: Vec<f64> =
        last.devices.iter().filter(|device| device.test_samples > 0).map(|device| device.loss).collect();
    let mean = tested.iter().sum::<f64>() / tested.len() as f64;
    assert!((last.loss.mean - mean).abs() < 1e-9, "{} {mean}", last.loss.mean);
    assert!(last.groups.as_ref().is_some_and(|groups| groups.dp.is_finite()));
}

#[test]
fn a_broken_cell_is_named_with_line_and_column() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("data.csv"), csv()).unwrap();
    let broken = csv().replacen("red,north,no", "red,north,maybe", 1);
    fs::write(dir.path().join("test.csv"), broken).unwrap();
    let data = "csv = 'data.csv', test = 'test.csv', label = 'class', clients = 2";
    let error = run_own(dir.path(), data, "mlp:in-4-out").unwrap_err();
    assert!(error.contains("test.csv:2: column 4 (`class`)") && error.contains("maybe"), "{error}");
}

#[test]
fn comparable_settings_have_the_same_data() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("data.csv"), csv()).unwrap();
    let loaded =
        open(dir.path(), "csv = 'data.csv', label = 'class', partition = 'column:site'", "mlp:in-4-out");
    let data = super::super::data_of(&loaded.unwrap().record());
    assert_eq!(data.get("plain").map(String::as_str), Some("data.csv, column:site"));
    let unreadable = ExperimentRecord {
        toml: "?".into(),
        ..open(dir.path(), "set = 'digits', clients = 2", "digits-mlp").unwrap().record()
    };
    assert!(super::super::data_of(&unreadable).is_empty());
}
