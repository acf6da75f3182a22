//! A step does not allocate on the portable backend, nor on the fast one with AVX-512. Otherwise only `matrixmultiply`'s
//! packing buffer is allocated, one per product.
#![cfg(feature = "host")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(unsafe_code, reason = "an allocator that counts")]

extern crate fairtier_trainer as trainer;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use common::{
    RunId,
    brief::{Brief, GroupReport, Laplace, Optimizer, Product, Signal},
    message::{Alone, Task, Ticket},
    plan::{Activation, Loss, PoolKind, RecurrentKind},
    privacy::Secret,
};
use trainer::{
    data::{Samples, VecShard},
    train::{Backend, Fast, Portable, PrivateState, Work, WorkProgress},
};

use crate::plan::{Builder, Options, PLAIN, TestPlan, window};

#[path = "support/plan.rs"]
mod plan;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all calls are forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(f: impl FnOnce()) -> usize {
    let before = COUNT.with(Cell::get);
    f();
    COUNT.with(Cell::get) - before
}

/// Two plans contain all operations, one for images and one for sequences. The third one is for noise, which supports neither
/// batch normalisation nor tokens.
fn plans() -> [TestPlan; 3] {
    let options = Options { moments: 2, in_place: true, guide: true, personal: true, ..PLAIN };
    let (mut b, x) = Builder::new(2 * 8 * 8, 4);
    let x = b.conv(x, 4, 1, window(8, 8, 3, 1, 1));
    let x = b.batchnorm(x, 4);
    let x = b.relu(x);
    let x = b.conv(x, 4, 4, window(8, 8, 3, 1, 1));
    let x = b.norm(x, 2, 2, false);
    let side = b.conv(x, 4, 1, window(8, 8, 1, 1, 0));
    let x = b.add(side, x);
    let x = b.activate(x, Activation::LeakyRelu { slope: 0.1 });
    let x = b.pool(x, PoolKind::Max, window(8, 8, 2, 2, 0));
    let x = b.pool(x, PoolKind::Average, window(4, 4, 4, 1, 0));
    let x = b.dropout(x, 0.2, 1);
    let x = b.scale(x, 2.0);
    let _ = b.dense(x, 1, 3);
    let image = b.finish(Loss::Softmax { classes: 3 }, options);
    let (mut b, x) = Builder::new(6, 4);
    let x = b.embed(x, 3, 5);
    let x = b.gru(x, 6, 4, true);
    let x = b.gru(x, 6, 4, false);
    let x = b.recurrent(x, 6, 4, RecurrentKind::Lstm);
    let x = b.recurrent(x, 6, 4, RecurrentKind::Tanh);
    let x = b.last(x, 6);
    let _ = b.dense(x, 1, 3);
    let text = b.finish(Loss::Softmax { classes: 3 }, options);
    [image, text, TestPlan::new(&[40, 7, 3], 4, options)]
}

/// Calls `each` around every step of every kind of task.
fn work<B: Backend<f32>>(
    plan: &TestPlan,
    backend: &mut B,
    mut each: impl FnMut(&mut B, &mut dyn FnMut(&mut B)),
) {
    let inputs = plan.info.inputs as usize;
    let samples = Samples::new(vec![1.0; 9 * inputs], vec![2; 9], inputs).unwrap();
    let samples = samples.with_attributes(&[0, 1, 0, 1, 0, 1, 0, 1, 0], 2).unwrap();
    let shard = VecShard::new(samples.clone(), samples).unwrap();
    let mut arena = plan.arena(1, |x| x as f32);
    let plain =
        Brief { loss_after: true, clip: Some(1.0), optimizer: Optimizer::ADAM, ..Brief::sgd(2, 4, 0.01, 1) };
    let mut full = Brief {
        product: Product::Both,
        groups: Some(GroupReport { signal: Signal::CrossEntropy, cap: 5.0 }),
        gap: true,
        personal: Some(0.1),
        ..plain.clone()
    };
    full.objective.groups = heapless::Vec::from_slice(&[1.0, 1.0, 1.0, 1.0, 0.5, 1.5]).unwrap();
    let mut noisy = Brief { product: Product::Gradient, ..plain.clone() };
    noisy.privacy = Some(Laplace { sums: 1.0, clip_l1: 1.0, update: 0.1 });
    noisy.privacy = noisy.privacy.filter(|_| Work::check(&Task::Train(noisy.clone()), plan.plan()).is_ok());
    assert_eq!(noisy.privacy.is_some(), inputs == 40);
    let alone = Alone { brief: plain.clone(), window: 1, tolerance: 0.0 };
    let private =
        PrivateState { baseline: Some(0.5), secret: Some(Secret::simulated(1)), ..PrivateState::default() };
    let ticket = Ticket { run: RunId(1), round: 1, exchange: 0, attempt: 0 };
    for task in [
        Task::Train(plain.clone()),
        Task::Train(full),
        Task::Train(noisy),
        Task::Alone(alone),
        Task::Try(heapless::Vec::from_slice(&[0.1, 0.2]).unwrap()),
    ] {
        let mut work = Work::begin_as(private, ticket, &task, plan.plan(), &mut arena, &shard).unwrap();
        let mut done = false;
        while !done {
            each(backend, &mut |backend| {
                let progress = work.step(plan.plan(), &mut arena, &shard, backend).unwrap();
                done = matches!(progress, WorkProgress::Done(_));
            });
        }
        assert_eq!(count(|| _ = work.finish(plan.plan(), &mut arena).unwrap()), 0);
    }
}

#[test]
fn the_portable_backend_never_allocates() {
    for plan in plans() {
        work(&plan, &mut Portable::plain(), |backend, step| assert_eq!(count(|| step(backend)), 0));
        work(&plan, &mut Portable::fused(), |backend, step| assert_eq!(count(|| step(backend)), 0));
    }
}

#[test]
fn own_kernels_never_allocate_and_others_once_per_product() {
    for plan in plans() {
        let mut fast = Fast::new();
        // The first call allocates the buffers for columns and panels.
        work(&plan, &mut fast, |fast, step| step(fast));
        if fast.is_wide() {
            work(&plan, &mut fast, |fast, step| assert_eq!(count(|| step(fast)), 0));
        }
        let mut fast = Fast::general();
        work(&plan, &mut fast, |fast, step| step(fast));
        let mut products = vec![];
        work(&plan, &mut fast, |fast, step| {
            fast.start_record();
            step(fast);
            products.push(fast.take_record().len());
        });
        let mut products = products.into_iter();
        let mut total = 0;
        work(&plan, &mut fast, |fast, step| {
            let allocations = count(|| step(fast));
            total += allocations;
            assert_eq!(Some(allocations), products.next());
        });
        assert!(total > 100);
    }
}
