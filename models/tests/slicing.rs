//! A slice computes the same as the whole model with everything outside of the slice set to 0, and axes that must agree become
//! one.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

extern crate fairtier_models as models;

use common::{Dim, rng::Rng, slice::scatter};
use models::{
    Graph, TierSpec,
    graph::{Builder, Groups, Kernel, Op, Param, Reason, SliceError, ValueId},
    zoo,
};
use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};

mod support;
use support::forward;

fn params(name: &str) -> [Param; 2] {
    ["w", "b"].map(|kind| Param::plain(format!("{name}.{kind}")))
}

fn conv(builder: &mut Builder, name: &str, input: ValueId, channels: u32, groups: u32) -> ValueId {
    let [weight, bias] = params(name);
    builder.conv(name, input, channels, groups, Kernel::square(3, 1, 1), weight, Some(bias)).unwrap()
}

fn dense(builder: &mut Builder, name: &str, input: ValueId, units: u32) -> ValueId {
    let [weight, bias] = params(name);
    let inputs = builder.sizes(input).last().copied().unwrap();
    builder.dense(name, input, inputs, units, weight, Some(bias)).unwrap()
}

fn ends_with(mut builder: Builder, value: ValueId) -> Graph {
    let flat = builder.flatten("flat", value);
    let logits = dense(&mut builder, "fc", flat, 3);
    builder.finish("y", logits, None).unwrap()
}

/// Layers, node and reason of every axis that stays whole.
fn whole(graph: &Graph) -> Vec<(String, &str, Reason)> {
    graph
        .uncut_axes()
        .iter()
        .map(|whole| (whole.layers.join(" "), whole.node.as_str(), whole.reason))
        .collect()
}

/// A rate is refused without `keep_whole`, and gives these widths with it.
fn contradicts(graph: &Graph, half: &[u32], expected: &str) {
    let refused = TierSpec::Rate(0.5).mask(graph).unwrap_err();
    assert!(matches!(refused, SliceError::Uncut(_)), "{refused:?}");
    let text = refused.to_string();
    assert!(
        text.contains(expected) && text.contains("--keep-whole") && text.contains("explicit widths"),
        "{text}"
    );
    let kept = TierSpec::rate(0.5, true).mask(graph).unwrap();
    assert_eq!(kept.widths(), half);
    assert_eq!(TierSpec::widths(half).mask(graph).unwrap(), kept);
    assert!(graph.slice(&kept).is_ok());
    assert_eq!(TierSpec::Rate(1.0).mask(graph).unwrap(), *graph.full());
}

fn widths(graph: &Graph, rate: f64) -> Vec<u32> {
    graph.full().at_rate(rate).unwrap().widths().to_vec()
}

/// Norms mix channels, so a cut one changes the others.
fn mixes(graph: &Graph) -> bool {
    graph.nodes().iter().any(|node| matches!(node.op, Op::LayerNorm { .. } | Op::GroupNorm { .. }))
}

#[test]
fn residual_branches_are_cut_together() {
    let mut builder = Builder::new("m", "x", &[2, 4, 4]).unwrap();
    let a = conv(&mut builder, "a", ValueId::INPUT, 6, 1);
    let b = conv(&mut builder, "b", a, 6, 1);
    let c = conv(&mut builder, "c", b, 8, 1);
    let d = conv(&mut builder, "d", c, 6, 1);
    let sum = builder.add("sum", a, d).unwrap();
    let graph = ends_with(builder, sum);
    // a and d are one axis, b and c have their own.
    assert_eq!((graph.full().widths(), widths(&graph, 0.5)), (&[6, 6, 8][..], vec![3, 3, 4]));
    let (d, fc) = (&graph.param_shapes()[6], &graph.param_shapes()[8]);
    assert_eq!(d.dims[0], graph.param_shapes()[0].dims[0]);
    assert_eq!(fc.dims[1], d.dims[0].spread(16));
}

fn concat(builder: &mut Builder, name: &str, a: ValueId, b: ValueId) -> ValueId {
    builder.concat(name, a, b, 0).unwrap()
}

