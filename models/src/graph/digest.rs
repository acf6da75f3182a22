//! The digest by which two ends check that they execute the same model.

use common::{Dim, Part, TensorShape, WidthMask, wire::Crc32};

use super::Graph;

impl Graph {
    /// CRC-32 of structure, widths and constants, without names. A slice of the graph has the same digest as the whole graph with its mask.
    pub fn digest(&self, mask: &WidthMask) -> u32 {
        let mut digest = Digest(Crc32::default());
        digest.shape(&self.input.shape);
        for node in &self.nodes {
            node.op.words().into_iter().for_each(|word| digest.word(word));
            digest.words(node.inputs.iter().map(|value| value.0));
            digest.words(node.op.params().map(|param| param.0));
            digest.shape(&node.shape);
        }
        self.shapes.iter().for_each(|shape| digest.shape(shape));
        digest.word(self.output.value.0);
        digest.words(mask.widths().iter().copied());
        if !self.constants.is_empty() {
            digest.words(self.gather_constants(mask).into_iter().map(f32::to_bits));
        }
        digest.0.finish()
    }
}

struct Digest(Crc32);

/// In place of the axis of a dimension of several parts; their number follows, then each of them. Axes are below 256.
const PARTS: u32 = u32::MAX - 1;

pub(super) fn words(dim: &Dim) -> Vec<u32> {
    let words = |part: &Part| [part.axis.map_or(u32::MAX, |axis| u32::from(axis.0)), part.inner];
    match dim.parts() {
        [part] => [[dim.blocks()].as_slice(), &words(part)].concat(),
        parts => {
            let count = [dim.blocks(), PARTS, parts.len() as u32];
            count.into_iter().chain(parts.iter().flat_map(words)).collect()
        }
    }
}

impl Digest {
    fn word(&mut self, word: u32) {
        self.0.update(&word.to_le_bytes());
    }

    /// Includes the length, so that two consecutive lists are unambiguous.
    fn words(&mut self, words: impl Iterator<Item = u32>) {
        let words: Vec<u32> = words.collect();
        self.word(words.len() as u32);
        words.into_iter().for_each(|word| self.word(word));
    }

    fn shape(&mut self, shape: &TensorShape) {
        self.words(shape.dims.iter().flat_map(words));
    }
}
