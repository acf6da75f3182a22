//! Two gateways on a real PostgreSQL, with real devices: one serves, the other takes over. Nothing acknowledged is lost or counted
//! twice, and every round's model equals that of one gateway with redb.
//!
//! `FAIRTIER_FAULTS=200` sets the number of faults (default 6), `FAIRTIER_SEED` their order and times.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use aggregator::store::{DiskStore, Options, Store};
use common::rng::Rng;
use fleet::{
    gateway::{Gateway, lasting_address},
    postgres::{self, Postgres},
    process::{Process, wait_for},
    tools::leave_out,
};
use serde_json::Value;

use crate::service::get;

const DEVICES: [&str; 3] = ["cam-0", "cam-1", "cam-2"];
const NODES: [&str; 2] = ["gw", "gw-2"];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn config(rounds: u64) -> String {
    format!(
        "run = {{ rounds = {rounds}, min_devices = 3 }}\nround = {{ quorum = 1.0, deadline_s = 600 }}\n\
         strategy = {{ name = \"heterofl\" }}\nserver = {{ listen = \"127.0.0.1:0\" }}\nstore = {{ keep_models = 100000 }}\n"
    )
}

/// Two gateways of one fleet, and what they share.
struct Cluster {
    /// The directory of the first gateway; that of the second is beside it.
    home: Gateway,
    postgres: Postgres,
    addresses: [String; 2],
    gateways: [Option<Process>; 2],
}

impl Cluster {
    /// Not started. `None` if PostgreSQL is not installed.
    fn new(rounds: u64) -> Option<Self> {
        let Some(postgres) = Postgres::start() else {
            leave_out(postgres::missing());
            return None;
        };
        let home = Gateway::new("", &DEVICES);
        Process::start("init", "gateway", &["init", &home.text("gw-2")]).succeed();
        let addresses = [lasting_address(), lasting_address()];
        let this = Self { home, postgres, addresses, gateways: [None, None] };
        for node in NODES {
            this.configure(node, rounds, "");
            let args = ["cluster", "init", "--dir", &this.home.text(node)];
            Process::start("cluster init", "gateway", &args).succeed();
        }
        Some(this)
    }

    fn configure(&self, node: &str, rounds: u64, more: &str) {
        let (database, dir) = (self.postgres.url(), self.home.text("shared"));
        let cluster = format!(
            "[cluster]\ndatabase = \"{database}\"\nobjects = \"file://{dir}/objects\"\nshared = \"{dir}\"\n\
             node = \"{node}\"\nlease_s = 2.0\n{more}"
        );
        fs::write(self.home.path(node).join("fairtier.toml"), config(rounds) + &cluster).unwrap();
    }

    fn start(&mut self, index: usize) {
        let dir = self.home.text(NODES[index]);
        let args = ["serve", "--dir", &dir, "--listen", &self.addresses[index], "--metrics", "127.0.0.1:0"];
        let mut gateway = Process::start(NODES[index], "gateway", &args);
        gateway.wait_line("standby on ");
        self.gateways[index] = Some(gateway);
    }

    fn gateway(&mut self, index: usize) -> &mut Process {
        self.gateways[index].as_mut().unwrap()
    }

    fn devices(&self) -> Vec<Process> {
        let list = self.addresses.join(",");
        let start = |(name, share): (&&str, &str)| {
            let identity = self.home.text(&format!("{name}.pem"));
            let args = ["run", "--server", &list, "--identity", &identity, "--data-seed", "7"];
            let more = ["--share", share, "--data", "digits", "--silence", "3"];
            Process::start(name, "device", &[&args[..], &more].concat())
        };
        DEVICES.iter().zip(["0/3", "1/3", "2/3"]).map(start).collect()
    }

    fn sql(&self, query: &str) -> String {
        self.postgres.sql(query)
    }

