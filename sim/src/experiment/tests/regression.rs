//! Experiments that predict numbers. The samples are made by this test.

use std::{fmt::Write, fs};

use super::{own::run_own, *};
use crate::{
    claims::Evidence,
    experiment::{arrange, unit},
    report::{Digest, experiments_html, experiments_markdown},
};

/// A flat: area, storey, site, and a price that is a straight line with an error of at most 3,000.
fn rows() -> Vec<(f64, f64, &'static str, f64)> {
    let row = |at: u32| {
        let (area, storey) = (f64::from(at * 37 % 100) + 30.0, f64::from(at * 7 % 5));
        let error = f64::from(at * 53 % 61) * 100.0 - 3000.0;
        let site = ["north", "south", "south", "west"][at as usize % 4];
        (area, storey, site, 40_000.5 + 2_500.0 * area - 4_000.0 * storey + error)
    };
    (0..160).map(row).collect()
}

fn write_rows(path: &Path) {
    let mut text = "area,storey,site,price\n".to_owned();
    for (area, storey, site, price) in rows() {
        writeln!(text, "{area},{storey},{site},{price}").unwrap();
    }
    fs::write(path, text).unwrap();
}

const FLATS: &str = "title = 'flats'\nmodel = 'mlp:in-out'\nrounds = 20\nseeds = [1]\nevaluate_every = 5\n\
    data = { csv = 'flats.csv', partition = 'column:site', testing = 0.25, schema = { task = 'regression', \
    columns = [{ name = 'area', type = 'number', scaling = 'fleet' }, \
    { name = 'storey', type = 'number', scaling = 'fleet' }, \
    { name = 'price', type = 'target', scaling = 'fleet' }] } }\n\
    fleet = { tiers = [1] }\ntraining = { epochs = 2, batch = 8, lr = 0.05 }\n\
    [[strategies]]\nid = 'plain'\nname = 'fedavg'\n\
    [[strategies]]\nid = 'fair'\nname = 'fairheterofl'\nparams = { q = 2 }\n";

fn options(dir: &Path) -> RunOptions {
    RunOptions {
        out: dir.join("results"),
        data: None,
        threads: 1,
        registry: Registry::standard(),
        twin: false,
        runs: None,
    }
}

fn flats(dir: &Path) -> LoadedExperiment {
    write_rows(&dir.join("flats.csv"));
    let path = dir.join("flats.toml");
    fs::write(&path, FLATS).unwrap();
    LoadedExperiment::open(&path.to_string_lossy(), "full", &[]).unwrap()
}

