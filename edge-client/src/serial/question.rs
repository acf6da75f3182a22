//! A sample whose class the holder of the board identity asks for, over the serial line.
//!
//! ```text
//! holder of the board identity                            board
//! (PROVISION, see common::sealed)                      ->
//! QUESTION  number u16, inputs u32, first u32, f32 ..  ->
//!                                                      <- ANSWER  number u16, code u16 (0 = fine), next u32, inputs u32,
//!                                                                 round u32, trained u8, loss u8, classes u32, outputs f32 ..
//! ```
//! Pieces are repeated until they are answered, and an answer states which number is next. The last answer has the outputs.
//! Both are sealed as samples are, so a bridge can neither ask nor read. The sample is stored in the Plan's input buffer, so
//! training pauses while it arrives.

use common::{Code, plan::Loss};

#[cfg(feature = "host")]
use crate::train::Prediction;

/// First byte of a sealed frame with a piece of a sample.
pub const QUESTION: u8 = 0x14;
/// First byte of the answer.
pub const ANSWER: u8 = 0x15;
/// Numbers in a piece; they fit every packet.
pub const QUESTION_PIECE: usize = 60;
const HEAD: usize = 23;

/// Progress of a question.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub(super) enum Question {
    #[default]
    None,
    Arriving {
        number: u16,
        next: u32,
        /// A piece is not answered yet.
        due: bool,
    },
    /// The sample is in the input buffer.
    Whole {
        number: u16,
    },
    Answered {
        number: u16,
        outcome: Result<Outcome, Code>,
    },
}

/// What is known of an answer, besides the outputs.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) struct Outcome {
    pub round: u32,
    pub trained: bool,
    pub loss: Loss,
}

impl Question {
    /// True if training waits.
    pub fn is_pending(&self) -> bool {
        *self != Self::None
    }

    /// Handles a frame. `input` is the input buffer of the Plan, or empty.
    #[inline(never)]
    pub fn handle(&mut self, frame: &[u8], input: &mut [f32]) {
        let [QUESTION, rest @ ..] = frame else { return };
        let Some((number, rest)) = rest.split_first_chunk() else { return };
        let Some((inputs, rest)) = rest.split_first_chunk() else { return };
        let Some((first, piece)) = rest.split_first_chunk() else { return };
        let number = u16::from_le_bytes(*number);
        let [inputs, first] = [inputs, first].map(|bytes| u32::from_le_bytes(*bytes));
        let wrong = match input.len() {
            0 => Some(Code::NotReady),
            len if len != inputs as usize => Some(Code::WrongData),
            _ => None,
        };
        if let Some(code) = wrong {
            *self = Self::Answered { number, outcome: Err(code) };
            return;
        }
        let next = match *self {
            Self::Arriving { number: ours, next, .. } if ours == number => next,
            Self::Whole { number: ours } if ours == number => return,
            _ => 0,
        };
        let mut arrived = next;
        let place = input.get_mut(first as usize..).unwrap_or_default();
        if first == next {
            for (place, bytes) in place.iter_mut().zip(piece.as_chunks::<4>().0) {
                *place = f32::from_le_bytes(*bytes);
                arrived += 1;
            }
        }
        *self = if arrived == inputs {
            Self::Whole { number }
        } else {
            Self::Arriving { number, next: arrived, due: true }
        };
    }

    /// Writes the answer that is due, and returns its length. `outputs` are those of the Plan.
    #[inline(never)]
    pub fn answer(&mut self, inputs: usize, outputs: &[f32], out: &mut [u8]) -> Option<usize> {
        let (number, next, outcome) = match self {
            Self::Arriving { number, next, due } if *due => {
                *due = false;
                (*number, *next, None)
            }
            Self::Answered { number, outcome } => {
                let answer = (*number, inputs as u32, Some(*outcome));
                *self = Self::None;
                answer
            }
            _ => return None,
        };
        let outcome = match outcome {
            // More outputs than a packet of this board has room for.
            Some(Ok(_)) if HEAD + 4 * outputs.len() > out.len().saturating_sub(64) => {
                Some(Err(Code::TooLong))
            }
            outcome => outcome,
        };
        let (code, round, trained, loss) = match outcome {
            None => (0, 0, false, None),
            Some(Err(code)) => (code.number(), 0, false, None),
            Some(Ok(Outcome { round, trained, loss })) => (0, round, trained, Some(loss)),
        };
        let (loss, classes) = match loss {
            None => (0xff, 0),
            Some(Loss::Softmax { classes }) => (0, classes),
            Some(Loss::Sigmoid) => (1, 0),
            Some(Loss::Squared) => (2, 0),
        };
        let (head, rest) = out.split_first_chunk_mut::<HEAD>()?;
        head[0] = ANSWER;
        head[1..3].copy_from_slice(&number.to_le_bytes());
        head[3..5].copy_from_slice(&code.to_le_bytes());
        for (place, value) in head[5..17].as_chunks_mut::<4>().0.iter_mut().zip([next, inputs as u32, round])
        {
            *place = value.to_le_bytes();
        }
        (head[17], head[18]) = (trained.into(), loss);
        head[19..].copy_from_slice(&classes.to_le_bytes());
        let outputs = if loss == 0xff { &[] } else { outputs };
        for (place, output) in rest.as_chunks_mut::<4>().0.iter_mut().zip(outputs) {
            *place = output.to_le_bytes();
        }
        Some(HEAD + 4 * outputs.len())
    }
}

