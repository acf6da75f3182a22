//! Advice to the owner or operator after a refusal.

use common::{Code, message::Refusal};

/// Refusals that are not about the device: the next attempt may succeed.
pub(super) fn is_passing(code: Code) -> bool {
    matches!(code, Code::Busy | Code::NotReady | Code::Unexpected | Code::BadChecksum | Code::BadFrame)
}

/// What the owner can do about a task that the device has refused.
pub(super) fn next_step(code: Code) -> &'static str {
    match code {
        Code::NoiseTooWeak => {
            "; the operator can lower `eps` of the strategy, the owner can raise --max-epsilon"
        }
        Code::PrivacySpent => "; the owner can raise --max-private-rounds",
        _ => "",
    }
}

pub(super) fn advice(refusal: &Refusal) -> String {
    match refusal.code {
        Code::DoesNotFit => format!(" (needs {} bytes, the device has {})", refusal.need, refusal.have),
        Code::WrongData if refusal.need > 0 => {
            format!(" (the model takes {} numbers per sample, the data has {})", refusal.need, refusal.have)
        }
        Code::UnknownDevice => "; enrol it with `fairtier gateway enroll` and use the new identity".into(),
        Code::BadCertificate => {
            "; the certificate has expired or belongs to another fleet: check the gateway's clock, or enrol again".into()
        }
        Code::WrongVersion => "; update the older of gateway and device".into(),
        Code::TooOld => "; update this program".into(),
        Code::TierNotAllowed => "; enrol it with other --tiers, or give it more memory".into(),
        Code::WrongIdentity => "; --device must be the name it was enrolled under".into(),
        Code::Displaced => "; this process exits, the other one continues: enrol a separate name for each process".into(),
        _ => String::new(),
    }
}