#[test]
fn joined_branches_are_cut_one_by_one() {
    let mut builder = Builder::new("m", "x", &[2, 4, 4]).unwrap();
    let a = conv(&mut builder, "a", ValueId::INPUT, 6, 1);
    let b = conv(&mut builder, "b", ValueId::INPUT, 4, 1);
    let both = concat(&mut builder, "both", a, b);
    let all = concat(&mut builder, "all", both, ValueId::INPUT);
    let graph = ends_with(builder, all);
    assert_eq!((graph.full().widths(), widths(&graph, 0.5)), (&[6, 4][..], vec![3, 2]));
    let units = [0, 2].map(|param| graph.param_shapes()[param].dims[0]);
    let joined = units[0].then(&units[1]).unwrap().then(&Dim::fixed(2)).unwrap();
    assert_eq!(graph.param_shapes()[4].dims[1], joined.spread(16));
    // Of 12 channels of 16 pixels, a tier of widths 1 and 3 keeps the first, the seventh to ninth and the input's two.
    let mask = graph.full().at_widths(&[1, 3]).unwrap();
    let parameters: Vec<f32> = (0..graph.layout().len()).map(|at| at as f32).collect();
    let packed = graph.gather(&mask, &parameters).unwrap();
    let (first, kept) = (graph.offsets(graph.full())[4], graph.offsets(&mask)[4]);
    let row: Vec<usize> = packed[kept..kept + 6 * 16].iter().map(|&at| at as usize - first).collect();
    let expected: Vec<usize> = [0..16, 96..144, 160..192].into_iter().flatten().collect();
    assert_eq!(row, expected);
}

/// Each layer of a dense block reads the outputs of all layers before it.
fn dense_block(layers: u32) -> Graph {
    let mut builder = Builder::new("m", "x", &[2, 4, 4]).unwrap();
    let mut at = conv(&mut builder, "stem", ValueId::INPUT, 4, 1);
    for layer in 0..layers {
        let name = |what: &str| format!("{what}{layer}");
        let channels = builder.sizes(at)[0];
        let stats = [1.0, 2.0].map(|base| (0..channels).map(|at| base + at as f32 / 10.0).collect());
        let norm = builder.batch_norm(&name("norm"), at, 1e-5, params(&name("norm")), Some(stats)).unwrap();
        let relu = builder.relu(&name("relu"), norm);
        let new = conv(&mut builder, &name("conv"), relu, 2 + layer, 1);
        at = concat(&mut builder, &name("join"), at, new);
    }
    ends_with(builder, at)
}

#[test]
fn statistics_of_joined_branches_are_cut_branch_by_branch() {
    let graph = dense_block(3);
    assert_eq!(graph.full().widths(), [4, 2, 3, 4]);
    let slice = graph.slice(&graph.full().at_widths(&[2, 1, 1, 1]).unwrap()).unwrap();
    let means = [1.0, 1.1, 1.0, 1.1, 1.4, 1.0, 1.1, 1.4, 1.6];
    let (at, expected) = ([0, 1, 4, 5, 6, 10, 11, 12, 13], means);
    let close = |(at, mean): (&usize, &f32)| (slice.stats()[*at] - mean).abs() < 1e-6;
    assert!(at.iter().zip(&expected).all(close), "{:?}", slice.stats());
}

#[test]
fn more_parts_than_a_dimension_has_are_not_cut() {
    let graph = dense_block(20);
    let found = whole(&graph);
    assert!(found.iter().any(|(_, node, reason)| (*node, *reason) == ("join15", Reason::Parts)), "{found:?}");
    assert_eq!(graph.full().widths(), [18, 19, 20, 21], "the layers after that are cut");
    let text = TierSpec::Rate(0.5).mask(&graph).unwrap_err().to_string();
    assert!(text.contains("a concatenation has more parts"), "{text}");
}

#[test]
fn a_cut_between_branches_keeps_them_and_one_inside_a_branch_is_told() {
    let halves = |len: u32| {
        let mut builder = Builder::new("m", "x", &[2, 4, 4]).unwrap();
        let a = conv(&mut builder, "a", ValueId::INPUT, 6, 1);
        let b = conv(&mut builder, "b", ValueId::INPUT, 6, 1);
        let both = concat(&mut builder, "both", a, b);
        let left = builder.part("left", both, 0, 0, len).unwrap();
        let right = builder.part("right", both, 0, len, 12 - len).unwrap();
        let right = conv(&mut builder, "c", right, len, 1);
        let sum = builder.add("sum", left, right).unwrap();
        ends_with(builder, sum)
    };
    let graph = halves(6);
    assert_eq!(graph.full().widths(), [6, 6], "'c' is cut with 'a'");
    let graph = halves(5);
    assert_eq!(whole(&graph)[0], ("a".to_owned(), "left", Reason::Split));
    contradicts(&graph, &[3], "the 6 units of 'a' cannot be cut: at 'left' a part of them is taken");
}

