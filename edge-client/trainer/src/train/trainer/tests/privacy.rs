//! Noise on what is reported and sent.

use common::brief::{GroupReport, Laplace, Signal};

use super::{
    super::noise::{Noise, Use},
    *,
};

fn work(secret: u64, privacy: Option<Laplace>, residual: bool) -> (Scalars, Vec<f32>) {
    let plan = logistic(4, Options { residual, ..PLAIN });
    let mut arena = plan.arena(1, |x| x as f32);
    arena[..2].copy_from_slice(&[0.3, -0.2]);
    if residual {
        arena[segment(&plan, plan.info.segments.residual)].copy_from_slice(&[10.0, 20.0]);
    }
    let groups = Some(GroupReport { signal: Signal::CrossEntropy, cap: 5.0 });
    let task = Task::Train(Brief { privacy, groups, ..brief() });
    let own = Own { secret, ..Own::default() };
    let samples = ten().with_attributes(&[0, 1, 0, 1, 0, 1, 0, 1, 0, 1], 2).unwrap();
    let (scalars, work) =
        run_as(own, &task, &plan, &mut arena, &shard(samples), &mut Portable::plain()).unwrap();
    work.finish(plan.plan(), &mut arena).unwrap();
    (scalars, arena[segment(&plan, plan.info.segments.anchor)].to_vec())
}

#[test]
fn sums_and_updates_carry_the_devices_own_noise() {
    let (plain, update) = work(9, None, false);
    let laplace = Laplace { sums: 2.0, clip_l1: 1e6, update: 0.5 };
    let (noisy, sent) = work(9, Some(laplace), false);
    let mut sums = Noise::new(9, brief().seed, Use::Sums);
    for (noisy, plain) in noisy.group_losses.iter().zip(&plain.group_losses) {
        assert_eq!(*noisy, plain + sums.draw(2.0));
    }
    let mut noise = Noise::new(9, brief().seed, Use::Update);
    for (sent, &plain) in sent.iter().zip(&update) {
        assert_eq!(*sent, (f64::from(plain) + noise.draw(0.5)) as f32);
    }
    // What else would tell the same losses is made of the noised ones, or kept back.
    let mean = noisy.group_losses.iter().sum::<f64>() / 10.0;
    assert_eq!((noisy.loss_before, noisy.loss_after), (mean.max(0.0), None));
    assert!(plain.loss_after.is_some());
    assert_eq!(noisy.group_counts, plain.group_counts);

    let (other, elsewhere) = work(10, Some(laplace), false);
    assert!(other.group_losses != noisy.group_losses && elsewhere != sent);
    assert_eq!(work(9, Some(laplace), false), (noisy, sent));
}

#[test]
fn updates_are_cut_before_what_the_codec_owes_is_added() {
    let cut = Laplace { sums: 0.0, clip_l1: 1e-3, update: 0.0 };
    let (plain, update) = work(9, None, false);
    let norm: f32 = update.iter().map(|value| value.abs()).sum();
    assert!(norm > 1e-2);
    let (scalars, sent) = work(9, Some(cut), false);
    assert_eq!(scalars.group_losses, plain.group_losses);
    assert_close(&sent, &[0, 1].map(|at| f64::from(update[at]) * 1e-3 / f64::from(norm)));
    let (_, owed) = work(9, Some(cut), true);
    assert_eq!(owed, [sent[0] + 10.0, sent[1] + 20.0]);
    let loose = Laplace { clip_l1: 1e3, ..cut };
    assert_eq!(work(9, Some(loose), false).1, update);
}

#[test]
fn senseless_noise_is_refused() {
    let plan = logistic(4, Options { guide: true, ..PLAIN });
    let fine = Laplace { sums: 1.0, clip_l1: 1.0, update: 1.0 };
    let check = |privacy, product| {
        let task = Task::Train(Brief { privacy: Some(privacy), product, ..brief() });
        Work::check(&task, plan.plan()).map_err(|error| error.code())
    };
    assert_eq!(check(fine, Product::Update), Ok(()));
    assert_eq!(check(fine, Product::Both), Err(Code::BadConfig));
    for wrong in [
        Laplace { sums: -1.0, ..fine },
        Laplace { update: f32::NAN, ..fine },
        Laplace { clip_l1: 0.0, ..fine },
    ] {
        assert_eq!(check(wrong, Product::Update), Err(Code::BadConfig));
    }
}
