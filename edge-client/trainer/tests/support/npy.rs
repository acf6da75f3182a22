//! The needed parts of NumPy's file formats: little-endian arrays, and uncompressed archives.

use std::collections::HashMap;

/// All values as `f64`, and the bytes that follow the array.
pub fn array(bytes: &[u8]) -> (Vec<f64>, &[u8]) {
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let (header, data) = bytes[10..].split_at(usize::from(u16::from_le_bytes([bytes[8], bytes[9]])));
    let header = str::from_utf8(header).unwrap();
    assert!(header.contains("'fortran_order': False"));
    let shape = header.split_once("'shape': (").unwrap().1.split_once(')').unwrap().0;
    let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
    let count: usize = sizes.map(|size| size.parse::<usize>().unwrap()).product();
    let read: (usize, fn(&[u8]) -> f64) = match header.split('\'').nth(3).unwrap() {
        "<f4" => (4, |b| f32::from_le_bytes(b.try_into().unwrap()).into()),
        "<f8" => (8, |b| f64::from_le_bytes(b.try_into().unwrap())),
        "<i8" => (8, |b| i64::from_le_bytes(b.try_into().unwrap()) as f64),
        other => panic!("unknown type {other}"),
    };
    let (data, rest) = data.split_at(count * read.0);
    (data.chunks_exact(read.0).map(read.1).collect(), rest)
}

/// The arrays of an `.npz` by name.
pub fn archive(mut bytes: &[u8]) -> HashMap<String, Vec<f64>> {
    let mut arrays = HashMap::new();
    while bytes.starts_with(b"PK\x03\x04") {
        let field = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        assert_eq!(field(8), 0, "compressed");
        let (name, data) = bytes[30..].split_at(field(26));
        let (values, rest) = array(&data[field(28)..]);
        arrays.insert(str::from_utf8(name).unwrap().trim_end_matches(".npy").to_owned(), values);
        bytes = rest;
    }
    arrays
}
