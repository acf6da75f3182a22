use super::*;

fn port(at: u32, grad: Option<u32>) -> Operand {
    Operand { at, grad: grad.map(|at| Grad { at, add: false }) }
}

/// 3 inputs, dense 2, relu, for 4 samples.
fn plan() -> (PlanInfo, [Node; 2]) {
    let info = PlanInfo {
        digest: 1,
        inputs: 3,
        outputs: 2,
        loss: Loss::Softmax { classes: 2 },
        batch: 4,
        params: 8,
        stats: 0,
        segments: Segments { anchor: Some(8), grads: Some(16), ..Segments::default() },
        input: 24,
        logits: 36,
        arena: 52,
        nodes: 2,
        forward: 2,
        schedule: 0,
    };
    let dense = Node {
        op: Op::Dense { rows: 1, inputs: 3, outputs: 2, weight: 0, bias: Some(6) },
        input: port(24, None),
        second: None,
        output: 36,
        output_grad: Some(44),
        keep: None,
        scratch: None,
    };
    let relu = Op::Activate { kind: Activation::Relu, len: 2 };
    (info, [dense, Node { op: relu, input: port(36, Some(44)), ..dense }])
}

#[test]
fn a_good_plan_passes() {
    let (info, nodes) = plan();
    let plan = Plan::check(&info, &nodes, &[]).unwrap();
    assert_eq!((plan.macs(), info.arena_bytes(), info.targets()), (6, 208, 1));
    let order: std::vec::Vec<_> = plan.backward().map(|(node, pass)| (node.op, pass)).collect();
    assert_eq!(order, [(nodes[1].op, Pass::Backward), (nodes[0].op, Pass::Backward)]);
}

#[test]
fn a_schedule_is_followed() {
    let (mut info, nodes) = plan();
    let copy = [nodes[0], nodes[1], nodes[0]];
    (info.nodes, info.schedule) = (3, 3);
    let steps = [(2, Pass::Forward), (1, Pass::Backward), (0, Pass::Backward)];
    let steps = steps.map(|(node, pass)| BackwardStep { node, pass });
    let plan = Plan::check(&info, &copy, &steps).unwrap();
    assert_eq!(plan.forward().len(), 2);
    assert_eq!(
        plan.backward().map(|(_, pass)| pass).collect::<std::vec::Vec<_>>(),
        steps.map(|step| step.pass)
    );
    let wrong = [BackwardStep { node: 3, pass: Pass::Forward }, steps[1], steps[2]];
    assert_eq!(Plan::check(&info, &copy, &wrong).unwrap_err(), PlanError::Inconsistent);
}

#[test]
fn offsets_outside_the_arena_are_refused() {
    let (info, nodes) = plan();
    let broken = |change: &dyn Fn(&mut PlanInfo, &mut [Node; 2])| {
        let (mut info, mut nodes) = (info, nodes);
        change(&mut info, &mut nodes);
        Plan::check(&info, &nodes, &[]).unwrap_err()
    };
    assert_eq!(broken(&|i, _| i.arena = 51), PlanError::OutOfBounds(0));
    assert_eq!(broken(&|i, _| i.batch = u16::MAX), PlanError::OutOfBounds(0));
    assert_eq!(broken(&|i, _| i.params = 7), PlanError::Inconsistent);
    assert_eq!(broken(&|i, _| i.stats = 1), PlanError::Inconsistent);
    assert_eq!(broken(&|i, _| i.loss = Loss::Softmax { classes: 0 }), PlanError::Inconsistent);
    assert_eq!(broken(&|i, _| i.loss = Loss::Softmax { classes: 3 }), PlanError::Inconsistent);
    assert_eq!(broken(&|_, n| n[1].output_grad = Some(u32::MAX)), PlanError::OutOfBounds(1));
    assert_eq!(broken(&|_, n| n[0].input = port(24, Some(3))), PlanError::OutOfBounds(0));
    assert_eq!(broken(&|_, n| n[0].input = port(24, Some(24))), PlanError::Overlap(0));
    assert_eq!(broken(&|_, n| n[1].input = port(37, None)), PlanError::Overlap(1));
    assert_eq!(broken(&|_, n| n[1].output_grad = Some(36)), PlanError::Overlap(1));
    assert_eq!(broken(&|_, n| n[0].second = Some(port(24, None))), PlanError::Unsound(0));
    let huge = Op::Dense { rows: u32::MAX, inputs: 3, outputs: u32::MAX, weight: u32::MAX, bias: None };
    assert_eq!(broken(&|i, n| (n[0].op, i.inputs) = (huge, 3)), PlanError::Inconsistent);
    assert_eq!(broken(&|i, _| i.nodes = 3), PlanError::Incomplete { announced: 3, got: 2 });
    assert_eq!(broken(&|i, _| i.batch = 0), PlanError::Inconsistent);
}

