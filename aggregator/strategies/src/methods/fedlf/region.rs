//! The direction of one region: blocks whose point is 0 are merged until it is not 0, or until one block is left.

use std::ops::Range;

use crate::{
    algebra::Products,
    methods::fedlf::block::{Problem, Solution, solve},
};

#[derive(Clone, PartialEq, Debug)]
pub struct RegionDirection {
    /// By layer, of all rows; as long as the mean of the clients' rows.
    pub coefficients: Vec<Vec<f64>>,
    /// Number of blocks that are left.
    pub blocks: usize,
    /// Which rows had to be left out.
    pub fallback: Option<&'static str>,
}

/// `layers` are the products of the same rows, layer by layer.
pub fn find(layers: &[Products], problem: &Problem) -> RegionDirection {
    let alone = Problem { past: vec![], ..problem.clone() };
    let clients = Problem { q: None, ..alone.clone() };
    let attempts = [(None, problem), (Some("without absent"), &alone), (Some("clients only"), &clients)];
    for (number, &(fallback, problem)) in attempts.iter().enumerate() {
        let same_as_before = number > 0 && attempts[number - 1].1 == problem;
        if let Some(parts) = (!same_as_before).then(|| merge(layers, problem)).flatten() {
            let mean = layers.iter().map(|layer| layer.mean_norm(problem.clients)).fold(0.0, f64::hypot);
            let length = parts.iter().map(|(_, solved)| solved.norm).fold(0.0, f64::hypot);
            let scaled =
                |solved: &Solution| solved.coefficients.iter().map(|c| c * (mean / length)).collect();
            let coefficients =
                parts.iter().flat_map(|(layers, solved)| layers.clone().map(move |_| scaled(solved)));
            return RegionDirection { coefficients: coefficients.collect(), blocks: parts.len(), fallback };
        }
    }
    let rows = layers.first().map_or(0, Products::len);
    RegionDirection {
        coefficients: vec![vec![0.0; rows]; layers.len()],
        blocks: 1,
        fallback: Some("none left"),
    }
}

/// Blocks of neighbouring layers with their points, none of which is 0. `None` if the point of all layers together is 0.
fn merge(layers: &[Products], problem: &Problem) -> Option<Vec<(Range<usize>, Solution)>> {
    let mut blocks: Vec<(Range<usize>, Products)> =
        layers.iter().enumerate().map(|(number, layer)| (number..number + 1, layer.clone())).collect();
    // Of the blocks so far.
    let mut solved: Vec<Solution> = Vec::with_capacity(blocks.len());
    while let Some((_, products)) = blocks.get(solved.len()) {
        let point = solve(products, problem);
        if !point.is_zero {
            solved.push(point);
            continue;
        }
        if blocks.len() == 1 {
            return None;
        }
        // With the next block, or with the one before if there is no next.
        let last = solved.len() + 1 == blocks.len();
        if last {
            solved.pop();
        }
        let (range, products) = blocks.remove(solved.len() + 1);
        let (into, sum) = &mut blocks[solved.len()];
        into.end = range.end;
        sum.add(&products);
    }
    Some(blocks.into_iter().map(|(range, _)| range).zip(solved).collect())
}