#[test]
fn sums_of_joined_branches_are_cut_part_by_part() {
    let sum = |second: [u32; 2]| {
        let mut builder = Builder::new("m", "x", &[2, 4, 4]).unwrap();
        let mut pair = |names: [&str; 2], sizes: [u32; 2]| {
            let a = conv(&mut builder, names[0], ValueId::INPUT, sizes[0], 1);
            let b = conv(&mut builder, names[1], ValueId::INPUT, sizes[1], 1);
            concat(&mut builder, &names.concat(), a, b)
        };
        let (x, y) = (pair(["a", "b"], [4, 6]), pair(["c", "d"], second));
        let sum = builder.add("sum", x, y).unwrap();
        let last = conv(&mut builder, "e", sum, 8, 1);
        ends_with(builder, last)
    };
    assert_eq!(sum([4, 6]).full().widths(), [4, 6, 8]);
    let apart = sum([6, 4]);
    assert_eq!(apart.full().widths(), [8]);
    assert!(whole(&apart)[..4].iter().all(|(_, node, reason)| (*node, *reason) == ("sum", Reason::Places)));
}

#[test]
fn what_meets_the_input_or_the_output_is_not_cut() {
    let mut builder = Builder::new("m", "x", &[4]).unwrap();
    let a = dense(&mut builder, "a", ValueId::INPUT, 4);
    let sum = builder.add("sum", ValueId::INPUT, a).unwrap();
    let b = dense(&mut builder, "b", sum, 5);
    let graph = ends_with(builder, b);
    assert_eq!(graph.full().widths(), [5]);
    let mut builder = Builder::new("m", "x", &[4]).unwrap();
    let a = dense(&mut builder, "a", ValueId::INPUT, 3);
    let b = dense(&mut builder, "b", a, 3);
    let sum = builder.add("sum", a, b).unwrap();
    assert!(builder.finish("y", sum, None).unwrap().full().widths().is_empty());
}

#[test]
fn depthwise_follows_its_input_and_other_groups_are_not_cut() {
    let mut builder = Builder::new("m", "x", &[2, 4, 4]).unwrap();
    let a = conv(&mut builder, "a", ValueId::INPUT, 4, 1);
    let deep = conv(&mut builder, "deep", a, 8, 4);
    let graph = ends_with(builder, deep);
    assert_eq!(graph.full().widths(), [4]);
    let units = graph.param_shapes()[0].dims[0];
    assert_eq!(graph.param_shapes()[2].dims[0], units.spread(2));
    assert_eq!(graph.param_shapes()[4].dims[1], units.spread(2 * 16));

    let mut builder = Builder::new("m", "x", &[2, 4, 4]).unwrap();
    let a = conv(&mut builder, "a", ValueId::INPUT, 4, 1);
    let pairs = conv(&mut builder, "pairs", a, 8, 2);
    let last = conv(&mut builder, "last", pairs, 6, 1);
    let graph = ends_with(builder, last);
    assert_eq!(graph.full().widths(), [6]);
    let groups = |layer: &str| (layer.to_owned(), "pairs", Reason::Groups);
    assert_eq!(whole(&graph), [groups("a"), groups("pairs"), ("fc".to_owned(), "y", Reason::Output)]);
    contradicts(&graph, &[3], "the 4 units of 'a' cannot be cut: at 'pairs' channels fall into groups");
}

#[test]
fn axes_that_a_reshape_merges_are_told() {
    let mut builder = Builder::new("m", "x", &[2, 4, 4]).unwrap();
    let a = conv(&mut builder, "a", ValueId::INPUT, 6, 1);
    let shaped = builder.reshape("view", a, &[3, 2, 16]).unwrap();
    let flat = builder.flatten("flat", shaped);
    let b = dense(&mut builder, "b", flat, 8);
    let graph = ends_with(builder, b);
    assert_eq!(whole(&graph)[0], ("a".to_owned(), "view", Reason::Merged));
    contradicts(&graph, &[4], "the 6 units of 'a' cannot be cut: at 'view' a reshape merges them");
}

