use common::rng::Rng;
use proptest::prelude::*;

use crate::{
    algebra::Products,
    methods::minnorm::{bounded::gap, *},
};

fn products(rows: &[Vec<f64>]) -> Products {
    Products::new(rows.len(), |i, j| dot(&rows[i], &rows[j]))
}

fn point(rows: &[Vec<f64>], weights: &[f64]) -> Vec<f64> {
    let mut point = vec![0.0; rows.first().map_or(0, Vec::len)];
    rows.iter().zip(weights).for_each(|(row, &weight)| add_scaled(&mut point, weight, row));
    point
}

fn random(rng: &mut Rng, count: usize, size: usize) -> Vec<Vec<f64>> {
    (0..count).map(|_| (0..size).map(|_| rng.normal()).collect()).collect()
}

/// Checks that the weights are in the simplex and that no vector lies behind the point.
#[track_caller]
fn check(rows: &[Vec<f64>]) -> Vec<f64> {
    let products = products(rows);
    let weights = min_norm(&products);
    assert_eq!(weights.len(), rows.len());
    assert!(weights.iter().all(|&weight| (0.0..=1.0 + 1e-12).contains(&weight)), "{weights:?}");
    assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    let left = residual(&products, &weights);
    assert!(left <= 1e-8, "residual {left:e}");
    point(rows, &weights)
}

fn norm(vector: &[f64]) -> f64 {
    dot(vector, vector).sqrt()
}

/// The nearest point of every plane through a subset, by Gauss elimination; the nearest one inside its hull.
fn by_all_subsets(rows: &[Vec<f64>]) -> Vec<f64> {
    let products = products(rows);
    let mut best: Option<Vec<f64>> = None;
    for subset in 1u32..1 << rows.len() {
        let members: Vec<usize> = (0..rows.len()).filter(|i| subset >> i & 1 == 1).collect();
        let size = members.len() + 1;
        let mut system = vec![vec![0.0; size + 1]; size];
        for (a, &i) in members.iter().enumerate() {
            (system[0][a + 1], system[a + 1][0]) = (1.0, 1.0);
            for (b, &j) in members.iter().enumerate() {
                system[a + 1][b + 1] = products.at(i, j);
            }
        }
        system[0][size] = 1.0;
        let Some(solution) = gauss(system) else { continue };
        if solution[1..].iter().any(|&weight| weight < -1e-12) {
            continue;
        }
        let mut weights = vec![0.0; rows.len()];
        members.iter().zip(&solution[1..]).for_each(|(&i, &weight)| weights[i] = weight);
        let candidate = point(rows, &weights);
        if best.as_ref().is_none_or(|best| norm(&candidate) < norm(best)) {
            best = Some(candidate);
        }
    }
    best.unwrap()
}

fn gauss(mut system: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let size = system.len();
    for column in 0..size {
        let pivot =
            (column..size).max_by(|&i, &j| system[i][column].abs().total_cmp(&system[j][column].abs()))?;
        system.swap(column, pivot);
        if system[column][column].abs() < 1e-10 {
            return None;
        }
        for row in (0..size).filter(|&row| row != column) {
            let factor = system[row][column] / system[column][column];
            let top = system[column].clone();
            add_scaled(&mut system[row], -factor, &top);
        }
    }
    Some((0..size).map(|i| system[i][size] / system[i][i]).collect())
}

#[test]
fn small_cases() {
    assert_eq!(min_norm(&products(&[])), Vec::<f64>::new());
    assert_eq!(min_norm(&products(&[vec![3.0, 4.0]])), [1.0]);
    assert_eq!(check(&[vec![0.0; 3], vec![0.0; 3]]), [0.0; 3]);
    assert_eq!(check(&[vec![1.0, 0.0], vec![0.0; 2]]), [0.0; 2]);
    assert_eq!(check(&[vec![1.0, 0.0], vec![-1.0, 0.0]]), [0.0; 2]);
    let p = check(&[vec![2.0, 0.0], vec![0.0, 2.0]]);
    assert!((p[0] - 1.0).abs() < 1e-14 && (p[1] - 1.0).abs() < 1e-14);
    // The nearest point is a corner.
    assert_eq!(check(&[vec![1.0, 0.0], vec![2.0, 1.0], vec![5.0, -1.0]]), [1.0, 0.0]);
}

#[test]
fn duplicates_do_no_harm() {
    let mut rng = Rng::new(4);
    for size in [2, 5, 30] {
        let rows = random(&mut rng, 6, size);
        let once = check(&rows);
        let mut twice = rows.clone();
        twice.extend(rows.iter().cloned());
        twice.extend(rows[..2].iter().cloned());
        let mut gap = check(&twice);
        add_scaled(&mut gap, -1.0, &once);
        assert!(norm(&gap) < 1e-7, "{gap:?}");
        check(&vec![rows[0].clone(); 50]);
        // Duplicates up to rounding, and up to the precision of products.
        for beside in [1e-16, 1e-12, 1e-9, 1e-8, 3e-8, 1e-7, 1e-6] {
            let shaken = rows.iter().flat_map(|row| {
                let shake = |value: &f64| value * (1.0 + beside * 1.7) + beside;
                [row.clone(), row.iter().map(shake).collect()]
            });
            check(&shaken.collect::<Vec<_>>());
        }
    }
}

