//! A slice computes what the whole model computes when everything outside of the slice is 0, and axes that
//! must agree are one.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use common::{rng::Rng, slice::scatter};
use models::{
    Graph,
    graph::{Builder, Groups, Kernel, Op, Param, SliceError, ValueId},
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
    assert_eq!(d.dims[0].axis, graph.param_shapes()[0].dims[0].axis);
    assert_eq!((fc.dims[1].axis, fc.dims[1].inner), (d.dims[0].axis, 16));
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
    assert_eq!(graph.param_shapes()[2].dims[0].inner, 2);
    assert_eq!(graph.param_shapes()[4].dims[1].inner, 2 * 16);

    let mut builder = Builder::new("m", "x", &[2, 4, 4]).unwrap();
    let a = conv(&mut builder, "a", ValueId::INPUT, 4, 1);
    let pairs = conv(&mut builder, "pairs", a, 8, 2);
    assert!(ends_with(builder, pairs).full().widths().is_empty());
}

#[test]
fn gates_are_cut_one_by_one_and_tables_are_not() {
    let (graph, _) = zoo::by_name("shakespeare-gru").unwrap().build(0);
    assert_eq!(graph.full().widths(), [1024]);
    let blocks: Vec<Vec<u32>> =
        graph.param_shapes().iter().map(|shape| shape.dims.iter().map(|dim| dim.blocks).collect()).collect();
    assert_eq!(blocks[1..4], [vec![3, 1], vec![3, 1], vec![6]]);
    assert_eq!(graph.param_shapes()[2].dims[1].axis, graph.param_shapes()[2].dims[0].axis);
    assert!(graph.param_shapes()[0].dims.iter().all(|dim| dim.axis.is_none()));
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
