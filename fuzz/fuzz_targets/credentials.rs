//! What a device proves itself with, and names of devices.
#![no_main]

use common::DeviceId;
use edge_client::host::Identity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = Identity::parse(data);
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(device) = text.parse::<DeviceId>()
    {
        assert_eq!(device.as_str(), text);
    }
});
