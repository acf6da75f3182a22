//! The directory of a gateway that an older program left.

use std::{fs, path::Path};

use flate2::read::GzDecoder;

/// Store format 4, protocol 4: see `tests/fixtures/README.md`.
const FORMAT_4: &[u8] = include_bytes!("../fixtures/gateway-4.tar.gz");

const FORMAT_5: &[u8] = include_bytes!("../fixtures/gateway-5.tar.gz");

/// Unpacks the directory of format 4 into `to`: `gw`, `a.pem`, `b.pem`, `c.pem`, `init.toml`.
pub fn unpack_format_4(to: &Path) {
    unpack(FORMAT_4, "gateway-4", to);
}

/// The same of format 5.
pub fn unpack_format_5(to: &Path) {
    unpack(FORMAT_5, "gateway-5", to);
}

fn unpack(fixture: &[u8], name: &str, to: &Path) {
    let mut archive = tar::Archive::new(GzDecoder::new(fixture));
    archive.set_preserve_permissions(true);
    archive.unpack(to).unwrap();
    for entry in fs::read_dir(to.join(name)).unwrap() {
        let entry = entry.unwrap();
        fs::rename(entry.path(), to.join(entry.file_name())).unwrap();
    }
    fs::remove_dir(to.join(name)).unwrap();
}
