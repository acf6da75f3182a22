//! The store of a cluster on a real PostgreSQL: takeovers, lost answers, clocks that differ.

use std::{
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    thread,
    time::Duration,
};

use common::rng::Rng;
use coordinator::best::{BestBy, Measured};

use super::*;

#[path = "../../../../tests/src/postgres.rs"]
#[allow(dead_code, reason = "the end-to-end tests use all of it")]
mod server;

use server::Postgres;

/// A server with tables, and what its gateways share.
struct Fleet {
    postgres: Postgres,
    dir: TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Fleet {
    /// `None` if PostgreSQL is not installed.
    fn new() -> Option<Self> {
        let Some(postgres) = Postgres::start() else {
            let line = format!("left out: {:?}: {}\n", thread::current().name(), server::missing());
            std::io::stderr().write_all(line.as_bytes()).unwrap();
            return None;
        };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let this = Self { postgres, dir: TempDir::new().unwrap(), runtime };
        this.runtime.block_on(async {
            let database = ClusterDatabase::connect(&this.options("init")).await.unwrap();
            assert_eq!(database.migrate().await.unwrap(), (0, 1));
            assert_eq!(database.migrate().await.unwrap(), (1, 1));
            assert!(database.adopt_authority(b"authority").await.unwrap());
            assert!(!database.adopt_authority(b"another").await.unwrap());
        });
        Some(this)
    }

    fn options(&self, node: &str) -> PostgresOptions {
        self.options_at(node, &self.postgres.url())
    }

    fn options_at(&self, node: &str, url: &str) -> PostgresOptions {
        let objects = format!("file://{}/objects", self.dir.path().display());
        let mut options = PostgresOptions::new(node, url, &objects, false).unwrap();
        options.authority = b"authority".to_vec();
        options
    }

    fn lead(&self, options: &PostgresOptions) -> Lead {
        self.runtime.block_on(Candidate::new(options.clone()).wait()).unwrap()
    }

    /// Whether a gateway gets the lead within some looks.
    fn gets_lead(&self, node: &str) -> Option<Lead> {
        let mut candidate = Candidate::new(self.options(node));
        let soon = Duration::from_millis(1500);
        self.runtime
            .block_on(async { tokio::time::timeout(soon, candidate.wait()).await })
            .ok()
            .map(Result::unwrap)
    }

    fn open(&self, lead: &Lead, options: &PostgresOptions) -> PostgresStore {
        let dir = self.dir.path().join(&options.node);
        fs::create_dir_all(&dir).unwrap();
        PostgresStore::open(lead, options, &dir, Options::default()).unwrap()
    }

    /// The lease ends although its leader lives.
    fn end_lease(&self) {
        self.postgres.sql("update leader set until = '-infinity', pid = 0");
    }
}

/// The contract on a store of a new cluster.
pub fn on_new_store(check: impl Fn(&mut dyn Store)) {
    let Some(fleet) = Fleet::new() else { return };
    let options = fleet.options("a");
    let lead = fleet.lead(&options);
    check(&mut fleet.open(&lead, &options));
}

#[test]
fn another_gateway_goes_on_where_the_leader_stood() {
    let Some(fleet) = Fleet::new() else { return };
    let [a, b] = ["a", "b"].map(|node| fleet.options(node));
    let lead = fleet.lead(&a);
    let mut store = fleet.open(&lead, &a);
    started(&mut store);
    commit(&mut store, 1);
    store
        .open_round(&RoundRecord { attempt: 3, began: Some(coordinator::wall::WallTime(77)), ..round(2) })
        .unwrap();
    append(&mut store, "b", 2, 7.0);
    let payload = bytes(9.0);
    store.put(&UpdateRecord { header: header("c", 2, 1), payload: &payload }).unwrap();
    let saved = |store: &mut PostgresStore| store.load(&mark()).unwrap().unwrap();
    // What was put and not settled does not count.
    let expected = saved(&mut store);
    assert_eq!((expected.attempt, names(&expected.open.as_ref().unwrap().updates)), (3, vec!["b"]));
    assert_eq!(expected.open.as_ref().unwrap().record.began, Some(coordinator::wall::WallTime(77)));
    assert!(fleet.gets_lead("b").is_none(), "the lease is held");
    drop((store, lead));
    fleet.end_lease();
    let lead = fleet.lead(&b);
    assert_eq!(lead.epoch(), 2);
    let mut store = fleet.open(&lead, &b);
    assert_eq!(saved(&mut store), expected);
    assert_eq!(payloads(&mut store, 2).unwrap(), [bytes(7.0)]);
    assert_eq!(append(&mut store, "b", 2, 9.0), [PutOutcome::Duplicate]);
    commit(&mut store, 2);
    assert_eq!(store.history().unwrap().len(), 2);
    let lines = fs::read_to_string(fleet.dir.path().join("b/history.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 2, "{lines}");
}

/// Every write of a leader that was replaced is refused by its epoch alone, although its session lives.
#[test]
fn a_leader_that_was_replaced_writes_nothing() {
    let Some(fleet) = Fleet::new() else { return };
    let a = fleet.options("a");
    let best = BestModel { round: 0, by: BestBy::Mean, measured: Measured::Loss, value: 0.5, unimproved: 0 };
    let payload = bytes(4.0);
    type Attempt<'a> = (&'a str, Box<dyn Fn(&mut PostgresStore) -> Result<(), StoreError> + 'a>);
    let writes: [Attempt<'_>; 5] = [
        ("register", Box::new(|store| store.register(&[device("z")]))),
        ("open", Box::new(|store| store.open_round(&RoundRecord { attempt: 9, ..round(1) }))),
        (
            "settle",
            Box::new(|store| {
                store.put(&UpdateRecord { header: header("d", 1, 1), payload: &payload })?;
                store.settle()
            }),
        ),
        ("best", Box::new(|store| store.set_best(&best))),
        (
            "commit",
            Box::new(|store| {
                let commit =
                    Commit { round: 1, parameters: &[1.0; 3], report: "{\"round\": 1}", ..Commit::default() };
                store.commit_round(&commit)
            }),
        ),
    ];
    let lead = fleet.lead(&a);
    let mut store = fleet.open(&lead, &a);
    started(&mut store);
    let tables = "select md5(string_agg(t, '' order by t)) from (select run::text from run union all \
         select device::text from device union all select receipt::text from receipt union all \
         select model::text from model union all select report::text from report union all \
         select segment::text from segment) as x(t)";
    let before = fleet.postgres.sql(tables);
    fleet.postgres.sql("update leader set epoch = epoch + 1");
    for (name, write) in &writes {
        let refused = write(&mut store);
        assert!(matches!(refused, Err(StoreError::Fenced)), "{name}: {refused:?}");
        assert_eq!(fleet.postgres.sql(tables), before, "{name}");
    }
    let refused = store.load(&mark());
    assert!(matches!(refused, Err(StoreError::Fenced)), "{refused:?}");
    // The lease notices by itself, and its gateway lets devices go.
    fleet
        .runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(60), lead.lost()).await })
        .unwrap();
    // The same writes are accepted from a leader.
    fleet.end_lease();
    let lead = fleet.lead(&a);
    let mut store = fleet.open(&lead, &a);
    for (name, write) in &writes {
        let done = write(&mut store);
        assert!(done.is_ok(), "{name}: {done:?}");
    }
}

