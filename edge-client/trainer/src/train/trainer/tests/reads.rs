//! Which samples are read, and when.

use core::cell::RefCell;

use super::*;
use crate::data::DataError;

/// The small shard without its test samples, with a callback for every sample that is read.
struct Watched<F>(VecShard, F);

impl<F: Fn(u32, &mut [f32])> Shard for Watched<F> {
    fn train_len(&self) -> u32 {
        self.0.train_len()
    }
    fn test_len(&self) -> u32 {
        0
    }
    fn inputs(&self) -> u32 {
        self.0.inputs()
    }
    fn classes(&self) -> u32 {
        self.0.classes()
    }
    fn label(&self, part: DataSplit, index: u32) -> Result<u32, DataError> {
        self.0.label(part, index)
    }
    fn sample(&self, part: DataSplit, index: u32, out: &mut [f32]) -> Result<u32, DataError> {
        let label = self.0.sample(part, index, out);
        self.1(index, out);
        label
    }
}

/// The scalars and weights of the brief, and the samples that were read, pass by pass.
fn watch(brief: Brief) -> (Scalars, Vec<f32>, Vec<Vec<u32>>) {
    let read = RefCell::new(vec![]);
    let shard = Watched(small(), |index, _: &mut [f32]| read.borrow_mut().push(index));
    let plan = small_plan(PLAIN);
    let mut arena = plan.arena(1, |x| x as f32);
    let scalars = run(&Task::Train(brief), &plan, &mut arena, &shard, &mut Portable::plain()).unwrap();
    arena.truncate(plan.info.params as usize);
    let passes = read.borrow().chunks(50).map(<[_]>::to_vec).collect();
    (scalars, arena, passes)
}

#[test]
fn every_sample_is_seen_once_per_epoch() {
    let (scalars, _, mut passes) = watch(Brief { loss_after: false, ..brief() });
    assert_eq!((scalars.test, scalars.loss_after), (None, None));
    assert_eq!(passes.len(), 3);
    assert!(passes[1] != passes[2] && passes[1] != passes[0], "epochs are shuffled differently");
    passes.iter_mut().for_each(|pass| pass.sort_unstable());
    assert!(passes.iter().all(|pass| pass.iter().copied().eq(0..50)));
}

#[test]
fn a_running_loss_saves_a_pass_and_leaves_the_weights_unchanged() {
    let plain = Brief { loss_after: false, ..brief() };
    let running = Brief { running: true, ..plain.clone() };
    let (evaluated, model, passes) = watch(plain);
    let (noted, same, fewer) = watch(running.clone());
    assert_eq!((&same, &fewer[..]), (&model, &passes[1..]));
    assert_eq!((noted.samples, noted.steps), (evaluated.samples, evaluated.steps));
    // The model improves during the epoch.
    assert!(noted.loss_before < evaluated.loss_before && noted.loss_before > 0.5 * evaluated.loss_before);
    // Without a step it is the loss of the received model.
    let still = |running| watch(Brief { lr: 1e-12, running, ..brief() }).0.loss_before;
    assert!((still(true) - still(false)).abs() < 1e-6, "{} {}", still(true), still(false));
    let gradient = watch(Brief { product: Product::Gradient, ..running });
    assert_eq!(gradient.0.loss_before, evaluated.loss_before);
}

#[test]
fn nan_inputs_are_named() {
    let broken = |index: u32, out: &mut [f32]| {
        if index == 3 {
            out[2] = f32::NAN;
        }
    };
    let (plan, shard) = (small_plan(PLAIN), Watched(small(), broken));
    let mut arena = plan.arena(1, |x| x as f32);
    let error = run(&Task::Evaluate(None), &plan, &mut arena, &shard, &mut Portable::plain()).unwrap_err();
    assert_eq!(error, DataError::NonFinite { index: 3, feature: 2 }.into());
    assert_eq!(error.code(), Code::WrongData);
}
