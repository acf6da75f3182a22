//! A subset of the training samples: all of them, or, where every fifth is for validation, these or the others.
//!
//! ```text
//! index        0 1 2 3 4 5 6 7 8 9 ..
//! Training     0 1 2 3   4 5 6 7         place p is at p + p/4
//! Validation           0         1       place p is at 5p + 4
//! ```

use crate::data::{DataSplit, Shard};

/// One of this many training samples is kept for validation: the last of each run.
pub const EVERY: u32 = 5;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Subset {
    All,
    /// All but those for validation.
    Training,
    Validation,
}

impl Subset {
    /// How many of `samples` belong to it.
    pub fn len(self, samples: u32) -> u32 {
        match self {
            Self::All => samples,
            Self::Training => samples - samples / EVERY,
            Self::Validation => samples / EVERY,
        }
    }

    pub fn index(self, place: u32) -> u32 {
        match self {
            Self::All => place,
            Self::Training => place.saturating_add(place / (EVERY - 1)),
            Self::Validation => place.saturating_mul(EVERY).saturating_add(EVERY - 1),
        }
    }
}

/// Validation samples of a device: its own, or else the training samples that are kept for it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct ValidationSamples {
    pub part: DataSplit,
    /// Of the part.
    pub subset: Subset,
    /// How many there are.
    pub len: u32,
}

impl ValidationSamples {
    pub fn of(shard: &(impl Shard + ?Sized)) -> Self {
        match shard.validation_len() {
            0 => {
                let (part, subset) = (DataSplit::Train, Subset::Validation);
                Self { part, subset, len: subset.len(shard.train_len()) }
            }
            len => Self { part: DataSplit::Validation, subset: Subset::All, len },
        }
    }

    /// What is left to train on.
    pub fn others(self) -> Subset {
        if self.part == DataSplit::Train { Subset::Training } else { Subset::All }
    }
}

#[cfg(test)]
mod tests {
    use super::Subset;

    #[test]
    fn every_fifth_sample_is_held_and_none_is_lost() {
        let indices = |subset: Subset, samples: u32| {
            (0..subset.len(samples)).map(move |place| subset.index(place)).collect::<Vec<_>>()
        };
        for samples in 0..40 {
            let fifth = |index: &u32| index % 5 == 4;
            assert_eq!(indices(Subset::All, samples), (0..samples).collect::<Vec<_>>());
            assert_eq!(indices(Subset::Validation, samples), (0..samples).filter(fifth).collect::<Vec<_>>());
            let others = (0..samples).filter(|index| !fifth(index)).collect::<Vec<_>>();
            assert_eq!(indices(Subset::Training, samples), others);
        }
    }
}
