//! Optimisers against PyTorch's (`tests/fixtures/optimizers.py` prints the numbers) and against manual computations.

use common::brief::{Brief, Objective, Optimizer};

use crate::train::{
    apply,
    test_plan::{Options, PLAIN, TestPlan},
};

const WEIGHTS: [f64; 4] = [0.5, -1.25, 2.0, 0.03125];
const GRADIENT: [f64; 4] = [0.25, -0.5, 1.0, 0.0625];

/// Three steps with `g_i = GRADIENT_i * t - 0.1`.
fn three_steps(brief: &Brief) -> [f64; 4] {
    let plan = TestPlan::new(&[2, 2], 1, Options { moments: 2, bias: false, guide: true, ..PLAIN });
    let mut arena = vec![0.0; plan.info.arena as usize];
    arena[..4].copy_from_slice(&WEIGHTS);
    let grads = plan.info.segments.grads.unwrap() as usize;
    for step in 1..4u32 {
        for (at, gradient) in GRADIENT.iter().enumerate() {
            arena[grads + at] = gradient * f64::from(step) - 0.1;
        }
        apply(plan.plan(), &mut arena, brief, step, 1.0).unwrap();
    }
    [arena[0], arena[1], arena[2], arena[3]]
}

fn check(brief: &Brief, expected: [f64; 4]) {
    let got = three_steps(brief);
    for (got, want) in got.iter().zip(expected) {
        // Settings are f32 in a Brief, so 0.1 is not quite PyTorch's 0.1.
        assert!((got - want).abs() < 2e-7, "{:?}: {got} {want}", brief.optimizer);
    }
}

fn with(optimizer: Optimizer) -> Brief {
    Brief { optimizer, ..Brief::sgd(1, 1, 0.1, 1) }
}

#[test]
fn steps_are_those_of_pytorch() {
    let sgd = |momentum, nesterov, decay| with(Optimizer::Sgd { momentum, nesterov, decay });
    check(&sgd(0.0, false, 0.0), [0.38, -0.92, 1.43, 0.02375]);
    check(&sgd(0.0, false, 0.05), [0.3728870625, -0.90249209375, 1.4019975, 0.023258683594]);
    check(&sgd(0.9, false, 0.0), [0.31835, -0.7184, 1.1051, 0.0279125]);
    check(&sgd(0.9, true, 0.05), [0.198057699187, -0.396751914781, 0.5528418525, 0.019352113113]);
    check(&with(Optimizer::ADAM), [0.213858320065, -0.955878093491, 1.708833037377, 0.094013430186]);
    let adamw = Optimizer::Adam { beta1: 0.8, beta2: 0.95, epsilon: 1e-6, decay: 0.05 };
    check(&with(adamw), [0.203612193642, -0.935744671649, 1.676970624929, 0.079260581837]);
    let clip = Brief { clip: Some(0.5), ..with(Optimizer::default()) };
    check(&clip, [0.474548775655, -1.174205778629, 1.873303329939, 0.031110137084]);
}

/// `w1 = w0 - lr * (c*g + prox*(w0 - 0))` by hand: the anchor is zero here.
#[test]
fn parts_of_the_objective_by_hand() {
    let plan = TestPlan::new(&[1, 1], 1, Options { bias: false, guide: true, ..PLAIN });
    let segments = plan.info.segments;
    let step = |objective: Objective, clip: Option<f32>, factor: f64| {
        let mut arena = vec![0.0f64; plan.info.arena as usize];
        arena[0] = 2.0;
        arena[segments.anchor.unwrap() as usize] = 1.0;
        arena[segments.grads.unwrap() as usize] = 4.0;
        arena[segments.guide.unwrap() as usize] = -8.0;
        let brief = Brief { objective, clip, ..Brief::sgd(1, 1, 0.5, 1) };
        apply(plan.plan(), &mut arena, &brief, 1, factor).unwrap();
        arena[0]
    };
    assert_eq!(step(Objective::default(), None, -1.0), 4.0);
    assert_eq!(step(Objective { prox: 0.5, ..Objective::default() }, None, 1.0), -0.25);
    assert_eq!(step(Objective { align: 0.25, ..Objective::default() }, None, 1.0), 1.5);
    let all = Objective { align: 0.25, prox: 0.5, ..Objective::default() };
    assert_eq!(step(all.clone(), None, 2.0), -0.25);
    // The gradient of 4.5 is clipped to 1.
    assert_eq!(step(all, Some(1.0), 2.0), 1.5);
}