#[test]
fn the_origin_in_the_hull_gives_zero() {
    let mut rng = Rng::new(7);
    for size in [1, 2, 3, 10, 40] {
        let mut rows = random(&mut rng, 60, size);
        let opposite = rows.iter().take(20).map(|row| row.iter().map(|value| -0.7 * value).collect());
        rows = rows.iter().cloned().chain(opposite.collect::<Vec<_>>()).collect();
        assert!(norm(&check(&rows)) < 1e-6);
    }
}

#[test]
fn many_rows_of_every_kind() {
    let mut rng = Rng::new(1);
    for (count, size) in [(200, 3), (200, 50), (200, 199), (220, 220), (200, 1000)] {
        let rows = random(&mut rng, count, size);
        check(&rows);
        // All on one side, as gradients of similar devices are.
        check(&rows.iter().map(|row| row.iter().map(|value| value + 0.5).collect()).collect::<Vec<_>>());
        // Lengths over twelve orders.
        let stretched = rows.iter().enumerate().map(|(i, row)| {
            let factor = 10f64.powi(i as i32 % 13 - 6);
            row.iter().map(|value| value * factor).collect()
        });
        check(&stretched.collect::<Vec<_>>());
        // Rank 2 and some zeros.
        let flat = (0..count).map(|i| {
            let (a, b) = (1.0 + rng.unit_f64(), rng.normal());
            (0..size).map(|at| if i % 50 == 49 { 0.0 } else { a * rows[0][at] + b * rows[1][at] }).collect()
        });
        check(&flat.collect::<Vec<_>>());
    }
}

#[test]
fn simplex_projection() {
    let x = project(&[0.6, 0.7, -0.1], &[0.0; 3], &[1.0; 3]);
    for (x, expected) in x.iter().zip([0.45, 0.55, 0.0]) {
        assert!((x - expected).abs() < 1e-15, "{x}");
    }
    // Limits that leave one point only.
    assert_eq!(project(&[9.0, -3.0], &[0.25, 0.75], &[0.25, 0.75]), [0.25, 0.75]);
}

#[test]
fn boxes_of_many_rows() {
    let mut rng = Rng::new(3);
    for (count, size) in [(200, 3), (200, 1000), (120, 60)] {
        let mut rows = random(&mut rng, count, size);
        rows[7] = rows[8].clone();
        rows[9] = vec![0.0; size];
        let products = products(&rows);
        for eps in [0.0, 0.001, 0.004, 0.02, 0.5] {
            let middle = 1.0 / count as f64;
            let (lo, hi) = (vec![f64::max(middle - eps, 0.0); count], vec![middle + eps; count]);
            let x = min_norm_in_box(&products, &lo, &hi);
            assert!((x.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            assert!(x.iter().all(|x| (lo[0]..=hi[0]).contains(x)));
            let scale = products.longest().powi(2);
            assert!(gap(&products, &x, &lo, &hi) <= 1e-8 * scale, "{count} x {size}, {eps}");
        }
    }
}

proptest! {
    #[test]
    fn agrees_with_all_subsets(seed: u64, count in 1usize..6, size in 1usize..6, shift in -1.0f64..2.0) {
        let mut rng = Rng::new(seed);
        let mut rows = random(&mut rng, count, size);
        rows.iter_mut().flatten().for_each(|value| *value += shift);
        let mut found = check(&rows);
        add_scaled(&mut found, -1.0, &by_all_subsets(&rows));
        let scale = rows.iter().map(|row| norm(row)).fold(0.0, f64::max);
        prop_assert!(norm(&found) <= 1e-6 * scale, "{found:?}");
    }

    #[test]
    fn agrees_with_projected_gradient(seed: u64, count in 1usize..30, size in 1usize..40, zeros in 0usize..2) {
        let mut rng = Rng::new(seed);
        let mut rows = random(&mut rng, count, size);
        rows.extend(vec![vec![0.0; size]; zeros]);
        let products = products(&rows);
        let mut found = check(&rows);
        let limits = (vec![0.0; rows.len()], vec![1.0; rows.len()]);
        let bounded = min_norm_in_box(&products, &limits.0, &limits.1);
        let residual = residual(&products, &bounded);
        prop_assert!(residual <= 1e-8);
        // The squared distance to the nearest point is at most the residual. With many more vectors than dimensions, the
        // residual stops falling earlier.
        add_scaled(&mut found, -1.0, &point(&rows, &bounded));
        prop_assert!(norm(&found) <= (2e-6 + residual.max(0.0).sqrt()) * products.longest());
    }

    #[test]
    fn projections_are_nearest(seed: u64, count in 1usize..12, width in 0.0f64..1.0) {
        let mut rng = Rng::new(seed);
        let v: Vec<f64> = (0..count).map(|_| rng.normal()).collect();
        let middle = 1.0 / count as f64;
        let (lo, hi) = (vec![middle - width; count], vec![middle + width; count]);
        let x = project(&v, &lo, &hi);
        prop_assert!((x.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        // The remainder v - x must not point to any corner: for every pair, moving weight does not come closer.
        for i in 0..count {
            for j in 0..count {
                let room = (hi[j] - x[j]).min(x[i] - lo[i]);
                prop_assert!(room <= 1e-12 || (v[j] - x[j]) - (v[i] - x[i]) <= 1e-9);
            }
        }
    }
}
