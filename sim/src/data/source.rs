//! Files, plain or compressed with gzip or xz, independent of their names.

use std::{
    io::{BufReader, Read, Seek},
    path::Path,
};

use common::files::open_regular;
use lzma_rust2::XzReader;
use trainer::data::load::{BoundedFile, LIMIT, LoadError};

const XZ: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];
/// Memory limit of the decompressor's dictionary; `xz -9` needs 65 MiB.
const XZ_KIB: u32 = 128 << 10;

pub fn open(path: &Path) -> Result<BoundedFile, LoadError> {
    let failed = |source| LoadError::Read { path: path.into(), source };
    let mut file = open_regular(path).map_err(failed)?;
    let mut start = [0; 6];
    let compressed = file.read_exact(&mut start).is_ok() && start == XZ;
    if !compressed {
        return BoundedFile::open(path, LIMIT);
    }
    file.rewind().map_err(failed)?;
    let reader = XzReader::new_mem_limit(BufReader::new(file), true, XZ_KIB);
    Ok(BoundedFile::new(path, Box::new(BufReader::new(reader)), LIMIT))
}

/// The stored bytes of a file.
pub fn raw(path: &Path) -> Result<Vec<u8>, LoadError> {
    let failed = |source| LoadError::Read { path: path.into(), source };
    let file = open_regular(path).map_err(failed)?;
    BoundedFile::new(path, Box::new(BufReader::new(file)), LIMIT).bytes()
}

#[cfg(test)]
pub mod tests {
    use std::{fs, io::Write};

    use lzma_rust2::{XzOptions, XzWriter};

    use super::*;

    pub fn xz(bytes: &[u8]) -> Vec<u8> {
        let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(1)).unwrap();
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn xz_is_detected_by_content_and_damage_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plain-name");
        let packed = xz(&[7; 1000]);
        fs::write(&path, &packed).unwrap();
        assert_eq!(open(&path).unwrap().bytes().unwrap(), [7; 1000]);
        for end in [8, 20, packed.len() - 1] {
            fs::write(&path, &packed[..end]).unwrap();
            let error = open(&path).unwrap().bytes().unwrap_err().to_string();
            assert!(error.contains("plain-name"), "{error}");
        }
        let mut wrong = packed.clone();
        let middle = wrong.len() / 2;
        wrong[middle] ^= 0x55;
        fs::write(&path, &wrong).unwrap();
        assert!(open(&path).unwrap().bytes().is_err());
        fs::write(&path, b"abc").unwrap();
        assert_eq!(open(&path).unwrap().bytes().unwrap(), b"abc");
        assert!(open(&dir.path().join("absent")).unwrap_err().to_string().contains("absent"));
    }
}
