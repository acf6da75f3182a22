//! The digest by which two ends check that they execute the same model.

use common::{Dim, TensorShape, WidthMask, wire::Crc32};

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
        let axis = |dim: &Dim| dim.axis.map_or(u32::MAX, |axis| u32::from(axis.0));
        self.words(shape.dims.iter().flat_map(|dim| [dim.blocks, axis(dim), dim.inner]));
    }
}
