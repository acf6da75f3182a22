//! Checks an offer before a byte of the update is fetched.

use common::{
    Code, DeviceId,
    message::{Errors, Offer, Scalars, Score, Ticket, Validation},
};
use strategies::check::check_scalars;

use super::OpenExchange;
use crate::announcement::update_bytes;

/// What the offer of a device has to match.
#[derive(Copy, Clone, Debug)]
pub struct ExpectedOffer {
    /// Ticket of the open exchange.
    pub ticket: Ticket,
    /// CRC-32 of the model that the device was sent.
    pub model_check: u32,
    /// Parameters of the device's tier.
    pub parameters: usize,
    /// Targets of the device's test samples, as its Hello states.
    pub test_targets: u64,
}

impl OpenExchange {
    /// What is wrong with an offer.
    pub fn review(&self, device: &DeviceId, offer: &Offer, expected: ExpectedOffer) -> Result<(), Code> {
        if offer.ticket != expected.ticket {
            return Err(Code::WrongRound);
        }
        let asked = self.roster.get(device).ok_or(Code::NotSelected)?;
        if offer.model_check != expected.model_check {
            return Err(Code::WrongModel);
        }
        if update_bytes(&asked.task, expected.parameters) != Some(offer.update.bytes) {
            return Err(Code::WrongShape);
        }
        review_scalars(&offer.scalars, expected.test_targets)
    }
}

/// The largest loss that a device can compute. Its square, as in a variance, is finite.
const LARGEST_LOSS: f64 = f32::MAX as f64;

fn review_scalars(scalars: &Scalars, test_targets: u64) -> Result<(), Code> {
    check_scalars(scalars)?;
    let scores = || [scalars.test, scalars.personal].into_iter().flatten();
    let losses = [scalars.loss_before].into_iter().chain(scalars.loss_after);
    if !losses.chain(scores().map(|score| score.loss)).all(|loss| (0.0..=LARGEST_LOSS).contains(&loss)) {
        return Err(Code::NonFiniteLoss);
    }
    // Losses up to the largest one have no larger squared error, and its sum over a fleet is finite.
    let possible = |validation: &Validation| {
        (0.0..=LARGEST_LOSS).contains(&validation.loss)
            && (0.0..=LARGEST_LOSS * LARGEST_LOSS).contains(&validation.error)
    };
    if !scalars.validation.iter().all(possible) {
        return Err(Code::NonFiniteLoss);
    }
    // A sum over a fleet of errors up to these is finite.
    let finite = |errors: &Errors| {
        (0.0..=LARGEST_LOSS).contains(&errors.absolute)
            && (0.0..=LARGEST_LOSS * LARGEST_LOSS).contains(&errors.squared)
            && errors.mean.abs() <= LARGEST_LOSS
            && (0.0..=LARGEST_LOSS * LARGEST_LOSS).contains(&errors.variance)
    };
    if !scalars.errors.iter().all(finite) {
        return Err(Code::NonFiniteLoss);
    }
    let counted = |score: Score| score.correct <= score.samples && u64::from(score.samples) <= test_targets;
    if scores().all(counted) { Ok(()) } else { Err(Code::ImplausibleSamples) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_validation_losses_are_refused() {
        let review = |loss, error| {
            let validation = Some(Validation { loss, error });
            let scalars = Scalars { samples: 10, loss_before: 1.0, validation, ..Scalars::default() };
            review_scalars(&scalars, 0)
        };
        for (loss, error) in [(0.0, 0.0), (2.3, 0.01), (f32::MAX.into(), 1e76)] {
            assert_eq!(review(loss, error), Ok(()), "{loss} {error}");
        }
        for wrong in [-1e-9, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
            assert_eq!(review(wrong, 0.0), Err(Code::NonFiniteLoss), "{wrong}");
            assert_eq!(review(1.0, wrong), Err(Code::NonFiniteLoss), "{wrong}");
        }
    }

    #[test]
    fn impossible_errors_are_refused() {
        let review = |at: usize, value: f64| {
            let mut values = [1.0; 4];
            values[at] = value;
            let [absolute, squared, mean, variance] = values;
            let errors = Some(Errors { absolute, squared, mean, variance });
            let scalars = Scalars { samples: 10, loss_before: 1.0, errors, ..Scalars::default() };
            review_scalars(&scalars, 0)
        };
        for at in 0..4 {
            assert_eq!(review(at, 0.0), Ok(()), "{at}");
            assert_eq!(review(at, -1.0).is_ok(), at == 2, "only a mean may be negative: {at}");
            for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
                assert_eq!(review(at, wrong), Err(Code::NonFiniteLoss), "{at} {wrong}");
            }
        }
    }

    #[test]
    fn impossible_scores_are_refused() {
        let score = |samples, correct, loss| Score { samples, correct, loss };
        let of =
            |test, personal| Scalars { samples: 10, loss_before: 1.0, test, personal, ..Scalars::default() };
        let review = |score: Score| {
            let results =
                [of(Some(score), None), of(None, Some(score))].map(|scalars| review_scalars(&scalars, 5));
            assert_eq!(results[0], results[1]);
            results[0]
        };
        assert_eq!(review_scalars(&of(None, None), 0), Ok(()));
        for possible in [score(5, 5, 0.0), score(5, 0, 2.3), score(0, 0, 0.0), score(4, 3, f32::MAX.into())] {
            assert_eq!(review(possible), Ok(()), "{possible:?}");
        }
        for counts in [score(5, 6, 1.0), score(6, 6, 1.0), score(u32::MAX, 0, 1.0)] {
            assert_eq!(review(counts), Err(Code::ImplausibleSamples), "{counts:?}");
        }
        for loss in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(review(score(5, 5, loss)), Err(Code::NonFiniteLoss), "{loss}");
            let before = Scalars { loss_before: loss, ..of(None, None) };
            let after = Scalars { loss_after: Some(loss), ..of(None, None) };
            assert_eq!(
                [before, after].map(|scalars| review_scalars(&scalars, 5)),
                [Err(Code::NonFiniteLoss); 2]
            );
        }
    }
}
