//! Messages in both directions: a message that decodes survives encoding and decoding.
#![no_main]

use common::{
    message::{ToAggregator, ToDevice},
    wire::{self, Frame, WireError},
};
use libfuzzer_sys::fuzz_target;
use serde::{Serialize, de::DeserializeOwned};

fuzz_target!(|data: &[u8]| {
    same_again::<ToAggregator>(data);
    same_again::<ToDevice>(data);
});

fn same_again<T: Serialize + DeserializeOwned>(body: &[u8]) {
    let Ok((message, _)) = wire::control::<T>(body) else { return };
    let mut first = [0; wire::MAX_CONTROL];
    match wire::encode_control(&message, &mut first) {
        Ok(len) => {
            let Ok(Frame::Control(body)) = Frame::decode(&first[..len]) else { panic!("own frame") };
            // Compares bytes, because numbers may be NaN.
            let (message, _) = wire::control::<T>(body).expect("own message");
            let mut second = [0; wire::MAX_CONTROL];
            assert_eq!(wire::encode_control(&message, &mut second), Ok(len));
            assert_eq!(first, second);
        }
        Err(error) => assert_eq!(error, WireError::TooLong),
    }
}
