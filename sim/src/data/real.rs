//! The loaders on the real files, if they are present. Otherwise each test prints a message.

use std::path::Path;

use super::{DataDirs, DataSet, Overview, known};

fn load(name: &str) -> Option<DataSet> {
    let mut places = DataDirs::usual(None);
    // Tests run in the crate's directory; users run in the workspace or elsewhere.
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    places.0.extend(above.map(|dir| dir.join("shared/data")));
    match known::load(name, &places, 0) {
        Ok(set) => {
            check_sums(name, &places);
            let listing = known::by_name(name).unwrap().listing(&places);
            let counts = (Some(set.train.len() as u32), Some(set.test.len() as u32));
            assert_eq!((listing.train, listing.test), counts, "{name}");
            Some(set)
        }
        Err(super::SetError::Missing { .. }) => {
            eprintln!("{name} is not installed, so its loader was tested on synthetic files only");
            None
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

fn check_sums(name: &str, places: &DataDirs) {
    for sum in known::by_name(name).unwrap().sums(places).unwrap() {
        assert_ne!(sum.matches, Some(false), "{}", sum.path.display());
    }
}

fn counts(set: &DataSet) -> (Vec<u64>, Vec<u64>) {
    let overview = Overview::new(set);
    (overview.train.per_class, overview.test.per_class)
}

#[test]
fn mnist_and_fashion() {
    if let Some(set) = load("mnist") {
        let (train, test) = counts(&set);
        assert_eq!(train, [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]);
        assert_eq!(test, [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]);
        assert_eq!((&*set.shape, set.train.features().bytes()), (&[28, 28][..], 47_040_000));
    }
    if let Some(set) = load("fashion-mnist") {
        assert_eq!(counts(&set), (vec![6000; 10], vec![1000; 10]));
        assert_eq!(set.class_name(9), "ankle boot");
    }
}

#[test]
fn cifar10() {
    let Some(set) = load("cifar10") else { return };
    // The part of the set that comes with the project, or all of it.
    let (train, test) = counts(&set);
    if set.train.len() == 20_000 {
        assert_eq!(train, [1989, 1981, 2042, 2011, 2009, 1925, 2038, 2027, 2012, 1966]);
        assert_eq!(test, [488, 505, 512, 497, 507, 488, 491, 495, 504, 513]);
    } else if set.train.len() == 50_000 {
        assert_eq!(train, vec![5000; 10]);
    }
    assert_eq!(set.train.features().range(), Some((0.0, 1.0)));
}

#[test]
fn digits_from_files_are_those_built_in() {
    let Some(files) = load("optdigits") else { return };
    let built_in = known::load("digits", &DataDirs::default(), 0).unwrap();
    assert_eq!(files.test.labels(), built_in.test.labels());
    let (mut a, mut b) = ([0.0; 64], [0.0; 64]);
    for index in 0..files.train.len() as u32 {
        files.train.read(index, &mut a).unwrap();
        built_in.train.read(index, &mut b).unwrap();
        assert_eq!(a, b, "{index}");
    }
}

#[test]
fn shakespeare() {
    if let Some(set) = load("shakespeare-leaf") {
        assert_eq!((set.train.len(), set.test.len(), set.client_names.len()), (146_136, 35_342, 455));
        let clients = Overview::new(&set).clients.unwrap();
        assert_eq!((clients.least, clients.median, clients.most), (76, 231, 2287));
        assert_eq!(set.inputs(), 80);
    }
    if let Some(set) = load("shakespeare") {
        assert_eq!((set.inputs(), set.targets(), set.tokens), (50, 50, Some(86)));
        assert!(set.train.len() > 60_000 && set.client_names.len() > 900, "{}", set.client_names.len());
        let blanks = set.class_names.iter().position(|name| name == " ").unwrap() as u32;
        let share = set.train.labels().iter().filter(|&&label| label == blanks).count() as f64
            / set.train.labels().len() as f64;
        assert!((share - 0.164).abs() < 0.005, "blanks are 687 of 4,189 thousand characters: {share}");
    }
}

#[test]
fn tables() {
    let total = |set: &DataSet| {
        let (train, test) = counts(set);
        [train[0] + test[0], train[1] + test[1]]
    };
    if let Some(set) = load("adult") {
        assert_eq!(total(&set), [24_720 + 12_435, 7841 + 3846]);
        assert_eq!((set.train.len(), set.groups()), (34_189, 2));
        assert!((100..=108).contains(&set.inputs()), "{}", set.inputs());
        assert_eq!(set.train.features().range(), Some((0.0, 1.0)));
    }
    if let Some(set) = load("compas") {
        assert_eq!((total(&set), set.groups()), ([3251, 3963], 4));
        assert_eq!((set.train.len(), set.test.len()), (5050, 2164));
    }
    if let Some(set) = load("bank") {
        assert_eq!((total(&set), set.groups()), ([39_922, 5289], 5));
        assert_eq!((set.train.len(), set.test.len()), (31_648, 13_563));
        for group in Overview::new(&set).groups {
            let share = group.train as f64 / set.train.len() as f64;
            assert!((share - 0.2).abs() < 0.05, "{}: {share}", group.name);
        }
    }
}

#[test]
fn motion() {
    if let Some(set) = load("wisdm") {
        let (train, test) = counts(&set);
        let all: Vec<u64> = train.iter().zip(&test).map(|(a, b)| a + b).collect();
        assert_eq!(all, [2081, 1625, 632, 528, 306, 246]);
        assert_eq!((set.inputs(), set.client_names.len()), (43, 36));
        assert_eq!((set.train.len(), set.test.len()), (3793, 1625));
    }
    if let Some(set) = load("sp-sw-har") {
        assert_eq!((&*set.shape, set.client_names.len(), set.groups()), (&[3, 128][..], 46, 2));
        assert!(set.train.len() > 5000 && set.test.len() > 1000, "{} {}", set.train.len(), set.test.len());
        let (train, test) = counts(&set);
        assert!(train.iter().chain(&test).all(|&count| count > 50), "{train:?} {test:?}");
    }
}
