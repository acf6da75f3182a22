//! Training threads, and the arenas in which they train.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
};

use client::train::Fast;
use common::Instant;

use super::{SharedShard, device::BoxedSession};

struct Job {
    device: usize,
    session: BoxedSession,
    shard: SharedShard,
}

#[derive(Debug)]
pub(super) struct Pool {
    jobs: Option<Sender<Job>>,
    done: Receiver<(usize, BoxedSession)>,
    early: HashMap<usize, BoxedSession>,
    threads: Vec<JoinHandle<()>>,
    pub arenas: Arenas,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Job({})", self.device)
    }
}

impl Pool {
    pub fn new(threads: usize) -> Self {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (outbox, done) = mpsc::channel();
        let inbox = Arc::new(Mutex::new(inbox));
        let spawn = |_| {
            let (inbox, outbox) = (inbox.clone(), outbox.clone());
            thread::spawn(move || train(&inbox, &outbox))
        };
        let threads = (0..threads.max(1)).map(spawn).collect();
        Self { jobs: Some(jobs), done, early: HashMap::new(), threads, arenas: Arenas::default() }
    }

    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    pub fn submit(&mut self, device: usize, session: BoxedSession, shard: SharedShard) {
        if let Some(jobs) = &self.jobs {
            // `wait` reports a thread that has died.
            let _ = jobs.send(Job { device, session, shard });
        }
    }

    /// The device's Session once its work is done; `None` if the threads are gone.
    pub fn wait(&mut self, device: usize) -> Option<BoxedSession> {
        loop {
            if let Some(session) = self.early.remove(&device) {
                return Some(session);
            }
            let (done, session) = self.done.recv().ok()?;
            self.early.insert(done, session);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn train(inbox: &Mutex<Receiver<Job>>, outbox: &Sender<(usize, BoxedSession)>) {
    let mut backend = Fast::new();
    loop {
        let job = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { device, mut session, shard }) = job else { return };
        while session.has_work() {
            // The Session reports an error to the aggregator.
            if session.work(&*shard, &mut backend, Instant::ZERO).is_err() {
                break;
            }
        }
        if outbox.send((device, session)).is_err() {
            return;
        }
    }
}

/// Arenas between two uses.
#[derive(Debug, Default)]
pub(super) struct Arenas(Vec<Vec<f32>>);

impl Arenas {
    /// An arena of this many zeros.
    pub fn take(&mut self, len: usize) -> Vec<f32> {
        let mut arena = self.0.pop().unwrap_or_default();
        arena.clear();
        arena.resize(len, 0.0);
        arena
    }

    pub fn put(&mut self, arena: Vec<f32>) {
        self.0.push(arena);
    }
}
