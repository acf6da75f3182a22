//! The list of sets. A new set is a new entry.

use trainer::data::{DataError, Samples, digits, load};

use super::{FileNeed, FoundFiles, KnownSet, SetFile};
use crate::data::{
    DataSet, Features, Records, SetError,
    images::{self, IdxFiles, IdxStyle},
    leaf, motion,
    synthetic::{Eagle, FedFb, Mixture, Population, Rotate},
    table::{self, ADULT, BANK, COMPAS},
    text,
};

const EMNIST: &str = "Get gzip.zip from https://www.nist.gov/itl/products-and-services/emnist-dataset and unpack it to emnist/";
const FEMNIST: &str = "Run data/femnist/preprocess.sh of https://github.com/TalwalkarLab/leaf and put train/ and test/ into femnist/";
const SHAKESPEARE: &str = "Run data/shakespeare/preprocess.sh of https://github.com/TalwalkarLab/leaf, or cut the plays of https://www.gutenberg.org/ebooks/100 by role";

/// Every known set, in the order of `fairtier sim data list`.
pub(crate) const ALL: &[KnownSet] = &[
    drawn("digits", "8x8 images of digits, built in", (3823, 1797), |_, _| digits()),
    files(
        "optdigits",
        "the same digits as files",
        &[file("optdigits/optdigits.tra", 3823, 0), file("optdigits/optdigits.tes", 0, 1797)],
        "Get both files from https://archive.ics.uci.edu/dataset/80 into optdigits/",
        |found, _| optdigits(found),
    ),
    files(
        "mnist",
        "28x28 images of digits",
        &[
            file("mnist/train-images-idx3-ubyte", 60_000, 0),
            file("mnist/train-labels-idx1-ubyte", 0, 0),
            file("mnist/t10k-images-idx3-ubyte", 0, 10_000),
            file("mnist/t10k-labels-idx1-ubyte", 0, 0),
        ],
        "Get the four files from https://yann.lecun.com/exdb/mnist/ into mnist/",
        |found, _| idx(found, IdxStyle { classes: 10, ..PLAIN }),
    ),
    files(
        "fashion-mnist",
        "28x28 images of clothes",
        &[
            file("fashion-mnist/train-images-idx3-ubyte", 60_000, 0),
            file("fashion-mnist/train-labels-idx1-ubyte", 0, 0),
            file("fashion-mnist/t10k-images-idx3-ubyte", 0, 10_000),
            file("fashion-mnist/t10k-labels-idx1-ubyte", 0, 0),
        ],
        "Get the four files from https://github.com/zalandoresearch/fashion-mnist (data/fashion) into fashion-mnist/",
        |found, _| Ok(idx(found, IdxStyle { classes: 10, ..PLAIN })?.with_class_names(&CLOTHES)),
    ),
    files(
        "emnist-byclass",
        "28x28 images of 62 characters",
        &[
            file("emnist/emnist-byclass-train-images-idx3-ubyte", 697_932, 0),
            file("emnist/emnist-byclass-train-labels-idx1-ubyte", 0, 0),
            file("emnist/emnist-byclass-test-images-idx3-ubyte", 0, 116_323),
            file("emnist/emnist-byclass-test-labels-idx1-ubyte", 0, 0),
        ],
        EMNIST,
        |found, _| idx(found, IdxStyle { classes: 62, on_side: true, first_label: 0 }),
    ),
    files(
        "emnist-balanced",
        "28x28 images of 47 characters",
        &[
            file("emnist/emnist-balanced-train-images-idx3-ubyte", 112_800, 0),
            file("emnist/emnist-balanced-train-labels-idx1-ubyte", 0, 0),
            file("emnist/emnist-balanced-test-images-idx3-ubyte", 0, 18_800),
            file("emnist/emnist-balanced-test-labels-idx1-ubyte", 0, 0),
        ],
        EMNIST,
        |found, _| idx(found, IdxStyle { classes: 47, on_side: true, first_label: 0 }),
    ),
    files(
        "emnist-letters",
        "28x28 images of 26 letters",
        &[
            file("emnist/emnist-letters-train-images-idx3-ubyte", 124_800, 0),
            file("emnist/emnist-letters-train-labels-idx1-ubyte", 0, 0),
            file("emnist/emnist-letters-test-images-idx3-ubyte", 0, 20_800),
            file("emnist/emnist-letters-test-labels-idx1-ubyte", 0, 0),
        ],
        EMNIST,
        |found, _| idx(found, IdxStyle { classes: 26, on_side: true, first_label: 1 }),
    ),
    files(
        "emnist-digits",
        "28x28 images of digits, more of them",
        &[
            file("emnist/emnist-digits-train-images-idx3-ubyte", 240_000, 0),
            file("emnist/emnist-digits-train-labels-idx1-ubyte", 0, 0),
            file("emnist/emnist-digits-test-images-idx3-ubyte", 0, 40_000),
            file("emnist/emnist-digits-test-labels-idx1-ubyte", 0, 0),
        ],
        EMNIST,
        |found, _| idx(found, IdxStyle { classes: 10, on_side: true, first_label: 0 }),
    ),
    files(
        "cifar10",
        "32x32 colour images; as many batches as are there",
        &[
            one_of(1, "cifar10/data_batch_1.bin", 10_000, 0),
            one_of(1, "cifar10/data_batch_2.bin", 10_000, 0),
            one_of(1, "cifar10/data_batch_3.bin", 10_000, 0),
            one_of(1, "cifar10/data_batch_4.bin", 10_000, 0),
            one_of(1, "cifar10/data_batch_5.bin", 10_000, 0),
            one_of(2, "cifar10/test_batch.bin", 0, 10_000),
            one_of(2, "cifar10/test_batch_5000.bin", 0, 5000),
        ],
        "Get the binary version from https://www.cs.toronto.edu/~kriz/cifar.html and put its .bin files into cifar10/",
        |found, _| cifar10(found),
    ),
    files(
        "femnist",
        "28x28 images of 62 characters, by writer",
        &[file("femnist/train", 0, 0), file("femnist/test", 0, 0)],
        FEMNIST,
        |found, _| leaf::femnist("femnist", found.path(0), found.path(1), 62),
    ),
    files(
        "femnist-digits",
        "28x28 images of digits, by writer",
        &[file("femnist/train", 0, 0), file("femnist/test", 0, 0)],
        FEMNIST,
        |found, _| leaf::femnist("femnist-digits", found.path(0), found.path(1), 10),
    ),
    files(
        "shakespeare",
        "sequences of 50 characters, each with the next, by role",
        &[file("shakespeare/roles_raw.json", 66_319, 16_101)],
        SHAKESPEARE,
        |found, _| text::sequences("shakespeare", found.path(0)),
    ),
    files(
        "shakespeare-leaf",
        "windows of 80 characters and the next one, by role",
        &[file("shakespeare/leaf_train.json", 146_136, 0), file("shakespeare/leaf_test.json", 0, 35_342)],
        SHAKESPEARE,
        |found, _| text::windows("shakespeare-leaf", found.path(0), found.path(1)),
    ),
    files(
        "adult",
        "income above 50K; groups by sex",
        &[file("adult/adult.data", 34_189, 0), file("adult/adult.test", 0, 14_653)],
        "Get both files from https://archive.ics.uci.edu/dataset/2 into adult/",
        |found, seed| table::load("adult", &found.some(0..2), &ADULT, seed),
    ),
    files(
        "compas",
        "no new offence in two years; groups by sex and race",
        &[file("compas/compas-scores-two-years.csv", 5050, 2164)],
        "Get the file from https://github.com/propublica/compas-analysis into compas/",
        |found, seed| table::load("compas", &found.some(0..1), &COMPAS, seed),
    ),
    files(
        "bank",
        "subscribed after a call; groups by age",
        &[file("bank-marketing/bank-full.csv", 31_648, 13_563)],
        "Get bank-full.csv from https://archive.ics.uci.edu/dataset/222 into bank-marketing/",
        |found, seed| table::load("bank", &found.some(0..1), &BANK, seed),
    ),
    files(
        "wisdm",
        "features of 10 s with a phone in the pocket, by person",
        &[file("wisdm/WISDM_ar_v1.1_transformed.arff", 3793, 1625)],
        "Get Activity Prediction v1.1 from https://www.cis.fordham.edu/wisdm/dataset.php and unpack it to wisdm/",
        |found, seed| table::wisdm("wisdm", found.path(0), seed),
    ),
    files(
        "sp-sw-har",
        "accelerometer windows of phones and watches, by device",
        &[file("sp-sw-har/DATA.tar", 6138, 1347)],
        "Pack the folder DATA of https://github.com/GeoTecINIT/sp-sw-har-dataset with `tar` to sp-sw-har/DATA.tar",
        |found, _| motion::load("sp-sw-har", found.path(0)),
    ),
    drawn("eagle", "EAGLE's three clients, the last one turned", (300, 6000), |_, seed| {
        made("eagle", Eagle { seed, ..Eagle::default() }.draw())
    }),
    drawn("eagle-figures", "the same with the last two turned", (300, 6000), |_, seed| {
        made("eagle-figures", Eagle { seed, rotate: Rotate::LastTwo, ..Eagle::default() }.draw())
    }),
    drawn(
        "eagle-large",
        "EAGLE's three clients with 5000 training samples each",
        (15_000, 6000),
        |_, seed| made("eagle-large", Eagle { points: 5000, seed, ..Eagle::default() }.draw()),
    ),
    drawn("fedfb", "FedFB's two groups, for 3 clients", (3500, 1500), |_, seed| {
        made("fedfb", FedFb { samples: 5000, seed }.draw())
    }),
    drawn("fedfb-2", "the same, for 2 clients", (2333, 1000), |_, seed| {
        made("fedfb-2", FedFb { samples: 3333, seed }.draw())
    }),
    drawn("fedfb-4", "the same, for 4 clients", (4667, 2000), |_, seed| {
        made("fedfb-4", FedFb { samples: 6667, seed }.draw())
    }),
    drawn(
        "fedfb-study-a",
        "one feature; the attribute says much on one client",
        (10_000, 5000),
        |_, seed| made("fedfb-study-a", Population::study_a(seed).draw()),
    ),
    drawn("fedfb-study-b", "one feature; clients far apart", (10_000, 5000), |_, seed| {
        made("fedfb-study-b", Population::study_b(seed).draw())
    }),
    drawn("fedfb-study-c", "one feature; groups in opposite order", (10_000, 5000), |_, seed| {
        made("fedfb-study-c", Population::study_c(&[0.5; 2], seed).draw())
    }),
    drawn(
        "mixture",
        "stand-in for images: 10 classes of 3 clusters in 64 dimensions",
        (60_000, 10_000),
        |_, seed| made("mixture", Mixture { seed, ..Mixture::default() }.draw()),
    ),
    drawn("mixture-32", "the same in 32 dimensions, harder and smaller", (5000, 2500), |_, seed| {
        made("mixture-32", Mixture::orientation(seed).draw())
    }),
];