#[test]
fn sums_of_units_at_different_places_are_told() {
    let mut builder = Builder::new("m", "x", &[2, 2, 2]).unwrap();
    let image = conv(&mut builder, "a", ValueId::INPUT, 6, 1);
    let flat = builder.flatten("flat", image);
    let units = dense(&mut builder, "b", flat, 24);
    let sum = builder.add("sum", flat, units).unwrap();
    let c = dense(&mut builder, "c", sum, 8);
    let graph = ends_with(builder, c);
    let places = |layer: &str| (layer.to_owned(), "sum", Reason::Places);
    assert_eq!(whole(&graph)[..2], [places("a"), places("b")]);
    contradicts(&graph, &[4], "'a' cannot be cut: at 'sum' they are added to units at other places");
}

#[test]
fn features_that_become_positions_are_told() {
    let mut builder = Builder::new("m", "x", &[3, 5]).unwrap();
    let mixed = dense(&mut builder, "mix", ValueId::INPUT, 8);
    let [weight, bias] = params("slide");
    let slide = builder.conv("slide", mixed, 4, 1, Kernel::line(3, 1, 1), weight, Some(bias)).unwrap();
    let graph = ends_with(builder, slide);
    assert_eq!(whole(&graph)[0], ("mix".to_owned(), "slide", Reason::Positions));
    contradicts(&graph, &[2], "the 8 units of 'mix' cannot be cut: at 'slide' they are used as positions");
    // A mean over units is another number without some of them.
    let mut builder = Builder::new("m", "x", &[3, 5]).unwrap();
    let mixed = dense(&mut builder, "mix", ValueId::INPUT, 8);
    let mean = builder.global_pool("mean", mixed).unwrap();
    let graph = ends_with(builder, mean);
    assert_eq!(whole(&graph)[0], ("mix".to_owned(), "mean", Reason::Positions));
}

#[test]
fn what_is_whole_by_design_is_told_and_not_refused() {
    let (gru, _) = zoo::by_name("shakespeare-gru").unwrap().build(0);
    let expected =
        [("embed".to_owned(), "embed", Reason::Embedding), ("fc".to_owned(), "logits", Reason::Output)];
    assert_eq!(whole(&gru), expected);
    assert_eq!(TierSpec::Rate(0.5).mask(&gru).unwrap().widths(), [512]);
    // A grouped convolution whose channels are the outputs is no error.
    let mut builder = Builder::new("m", "x", &[4, 4, 4]).unwrap();
    let a = conv(&mut builder, "a", ValueId::INPUT, 6, 1);
    let b = conv(&mut builder, "b", a, 4, 1);
    let same = conv(&mut builder, "same", b, 4, 1);
    let sum = builder.add("sum", ValueId::INPUT, same).unwrap();
    let end = conv(&mut builder, "end", sum, 4, 2);
    let end = builder.global_pool("pool", end).unwrap();
    let graph = builder.finish("y", end, None).unwrap();
    let found = whole(&graph);
    assert_eq!(found, [("same".to_owned(), "sum", Reason::Agrees), ("end".to_owned(), "y", Reason::Output)],);
    assert_eq!(TierSpec::Rate(0.5).mask(&graph).unwrap().widths(), [3, 2]);
}

#[test]
fn a_model_of_which_nothing_can_be_cut_is_refused() {
    let mut builder = Builder::new("m", "x", &[4]).unwrap();
    let a = dense(&mut builder, "a", ValueId::INPUT, 4);
    let sum = builder.add("sum", ValueId::INPUT, a).unwrap();
    let graph = ends_with(builder, sum);
    for keep_whole in [false, true] {
        let text = TierSpec::rate(0.5, keep_whole).mask(&graph).unwrap_err().to_string();
        assert!(text.contains("no hidden axis can be cut") && text.contains("'a'"), "{text}");
        assert!(text.contains("at 'sum' they must agree with a size that no tier cuts"), "{text}");
        assert!(TierSpec::rate(1.0, keep_whole).mask(&graph).is_ok());
    }
}

