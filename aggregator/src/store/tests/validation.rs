//! The validation loss of an update is as durable as the update.

use common::message::Validation;
use proptest::prelude::*;

use super::*;
use crate::store::entry::{encode_header, header_len};

fn measured(name: &str, validation: Option<Validation>) -> UpdateHeader {
    let mut header = header(name, 1, 1);
    header.scalars.validation = validation;
    header
}

fn bits(entries: &[Entry]) -> Vec<Option<[u64; 2]>> {
    let bits = |validation: Validation| [validation.loss, validation.error].map(f64::to_bits);
    entries.iter().map(|entry| entry.header.scalars.validation.map(bits)).collect()
}

/// a and c have reported, b has not.
fn collect(store: &mut dyn Store) -> Vec<Option<[u64; 2]>> {
    let reported = [("b", None), ("c", Some((0.1 + 0.2, 1.0 / 3.0))), ("a", Some((1e-300, 0.0)))];
    for (name, validation) in reported {
        let validation = validation.map(|(loss, error)| Validation { loss, error });
        let payload = bytes(4.0);
        put_all(store, &[UpdateRecord { header: measured(name, validation), payload: &payload }]).unwrap();
    }
    bits(&store.updates(1, 0).unwrap())
}

#[test]
fn a_restart_gives_the_same_measurement_bit_for_bit() {
    let dir = TempDir::new().unwrap();
    let mut store = disk(&dir);
    store.begin_run(&run(), &[0.0; 3]).unwrap();
    store.open_round(&round(1)).unwrap();
    let before = collect(&mut store);
    let expected =
        [Some([1e-300f64.to_bits(), 0]), None, Some([0x3fd3_3333_3333_3334, 0x3fd5_5555_5555_5555])];
    assert_eq!(before, expected);
    drop(store);
    assert_eq!(DiskStore::verify(dir.path()).unwrap().problems, Vec::<String>::new());
    let mut store = disk(&dir);
    let open = store.load(&mark()).unwrap().unwrap().open.unwrap();
    assert_eq!(bits(&open.updates), before);
    // Headers in the spool and in the index agree, and payloads lie where they should.
    assert_eq!(payloads(&mut store, 1).unwrap(), vec![bytes(4.0); 3]);
    let mut part = vec![];
    for entry in &open.updates {
        store.read_part(entry, 4..8, &mut part).unwrap();
        assert_eq!(part, 4.0f32.to_le_bytes());
    }
    // An update that comes later lies behind them.
    assert_eq!(append(&mut store, "d", 1, 5.0), [PutOutcome::New]);
    assert_eq!(payloads(&mut store, 1).unwrap()[3], bytes(5.0));
}

#[test]
fn a_store_in_memory_keeps_it_too() {
    let mut store = MemoryStore::new();
    store.begin_run(&run(), &[0.0; 3]).unwrap();
    store.open_round(&round(1)).unwrap();
    assert_eq!(collect(&mut store).iter().flatten().count(), 2);
}

fn entry(validation: Option<Validation>) -> Entry {
    Entry { header: measured("a", validation), offset: 7, len: 12, crc: 5 }
}

#[test]
fn records_without_it_have_the_bytes_of_format_5() {
    let plain = entry(None);
    assert_eq!(plain.encode(), postcard::to_allocvec(&plain).ok());
    assert_eq!(encode_header(&plain.header), postcard::to_allocvec(&plain.header).ok());
}

#[test]
fn a_tail_that_is_cut_off_or_too_long_does_not_decode() {
    let record = entry(Some(Validation { loss: 0.5, error: 0.25 })).encode().unwrap();
    let fields = entry(None).encode().unwrap().len();
    for end in fields + 1..record.len() {
        assert_eq!(Entry::decode(&record[..end]), None, "{end}");
    }
    assert_eq!(Entry::decode(&record[..fields]), Some(entry(None)));
    assert_eq!(Entry::decode(&[&record[..], &[0]].concat()), None);
    assert_eq!(Entry::decode(&[&record[..fields], &[0]].concat()), None);
}

proptest! {
    #[test]
    fn records_come_back(validation: Option<(f64, f64)>) {
        let validation = validation.map(|(loss, error)| Validation { loss, error });
        let before = entry(validation);
        let after = Entry::decode(&before.encode().unwrap()).unwrap();
        prop_assert_eq!(bits(&[after]), bits(std::slice::from_ref(&before)));
        prop_assert_eq!(header_len(&before.header), encode_header(&before.header).map(|header| header.len()));
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
        let _ = Entry::decode(&bytes);
    }
}