#[test]
fn the_clock_of_the_database_decides_about_the_lease() {
    let Some(fleet) = Fleet::new() else { return };
    // The database's clock is an hour behind the gateways'.
    fleet.postgres.sql(
        "create function public.clock_timestamp() returns timestamptz language sql as \
         $$ select pg_catalog.clock_timestamp() - interval '1 hour' $$; \
         alter database fleet set search_path = public, pg_catalog",
    );
    let a = fleet.options("a");
    let lead = fleet.lead(&a);
    let left = "select until < pg_catalog.clock_timestamp() from leader";
    assert_eq!(fleet.postgres.sql(left), "t", "by the gateways' clocks the lease is over");
    assert!(fleet.gets_lead("b").is_none());
    drop(lead);
    // Without renewals it ends, also if its session stays.
    fleet.postgres.sql(
        "update leader set until = clock_timestamp() - interval '1 s', pid = pg_backend_pid(), \
         started = (select backend_start from pg_stat_activity where pid = pg_backend_pid())",
    );
    assert_eq!(fleet.gets_lead("b").unwrap().epoch(), 2);
}

#[test]
fn nothing_is_acknowledged_while_the_database_is_away() {
    let Some(mut fleet) = Fleet::new() else { return };
    let a = fleet.options("a");
    let lead = fleet.lead(&a);
    let mut store = fleet.open(&lead, &a);
    started(&mut store);
    fleet.postgres.end_immediately();
    lead.end_soon()();
    let payload = bytes(4.0);
    store.put(&UpdateRecord { header: header("d", 1, 1), payload: &payload }).unwrap();
    let failed = store.settle().unwrap_err();
    assert!(matches!(failed, StoreError::Away { .. }), "{failed}");
    assert_eq!(names(&store.updates(1, 0).unwrap()), ["a", "b", "c"]);
    fleet.postgres.run();
    assert_eq!(fleet.postgres.sql("select string_agg(device, '' order by device) from receipt"), "abc");
}

