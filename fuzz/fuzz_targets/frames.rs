//! Arbitrary frames, as they are and with a valid checksum.
#![no_main]

use common::wire::{self, Frame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    look(data);
    look(&fuzz::frame(data));
    if let Some((prefix, rest)) = data.split_first_chunk::<4>()
        && let Ok(len) = wire::frame_len(*prefix, rest.len())
    {
        look(&rest[..len]);
    }
});

fn look(bytes: &[u8]) {
    match Frame::decode(bytes) {
        Ok(Frame::Chunk { transfer, offset, data }) => {
            let mut again = vec![0; bytes.len()];
            let len =
                wire::encode_chunk(transfer, offset, data.len(), &mut again, |to| to.copy_from_slice(data));
            assert_eq!((len, again.as_slice()), (Ok(bytes.len()), bytes));
        }
        Ok(Frame::Control(body)) => assert_eq!(body.len() + wire::FRAME_OVERHEAD, bytes.len()),
        Err(_) => {}
    }
}
