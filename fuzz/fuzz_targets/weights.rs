//! Where a model says that its weights are. The input is the name of the file, the offset and the length as texts, the type,
//! and the shape. What is read must be those bytes of a file in the folder, and all that is there must be read.
#![no_main]

use std::{fs, sync::LazyLock};

use fuzz::{
    ModelFolder,
    protobuf::{bytes, number},
};
use libfuzzer_sys::fuzz_target;
use models::Graph;

static FOLDER: LazyLock<ModelFolder> = LazyLock::new(|| ModelFolder::make("weights"));

fuzz_target!(|data: &[u8]| {
    let mut pieces = fuzz::pieces(data);
    let mut piece = || pieces.next().unwrap_or_default();
    let named = Named {
        location: String::from_utf8_lossy(piece()).into_owned(),
        offset: text(piece()),
        length: text(piece()),
        kind: piece().first().copied().unwrap_or(1),
        shape: piece().chunks(8).map(eight).collect(),
    };
    let model = named.model();
    match (named.expected(&model), FOLDER.read(&model)) {
        (Some(expected), Ok(file)) => {
            let found = expected.is_empty() || file.windows(expected.len()).any(|part| part == expected);
            assert!(found, "other bytes were read than those that are named");
            let _ = Graph::from_onnx(&file);
        }
        (None, Err(_)) => {}
        (expected, read) => {
            panic!("{:?} instead of {:?}", read.map(|file| file.len()), expected.map(|part| part.len()))
        }
    }
});

struct Named {
    location: String,
    offset: Option<String>,
    length: Option<String>,
    kind: u8,
    shape: Vec<i64>,
}

impl Named {
    /// `x[N, 4] -> Gemm -> y` whose weights are there.
    fn model(&self) -> Vec<u8> {
        let entries = [
            ("location", Some(&self.location)),
            ("offset", self.offset.as_ref()),
            ("length", self.length.as_ref()),
        ];
        let entry = |(key, value): (&str, &String)| {
            bytes(13, &[bytes(1, key.as_bytes()), bytes(2, value.as_bytes())].concat())
        };
        let entries = entries.into_iter().filter_map(|(key, value)| Some(entry((key, value?))));
        let shape = self.shape.iter().map(|&dim| number(1, dim as u64));
        let rest = [number(2, self.kind.into()), bytes(8, b"w"), number(14, 1)];
        let weights = shape.chain(rest).chain(entries).collect::<Vec<_>>().concat();
        let dims = [bytes(1, &bytes(2, b"N")), bytes(1, &number(1, 4))].concat();
        let tensor = [number(1, 1), bytes(2, &dims)].concat();
        let turned = [bytes(1, b"transB"), number(3, 1), number(20, 2)].concat();
        let node =
            [bytes(1, b"x"), bytes(1, b"w"), bytes(2, b"y"), bytes(4, b"Gemm"), bytes(5, &turned)].concat();
        let input = [bytes(1, b"x"), bytes(2, &bytes(1, &tensor))].concat();
        let graph =
            [bytes(1, &node), bytes(5, &weights), bytes(11, &input), bytes(12, &bytes(1, b"y"))].concat();
        [number(1, 8), bytes(7, &graph), bytes(8, &number(2, 18))].concat()
    }

    /// The bytes that are named, by other means than the reader's; `None` if there are none.
    fn expected(&self, model: &[u8]) -> Option<Vec<u8>> {
        let size = match self.kind {
            2 | 3 | 9 => 1,
            4 | 5 | 10 | 16 => 2,
            1 | 6 | 12 => 4,
            7 | 11 | 13 => 8,
            _ => return None,
        };
        let needed =
            self.shape.iter().try_fold(size, |size: u64, &dim| size.checked_mul(u64::try_from(dim).ok()?))?;
        let offset: u64 = self.offset.as_deref().map_or(Some(0), |text| text.parse().ok())?;
        let length: u64 = self.length.as_deref().map_or(Some(needed), |text| text.parse().ok())?;
        let leaves = self.location.is_empty() || self.location.starts_with('/');
        if length != needed || leaves || self.location.split('/').any(|part| part == "..") {
            return None;
        }
        let path = fs::canonicalize(FOLDER.path.join(&self.location)).ok()?;
        if !path.starts_with(&FOLDER.path) || !path.is_file() {
            return None;
        }
        // The reader will find the model there.
        let file = if path.ends_with("net.onnx") { model.to_vec() } else { fs::read(&path).ok()? };
        let start = usize::try_from(offset).ok()?;
        file.get(start..start.checked_add(usize::try_from(needed).ok()?)?).map(<[u8]>::to_vec)
    }
}

/// An entry that is absent is written as no text.
fn text(piece: &[u8]) -> Option<String> {
    (!piece.is_empty()).then(|| String::from_utf8_lossy(piece).into_owned())
}

fn eight(bytes: &[u8]) -> i64 {
    let mut number = [0; 8];
    number[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(number)
}