const PLAIN: IdxStyle = IdxStyle { classes: 0, on_side: false, first_label: 0 };
const CLOTHES: [&str; 10] =
    ["T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"];

type Load = fn(&FoundFiles, u64) -> Result<DataSet, SetError>;

const fn files(
    name: &'static str,
    about: &'static str,
    files: &'static [SetFile],
    how: &'static str,
    load: Load,
) -> KnownSet {
    KnownSet { name, about, files, how, drawn: (0, 0), load }
}

const fn drawn(name: &'static str, about: &'static str, samples: (u32, u32), load: Load) -> KnownSet {
    KnownSet { name, about, files: &[], how: "", drawn: samples, load }
}

const fn file(path: &'static str, train: u32, test: u32) -> SetFile {
    SetFile { path, need: FileNeed::Always, samples: (train, test) }
}

const fn one_of(number: u8, path: &'static str, train: u32, test: u32) -> SetFile {
    SetFile { path, need: FileNeed::OneOf(number), samples: (train, test) }
}

fn made(name: &str, set: Result<DataSet, DataError>) -> Result<DataSet, SetError> {
    set.map_err(|source| SetError::Data { name: name.into(), source })
}

fn idx(found: &FoundFiles, style: IdxStyle) -> Result<DataSet, SetError> {
    let path = |index| found.path(index);
    images::idx("images", IdxFiles { train: [path(0), path(1)], test: [path(2), path(3)] }, style)
}

