//! Compares the time of a simulated round with the time of its matrix products alone. The products are those of its
//! devices, computed by `matrixmultiply` on memory of the same shape, with the same number of threads, in the same
//! run.
//!
//! `cargo bench -p sim`. 100 devices with 600 samples of 784 values each in 5 tiers, one local epoch, batch 50, SGD,
//! all devices in every round. A ratio of 1 means that samples, activations, losses, transfers, checks and
//! aggregation are free. A second case has the 797,962 parameters of FedEBA+'s CNN: 10 devices with 500 images, full
//! width.
#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::{
    collections::HashMap,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use aggregator::config::Config;
use common::{Tier, plan::Plan, rng::Rng};
use fairtier_sim::{
    data::{DataSet, DeviceShard, Features, Records, TestSource},
    engine::{Chances, DeviceSpec, Engine, Hardware},
};
use strategies::tiered::TieredModel;
use trainer::train::{
    Backend, Descent, Fast, GemmWrite, GradTarget, MatrixProduct, MatrixView, MatrixViewMut, PassMode,
    TargetLabels, backward, forward, loss_and_gradient,
};

const ROUNDS: u32 = 12;

struct Case {
    name: &'static str,
    model: &'static str,
    widths: &'static str,
    tiers: usize,
    devices: usize,
    samples: u32,
    inputs: usize,
    /// Whether the loss of the received model is evaluated on the whole shard, or taken from the training steps.
    evaluated: bool,
}

fn main() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{threads} threads, medians of {ROUNDS} rounds");
    println!("{:<44} {:>11} {:>9} {:>6}", "", "products ms", "round ms", "ratio");
    let mnist = Case {
        name: "MNIST MLP, 100 x 600, 5 tiers",
        model: "mnist-mlp",
        widths: "[1.0, 0.7, 0.5, 0.25, 0.125]",
        tiers: 5,
        devices: 100,
        samples: 600,
        inputs: 784,
        evaluated: false,
    };
    let cnn = Case {
        name: "CNN 797,962, 10 x 500, full width",
        model: "cifar-cnn-5x5",
        widths: "[1.0]",
        tiers: 1,
        devices: 10,
        samples: 500,
        inputs: 3 * 32 * 32,
        evaluated: false,
    };
    let losses = Case { name: "  with losses of whole shards", evaluated: true, ..mnist };
    let cnn_losses = Case { name: "  with losses of whole shards", evaluated: true, ..cnn };
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    for case in [mnist, losses, cnn, cnn_losses] {
        if only.as_ref().is_some_and(|only| !case.model.contains(only.as_str())) {
            continue;
        }
        let mut engine = case.engine(threads);
        let products = case.products(&engine.worker().conductor.run.model);
        let (mut bare, mut whole) = (vec![], vec![]);
        let mut mark = Instant::now();
        // Alternates both, so that a change of clock speed affects them equally.
        engine
            .run(|_, _| {
                whole.push(mark.elapsed());
                bare.push(repeat(&products, threads));
                mark = Instant::now();
            })
            .unwrap();
        // The first round runs with cold caches, and the last one only evaluates.
        whole.pop();
        bare.pop();
        let (bare, whole) = (median(&bare[1..]), median(&whole[1..]));
        let ratio = whole.as_secs_f64() / bare.as_secs_f64();
        println!("{:<44} {:>11.1} {:>9.1} {ratio:>6.2}", case.name, millis(bare), millis(whole));
    }
}

impl Case {
    fn engine(&self, threads: usize) -> Engine {
        let loss = if self.evaluated { "received" } else { "running" };
        let config = format!(
            "run = {{ rounds = {ROUNDS} }}\n\
             model = {{ source = \"{}\", tiers = {} }}\n\
             training = {{ epochs = 1, batch = 50, lr = 0.05, loss = \"{loss}\" }}\n\
             strategy = {{ name = \"heterofl\" }}\n\
             guard = {{ mode = \"off\" }}\n",
            self.model, self.widths,
        );
        let len = self.devices * self.samples as usize;
        let mut rng = Rng::new(1);
        let bytes = (0..len * self.inputs).map(|_| rng.below(256) as u8).collect();
        let labels = (0..len as u16).map(|at| (at % 10).into()).collect();
        let images =
            Records::new(Features::Bytes { data: bytes, scale: 1.0 / 255.0 }, labels, self.inputs, 1);
        let set = DataSet::new("bytes", vec![self.inputs], 10, images.unwrap(), Records::default());
        let set = Arc::new(set.unwrap());
        let shard = |index: usize| {
            let own = index as u32 * self.samples..(index as u32 + 1) * self.samples;
            DeviceShard::new(set.clone(), own.collect(), [].into(), TestSource::Train).unwrap()
        };
        let member = |index: usize| DeviceSpec {
            device: format!("d{index:03}").parse().unwrap(),
            tier: Tier::new(self.tier(index)).unwrap(),
            hardware: Hardware::default(),
            shard: Arc::new(shard(index)),
        };
        let members = (0..self.devices).map(member).collect();
        Engine::new(
            &strategies::Registry::standard(),
            &Config::parse(&config).unwrap(),
            members,
            Chances::default(),
            threads,
        )
        .unwrap()
    }

