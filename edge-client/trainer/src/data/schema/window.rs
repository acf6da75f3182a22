//! Windows of a long recording: consecutive rows that form one sample.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// How rows form samples.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Window {
    /// Rows of one sample.
    pub rows: u32,
    /// Rows from the start of one sample to the start of the next.
    pub stride: u32,
    /// Order of the numbers of a sample.
    pub layout: Layout,
    /// A window ends where this column changes, such as a person or a machine.
    pub within: Option<String>,
}

/// Order of the numbers of a window.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Column after column, as convolutions expect.
    #[default]
    ChannelsFirst,
    /// Row after row, as recurrent layers expect.
    TimeFirst,
}

impl Window {
    /// The rows of each window within a stretch of rows.
    pub(super) fn starts(&self, stretch: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let (rows, stride) = (self.rows as usize, self.stride.max(1) as usize);
        let starts = stretch.clone().step_by(stride);
        starts.map(move |start| start..start + rows).take_while(move |window| window.end <= stretch.end)
    }

    /// Appends the numbers of a window of `inputs` numbers per row.
    pub(super) fn push(&self, rows: &[f32], inputs: usize, out: &mut Vec<f32>) {
        match self.layout {
            Layout::TimeFirst => out.extend_from_slice(rows),
            Layout::ChannelsFirst => {
                out.extend((0..inputs).flat_map(|column| rows.iter().skip(column).step_by(inputs.max(1))));
            }
        }
    }
}

/// The most frequent number; the smaller one of two that are equally frequent.
pub(super) fn majority(numbers: &[u32]) -> Option<u32> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let mut best: Option<&[u32]> = None;
    for same in sorted.chunk_by(|a, b| a == b) {
        if best.is_none_or(|best| same.len() > best.len()) {
            best = Some(same);
        }
    }
    best.and_then(|same| same.first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_stay_within_their_stretch() {
        let window = Window { rows: 4, stride: 2, layout: Layout::TimeFirst, within: None };
        assert_eq!(window.starts(3..11).collect::<Vec<_>>(), [3..7, 5..9, 7..11]);
        assert_eq!(window.starts(3..10).collect::<Vec<_>>(), [3..7, 5..9]);
        assert_eq!(window.starts(3..6).count(), 0);
    }

    #[test]
    fn layouts() {
        let push = |layout| {
            let mut out = Vec::new();
            Window { rows: 3, stride: 1, layout, within: None }.push(
                &[1.0, 10.0, 2.0, 20.0, 3.0, 30.0],
                2,
                &mut out,
            );
            out
        };
        assert_eq!(push(Layout::ChannelsFirst), [1.0, 2.0, 3.0, 10.0, 20.0, 30.0]);
        assert_eq!(push(Layout::TimeFirst), [1.0, 10.0, 2.0, 20.0, 3.0, 30.0]);
    }

    #[test]
    fn majorities() {
        assert_eq!(majority(&[2, 0, 2, 1]), Some(2));
        assert_eq!(majority(&[1, 0, 0, 1]), Some(0));
        assert_eq!(majority(&[]), None);
    }
}