/// Mean and deviation of the whole file, by which the fleet scales a column.
fn scale(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    (mean, (values.map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt())
}

/// The straight line that a model of one layer is, applied here without the trainer and without scaled targets.
#[test]
fn errors_are_those_of_the_line_in_the_unit_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let loaded = flats(dir.path());
    let ran = run(&loaded, &options(dir.path()), &mut |_| {}).unwrap();
    let rows = rows();
    let (area, storey) = (scale(rows.iter().map(|row| row.0)), scale(rows.iter().map(|row| row.1)));
    let price = scale(rows.iter().map(|row| row.3));
    for (setting, result) in loaded.settings.iter().zip(&ran.units) {
        let base = &setting.base;
        let data = arrange::load(base, &DataDirs::usual(None), 1).unwrap();
        let arranged = Arrangement::new(base, data, 1).unwrap();
        let mut context = unit::UnitContext {
            registry: &Registry::standard(),
            arranged: &arranged,
            alone: None,
            target: None,
            reference: None,
            threads: 1,
            pages: None,
            tick: &mut || {},
        };
        let trained =
            unit::train(base, &setting.strategy.name, &setting.strategy.params, &mut context).unwrap();
        let (mut maes, mut losses, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for ((weights, placed), found) in
            trained.weights.iter().zip(&arranged.devices).zip(&result.last.devices)
        {
            let [of_area, of_storey, bias] = weights.values[..] else { panic!("three parameters") };
            let line = |row: &(f64, f64, &str, f64)| {
                let (x, y) = ((row.0 - area.0) / area.1, (row.1 - storey.0) / storey.1);
                price.0 + price.1 * (f64::from(of_area) * x + f64::from(of_storey) * y + f64::from(bias))
            };
            let tested = placed.shard.test_indices().iter().map(|&index| &rows[index as usize]);
            let pairs: Vec<(f64, f64)> = tested.map(|row| (row.3, line(row))).collect();
            let mae = pairs.iter().map(|(is, said)| (is - said).abs()).sum::<f64>() / pairs.len() as f64;
            assert!((found.mae.unwrap() / mae - 1.0).abs() < 1e-4, "{found:?} {mae}");
            maes.push(mae);
            // The loss is that of scaled prices.
            let squared = |(is, said): &(f64, f64)| ((is - said) / price.1).powi(2);
            losses.push(pairs.iter().map(squared).sum::<f64>() / pairs.len() as f64);
            all.extend(pairs);
        }
        let last = &result.last;
        let mae = maes.iter().sum::<f64>() / maes.len() as f64;
        assert!((last.mae.unwrap().mean / mae - 1.0).abs() < 1e-4, "{:?} {mae}", last.mae);
        let mean = all.iter().map(|(is, _)| is).sum::<f64>() / all.len() as f64;
        let squared: f64 = all.iter().map(|(is, said)| (is - said).powi(2)).sum();
        let r2 = 1.0 - squared / all.iter().map(|(is, _)| (is - mean).powi(2)).sum::<f64>();
        assert!((last.r2.unwrap() - r2).abs() < 1e-5, "{:?} {r2}", last.r2);
        // The errors of the file explain less than a hundredth of the variance of prices.
        assert!(r2 > 0.98 && mae < 4_000.0, "{}: {r2} {mae}", setting.id);
        let loss = losses.iter().sum::<f64>() / losses.len() as f64;
        assert!((last.loss.mean / loss - 1.0).abs() < 1e-3, "{:?} {loss}", last.loss);
        assert!(!result.diverged());
    }
}

#[test]
fn results_and_reports_of_numbers_have_no_accuracy() {
    let dir = tempfile::tempdir().unwrap();
    let loaded = flats(dir.path());
    let ran = run(&loaded, &options(dir.path()), &mut |_| {}).unwrap();
    let last = &ran.units[0].last;
    assert_eq!((last.accuracy, last.tiers[0].accuracy, last.devices[0].accuracy), (None, None, None));
    assert_eq!(last.tiers[0].r2, last.r2);
    // Rounds have the figures that devices report: bad ones at the start.
    let r2: Vec<f64> = ran.units[0].rounds.iter().map(|line| line.r2.unwrap()).collect();
    assert!(r2[0] < 0.5 && *r2.last().unwrap() > 0.98, "{r2:?}");
    assert_eq!(ran.units[0].rounds.iter().filter(|line| line.accuracy.is_some()).count(), 0);
    let home = dir.path().join("results/flats/full");
    let json = fs::read_to_string(home.join("plain-s1.json")).unwrap();
    assert!(json.contains("\"mae\"") && !json.contains("accuracy"), "{json}");
    let csv = fs::read_to_string(home.join("plain-s1.csv")).unwrap();
    let mut lines = csv.lines().map(|line| line.split(',').count());
    let columns = lines.next().unwrap();
    assert!(lines.all(|cells| cells == columns) && csv.contains(",mae_mean,") && !csv.contains("accuracy"));
    let table = summary(&ran.record, &ran.units, 200);
    assert!(table.contains("MAE") && table.contains("R2") && !table.contains("acc"), "{table}");
    let digest = Digest::new(&Evidence::read(&dir.path().join("results")).unwrap());
    let markdown = experiments_markdown(&digest);
    assert!(
        markdown.contains("| mean absolute error |") && markdown.contains("| R2 of all devices |"),
        "{markdown}"
    );
    let json = serde_json::to_string(&digest).unwrap();
    for (form, text) in [("md", markdown), ("html", experiments_html(&digest)), ("json", json)] {
        let experiment =
            text.replace("variances over devices have divisor N, those of accuracy in percent squared.", "");
        assert!(!experiment.to_lowercase().contains("accuracy"), "{form}");
        assert!(!experiment.contains("NaN"), "{form}");
    }
}

#[test]
fn what_needs_classes_is_refused_with_what_works() {
    let dir = tempfile::tempdir().unwrap();
    write_rows(&dir.path().join("flats.csv"));
    let data = "csv = 'flats.csv', label = 'price', clients = 2, testing = 0.25";
    for partition in
        ["dirichlet:0.5", "dirichlet-free:0.5", "shards:2", "rare:1", "dominant:0.8", "pat:1", "extreme"]
    {
        let data = format!("{data}, partition = '{partition}'");
        let error = run_own(dir.path(), &data, "mlp:in-out").unwrap_err();
        let way =
            "divides by class, and the targets of flats.csv are numbers; use iid, column:NAME or file:PATH";
        assert!(error.contains(way) && error.contains(partition), "{error}");
    }
    let owners: String =
        (1..=160).map(|row| format!("{row},{}\n", if row % 3 == 0 { "a" } else { "b" })).collect();
    fs::write(dir.path().join("owners.csv"), format!("row,device\n{owners}")).unwrap();
    let data = "csv = 'flats.csv', label = 'price', testing = 0.25";
    for partition in
        ["partition = 'iid', clients = 3", "partition = 'file:owners.csv'", "partition = 'column:site'"]
    {
        let ran = run_own(dir.path(), &format!("{data}, {partition}"), "mlp:in-4-out").unwrap();
        assert!(ran.units[0].last.mae.is_some(), "{partition}");
    }
    // A file of test samples is divided, too.
    let data = "csv = 'flats.csv', test = 'flats.csv', label = 'price', partition = 'iid', clients = 4";
    let ran = run_own(dir.path(), data, "mlp:in-4-out").unwrap();
    let last = &ran.units[0].last;
    assert!(last.global[0].mae.is_some() && last.global[0].r2.is_some() && last.global[0].accuracy.is_none());
    assert_eq!(last.devices.iter().map(|device| device.test_samples).sum::<u32>(), 160);
    let data = "csv = 'flats.csv', label = 'price', partition = 'iid', clients = 4";
    for (more, model, problem) in [
        (", noise = 0.1", "mlp:in-out", "the targets of flats.csv are numbers; remove `noise`"),
        ("", "mlp:in-4-2", "has 2 outputs, the data of flats.csv needs 1"),
    ] {
        let error = run_own(dir.path(), &format!("{data}{more}"), model).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn float_targets_of_arrays_are_numbers() {
    use common::npy::{Array, Data, write_archive};
    let dir = tempfile::tempdir().unwrap();
    let x: Vec<f32> = (0..160).map(|at| (at * 37 % 160) as f32 / 80.0 - 1.0).collect();
    let floats: Vec<f32> = x.chunks(2).flat_map(|row| [row[0] - row[1], 0.5 * row[0]]).collect();
    let write = |name: &str, y: Array| {
        let arrays = [
            ("x".to_owned(), Array::new(&[80, 2], Data::F32(x.clone())).unwrap()),
            ("y".to_owned(), y),
            ("site".to_owned(), Array::new(&[80], Data::I64((0..80).map(|at| at / 40).collect())).unwrap()),
        ];
        fs::write(dir.path().join(name), write_archive(&arrays).unwrap()).unwrap();
    };
    write("data.npz", Array::new(&[80, 2], Data::F32(floats)).unwrap());
    write("classes.npz", Array::new(&[80], Data::I64((0..80).map(|at| at % 2).collect())).unwrap());
    let data = "npz = 'data.npz', partition = 'column:site', testing = 0.25";
    let ran = run_own(dir.path(), data, "mlp:in-out").unwrap();
    let last = &ran.units[0].last;
    // Without a schema, numbers keep their unit.
    assert!(last.mae.unwrap().mean < 1.0 && last.r2.is_some() && last.accuracy.is_none(), "{last:?}");
    let error = run_own(dir.path(), &format!("{data}, test = 'classes.npz'"), "mlp:in-out").unwrap_err();
    assert!(error.contains("its targets are classes, and those of") && error.contains("data.npz"), "{error}");
}