    /// Waits until a gateway leads, with this epoch or a later one.
    fn wait_leader(&self, epoch: u64) -> usize {
        wait_for(&format!("a leader with epoch {epoch}"), || {
            let row = self.sql(
                "select epoch, node from leader l where exists (select 1 from pg_stat_activity a \
                 where a.pid = l.pid and a.backend_start = l.started)",
            );
            let (found, node) = row.split_once('|')?;
            let index = NODES.iter().position(|name| *name == node)?;
            (found.parse::<u64>().unwrap() >= epoch).then_some(index)
        })
    }

    fn epoch(&self) -> u64 {
        self.sql("select epoch from leader").parse().unwrap()
    }

    fn committed(&self) -> u64 {
        self.sql("select coalesce((select next_round - 1 from run), 0)").parse().unwrap()
    }

    fn wait_committed(&self, rounds: u64) -> u64 {
        wait_for(&format!("round {rounds} to be committed"), || {
            Some(self.committed()).filter(|&committed| committed >= rounds)
        })
    }

    fn reports(&self) -> Vec<Value> {
        let text = self.sql("select report from report order by round");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The bytes of the model of every committed round, from 1.
    fn models(&self) -> Vec<Vec<u8>> {
        let names = self.sql("select object from model where round > 0 and dropped is null order by round");
        names.lines().map(|name| fs::read(self.home.path("shared/objects").join(name)).unwrap()).collect()
    }
}

/// Rounds whose update a device logged as accepted.
fn acknowledged(output: &str) -> Vec<u64> {
    let lines = output.lines().filter_map(|line| line.split_once("update accepted")?.1.split_once("round="));
    lines.map(|(_, rest)| rest.split_whitespace().next().unwrap().parse().unwrap()).collect()
}

/// The models of one gateway with redb and the same devices.
fn undisturbed(rounds: u64) -> Vec<Vec<u8>> {
    let gateway = Gateway::new(&config(rounds), &DEVICES);
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    let shares = ["0/3", "1/3", "2/3"];
    let devices: Vec<_> =
        DEVICES.iter().zip(shares).map(|(name, share)| gateway.device(&serving, name, share, &[])).collect();
    devices.into_iter().for_each(|device| drop(device.succeed()));
    serving.process.succeed();
    let options = Options { keep_models: 100_000, ..Options::default() };
    let store = DiskStore::open(&gateway.path("gw/store"), options).unwrap();
    let bytes = |round| -> Vec<u8> {
        let parameters = store.parameters(round as u32).unwrap().unwrap();
        parameters.iter().flat_map(|value| value.to_le_bytes()).collect()
    };
    (1..=rounds).map(bytes).collect()
}

#[derive(Copy, Clone, Debug)]
enum Fault {
    /// The leader is killed and started again.
    Kill,
    /// The leader is stopped, and goes on after another gateway has led.
    Stop,
    /// The database ends as in a power cut.
    Database,
}

#[test]
fn faults_of_leader_and_database_lose_nothing_and_give_the_models_of_one_gateway() {
    let (faults, seed) = (number("FAIRTIER_FAULTS", 6), number("FAIRTIER_SEED", 7));
    let Some(mut cluster) = Cluster::new(1_000_000) else { return };
    let mut rng = Rng::new(seed);
    (0..2).for_each(|index| cluster.start(index));
    let devices = cluster.devices();
    cluster.wait_committed(2);
    let mut takeovers = 0;
    let kinds = [Fault::Kill, Fault::Stop, Fault::Database];
    let mut plan: Vec<Fault> = (0..faults as usize).map(|index| kinds[index % 3]).collect();
    rng.shuffle(&mut plan);
    for (index, fault) in plan.iter().enumerate() {
        let before = cluster.epoch();
        let leader = cluster.wait_leader(before);
        // At any moment of a round.
        thread::sleep(Duration::from_micros((300_000.0 * rng.unit_f64()) as u64));
        match fault {
            Fault::Kill => {
                cluster.gateways[leader].take().unwrap().kill();
                cluster.start(leader);
                cluster.wait_leader(before + 1);
            }
            Fault::Stop => {
                cluster.gateway(leader).signal("STOP");
                let other = cluster.wait_leader(before + 1);
                assert_ne!(other, leader, "seed {seed}, fault {index}");
                cluster.gateway(leader).signal("CONT");
            }
            Fault::Database => {
                cluster.postgres.restart_immediately();
                cluster.wait_leader(before);
            }
        }
        takeovers += cluster.epoch() - before;
        // The fleet goes on before the next fault.
        cluster.wait_committed(cluster.committed() + 1);
    }
    cluster.wait_committed(cluster.committed() + 1);
    devices.iter().for_each(Process::terminate);
    let outputs: Vec<_> = devices.into_iter().map(Process::succeed).collect();
    for gateway in cluster.gateways.iter_mut().filter_map(Option::take) {
        gateway.terminate();
        gateway.succeed();
    }

    let (reports, committed) = (cluster.reports(), cluster.committed());
    let mut counted = BTreeMap::<(String, u64), usize>::new();
    for (report, round) in reports.iter().zip(1..) {
        assert_eq!(report["round"].as_u64(), Some(round), "seed {seed}: every round is closed once");
        for device in report["devices"].as_array().unwrap() {
            *counted.entry((device["device"].as_str().unwrap().to_owned(), round)).or_default() += 1;
        }
    }
    assert_eq!(reports.len() as u64, committed);
    assert!(counted.values().all(|&times| times == 1), "seed {seed}: counted twice");
    assert_eq!(counted.len() as u64, 3 * committed, "seed {seed}: a round was closed without all devices");
    let mut receipts = 0;
    for (device, output) in DEVICES.iter().zip(&outputs) {
        let acknowledged = acknowledged(output);
        assert!(acknowledged.is_sorted_by(|a, b| a < b), "seed {seed}: {device}: {acknowledged:?}");
        receipts += acknowledged.len();
        for &round in &acknowledged {
            let query = format!("select count(*) from receipt where round = {round} and device = '{device}'");
            let kept = counted.contains_key(&((*device).to_owned(), round)) || cluster.sql(&query) == "1";
            assert!(kept, "seed {seed}: {device}'s update of round {round} is lost");
        }
    }
    assert!(receipts as u64 > committed, "the devices' own records were read: {receipts}");
    println!("{faults} faults, {takeovers} takeovers, {committed} rounds, {receipts} receipts, seed {seed}");
    let (models, expected) = (cluster.models(), undisturbed(committed));
    assert_eq!(models.len(), expected.len());
    for (round, (model, expected)) in (1..).zip(models.iter().zip(&expected)) {
        assert!(model == expected, "seed {seed}: the model of round {round} differs");
    }
}

#[test]
fn a_standby_says_so_refuses_devices_and_takes_over_when_the_leader_stops() {
    let Some(mut cluster) = Cluster::new(1_000_000) else { return };
    cluster.start(0);
    let first = cluster.wait_leader(1);
    assert_eq!(first, 0);
    cluster.gateway(0).wait_line("listening on ");
    cluster.start(1);
    let http: Vec<String> = (0..2)
        .map(|index| cluster.gateway(index).wait_line("metrics on http://").replace("/metrics", ""))
        .collect();
    assert_eq!(get(&http[0], "/readyz"), (200, "ready\n".into()));
    assert_eq!(get(&http[1], "/readyz"), (503, "standby\n".into()));
    assert_eq!(get(&http[1], "/healthz"), (200, "ok\n".into()));
    let devices = cluster.devices();
    let committed = cluster.wait_committed(2);
    let status = |node: &str| {
        let args = ["cluster", "status", "--format", "json", "--dir", &cluster.home.text(node)];
        let output = Process::start("status", "gateway", &args).succeed();
        serde_json::from_str::<Value>(output.lines().last().unwrap()).unwrap()
    };
    let seen = status("gw-2");
    assert_eq!((&seen["leader"], &seen["epoch"]), (&Value::from("gw"), &Value::from(1)));
    let roles: Vec<_> = seen["gateways"].as_array().unwrap().iter().map(|gateway| &gateway["role"]).collect();
    assert_eq!(roles, ["leads", "standby"], "{seen}");
    // Commands work beside both gateways: a device that is revoked at the standby is gone at the leader.
    let revoke = |node: &str, device: &str| {
        let args = ["revoke", "--dir", &cluster.home.text(node), device];
        Process::start("revoke", "gateway", &args).succeed()
    };
    revoke("gw-2", "cam-2");
    let lost =
        |device: &Process| wait_for("the revocation", || device.output().contains("E30").then_some(()));
    lost(&devices[2]);
    // It stops as for an update: the standby need not wait for the end of the lease.
    let leader = cluster.gateways[0].take().unwrap();
    leader.terminate();
    let output = leader.succeed();
    assert!(output.contains("the lease is given up"), "{output}");
    assert_eq!(cluster.wait_leader(2), 1);
    cluster.gateway(1).wait_line("listening on ");
    assert_eq!(get(&http[1], "/readyz"), (200, "ready\n".into()));
    cluster.start(0);
    for device in &devices[..2] {
        wait_for("the devices at the other gateway", || {
            let address = &cluster.addresses[1];
            device.output().contains(&format!("trying {address}")).then_some(())
        });
    }
    assert!(cluster.committed() >= committed);
    // Histories and models are files of the leader.
    let history = ["history", "--dir", &cluster.home.text("gw-2"), "--format", "csv"];
    let lines = Process::start("history", "gateway", &history).succeed();
    assert!(lines.lines().count() as u64 > committed, "{lines}");
    assert!(cluster.home.path("gw-2/model.onnx").exists());
    for (command, more) in [("verify", &[][..]), ("rollback", &["--to", "1"])] {
        let dir = cluster.home.text("gw-2");
        let args = [&[command, "--dir", &dir], more].concat();
        let output = Process::start(command, "gateway", &args).fail();
        assert!(output.contains("in the database of a cluster"), "{output}");
    }
}

#[test]
fn a_gateway_that_does_not_fit_its_cluster_does_not_start() {
    let Some(mut cluster) = Cluster::new(10) else { return };
    let init = |node: &str| ["cluster", "init", "--dir", node].map(str::to_owned);
    let start = |args: &[String]| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Process::start(args[0], "gateway", &args)
    };
    // Again: nothing changes.
    let before = links(&cluster.home.path("gw"));
    start(&init(&cluster.home.text("gw"))).succeed();
    assert_eq!(links(&cluster.home.path("gw")), before);
    assert!(before.iter().all(|link| link.starts_with(cluster.home.path("shared"))), "{before:?}");
    let serve = |dir: &str| start(&["serve", "--dir", dir, "--listen", "127.0.0.1:0"].map(str::to_owned));
    // Its own certificates.
    let gw2 = cluster.home.path("gw-2");
    fs::remove_file(gw2.join("identity")).unwrap();
    fs::rename(gw2.join("identity.before"), gw2.join("identity")).unwrap();
    let output = serve(&cluster.home.text("gw-2")).fail();
    assert!(output.contains("another authority"), "{output}");
    start(&init(&cluster.home.text("gw-2"))).succeed();
    // A run that is not in the database.
    fs::create_dir_all(gw2.join("store")).unwrap();
    fs::write(gw2.join("store/fairtier.redb"), "").unwrap();
    let output = serve(&cluster.home.text("gw-2")).fail();
    assert!(output.contains("not in the cluster's database"), "{output}");
    fs::remove_file(gw2.join("store/fairtier.redb")).unwrap();
    cluster.sql("alter database fleet set synchronous_commit = off");
    let output = serve(&cluster.home.text("gw-2")).fail();
    assert!(output.contains("synchronous_commit = off"), "{output}");
    cluster.configure("gw-2", 10, "allow_loss = true\n");
    cluster.start(1);
    assert_eq!(cluster.wait_leader(1), 1);
}

/// Where the shared files of a gateway are.
fn links(dir: &Path) -> Vec<PathBuf> {
    ["identity", "revoked.jsonl"].map(|name| fs::read_link(dir.join(name)).unwrap()).to_vec()
}
