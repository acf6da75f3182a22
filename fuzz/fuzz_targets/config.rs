//! The aggregator's configuration: an accepted one gives settings, and can be written and read again.
#![no_main]

use aggregator::{config::Config, run::open_method};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(config) = Config::parse(text) else { return };
    let written = toml::to_string(&config).expect("a configuration can be written");
    assert_eq!(Config::parse(&written).expect("own configuration"), config);
    if let Ok(method) = open_method(&strategies::Registry::standard(), &config) {
        let needs = method.needs();
        let _ = config.suits(&method);
        let _ = config.plan_options(needs);
        let _ = config.settings(needs);
    }
});
