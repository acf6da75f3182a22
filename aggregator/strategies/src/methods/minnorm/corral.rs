//! The independent vectors of Wolfe's algorithm, with a Cholesky factor that grows and shrinks with them.
//!
//! The nearest point of the plane through S has the weights `y = u / sum u` with `(G_S + 1 1^T) u = 1`. The factor L of that
//! matrix gains a row when a vector is added, and loses one by rotations when a vector is removed. Each costs O(|S|^2) instead
//! of O(|S|^3). `z = L^-1 1` is updated along with L.

use crate::methods::minnorm::{Products, add_scaled, dot};

/// Weights up to this count as 0.
const TINY: f64 = 1e-13;
/// Smallest square of a diagonal element: below, the vector lies in the plane of the others.
const PIVOT: f64 = 1e-15;

#[derive(Debug)]
pub struct Corral<'a> {
    /// The longest vector has length 1.
    unit: &'a Products,
    members: Vec<usize>,
    weights: Vec<f64>,
    /// Rows of the lower triangle.
    factor: Vec<Vec<f64>>,
    z: Vec<f64>,
}

impl<'a> Corral<'a> {
    pub fn new(unit: &'a Products, first: usize) -> Self {
        let mut corral = Self { unit, members: vec![], weights: vec![], factor: vec![], z: vec![] };
        corral.add(first);
        corral.weights = vec![1.0];
        corral
    }

    pub fn contains(&self, index: usize) -> bool {
        self.members.contains(&index)
    }

    /// Of all vectors.
    pub fn weights(&self) -> Vec<f64> {
        let mut all = vec![0.0; self.unit.len()];
        self.members.iter().zip(&self.weights).for_each(|(&member, &weight)| all[member] = weight);
        all
    }

    /// Adds a vector with weight 0.
    pub fn add(&mut self, index: usize) {
        let mut row: Vec<f64> =
            self.members.iter().map(|&member| self.unit.at(index, member) + 1.0).collect();
        for i in 0..row.len() {
            let own = &self.factor[i];
            row[i] = (row[i] - dot(&own[..i], &row[..i])) / own[i];
        }
        let own = self.unit.at(index, index) + 1.0;
        let diagonal = (own - dot(&row, &row)).max(PIVOT * own).sqrt();
        self.z.push((1.0 - dot(&row, &self.z)) / diagonal);
        row.push(diagonal);
        self.factor.push(row);
        self.members.push(index);
        self.weights.push(0.0);
    }

    /// Moves to the nearest point of the plane, dropping vectors that would get no weight on the way.
    pub fn settle(&mut self) {
        while let Some(target) = self.target() {
            if target.iter().all(|&weight| weight > TINY) || self.members.len() == 1 {
                self.weights = target;
                return;
            }
            let reach = |(&from, &to): (&f64, &f64)| {
                let way = from - to;
                if to > TINY {
                    1.0
                } else if way > 0.0 {
                    from / way
                } else {
                    0.0
                }
            };
            let theta = self.weights.iter().zip(&target).map(reach).fold(1.0, f64::min);
            for (weight, to) in self.weights.iter_mut().zip(&target) {
                *weight = (1.0 - theta) * *weight + theta * to;
            }
            let least = (0..self.weights.len()).min_by(|&i, &j| self.weights[i].total_cmp(&self.weights[j]));
            for place in (0..self.weights.len()).rev() {
                if self.weights[place] <= TINY || Some(place) == least {
                    self.remove(place);
                }
            }
            let all: f64 = self.weights.iter().sum();
            self.weights.iter_mut().for_each(|weight| *weight /= all);
        }
    }

    /// Weights of the nearest point of the plane; `None` if no vector is left.
    fn target(&self) -> Option<Vec<f64>> {
        let mut y = self.z.clone();
        for i in (0..y.len()).rev() {
            let row = &self.factor[i];
            y[i] /= row[i];
            let own = y[i];
            add_scaled(&mut y[..i], -own, &row[..i]);
        }
        let all: f64 = y.iter().sum();
        y.iter_mut().for_each(|weight| *weight /= all);
        (!y.is_empty()).then_some(y)
    }

    /// The rows below the removed one have one number too many; rotations of neighbouring columns clear it.
    fn remove(&mut self, place: usize) {
        self.members.remove(place);
        self.weights.remove(place);
        self.factor.remove(place);
        for i in place..self.factor.len() {
            let (a, b) = (self.factor[i][i], self.factor[i][i + 1]);
            let length = a.hypot(b).max(f64::MIN_POSITIVE);
            let (cos, sin) = (a / length, b / length);
            let turn = |pair: &mut [f64]| {
                if let [x, y] = pair {
                    (*x, *y) = (cos * *x + sin * *y, cos * *y - sin * *x);
                }
            };
            self.factor[i..].iter_mut().for_each(|row| turn(&mut row[i..i + 2]));
            turn(&mut self.z[i..i + 2]);
            self.factor[i].truncate(i + 1);
        }
        self.z.truncate(self.factor.len());
    }
}
