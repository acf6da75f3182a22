//! Packets among noise; a board behind a hostile bridge.

use proptest::prelude::*;

mod hostile;

use super::{
    line::{Decoder, Encoder, LineError},
    *,
};

fn line(packet: &[u8]) -> Vec<u8> {
    Encoder::new(packet).collect()
}

fn packets<const ROOM: usize>(decoder: &mut Decoder<ROOM>, bytes: &[u8]) -> Vec<Result<Vec<u8>, LineError>> {
    bytes
        .iter()
        .filter_map(|&byte| decoder.push(byte).map(|packet| packet.map(|packet| packet.to_vec())))
        .collect()
}

#[test]
fn runs_of_all_lengths_round_trip() {
    for len in 1..600 {
        for zero_every in [0, 1, 2, 7, 253, 254, 255, 256] {
            let byte = |i: usize| {
                if zero_every > 0 && i.is_multiple_of(zero_every) { 0 } else { (i % 255) as u8 + 1 }
            };
            let packet: Vec<u8> = (0..len).map(byte).collect();
            let bytes = line(&packet);
            assert!(bytes.len() <= len + 4 + (len + 4).div_ceil(254) + 3, "{len}");
            assert!(bytes[1..bytes.len() - 1].iter().all(|&byte| byte != 0));
            assert_eq!(packets(&mut Decoder::<1024>::default(), &bytes), [Ok(packet)], "{len} {zero_every}");
        }
    }
}

#[test]
fn a_packet_that_is_too_long_does_not_affect_the_next_one() {
    let bytes = [line(&[1; 100]), line(&[2; 20])].concat();
    let mut decoder = Decoder::<32>::default();
    assert_eq!(packets(&mut decoder, &bytes), [Err(LineError::TooLong), Ok(vec![2; 20])]);
}

proptest! {
    #[test]
    fn after_any_noise_the_next_packet_arrives(noise: Vec<u8>, packet in prop::collection::vec(any::<u8>(), 1..500)) {
        let mut decoder = Decoder::<MAX_PACKET>::default();
        let found = packets(&mut decoder, &[noise, line(&packet)].concat());
        prop_assert_eq!(found.last(), Some(&Ok(packet)));
    }

    #[test]
    fn a_flipped_bit_is_noticed(packet in prop::collection::vec(any::<u8>(), 1..300), at: prop::sample::Index, bit in 0u8..8) {
        let mut bytes = line(&packet);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let found = packets(&mut Decoder::<MAX_PACKET>::default(), &bytes);
        prop_assert!(found.iter().all(|found| found.as_ref() == Ok(&packet) || found.is_err()), "{:?}", found);
    }
}