#[test]
fn windows_give_the_sizes_of_the_published_models() {
    let same = Window { height: 32, width: 32, kernel: [3, 3], stride: [1, 1], pad: [1; 4] };
    assert_eq!(same.output(), (32, 32));
    let pool = Window { kernel: [2, 2], stride: [2, 2], pad: [0; 4], ..same };
    assert_eq!(pool.output(), (16, 16));
    let conv =
        Op::Conv(Conv { inputs: 32, outputs: 32, groups: 1, window: same, weight: 0, bias: Some(9216) });
    assert_eq!(conv.macs(), 32 * 32 * 32 * 288);
    assert_eq!(conv.parameters()[0], Some((0, 9216)));
    let too_large = Window { kernel: [40, 1], ..same };
    assert_eq!(too_large.output().0, 0);
    let whole_padding = Window { pad: [3, 0, 0, 0], ..same };
    assert!(!Op::Pool(Pool { kind: PoolKind::Max, channels: 1, window: whole_padding }).is_sound());
}

#[test]
fn a_recurrent_node_needs_its_scratch_memory() {
    let gru =
        Gru { steps: 5, inputs: 3, units: 2, reset_after: true, weight: 0, recurrent: 18, bias: Some(30) };
    assert_eq!(Op::Gru(gru).parameters(), [Some((0, 18)), Some((18, 12)), Some((30, 12))]);
    assert_eq!((Op::Gru(gru).keep(), Op::Gru(gru).scratch()), (40, 42));
    let (info, nodes) = plan();
    let info = PlanInfo { inputs: 15, outputs: 10, arena: 1000, params: 42, nodes: 1, forward: 1, ..info };
    let info = PlanInfo { segments: Segments::default(), input: 42, logits: 102, ..info };
    let node = Node { op: Op::Gru(gru), input: port(42, None), output: 102, output_grad: None, ..nodes[0] };
    assert_eq!(Plan::check(&info, &[node], &[]).unwrap_err(), PlanError::Unsound(0));
    let roomy = Node { keep: Some(142), ..node };
    assert!(Plan::check(&info, &[roomy], &[]).is_ok());
}

#[test]
fn an_lstm_keeps_its_gates_and_cells() {
    let lstm = Recurrent {
        kind: RecurrentKind::Lstm,
        steps: 5,
        inputs: 3,
        units: 2,
        weight: 0,
        recurrent: 24,
        bias: Some(40),
    };
    let plain = Op::Recurrent(Recurrent { kind: RecurrentKind::Tanh, ..lstm });
    let op = Op::Recurrent(lstm);
    assert_eq!(op.sizes(), (15, 10));
    assert_eq!(op.parameters(), [Some((0, 24)), Some((24, 16)), Some((40, 16))]);
    assert_eq!((op.keep(), op.scratch(), op.macs()), (50, 4, 200));
    assert_eq!(plain.parameters(), [Some((0, 6)), Some((24, 4)), Some((40, 4))]);
    assert_eq!((plain.keep(), plain.scratch(), plain.macs()), (10, 2, 50));
    let most = Recurrent { steps: u32::MAX, inputs: u32::MAX, units: u32::MAX, ..lstm };
    assert_eq!((Op::Recurrent(most).keep(), Op::Recurrent(most).macs()), (u64::MAX, u64::MAX));
    assert!(core::mem::size_of_val(&lstm) < core::mem::size_of::<Op>(), "a convolution is the largest op");
}

#[test]
fn a_store_refuses_more_nodes_than_it_has_room_for() {
    let (info, _) = plan();
    let refused = PlanStore::<1>::new(info).unwrap_err();
    assert_eq!(refused, PlanError::TooManyNodes { nodes: 2, room: 1 });
}
