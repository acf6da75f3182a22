//! Counts answers with noise, before they are sent.

use heapless::Vec;

use crate::train::{Charge, FULL};

/// Number of remembered answers: a repetition of one of these does not count again.
const REMEMBERED: usize = if FULL { 16 } else { 0 };

/// The count of answers with noise. The driver stores it where it must survive a restart.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Spent {
    answers: u32,
    /// The last answers, oldest first.
    last: Vec<Charge, REMEMBERED>,
}

impl Spent {
    /// A count that was stored; of too many remembered answers, the last ones are kept.
    pub fn new(answers: u32, last: &[Charge]) -> Self {
        let from = last.len().saturating_sub(REMEMBERED);
        Self { answers, last: last[from..].iter().copied().collect() }
    }

    /// Answers so far.
    pub fn answers(&self) -> u32 {
        self.answers
    }

    /// The remembered answers, oldest first.
    pub fn last(&self) -> &[Charge] {
        &self.last
    }

    /// Whether a question may be answered, as far as this is known before the work is done.
    pub(super) fn may_answer(&self, question: u64, most: Option<u32>) -> bool {
        self.has_room(most) || self.last.iter().any(|known| known.question == question)
    }

    /// Counts an answer unless it was counted before; false if the limit is reached.
    pub(super) fn count(&mut self, charge: Charge, most: Option<u32>) -> bool {
        if self.last.contains(&charge) {
            return true;
        }
        if !self.has_room(most) {
            return false;
        }
        self.answers = self.answers.saturating_add(1);
        if self.last.is_full() && !self.last.is_empty() {
            self.last.remove(0);
        }
        let _ = self.last.push(charge);
        true
    }

    fn has_room(&self, most: Option<u32>) -> bool {
        most.is_none_or(|most| self.answers < most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge(question: u64, answer: u64) -> Charge {
        Charge { question, answer }
    }

    #[test]
    fn the_same_answer_counts_once_and_none_beyond_the_cap() {
        let (mut spent, most) = (Spent::default(), Some(2));
        assert!(spent.count(charge(1, 1), most) && spent.count(charge(1, 1), most));
        assert_eq!(spent.answers(), 1);
        assert!(spent.count(charge(1, 2), most), "another answer to the same question is another answer");
        assert_eq!(spent.answers(), 2);
        assert!(spent.may_answer(1, most) && !spent.may_answer(2, most));
        assert!(!spent.count(charge(2, 3), most) && !spent.count(charge(1, 3), most));
        assert!(spent.count(charge(1, 2), most));
        assert_eq!(spent.answers(), 2);
        assert!(spent.count(charge(2, 3), Some(3)), "the owner allows more");
        assert!(!Spent::default().may_answer(1, Some(0)));
    }

    #[test]
    fn old_answers_are_forgotten_and_count_again() {
        let mut spent = Spent::default();
        for answer in 0..40 {
            assert!(spent.count(charge(answer, answer), None));
        }
        assert_eq!((spent.answers(), spent.last().len()), (40, REMEMBERED));
        assert!(spent.count(charge(39, 39), None) && spent.answers() == 40);
        assert!(spent.count(charge(0, 0), None) && spent.answers() == 41);
        let kept = Spent::new(spent.answers(), spent.last());
        assert_eq!(kept, spent);
    }
}
