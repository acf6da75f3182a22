//! The links of a simulated fleet, and the drivers of its Sessions and of the Coordinator.

use client::Event;
use common::{Versions, wire};
use coordinator::{Action, fleet::ConnId};

use super::{World, WorldEvent};

impl World {
    pub(super) fn connect(&mut self, index: usize) {
        let (now, limits) = (self.time(), self.setup.limits);
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        let device = &mut self.devices[index];
        if device.gone || device.conn.is_some() {
            return;
        }
        device.conn = Some(conn);
        self.conns.insert(conn, index);
        self.coordinator.handle_connected(conn, device.device.clone());
        device.session.handle_connected(limits, Versions::OURS, now);
        self.drive_device(index);
    }

    /// Breaks a link: the device notices at once, the aggregator some time later.
    pub(super) fn drop_link(&mut self, conn: ConnId) {
        let Some(&index) = self.conns.get(&conn) else { return };
        let device = &mut self.devices[index];
        if device.conn != Some(conn) {
            return;
        }
        device.conn = None;
        device.session.handle_disconnected();
        let outage = self.setup.faults.outage_ms;
        let (noticed, back) = (self.rng.below(2 * outage), 1 + self.rng.below(outage));
        self.schedule(noticed, WorldEvent::Lost(conn));
        self.schedule(back, WorldEvent::Connect(index));
    }

    /// What the driver of a Session does after each call.
    pub(super) fn drive_device(&mut self, index: usize) {
        let mut frame =
            vec![0; wire::MAX_CONTROL.max(self.setup.limits.chunk as usize + wire::CHUNK_OVERHEAD)];
        while let Some(conn) = self.devices[index].conn
            && let Some((_, len)) = self.devices[index].session.poll_transmit(&mut frame)
        {
            let sent = frame[..len].to_vec();
            self.send(conn, &sent, |frame| WorldEvent::ToAggregator(conn, frame));
        }
        let device = &mut self.devices[index];
        while let Some(event) = device.session.poll_event() {
            match event {
                Event::Answered { round, refused, .. } => {
                    self.answers.entry((device.device.clone(), round)).or_default().push(refused);
                }
                Event::Finished { .. } => device.done = true,
                Event::Failed { round, code } if !self.setup.may_fail => {
                    panic!("{} fails in round {round}: {code}", device.device)
                }
                Event::Failed { .. } | Event::Joined { .. } | Event::Assigned { .. } | Event::Refused(_) => {}
            }
        }
        if device.session.has_work() && !device.working {
            device.working = true;
            let drawn = 1 + self.rng.below(5);
            let pace = self.setup.batch_ms.get(index).copied().unwrap_or(drawn);
            self.schedule(pace, WorldEvent::Work(index));
        }
    }

    /// What the driver of the Coordinator does after each call.
    pub(super) fn run_actions(&mut self) {
        let mut leaving = vec![];
        while let Some(action) = self.coordinator.poll_action() {
            match action {
                Action::Disconnect(conn) => leaving.push(conn),
                action => {
                    if let Action::Store(update) = &action {
                        let key = (update.device.clone(), update.ticket.exchange_id());
                        *self.arrived.entry(key).or_default() += 1;
                    }
                    self.disk.jobs.push_back(action);
                }
            }
        }
        let mut frame = vec![];
        while let Some(conn) = self.coordinator.poll_wake() {
            while self.coordinator.poll_transmit(conn, &mut frame).is_some() {
                if let Some(&index) = self.conns.get(&conn) {
                    let sent = frame.clone();
                    self.send(conn, &sent, |frame| WorldEvent::ToDevice(index, conn, frame));
                }
            }
        }
        leaving.into_iter().for_each(|conn| self.drop_link(conn));
        if let Some(delay) = self.disk.next_step(&self.worker, &mut self.rng) {
            self.schedule(delay, WorldEvent::WorkerStep(self.disk.start));
        }
    }

    fn send(&mut self, conn: ConnId, frame: &[u8], arrive: impl Fn(Vec<u8>) -> WorldEvent) {
        let faults = self.setup.faults;
        let fate = faults.fate(frame, &mut self.rng);
        for (delay, copy) in fate.copies {
            self.schedule(delay, arrive(copy));
        }
        if fate.broken {
            self.drop_link(conn);
        }
    }
}
