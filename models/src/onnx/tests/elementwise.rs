//! Activations and arithmetic with constants.

use common::plan::{Activation, ArithmeticKind};

use super::*;
use crate::graph::{Axes, Constant};

/// The model with these nodes between `h` and `a` instead of its Relu.
fn between(nodes: Vec<NodeProto>, constants: Vec<TensorProto>) -> Result<Import, ImportError> {
    changed(|graph| {
        graph.node.splice(2..3, nodes);
        graph.initializer.extend(constants);
    })
}

fn step(op: &str, inputs: &[&str], output: &str) -> NodeProto {
    node(output, op, inputs, output, &[])
}

fn number(name: &str, number: f32) -> TensorProto {
    float_tensor(name, &[], &[number])
}

fn ops(import: &Import) -> Vec<Op> {
    import.graph.nodes().iter().map(|node| node.op).filter(|op| op.params().next().is_none()).collect()
}

/// Exports and imports again.
fn survives(import: &Import) {
    let bytes = export(&import.graph, &import.parameters, &ExportOptions::default()).unwrap();
    let (graph, parameters) = Graph::from_onnx(&bytes).unwrap();
    assert_eq!(graph.digest(graph.full()), import.graph.digest(import.graph.full()));
    assert_eq!((graph.constants(), &parameters), (import.graph.constants(), &import.parameters));
}

#[test]
fn formulas_are_recognised_in_any_order() {
    let half = || number("half", 0.5);
    let gelu = [
        // x * (1 + erf(x / sqrt 2)) * 0.5
        vec![
            step("Div", &["h", "root"], "1"),
            step("Erf", &["1"], "2"),
            step("Add", &["2", "one"], "3"),
            step("Mul", &["h", "3"], "4"),
            step("Mul", &["4", "half"], "a"),
        ],
        // (erf(x * (1 / sqrt 2)) + 1) * (0.5 * x)
        vec![
            step("Mul", &["inverse", "h"], "1"),
            step("Erf", &["1"], "2"),
            step("Add", &["one", "2"], "3"),
            step("Mul", &["half", "h"], "4"),
            step("Mul", &["3", "4"], "a"),
        ],
        // 0.5 * x * erfc(-x / sqrt 2)
        vec![
            step("Mul", &["half", "h"], "1"),
            step("Neg", &["h"], "2"),
            step("Mul", &["2", "inverse"], "3"),
            step("Erfc", &["3"], "4"),
            step("Mul", &["1", "4"], "a"),
        ],
    ];
    for nodes in gelu {
        let root = number("root", std::f32::consts::SQRT_2);
        let inverse = number("inverse", std::f32::consts::FRAC_1_SQRT_2);
        let import = between(nodes, vec![root, inverse, number("one", 1.0), half()]).unwrap();
        assert_eq!(ops(&import), [Op::Flatten, Op::Activate(Activation::Gelu)]);
        survives(&import);
    }
    let silu = vec![step("Sigmoid", &["h"], "1"), step("Mul", &["1", "h"], "a")];
    assert_eq!(ops(&between(silu, vec![]).unwrap())[1], Op::Activate(Activation::Silu));
    let swish = vec![
        step("Add", &["three", "h"], "1"),
        step("Clip", &["1", "zero", "six"], "2"),
        step("Div", &["2", "six"], "3"),
        step("Mul", &["h", "3"], "a"),
    ];
    let bounds = vec![number("three", 3.0), number("zero", 0.0), number("six", 6.0)];
    let import = between(swish, bounds).unwrap();
    assert_eq!(ops(&import)[1], Op::Activate(Activation::HardSwish));
    survives(&import);
}

#[test]
fn a_formula_with_another_reader_or_number_is_not_merged() {
    // The gate is also added.
    let nodes =
        vec![step("Sigmoid", &["h"], "1"), step("Mul", &["1", "h"], "2"), step("Add", &["1", "2"], "a")];
    let import = between(nodes, vec![]).unwrap();
    assert_eq!(ops(&import)[1..], [Op::Activate(Activation::Sigmoid), Op::Mul, Op::Add]);
    survives(&import);
    // Half of a Silu.
    let nodes =
        vec![step("Sigmoid", &["h"], "1"), step("Mul", &["1", "h"], "2"), step("Mul", &["2", "half"], "a")];
    let import = between(nodes, vec![number("half", 0.5)]).unwrap();
    let scaled = Op::Arithmetic { kind: ArithmeticKind::Mul, with: Constant::One(0.5) };
    assert_eq!(ops(&import)[1..], [Op::Activate(Activation::Silu), scaled]);
    survives(&import);
}

#[test]
fn clips_have_bounds_in_any_place() {
    let infinite = f32::INFINITY;
    let cases: [(Vec<NodeProto>, Activation); 4] = [
        (vec![step("Clip", &["h", "", "six"], "a")], Activation::Clip { min: -infinite, max: 6.0 }),
        (vec![step("Clip", &["h", "zero"], "a")], Activation::Clip { min: 0.0, max: infinite }),
        (vec![step("Min", &["six", "h"], "a")], Activation::Clip { min: -infinite, max: 6.0 }),
        (vec![step("Max", &["h", "zero"], "a")], Activation::Clip { min: 0.0, max: infinite }),
    ];
    for (nodes, kind) in cases {
        let import = between(nodes, vec![number("zero", 0.0), number("six", 6.0)]).unwrap();
        assert_eq!(ops(&import)[1], Op::Activate(kind));
        survives(&import);
    }
    let inverted = between(
        vec![step("Clip", &["h", "six", "zero"], "a")],
        vec![number("zero", 0.0), number("six", 6.0)],
    );
    assert!(inverted.unwrap_err().to_string().contains("cannot be trained"));
}

