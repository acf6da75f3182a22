//! A device that receives arbitrary messages in valid frames.
#![no_main]

use client::{Profile, Session, session::HeapArena};
use common::{Budget, Instant, Versions, message::DataSummary, privacy::Privacy, transfer::LinkLimits, wire};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let data_summary =
        DataSummary { train_samples: 10, test_samples: 2, inputs: 64, classes: 10, ..DataSummary::default() };
    let budget = Budget { ram: 1 << 20, flash: 1 << 20, ..Budget::UNLIMITED };
    let device = "cam-1".parse().expect("a name");
    let privacy = Privacy::simulated(1);
    let profile = Profile { device, budget, data: data_summary, privacy };
    let mut session: Session<HeapArena> = Session::new(profile, HeapArena::new(budget.ram));
    let mut out = vec![0; LinkLimits::QUIC.chunk as usize + wire::CHUNK_OVERHEAD];
    session.handle_connected(LinkLimits::QUIC, Versions::OURS, Instant::ZERO);
    for (turn, piece) in fuzz::pieces(data).enumerate() {
        let now = Instant::from_millis(3000 * turn as u64);
        let _ = session.handle_frame(&fuzz::frame(piece), now);
        session.handle_timeout(now);
        for _ in 0..8 {
            if session.poll_transmit(&mut out).is_none() {
                break;
            }
        }
        while session.poll_event().is_some() {}
    }
});