#[test]
fn gates_are_cut_one_by_one_and_tables_are_not() {
    let (graph, _) = zoo::by_name("shakespeare-gru").unwrap().build(0);
    assert_eq!(graph.full().widths(), [1024]);
    let blocks: Vec<Vec<u32>> = graph
        .param_shapes()
        .iter()
        .map(|shape| shape.dims.iter().map(|dim| dim.blocks()).collect())
        .collect();
    assert_eq!(blocks[1..4], [vec![3, 1], vec![3, 1], vec![6]]);
    assert_eq!(graph.param_shapes()[2].dims[1].repeated(3), graph.param_shapes()[2].dims[0]);
    assert!(graph.param_shapes()[0].dims.iter().all(Dim::is_fixed));
}

#[test]
fn the_gates_of_an_lstm_are_cut_one_by_one() {
    let (graph, parameters) = zoo::build("lstm:3-2-4-2", 0).unwrap();
    let half = graph.full().at_rate(0.5).unwrap();
    let packed = graph.gather(&half, &parameters).unwrap();
    // The first two rows of each of the four gates of W[16][2].
    let rows = [0, 1, 4, 5, 8, 9, 12, 13].iter().flat_map(|row| parameters[2 * row..][..2].to_vec());
    assert_eq!(packed[..16], rows.collect::<Vec<_>>());
    let blocks: Vec<Vec<u32>> = graph
        .param_shapes()
        .iter()
        .map(|shape| shape.dims.iter().map(|dim| dim.blocks()).collect())
        .collect();
    assert_eq!(blocks[..3], [vec![4, 1], vec![4, 1], vec![8]]);
}

#[test]
fn groups_that_do_not_divide_are_refused() {
    let mut builder = Builder::new("m", "x", &[2, 4, 4]).unwrap();
    let a = conv(&mut builder, "a", ValueId::INPUT, 8, 1);
    let norm = builder.group_norm("norm", a, Groups::Count(4), 1e-5, params("norm")).unwrap();
    let graph = ends_with(builder, norm);
    let refused = graph.slice(&graph.full().at_rate(0.7).unwrap()).unwrap_err();
    assert_eq!(refused, SliceError::Groups { node: "norm".into(), groups: 4, width: 5 });
    assert!(refused.to_string().contains("explicit widths"));
    assert!(graph.slice(&graph.full().at_widths(&[4]).unwrap()).is_ok());
    // A rate keeps as many as fall into the groups, and each group at least one.
    assert_eq!(TierSpec::Rate(0.7).mask(&graph).unwrap().widths(), [4]);
    assert_eq!(TierSpec::Rate(0.1).mask(&graph).unwrap().widths(), [4]);
}

#[test]
fn statistics_are_cut_with_their_channels() {
    let mut builder = Builder::new("m", "x", &[2, 4, 4]).unwrap();
    let a = conv(&mut builder, "a", ValueId::INPUT, 3, 1);
    let stats = Some([vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0]]);
    let norm = builder.batch_norm("norm", a, 1e-5, params("norm"), stats).unwrap();
    let graph = ends_with(builder, norm);
    let slice = graph.slice(&graph.full().at_widths(&[2]).unwrap()).unwrap();
    assert_eq!(slice.stats(), [1.0, 2.0, 4.0, 5.0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_slice_is_the_model_with_zeros_outside(seed in any::<u64>(), rate in 0.1f64..1.0) {
        let (graph, parameters) = zoo::random(seed);
        if mixes(&graph) {
            return Ok(());
        }
        let mask = graph.full().at_rate(rate).unwrap();
        let (slice, packed) = (graph.slice(&mask).unwrap(), graph.gather(&mask, &parameters).unwrap());
        let mut zeroed = vec![0.0; parameters.len()];
        scatter(graph.layout(), &mask, &packed, &mut zeroed).unwrap();
        let mut rng = Rng::new(seed);
        let samples: Vec<f32> = (0..2 * graph.inputs())
            .map(|_| match graph.tokens() {
                Some(entries) => rng.below(entries as u64) as f32,
                None => rng.unit_f32() - 0.5,
            })
            .collect();
        let (whole, cut) = (forward(&graph, &zeroed, &samples), forward(&slice, &packed, &samples));
        prop_assert!(whole.len() == cut.len());
        prop_assert!(whole.iter().zip(&cut).all(|(a, b)| (a - b).abs() < 1e-9), "{whole:?} {cut:?}");
    }
}
