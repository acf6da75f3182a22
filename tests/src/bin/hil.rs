//! placeholder
use fleet::hil::{
    self,
    boards::BenchBoard,
    run::{self, Boards},
};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let seed: u64 = a[1].parse().unwrap();
    let rounds: u32 = a[2].parse().unwrap();
    let fleet = hil::fleet(seed);
    let s = format!("{{ name = \"fairheterofl\", params = {} }}", a[3]);
    let t0 = std::time::Instant::now();
    let o = run::contest_with(
        &fleet,
        &BenchBoard::all(),
        Boards::StoodInFor,
        seed,
        rounds,
        ["{ name = \"heterofl\" }", &s],
        &a[4],
    );
    for o in &o {
        let l = o.last();
        println!(
            "mean {:.4} var {:.5} acc {:.3} {:?}",
            l.loss.mean,
            l.loss.variance,
            l.accuracy.mean,
            l.loss_by_tier.iter().map(|t| (t.mean * 1000.0).round() / 1000.0).collect::<Vec<_>>()
        );
    }
    println!(
        "var {:+.1} % mean {:+.1} % {:?}",
        100.0 * (o[1].last().loss.variance / o[0].last().loss.variance - 1.0),
        100.0 * (o[1].last().loss.mean / o[0].last().loss.mean - 1.0),
        t0.elapsed()
    );
}