    /// The products of each device in a round.
    fn products(&self, model: &TieredModel) -> Vec<Work> {
        let work = |index: usize| {
            let tier = &model.plans[index];
            let plan = Plan::check(&tier.info, &tier.nodes, &tier.schedule).unwrap();
            let mut arena = vec![0.01f32; tier.info.arena as usize];
            let (rows, labels) = (usize::from(tier.info.batch), [3; 50]);
            let truth = TargetLabels { labels: &labels, per_row: 1 };
            let mut fast = Fast::new();
            let mode = PassMode::Train { seed: 1, step: 0 };
            fast.start_record();
            forward(plan, &mut arena, rows, mode, &mut fast).unwrap();
            let scoring = Products::new(&fast.take_record());
            fast.start_record();
            forward(plan, &mut arena, rows, mode, &mut fast).unwrap();
            loss_and_gradient(plan, &mut arena, rows, rows as u32, &truth).unwrap();
            backward(plan, &mut arena, rows, mode, GradTarget::Weights(Descent::new(1e-6)), &mut fast)
                .unwrap();
            let training = Products::new(&fast.take_record());
            (training, if self.evaluated { scoring } else { Products::default() })
        };
        let works: Vec<_> = (0..self.tiers).map(work).collect();
        let steps = self.samples.div_ceil(50) as usize;
        (0..self.devices).map(|index| Work { products: works[self.tier(index)].clone(), steps }).collect()
    }

    fn tier(&self, index: usize) -> usize {
        index * self.tiers / self.devices
    }
}

/// The products of one device: those of a step and of a scored batch, repeated `steps` times.
struct Work {
    products: (Products, Products),
    steps: usize,
}

/// Products of one pass. Operands with the same address share a buffer, so that caches behave as in training.
#[derive(Clone, Default)]
struct Products {
    list: Vec<(MatrixProduct, [usize; 3])>,
    buffers: Vec<Vec<f32>>,
}

impl Products {
    fn new(list: &[MatrixProduct]) -> Self {
        let (mut places, mut made) = (HashMap::new(), Self::default());
        for product in list {
            let [m, k, n] = product.sizes;
            let [a, b, c] = product.strides;
            let spans = [(m, k, a), (k, n, b), (m, n, c)];
            let mut at = [0; 3];
            for ((address, (rows, columns, strides)), at) in product.at.iter().zip(spans).zip(&mut at) {
                *at = *places.entry(*address).or_insert(made.buffers.len());
                if *at == made.buffers.len() {
                    made.buffers.push(vec![]);
                }
                let len = (rows - 1) * strides.0 + (columns - 1) * strides.1 + 1;
                let buffer = &mut made.buffers[*at];
                buffer.resize(buffer.len().max(len), 0.01);
            }
            made.list.push((*product, at));
        }
        made
    }

    fn multiply(&mut self, fast: &mut Fast) {
        for (MatrixProduct { sizes: [m, k, n], strides: [a, b, c], add, .. }, at) in &self.list {
            let mut result = std::mem::take(&mut self.buffers[at[2]]);
            let a = MatrixView { data: &self.buffers[at[0]], rows: *m, columns: *k, strides: *a };
            let b = MatrixView { data: &self.buffers[at[1]], rows: *k, columns: *n, strides: *b };
            // The added value is tiny, so that the numbers do not grow.
            let store = if *add { GemmWrite::Add(1e-20) } else { GemmWrite::Replace };
            fast.gemm(a, b, store, MatrixViewMut { data: &mut result, rows: *m, columns: *n, stride: c.0 });
            self.buffers[at[2]] = result;
        }
    }
}

/// Time of the products of all devices on this many threads.
fn repeat(work: &[Work], threads: usize) -> Duration {
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut fast = Fast::general();
                while let Some(work) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (mut training, mut scoring) = work.products.clone();
                    (0..work.steps).for_each(|_| scoring.multiply(&mut fast));
                    (0..work.steps).for_each(|_| training.multiply(&mut fast));
                    black_box((&training, &scoring));
                }
            });
        }
    });
    start.elapsed()
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[times.len() / 2]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
