//! Arrays of NumPy, single and in archives.
#![no_main]

use libfuzzer_sys::fuzz_target;
use models::npy::{Array, read_archive};

fuzz_target!(|data: &[u8]| {
    if let Ok(array) = Array::read(data) {
        let again = Array::read(&array.write()).expect("own array");
        assert_eq!(again.data.len(), array.data.len());
    }
    let _ = read_archive(data);
});
