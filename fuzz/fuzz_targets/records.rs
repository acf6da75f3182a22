//! Records of the store, as the ledger keeps them.
#![no_main]

use aggregator::store::{Entry, RoundRecord, RunRecord};
use libfuzzer_sys::fuzz_target;
use serde::{Serialize, de::DeserializeOwned};
use strategies::device::DeviceRecord;

fuzz_target!(|data: &[u8]| {
    same_again::<RunRecord>(data);
    same_again::<RoundRecord>(data);
    same_again::<Option<RoundRecord>>(data);
    same_again::<Entry>(data);
    same_again::<DeviceRecord>(data);
    if let Some(record) = Entry::decode(data) {
        let first = record.encode().expect("a record encodes");
        assert_eq!(Entry::decode(&first).and_then(|entry| entry.encode()), Some(first));
    }
});

fn same_again<T: Serialize + DeserializeOwned>(data: &[u8]) {
    let Ok((record, _)) = postcard::take_from_bytes::<T>(data) else { return };
    let first = postcard::to_allocvec(&record).expect("a record encodes");
    let (record, rest) = postcard::take_from_bytes::<T>(&first).expect("own record");
    assert!(rest.is_empty());
    assert_eq!(postcard::to_allocvec(&record).ok(), Some(first));
}