/// Passes bytes between a gateway and the database, and cuts connections after a number of bytes in either direction.
struct Cutter {
    dir: TempDir,
    /// Bytes until the next cut; below 0 nothing is cut.
    left: [Arc<AtomicI64>; 2],
    cuts: Arc<AtomicI64>,
}

impl Cutter {
    fn before(postgres: &Postgres) -> Self {
        let dir = TempDir::new().unwrap();
        let left = [(); 2].map(|()| Arc::new(AtomicI64::new(-1)));
        let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).unwrap();
        let cuts = Arc::new(AtomicI64::new(0));
        let (counts, made, to) = (left.clone(), cuts.clone(), postgres.socket());
        thread::spawn(move || {
            for here in listener.incoming().map_while(Result::ok) {
                let Ok(there) = UnixStream::connect(&to) else { continue };
                let pairs = [(&here, &there), (&there, &here)];
                for ((from, to), left) in pairs.into_iter().zip(&counts) {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (left, made) = (left.clone(), made.clone());
                    thread::spawn(move || pass(from, to, &left, &made));
                }
            }
        });
        Self { dir, left, cuts }
    }

    fn cut_after(&self, direction: usize, bytes: i64) {
        self.left[direction].store(bytes, Ordering::SeqCst);
    }
}

fn pass(mut from: UnixStream, mut to: UnixStream, left: &AtomicI64, made: &AtomicI64) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let before = left.load(Ordering::SeqCst);
        let cut = before >= 0 && before < count as i64;
        let some = if cut { before as usize } else { count };
        if to.write_all(&bytes[..some]).is_err() || cut {
            if cut {
                left.store(-1, Ordering::SeqCst);
                made.fetch_add(1, Ordering::SeqCst);
            }
            break;
        }
        if before >= 0 {
            left.store(before - count as i64, Ordering::SeqCst);
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// `FAIRTIER_CUTS=2000` sets the number of cuts (default 60), `FAIRTIER_SEED` their places.
#[test]
fn a_lost_answer_is_looked_up_and_nothing_counts_twice() {
    let Some(fleet) = Fleet::new() else { return };
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (cuts, seed) = (number("FAIRTIER_CUTS", 60), number("FAIRTIER_SEED", 7));
    let mut rng = Rng::new(seed);
    let a = fleet.options("a");
    let lead = fleet.lead(&a);
    // Only the store's own connection is cut, not the lease.
    let cutter = Cutter::before(&fleet.postgres);
    let cut = fleet.options_at("a", &fleet.postgres.url_at(cutter.dir.path()));
    let mut store = fleet.open(&lead, &cut);
    store.begin_run(&run(), &[0.0; 3]).unwrap();
    let mut number = 0;
    for index in 0..cuts {
        number += 1;
        let what = format!("seed {seed}, cut {index}");
        // Somewhere in the four statements of a round, or in a new connection after an earlier cut.
        cutter.cut_after(rng.below(2) as usize, rng.below(6000) as i64);
        store.register(&[device("a"), device(&format!("d{index}"))]).unwrap();
        store.open_round(&round(number)).unwrap();
        let sent = ["c", "a", "b"];
        for name in sent {
            assert_eq!(append(&mut store, name, number, number as f32), [PutOutcome::New], "{what}");
        }
        assert_eq!(names(&store.updates(number, 0).unwrap()), ["a", "b", "c"], "{what}");
        commit(&mut store, number);
        if index % 10 == 9 {
            let saved = store.load(&mark()).unwrap().unwrap();
            assert_eq!((saved.next_round, saved.parameters), (number + 1, vec![number as f32; 3]), "{what}");
        }
    }
    cutter.cut_after(0, -1);
    cutter.cut_after(1, -1);
    let history = store.history().unwrap();
    assert_eq!(history.iter().map(|(round, _)| *round).collect::<Vec<_>>(), (1..=number).collect::<Vec<_>>());
    let count = |query: &str| fleet.postgres.sql(query).parse::<u64>().unwrap();
    assert_eq!(count("select count(*) from segment"), 3 * cuts, "one segment for every settled group");
    assert_eq!(count("select count(*) from model"), cuts + 1);
    assert_eq!(count("select count(*) from device"), cuts + 1);
    let made = cutter.cuts.load(Ordering::SeqCst) as u64;
    assert!(made > cuts / 2, "{made} cuts");
}

#[test]
fn a_copy_of_a_segment_that_is_damaged_is_fetched_again_and_a_damaged_object_is_named() {
    let Some(fleet) = Fleet::new() else { return };
    let a = fleet.options("a");
    let lead = fleet.lead(&a);
    let mut store = fleet.open(&lead, &a);
    started(&mut store);
    let cache = fleet.dir.path().join("a/segments");
    let copies = || fs::read_dir(&cache).unwrap().map(|file| file.unwrap().path()).collect::<Vec<_>>();
    assert_eq!(copies().len(), 3);
    for copy in copies() {
        let mut bytes = fs::read(&copy).unwrap();
        bytes[40] ^= 1;
        fs::write(&copy, bytes).unwrap();
    }
    let whole = [bytes(1.0), bytes(2.0), bytes(3.0)];
    assert_eq!(payloads(&mut store, 1).unwrap(), whole);
    copies().iter().for_each(|copy| fs::remove_file(copy).unwrap());
    assert_eq!(payloads(&mut store, 1).unwrap(), whole);
    copies().iter().for_each(|copy| fs::remove_file(copy).unwrap());
    for object in fs::read_dir(fleet.dir.path().join("objects/segments/000001")).unwrap() {
        fs::write(object.unwrap().path(), b"FTU2").unwrap();
    }
    let error = payloads(&mut store, 1).unwrap_err().to_string();
    assert!(error.contains("objects/segments/000001/"), "{error}");
}

#[test]
fn objects_are_removed_when_nothing_needs_them() {
    let Some(fleet) = Fleet::new() else { return };
    let mut a = fleet.options("a");
    a.keep_dropped = Duration::ZERO;
    let lead = fleet.lead(&a);
    let mut store = fleet.open(&lead, &a);
    started(&mut store);
    commit(&mut store, 1);
    let segments = || {
        let dir = fs::read_dir(fleet.dir.path().join("objects/segments/000001"));
        dir.map_or(0, Iterator::count)
    };
    // The first commit sweeps what it has dropped.
    assert_eq!((segments(), fleet.postgres.sql("select count(*) from segment")), (0, "0".to_owned()));
    assert_eq!(store.parameters(0).unwrap(), Some(vec![0.0; 3]));
}

#[test]
fn databases_that_cannot_be_trusted_are_refused() {
    let Some(mut fleet) = Fleet::new() else { return };
    let refusal = |fleet: &Fleet, options: PostgresOptions| {
        fleet.runtime.block_on(Candidate::new(options).wait()).map(drop).unwrap_err().to_string()
    };
    let mut other = fleet.options("a");
    other.authority = b"other".to_vec();
    assert!(refusal(&fleet, other).contains("another authority"));
    fleet.postgres.sql("alter database fleet set synchronous_commit = off");
    assert!(refusal(&fleet, fleet.options("a")).contains("synchronous_commit = off"));
    fleet.postgres.sql("alter database fleet reset synchronous_commit");
    fleet.postgres.sql("insert into schema_version (version) values (2)");
    assert!(refusal(&fleet, fleet.options("a")).contains("use a newer program"));
    fleet.postgres.sql("delete from schema_version where version = 2");
    // A database that goes back while a gateway waits.
    let lead = fleet.lead(&fleet.options("a"));
    let mut waiting = Candidate::new(fleet.options("b"));
    fleet.runtime.block_on(async {
        let _ = tokio::time::timeout(Duration::from_millis(500), waiting.wait()).await;
    });
    drop(lead);
    fleet.postgres.sql("update leader set epoch = 0, until = '-infinity', pid = 0");
    let back = fleet.runtime.block_on(waiting.wait()).map(drop).unwrap_err().to_string();
    assert!(back.contains("has gone back"), "{back}");
    fleet.postgres.end_immediately();
    let weak = Postgres::start_with(&["fsync=off"]).unwrap();
    let error = refusal(&fleet, fleet.options_at("a", &weak.url()));
    assert!(error.contains("fsync = off"), "{error}");
}
