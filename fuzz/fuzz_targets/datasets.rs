//! Readers of the data sets of experiments; the first byte selects one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sim::data::files;

fuzz_target!(|data: &[u8]| {
    let Some((&kind, content)) = data.split_first() else { return };
    match kind {
        b'a' => fuzz::with_file("arff", content, |path| drop(files::wisdm("arff", path, 1))),
        b'l' => fuzz::with_file("leaf", content, |path| drop(files::leaf(path))),
        b'b' => fuzz::with_file("cifar", content, |path| {
            let paths = [path.to_owned()];
            drop(files::cifar10("cifar", &paths, &paths));
        }),
        b't' => table(content, &files::ADULT),
        b'o' => table(content, &files::COMPAS),
        b'k' => table(content, &files::BANK),
        b'm' => fuzz::with_file("motion", content, |path| drop(files::motion("motion", path))),
        _ => {}
    }
});

fn table(content: &[u8], schema: &files::Schema) {
    fuzz::with_file("table", content, |path| drop(files::table("table", &[path.to_owned()], schema, 1)));
}