/// The whole test batch if it is present, otherwise a part of it.
fn cifar10(found: &FoundFiles) -> Result<DataSet, SetError> {
    let test: Vec<_> = found.some(5..7).into_iter().take(1).collect();
    images::cifar10("cifar10", &found.some(0..5), &test)
}

fn digits() -> Result<DataSet, SetError> {
    let all = digits::all();
    let part = |part: digits::PackedDigits| {
        let pixels = (0..part.len()).filter_map(|index| part.pixels(index)).flatten().collect();
        let labels = (0..part.len()).filter_map(|index| part.label(index).map(u32::from)).collect();
        let features = Features::Bytes { data: pixels, scale: 1.0 / f32::from(digits::INK) };
        Records::new(features, labels, digits::PIXELS, 1)
    };
    let side = digits::SIDE;
    made(
        "digits",
        part(all.train).and_then(|train| {
            DataSet::new("digits", vec![side, side], digits::CLASSES, train, part(all.test)?)
        }),
    )
}

fn optdigits(found: &FoundFiles) -> Result<DataSet, SetError> {
    let options = load::CsvOptions { scale: 1.0 / f32::from(digits::INK), ..load::CsvOptions::default() };
    let records = |samples: &Samples| {
        let features = Features::Floats(samples.features().to_vec());
        Records::new(features, samples.labels().to_vec(), samples.inputs(), 1)
    };
    let (train, test) = (load::csv(found.path(0), &options)?, load::csv(found.path(1), &options)?);
    let set = records(&train).and_then(|train| {
        DataSet::new("optdigits", vec![digits::SIDE; 2], digits::CLASSES, train, records(&test)?)
    });
    made("optdigits", set)
}
