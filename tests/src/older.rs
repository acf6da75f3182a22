//! The directory of a gateway that an older program left.

use std::{fs, path::Path};

use flate2::read::GzDecoder;

/// Store format 4, protocol 4: see `tests/fixtures/README.md`.
const FORMAT_4: &[u8] = include_bytes!("../fixtures/gateway-4.tar.gz");

/// Unpacks the directory of format 4 into `to`: `gw`, `a.pem`, `b.pem`, `c.pem`, `init.toml`.
pub fn unpack_format_4(to: &Path) {
    let mut archive = tar::Archive::new(GzDecoder::new(FORMAT_4));
    archive.set_preserve_permissions(true);
    archive.unpack(to).unwrap();
    for entry in fs::read_dir(to.join("gateway-4")).unwrap() {
        let entry = entry.unwrap();
        fs::rename(entry.path(), to.join(entry.file_name())).unwrap();
    }
    fs::remove_dir(to.join("gateway-4")).unwrap();
}