/// An answer, as the host reads it.
#[cfg(feature = "host")]
#[derive(Clone, PartialEq, Debug)]
pub struct BoardAnswer {
    /// The question that is answered.
    pub number: u16,
    /// Why there is no prediction.
    pub refused: Option<Code>,
    /// Numbers of the sample that have arrived.
    pub next: u32,
    /// Numbers that the model takes; 0 if the board has none.
    pub inputs: u32,
    /// The round whose model has answered.
    pub round: u32,
    /// The board has trained it further since.
    pub trained: bool,
    /// Class and score, once the whole sample has arrived.
    pub prediction: Option<Prediction>,
    /// Logits or predicted numbers.
    pub outputs: std::vec::Vec<f32>,
}

#[cfg(feature = "host")]
impl BoardAnswer {
    /// Reads a frame.
    pub fn decode(frame: &[u8]) -> Option<Self> {
        let (head, rest) = frame.split_first_chunk::<HEAD>()?;
        let (numbers, tail) = (head[5..17].as_chunks::<4>().0, &head[17..]);
        let [next, inputs, round] = *numbers else { return None };
        let [next, inputs, round] = [next, inputs, round].map(u32::from_le_bytes);
        let ([trained, loss, classes @ ..], ANSWER) = (tail, head[0]) else { return None };
        let classes = u32::from_le_bytes(classes.try_into().ok()?);
        let outputs: std::vec::Vec<f32> =
            rest.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let loss = match loss {
            0 => Some(Loss::Softmax { classes }),
            1 => Some(Loss::Sigmoid),
            2 => Some(Loss::Squared),
            _ => None,
        };
        let refused = match u16::from_le_bytes([head[3], head[4]]) {
            0 => None,
            number => Some(number.into()),
        };
        let prediction = loss.and_then(|loss| Prediction::of(loss, &outputs));
        let number = u16::from_le_bytes([head[1], head[2]]);
        Some(Self { number, refused, next, inputs, round, trained: *trained != 0, prediction, outputs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(number: u16, inputs: u32, first: u32, values: &[f32]) -> Vec<u8> {
        let head = [&number.to_le_bytes()[..], &inputs.to_le_bytes(), &first.to_le_bytes()].concat();
        let values: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        [&[QUESTION][..], &head, &values].concat()
    }

    fn said(question: &mut Question, outputs: &[f32]) -> Option<BoardAnswer> {
        let mut out = [0; 128];
        let len = question.answer(3, outputs, &mut out)?;
        BoardAnswer::decode(&out[..len])
    }

    #[test]
    fn pieces_may_be_repeated_missed_and_wrong() {
        let (mut input, mut question) = ([9.0; 3], Question::None);
        question.handle(&piece(4, 3, 0, &[1.0, 2.0]), &mut input);
        assert_eq!(said(&mut question, &[]).map(|it| (it.number, it.next, it.refused)), Some((4, 2, None)));
        assert_eq!(said(&mut question, &[]), None);
        // The answer was lost; then a piece beyond the end.
        for (first, values) in [(0, &[1.0, 2.0][..]), (7, &[5.0]), (u32::MAX, &[5.0])] {
            question.handle(&piece(4, 3, first, values), &mut input);
            assert_eq!(said(&mut question, &[]).map(|it| it.next), Some(2));
        }
        question.handle(&piece(4, 3, 2, &[3.0, 8.0, 8.0]), &mut input);
        assert_eq!((input, question), ([1.0, 2.0, 3.0], Question::Whole { number: 4 }));
        let outcome = Outcome { round: 7, trained: true, loss: Loss::Softmax { classes: 2 } };
        question = Question::Answered { number: 4, outcome: Ok(outcome) };
        let answer = said(&mut question, &[0.0, 0.0]).unwrap();
        assert_eq!((answer.round, answer.trained, &answer.outputs[..]), (7, true, &[0.0, 0.0][..]));
        assert_eq!(answer.prediction, Some(Prediction { class: 0, score: 0.5 }));
        assert!(!question.is_pending());
        // A sample of another width, and a board without a model.
        question.handle(&piece(5, 2, 0, &[1.0]), &mut input);
        assert_eq!(said(&mut question, &[]).unwrap().refused, Some(Code::WrongData));
        question.handle(&piece(6, 2, 0, &[1.0]), &mut []);
        assert_eq!(said(&mut question, &[]).unwrap().refused, Some(Code::NotReady));
        // More outputs than fit.
        question = Question::Answered { number: 4, outcome: Ok(outcome) };
        assert_eq!(said(&mut question, &[0.0; 64]).unwrap().refused, Some(Code::TooLong));
        for short in 0..11 {
            question.handle(&piece(1, 3, 0, &[])[..short], &mut input);
            assert!(!question.is_pending());
        }
    }
}
