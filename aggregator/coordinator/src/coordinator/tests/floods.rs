//! Devices that flood the gateway with requests, and devices that never finish an upload.

use super::*;

fn exports(actions: &[Action]) -> Vec<Tier> {
    let tier = |action: &Action| match action {
        Action::Export { tier } => Some(*tier),
        _ => None,
    };
    actions.iter().filter_map(tier).collect()
}

fn registered(actions: &[Action]) -> Vec<(DeviceId, u64)> {
    let record = |action: &Action| match action {
        Action::Register(record) => Some((record.device.clone(), record.budget.ram)),
        _ => None,
    };
    actions.iter().filter_map(record).collect()
}

#[test]
fn a_file_is_exported_once_for_all_devices() {
    let mut gateway = Gateway::new(settings(9));
    (0..4).for_each(|conn| gateway.join(conn, u64::MAX).unwrap());
    gateway.actions();
    (0..4).for_each(|conn| _ = gateway.say(conn));
    for _ in 0..1000 {
        (0..3).for_each(|conn| gateway.hear(conn, &ToAggregator::PullOnnx).unwrap());
    }
    let wide = Tier::new(0).unwrap();
    assert_eq!(exports(&gateway.actions()), [wide]);
    // A device that has left gets none.
    gateway.coordinator.handle_disconnected(ConnId(2), gateway.now);
    gateway.coordinator.handle_onnx(wide, 0, vec![7; 100].into());
    let blob = |said: Vec<ToDevice>| match said.as_slice() {
        [ToDevice::Onnx(blob)] => *blob,
        other => panic!("{other:?}"),
    };
    let told = [blob(gateway.say(0)), blob(gateway.say(1))];
    assert_eq!((told[0], told[0].bytes), (told[1], 100));
    // Later requests are answered at once, until there is another model.
    gateway.hear(3, &ToAggregator::PullOnnx).unwrap();
    assert_eq!((exports(&gateway.actions()), blob(gateway.say(3))), (vec![], told[0]));
    gateway.coordinator.handle_committed(vec![], gateway.now);
    gateway.hear(3, &ToAggregator::PullOnnx).unwrap();
    assert_eq!(exports(&gateway.actions()), [wide]);
    // A file of the earlier model is sent, but not kept.
    gateway.coordinator.handle_onnx(wide, 0, vec![7; 100].into());
    assert_eq!(blob(gateway.say(3)), told[0]);
    gateway.hear(3, &ToAggregator::PullOnnx).unwrap();
    assert_eq!(exports(&gateway.actions()), [wide]);
}

#[test]
fn of_many_changes_the_last_is_written_when_a_round_opens() {
    let mut gateway = Gateway::new(settings(2));
    let most = 1 << 40;
    gateway.join(0, most).unwrap();
    for change in 1..=1000 {
        gateway.hello(0, most - change).unwrap();
    }
    assert_eq!(registered(&gateway.actions()), [(id("d0"), most)]);
    gateway.join(1, most).unwrap();
    let actions = gateway.actions();
    assert_eq!(registered(&actions), [(id("d1"), most), (id("d0"), most - 1000)]);
    assert!(matches!(actions.last(), Some(Action::OpenRound { .. })), "{actions:?}");
    // Until the next round, this was the one change that is written at once.
    gateway.hello(0, most).unwrap();
    gateway.hello(1, most - 1).unwrap();
    assert_eq!(registered(&gateway.actions()), [(id("d1"), most - 1)]);
}

/// Sends `bytes` bytes every `every` seconds.
#[derive(Copy, Clone)]
struct Pace {
    bytes: u32,
    every: u64,
}

/// As slow as a connection can be without being idle.
const LORIS: Pace = Pace { bytes: 4, every: 14 };
const BRISK: Pace = Pace { bytes: 2000, every: 1 };
/// Slower than the least pace, but honest.
const SLOW: Pace = Pace { bytes: 100, every: 1 };

/// Devices that upload, each at its pace, and offer again every ten seconds as a Session does.
struct Crowd {
    gateway: Gateway,
    devices: Vec<(Pace, Offer, Option<u32>)>,
    /// The second in which each was done.
    done: BTreeMap<u64, u64>,
    /// Offsets that were fetched from each.
    fetches: Vec<Vec<u32>>,
    second: u64,
}

impl Crowd {
    fn new(max_uploads: usize, paces: &[Pace]) -> Self {
        let mut settings = Settings { max_uploads, ..settings(paces.len()) };
        settings.deadlines.deadline_s = 1e6.into();
        let mut gateway = Gateway::new(settings);
        let conns = 0..paces.len() as u64;
        conns.clone().for_each(|conn| gateway.join(conn, u64::MAX).unwrap());
        let assignments = gateway.open(conns);
        let offers = assignments.iter().map(|assignment| offer(assignment, assignment.model.bytes));
        let devices = paces.iter().zip(offers).map(|(&pace, offer)| (pace, offer, None)).collect();
        let fetches = vec![vec![]; paces.len()];
        Self { gateway, devices, done: BTreeMap::new(), fetches, second: 0 }
    }

