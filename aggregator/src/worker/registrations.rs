//! Records of devices. When a whole fleet joins, they arrive faster than they could be committed one by one.

use std::sync::mpsc::Receiver;

use coordinator::Action;
use strategies::device::DeviceRecord;
use tracing::debug;

use super::{RoundWorker, WorkerError};
use crate::driver::Job;

/// Records of devices that are made durable together.
const GROUP: usize = 1024;

impl RoundWorker {
    /// Writes records in one commit.
    pub(super) fn register(&mut self, devices: Vec<DeviceRecord>) -> Result<(), WorkerError> {
        self.store.register(&devices)?;
        for device in devices {
            debug!(device = %device.device, "registered");
            self.conductor.run.fleet.insert(device.device.clone(), device);
        }
        Ok(())
    }

    /// Writes a record together with those that wait already. Also returns the job that comes after them.
    pub(super) fn register_group(
        &mut self,
        first: DeviceRecord,
        jobs: &Receiver<Job>,
    ) -> Result<Option<Job>, WorkerError> {
        self.record()?;
        let (mut devices, mut next) = (vec![first], None);
        while devices.len() < GROUP && next.is_none() {
            match jobs.try_recv() {
                Ok(Job::Execute(Action::Register(device))) => devices.push(device),
                Ok(other) => next = Some(other),
                Err(_) => break,
            }
        }
        self.register(devices)?;
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::mpsc};

    use common::{Budget, Instant, Tier, message::DataSummary, transfer::LinkLimits};
    use strategies::registry::Registry;

    use super::*;
    use crate::{
        config::Config,
        driver::Driver,
        run::{Run, RunEnvironment, fingerprint},
        store::{DiskStore, Options, Store},
    };

    fn record(number: usize) -> DeviceRecord {
        let data = DataSummary { train_samples: 10, ..DataSummary::default() };
        let device = format!("d{number:04}").parse().unwrap();
        DeviceRecord { device, tier: Tier::new(0).unwrap(), budget: Budget::UNLIMITED, data }
    }

    fn register(number: usize) -> Job {
        Job::Execute(Action::Register(record(number)))
    }

    /// A run with an empty store in this directory.
    fn open(dir: &Path) -> Run {
        let store = Box::new(DiskStore::open(dir, Options::default()).unwrap());
        let (limits, now) = (LinkLimits::QUIC, Instant::ZERO);
        let environment = RunEnvironment { store, limits, dir: None, observer: None, now };
        Run::open(&Registry::standard(), &Config::parse("").unwrap(), environment).unwrap()
    }

    #[test]
    fn records_that_wait_are_written_together_and_no_job_is_overtaken() {
        let dir = tempfile::tempdir().unwrap();
        let Run { mut worker, .. } = open(dir.path());
        let (sender, jobs) = mpsc::channel();
        let (reply, _taken) = mpsc::sync_channel(1);
        (1..5).for_each(|number| sender.send(register(number)).unwrap());
        sender.send(Job::Snapshot(reply)).unwrap();
        sender.send(register(5)).unwrap();
        let next = worker.register_group(record(0), &jobs).unwrap();
        assert!(matches!(next, Some(Job::Snapshot(_))), "{next:?}");
        assert_eq!(worker.conductor.run.fleet.len(), 5);
        assert!(worker.register_group(record(6), &jobs).unwrap().is_none());
        assert_eq!(worker.conductor.run.fleet.len(), 7);
        // A group has an end, so that a flood of records holds up no update for long.
        (0..GROUP + 5).for_each(|number| sender.send(register(1000 + number)).unwrap());
        assert!(worker.register_group(record(7), &jobs).unwrap().is_none());
        assert_eq!((worker.conductor.run.fleet.len(), jobs.try_iter().count()), (7 + GROUP, 6));
    }

    #[test]
    fn every_record_is_in_the_store_after_the_worker_has_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let Run { coordinator, worker } = open(dir.path());
        let model = fingerprint(&worker.conductor.run.model);
        let (sender, jobs) = mpsc::channel();
        let driver = Driver::new(coordinator, sender.clone());
        (0..3000).for_each(|number| sender.send(register(number)).unwrap());
        sender.send(Job::Stop).unwrap();
        worker.run(&jobs, &driver).unwrap();
        let mut store = DiskStore::open(dir.path(), Options::default()).unwrap();
        assert_eq!(store.load(&model).unwrap().unwrap().devices.len(), 3000);
    }
}
