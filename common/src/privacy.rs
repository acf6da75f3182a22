//! What a device's owner decides about noise, and the secret that noise is derived from.
//!
//! Neither is ever part of a message. Noise protects single training samples: an answer does not reveal which sample of a
//! group (label and attribute) a device has. An answer with noise costs
//!
//! ```text
//! epsilon = cap / sums + 2 clip_l1 / update
//! ```
//! Replacing a sample by another one of its group moves one sum by at most `cap`. It moves the update, which is cut to
//! an L1 norm of `clip_l1`, by at most twice that. Answers add up: see docs/PRIVACY.md.

use core::fmt;

use crate::{Code, brief::Brief, message::Task, rng::Rng};

/// Bytes of a secret; none on a board without feature `full`, which draws no noise.
pub const SECRET: usize = if cfg!(feature = "full") { 32 } else { 0 };
/// Relative tolerance: scales arrive as `f32`, so a brief for exactly `max_epsilon` may exceed it by rounding.
const ROUNDING: f64 = 1e-6;

/// The secret that noise is derived from. Only the device has it, and it is never printed.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Secret([u8; SECRET]);

impl Secret {
    /// A secret of random bytes.
    pub const fn new(bytes: [u8; SECRET]) -> Self {
        Self(bytes)
    }

    /// The secret of a simulated device. It follows from a seed, so that runs can be repeated, and protects nothing.
    pub fn simulated(seed: u64) -> Self {
        let (mut bytes, mut rng) = ([0; SECRET], Rng::new(seed));
        for word in bytes.as_chunks_mut::<8>().0 {
            *word = rng.next_u64().to_le_bytes();
        }
        Self(bytes)
    }

    /// The bytes, for the pseudo-random function of the noise and for storage.
    pub fn bytes(&self) -> &[u8; SECRET] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What the owner allows. A device with a policy sends nothing that depends on training samples without noise.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Policy {
    /// Largest epsilon of one answer.
    pub max_epsilon: f32,
    /// Answers with noise that may leave the device; absent: any number.
    pub max_answers: Option<u32>,
}

/// The privacy settings of a device.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Privacy {
    /// Without one, briefs that ask for noise are refused.
    pub secret: Option<Secret>,
    /// Without one, the aggregator decides.
    pub policy: Option<Policy>,
}

impl Privacy {
    /// The settings of a simulated device without an owner.
    pub fn simulated(seed: u64) -> Self {
        Self { secret: Some(Secret::simulated(seed)), policy: None }
    }

    /// Checks that the owner allows the task, and that the device has the secret for its noise.
    pub fn allows(&self, task: &Task) -> Result<(), Code> {
        let noise = match task {
            Task::Train(brief) if cfg!(feature = "full") => brief.epsilon(),
            _ => None,
        };
        let enough = match (&self.policy, noise) {
            (None, None) => true,
            (Some(_), None) => false,
            (policy, Some(epsilon)) => {
                let most = policy.map_or(f64::INFINITY, |policy| f64::from(policy.max_epsilon));
                self.secret.is_some() && epsilon <= most * (1.0 + ROUNDING)
            }
        };
        if enough { Ok(()) } else { Err(Code::NoiseTooWeak) }
    }

    /// Answers with noise that may leave the device; absent: any number.
    pub fn most(&self) -> Option<u32> {
        self.policy.and_then(|policy| policy.max_answers)
    }
}

impl Brief {
    /// The epsilon of an answer to this brief; `None` if it asks for no noise.
    pub fn epsilon(&self) -> Option<f64> {
        let laplace = self.privacy?;
        let cost = |moved: f64, scale: f32| match f64::from(scale) {
            _ if moved == 0.0 => 0.0,
            scale if scale > 0.0 => moved / scale,
            _ => f64::INFINITY,
        };
        let sums = self.groups.map_or(0.0, |report| f64::from(report.cap));
        Some(cost(sums, laplace.sums) + cost(2.0 * f64::from(laplace.clip_l1), laplace.update))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::brief::{GroupReport, Laplace, Product, Signal};

    fn train(privacy: Option<Laplace>) -> Brief {
        let groups = Some(GroupReport { signal: Signal::CrossEntropy, cap: 5.0 });
        Brief { privacy, groups, ..Brief::sgd(1, 8, 0.1, 1) }
    }

    #[cfg(feature = "full")]
    #[test]
    fn an_answer_costs_what_its_sums_and_its_update_cost() {
        let laplace = Laplace { sums: 10.0, clip_l1: 2.0, update: 8.0 };
        let brief = train(Some(laplace));
        assert_eq!(brief.epsilon(), Some(0.5 + 0.5));
        assert_eq!(Brief { groups: None, ..brief.clone() }.epsilon(), Some(0.5));
        assert_eq!(train(None).epsilon(), None);
        for weak in [Laplace { sums: 0.0, ..laplace }, Laplace { update: 0.0, ..laplace }] {
            assert_eq!(train(Some(weak)).epsilon(), Some(f64::INFINITY));
        }
    }

    #[cfg(feature = "full")]
    #[test]
    fn a_policy_refuses_tasks_with_less_noise() {
        let secret = Some(Secret::simulated(1));
        let floor = |max_epsilon| Privacy { secret, policy: Some(Policy { max_epsilon, max_answers: None }) };
        let private = train(Some(Laplace { sums: 10.0, clip_l1: 2.0, update: 8.0 }));
        let noisy = Task::Train(private.clone());
        assert_eq!(floor(1.0).allows(&noisy), Ok(()));
        assert_eq!(floor(0.99).allows(&noisy), Err(Code::NoiseTooWeak));
        let nan = Laplace { sums: f32::NAN, clip_l1: 2.0, update: 8.0 };
        let endless = Laplace { sums: 10.0, clip_l1: f32::INFINITY, update: 8.0 };
        for task in [
            Task::Train(train(None)),
            Task::Train(Brief { product: Product::Gradient, ..train(None) }),
            Task::Train(train(Some(nan))),
            Task::Train(train(Some(endless))),
            Task::Evaluate(None),
            Task::Evaluate(private.groups),
            Task::Try(heapless::Vec::new()),
            Task::Alone(crate::message::Alone { brief: private.clone(), window: 1, tolerance: 0.0 }),
        ] {
            assert_eq!(floor(1e9).allows(&task), Err(Code::NoiseTooWeak), "{task:?}");
        }
        let open = Privacy { secret, policy: None };
        for task in [Task::Train(train(None)), Task::Evaluate(None), noisy.clone()] {
            assert_eq!(open.allows(&task), Ok(()), "{task:?}");
        }
        assert_eq!(
            Privacy::default().allows(&noisy),
            Err(Code::NoiseTooWeak),
            "without a secret the noise is predictable"
        );
    }

    #[test]
    fn secrets_are_not_printed() {
        let secret = Secret::new([0xab; SECRET]);
        let shown = std::format!("{:?}", Privacy { secret: Some(secret), policy: None });
        assert!(!shown.contains("171") && !shown.contains("ab"), "{shown}");
        assert!(cfg!(not(feature = "full")) || Secret::simulated(1) != Secret::simulated(2));
    }
}