    fn bytes(&self) -> u32 {
        self.devices[0].1.update.bytes
    }

    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            (0..self.devices.len() as u64).for_each(|conn| self.step(conn));
            self.second += 1;
            self.gateway.wait(SECOND);
            self.check_memory();
        }
    }

    fn step(&mut self, conn: u64) {
        if self.done.contains_key(&conn) {
            return;
        }
        let (pace, offer, _) = self.devices[conn as usize].clone();
        if self.second.is_multiple_of(10) {
            self.gateway.hear(conn, &ToAggregator::Offer(offer.clone())).unwrap();
        }
        self.listen(conn);
        let Some(offset) = self.devices[conn as usize].2.filter(|_| self.second.is_multiple_of(pace.every))
        else {
            return;
        };
        let len = pace.bytes.min(offer.update.bytes - offset) as usize;
        let mut frame = vec![0; len + wire::CHUNK_OVERHEAD];
        wire::encode_chunk(offer.update.transfer, offset, len, &mut frame, |to| to.fill(0)).unwrap();
        self.gateway.coordinator.handle_frame(ConnId(conn), &frame, self.gateway.now).unwrap();
        self.devices[conn as usize].2 = Some(offset + len as u32).filter(|&end| end < offer.update.bytes);
        self.store();
        self.listen(conn);
    }

    fn listen(&mut self, conn: u64) {
        for said in self.gateway.say(conn) {
            match said {
                ToDevice::Fetch(fetch) => {
                    self.devices[conn as usize].2 = Some(fetch.offset);
                    self.fetches[conn as usize].push(fetch.offset);
                }
                ToDevice::Receipt(receipt) => {
                    assert_eq!(receipt.refused, None);
                    self.done.insert(conn, self.second);
                }
                _ => {}
            }
        }
    }

    fn store(&mut self) {
        for action in self.gateway.actions() {
            if let Action::Store(StoredUpdate { device, ticket, payload, .. }) = action {
                assert_eq!(payload.len() as u32, self.bytes());
                self.gateway.coordinator.handle_written(&device, ticket, payload, self.gateway.now);
                self.gateway.coordinator.handle_stored(&device, ticket, Ok(()), self.gateway.now);
            }
        }
    }

    fn check_memory(&self) {
        let Some(exchange) = self.gateway.coordinator.open_exchange() else { return };
        let most = self.gateway.coordinator.settings.max_uploads;
        assert!(exchange.roster.in_memory() <= most && exchange.interrupted.len() <= most);
        let spare = self.gateway.coordinator.spare.len();
        assert!(exchange.roster.in_memory() + exchange.interrupted.len() + spare <= 2 * most);
    }
}

#[test]
fn a_trickling_upload_does_not_block_others() {
    // Twice as many slow ones as places; they offer again first.
    let paces = [[LORIS; 8].as_slice(), &[BRISK; 6]].concat();
    let mut crowd = Crowd::new(4, &paces);
    crowd.run(120);
    for conn in 8..14 {
        assert!(crowd.done.get(&conn).is_some_and(|&second| second < 100), "{:?}", crowd.done);
    }
    assert!((0..8).all(|conn| !crowd.done.contains_key(&conn)));
}

#[test]
fn a_slow_upload_resumes_where_it_was_interrupted() {
    let mut crowd = Crowd::new(1, &[SLOW, BRISK]);
    // While no other device waits, it is not interrupted.
    let waiting = crowd.devices.remove(1);
    crowd.run(30);
    assert_eq!(crowd.fetches[0].first(), Some(&0));
    crowd.devices.push(waiting);
    crowd.run(crowd.bytes() as u64 / 100);
    let (slow, brisk) = (crowd.done[&0], crowd.done[&1]);
    assert!(brisk < 50 && slow > brisk, "{:?}", crowd.done);
    assert!(crowd.fetches[0].iter().any(|&offset| offset >= 2500), "{:?}", crowd.fetches);
    // It pauses during the other upload, and sends some bytes again.
    assert!(slow < crowd.bytes() as u64 / 100 + 30, "{:?}", crowd.done);
}

#[test]
fn a_fleet_of_slow_devices_makes_progress() {
    let mut crowd = Crowd::new(2, &[SLOW; 9]);
    let one = u64::from(crowd.bytes()) / 100 + 1;
    // Two at a time; bytes that are sent again cost less than half of the time.
    crowd.run(2 * 5 * one);
    assert_eq!(crowd.done.len(), 9, "{:?} after {} s", crowd.done, 2 * 5 * one);
}

#[test]
fn a_restarted_device_starts_its_upload_again() {
    let mut crowd = Crowd::new(1, &[SLOW, BRISK]);
    let other = crowd.devices.remove(1);
    crowd.run(20);
    crowd.devices.push(other);
    crowd.run(6);
    assert_eq!(crowd.gateway.coordinator.open_exchange().unwrap().interrupted.len(), 1);
    crowd.gateway.hear(0, &ToAggregator::Ready).unwrap();
    assert!(crowd.gateway.coordinator.open_exchange().unwrap().interrupted.is_empty());
}