/// `x` is `[N, 2, 3]`.
fn scaled(mean: TensorProto, std: TensorProto) -> Result<Import, ImportError> {
    changed(|graph| {
        graph.node[0].input[0] = "scaled".into();
        let nodes = [step("Sub", &["x", "mean"], "centred"), step("Div", &["centred", "std"], "scaled")];
        graph.node.splice(0..0, nodes);
        graph.initializer.extend([mean, std]);
    })
}

#[test]
fn scaling_of_the_input_is_kept() {
    let whole = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let mean = |dims: &[usize]| float_tensor("mean", dims, &whole[..dims.iter().product()]);
    let std = || number("std", 2.0);
    for (dims, axes) in [
        (&[1, 2, 3][..], Axes { first: 0, count: 2 }),
        (&[2, 1], Axes { first: 0, count: 1 }),
        (&[3], Axes { first: 1, count: 1 }),
    ] {
        let import = scaled(mean(dims), std()).unwrap();
        let centred = Op::Arithmetic { kind: ArithmeticKind::Sub, with: Constant::Each(axes) };
        let divided = Op::Arithmetic { kind: ArithmeticKind::Div, with: Constant::One(2.0) };
        assert_eq!(ops(&import)[..2], [centred, divided]);
        assert_eq!(import.graph.constants(), &whole[..dims.iter().product()]);
        assert_eq!(import.parameters, changed(|_| {}).unwrap().parameters, "constants are no parameters");
        let notes = ["centred", "scaled"].map(|name| format!("'{name}' computes with"));
        let noted = |name: &String| import.notes.iter().any(|note| note.starts_with(name));
        assert!(notes.iter().all(noted), "{:?}", import.notes);
        survives(&import);
    }
}

#[test]
fn constants_are_part_of_the_digest() {
    let digest = |mean: &[f32]| {
        let graph = scaled(float_tensor("mean", &[3], mean), number("std", 2.0)).unwrap().graph;
        graph.digest(graph.full())
    };
    assert_eq!(digest(&[1.0, 2.0, 3.0]), digest(&[1.0, 2.0, 3.0]));
    assert_ne!(digest(&[1.0, 2.0, 3.0]), digest(&[1.0, 2.0, 3.5]));
}

#[test]
fn constants_of_hidden_units_are_cut_with_them() {
    let units = float_tensor("c", &[4], &[1.0, 2.0, 3.0, 4.0]);
    let import = between(vec![step("Mul", &["c", "h"], "a")], vec![units]).unwrap();
    let half = import.graph.full().at_rate(0.5).unwrap();
    assert_eq!(import.graph.gather_constants(&half), [1.0, 2.0]);
    let weights = import.graph.weights(&half, &import.parameters).unwrap();
    assert_eq!(weights[..2], [1.0, 2.0]);
    assert_eq!(weights[2..], import.graph.gather(&half, &import.parameters).unwrap());
    let slice = import.graph.slice(&half).unwrap();
    assert_eq!(slice.digest(slice.full()), import.graph.digest(&half));
    let plan = compile(&import.graph, &half, &PlanOptions::train(1)).unwrap();
    let checked = plan.plan().unwrap();
    assert_eq!((checked.frozen(), checked.trained()), (2, weights.len() - 2));
}

#[test]
fn arithmetic_that_cannot_be_kept_is_refused() {
    let refused = |nodes: Vec<NodeProto>, constant: TensorProto| {
        between(nodes, vec![constant]).unwrap_err().to_string()
    };
    let zero = refused(vec![step("Div", &["h", "c"], "a")], float_tensor("c", &[4], &[1.0, 0.0, 1.0, 1.0]));
    assert!(zero.contains("node 'a' (Div): divides by a constant 0"), "{zero}");
    let converse = refused(vec![step("Div", &["c", "h"], "a")], number("c", 1.0));
    assert!(converse.contains("divides a constant by a computed value"), "{converse}");
    let shape = refused(vec![step("Mul", &["h", "c"], "a")], float_tensor("c", &[3], &[1.0; 3]));
    assert!(shape.contains("a constant of shape [3] does not fit samples of [4]"), "{shape}");
    // 1 - x is kept.
    let import = between(vec![step("Sub", &["c", "h"], "a")], vec![number("c", 1.0)]).unwrap();
    let kinds: Vec<_> = ops(&import)[1..].iter().map(Op::name).collect();
    assert_eq!(kinds, ["Mul (constant)", "Add (constant)"]);
    survives(&import);
}

#[test]
fn equal_slopes_that_an_exporter_has_merged_are_separate_parameters() {
    let nodes = vec![step("PRelu", &["h", "s"], "1"), step("PRelu", &["1", "s"], "a")];
    let import = between(nodes, vec![float_tensor("s", &[4], &[0.25; 4])]).unwrap();
    let slopes = import.graph.params().iter().filter(|param| param.name.starts_with('s')).count();
    assert_eq!(slopes, 2);
    survives(&import);
}
