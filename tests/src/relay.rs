//! A UDP relay between real processes that drops, repeats and delays packets as its [`Weather`] and its seed say.
//!
//! ```text
//! device --> address() [ lose, repeat, hold back, delay ] back socket of this device --> aggregator
//! ```
//! The fate of a packet depends only on the seed, the device's number, the direction and the packet's number
//! ([`Weather::fate`]). So the same seed gives the same decisions at any timing. Devices are numbered in the order of
//! their first packets; devices that start together need a relay each ([`Relay::each`]).

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    io,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use common::rng::Rng;

/// Faults of the network; shares are probabilities per packet.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Weather {
    /// Delay of every packet, each way.
    pub delay: Duration,
    /// Upper limit of an additional random delay.
    pub jitter: Duration,
    pub loss: f64,
    pub repeat: f64,
    /// Packets that are held back, so that later ones overtake them.
    pub reorder: f64,
    /// Bytes per second each way; 0 = no limit.
    pub rate: u64,
}

impl Weather {
    pub const FAIR: Self =
        Self { delay: Duration::ZERO, jitter: Duration::ZERO, loss: 0.0, repeat: 0.0, reorder: 0.0, rate: 0 };

    /// Delays after which the copies of a packet leave; empty if it is lost.
    pub fn fate(&self, seed: u64, device: u64, way: Way, number: u64) -> Vec<Duration> {
        let stream = (device << 1 | way as u64) << 40 | number;
        let mut rng = Rng::new(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut draws = [0.0; 5];
        draws.fill_with(|| rng.unit_f64());
        let [loss, repeat, reorder, first, second] = draws;
        let leave = |jitter: f64| self.delay + self.jitter.mul_f64(jitter);
        let mut copies = vec![];
        if loss >= self.loss {
            let held = if reorder < self.reorder { Duration::from_millis(20) } else { Duration::ZERO };
            copies.push(leave(first) + held);
            if repeat < self.repeat {
                copies.push(leave(second) + Duration::from_millis(1));
            }
        }
        copies
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Way {
    Up = 0,
    Down = 1,
}

/// Counts of forwarded bytes and dropped packets, over all devices.
#[derive(Debug, Default)]
struct Counters {
    up: AtomicU64,
    down: AtomicU64,
    lost: AtomicU64,
}

/// Forwards packets until it is dropped.
#[derive(Debug)]
pub struct Relay {
    inner: Arc<Inner>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Inner {
    front: UdpSocket,
    server: SocketAddr,
    seed: u64,
    weather: Mutex<Weather>,
    cut: AtomicBool,
    closed: AtomicBool,
    devices: Mutex<HashMap<SocketAddr, Device>>,
    counters: Counters,
    queue: Mutex<BinaryHeap<Reverse<Packet>>>,
    arrived: Condvar,
}

/// State of a device, by its address.
#[derive(Debug)]
struct Device {
    number: u64,
    back: Back,
    packets: [u64; 2],
    /// Time at which each direction is free again, under a rate limit.
    free: [Option<Instant>; 2],
}

/// The socket that the aggregator sees.
#[derive(Clone, Debug)]
struct Back {
    socket: Arc<UdpSocket>,
    retired: Arc<AtomicBool>,
}

/// Ordered by departure, then by arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Packet {
    leaves: Instant,
    order: u64,
    device: SocketAddr,
    up: bool,
    bytes: Vec<u8>,
}

impl Relay {
    pub fn start(server: &str, seed: u64, weather: Weather) -> Self {
        let front = socket().unwrap();
        let address = front.local_addr().unwrap();
        let inner = Arc::new(Inner {
            front,
            server: server.parse().unwrap(),
            seed,
            weather: Mutex::new(weather),
            cut: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            devices: Mutex::default(),
            counters: Counters::default(),
            queue: Mutex::default(),
            arrived: Condvar::new(),
        });
        let (reader, sender) = (inner.clone(), inner.clone());
        thread::spawn(move || reader.read_front());
        thread::spawn(move || sender.send_queued());
        Self { inner, address }
    }

    /// One relay for each device, with its own seed, independent of the order in which devices start.
    pub fn each(server: &str, seed: u64, weather: Weather, devices: u64) -> Vec<Self> {
        (0..devices).map(|index| Self::start(server, seed + index, weather)).collect()
    }

    /// The address that devices connect to.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    pub fn set(&self, weather: Weather) {
        *lock(&self.inner.weather) = weather;
    }

    /// Drops all packets from now on.
    pub fn cut(&self) {
        self.inner.cut.store(true, Ordering::SeqCst);
    }

    pub fn heal(&self) {
        self.inner.cut.store(false, Ordering::SeqCst);
    }

    /// Gives all devices another port, like a router that has lost its table.
    pub fn change_ports(&self) {
        for (&address, device) in lock(&self.inner.devices).iter_mut() {
            device.back.retired.store(true, Ordering::SeqCst);
            device.back = self.inner.open_back(address).unwrap();
        }
    }

    /// Bytes forwarded to the aggregator.
    pub fn bytes_up(&self) -> u64 {
        self.inner.counters.up.load(Ordering::SeqCst)
    }

    pub fn bytes_down(&self) -> u64 {
        self.inner.counters.down.load(Ordering::SeqCst)
    }

    /// Number of dropped packets.
    pub fn lost(&self) -> u64 {
        self.inner.counters.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.inner.closed.store(true, Ordering::SeqCst);
        self.inner.arrived.notify_all();
    }
}

impl Inner {
    fn read_front(self: &Arc<Self>) {
        let mut bytes = [0; 2048];
        while !self.closed.load(Ordering::SeqCst) {
            let Ok((len, from)) = self.front.recv_from(&mut bytes) else { continue };
            let mut devices = lock(&self.devices);
            let number = devices.len() as u64;
            let device = devices.entry(from).or_insert_with(|| Device {
                number,
                back: self.open_back(from).unwrap(),
                packets: [0; 2],
                free: [None; 2],
            });
            self.take(device, from, Way::Up, &bytes[..len]);
        }
    }

    fn open_back(self: &Arc<Self>, device: SocketAddr) -> io::Result<Back> {
        let back = Back { socket: Arc::new(socket()?), retired: Arc::default() };
        let (inner, mine) = (self.clone(), back.clone());
        thread::spawn(move || inner.read_back(device, &mine));
        Ok(back)
    }

    fn read_back(&self, address: SocketAddr, back: &Back) {
        let mut bytes = [0; 2048];
        while !self.closed.load(Ordering::SeqCst) && !back.retired.load(Ordering::SeqCst) {
            let Ok(len) = back.socket.recv(&mut bytes) else { continue };
            // Packets to an old port are lost, as behind a router.
            if back.retired.load(Ordering::SeqCst) {
                return;
            }
            if let Some(device) = lock(&self.devices).get_mut(&address) {
                self.take(device, address, Way::Down, &bytes[..len]);
            }
        }
    }

    /// Decides on a packet and queues its copies.
    fn take(&self, device: &mut Device, address: SocketAddr, way: Way, bytes: &[u8]) {
        let weather = *lock(&self.weather);
        let index = way as usize;
        let number = device.packets[index];
        device.packets[index] += 1;
        let fate = weather.fate(self.seed, device.number, way, number);
        if fate.is_empty() || self.cut.load(Ordering::SeqCst) {
            self.counters.lost.fetch_add(1, Ordering::SeqCst);
            return;
        }
        let now = Instant::now();
        let mut start = now;
        if weather.rate > 0 {
            start = device.free[index].map_or(now, |free| free.max(now));
            // The queue limit of a router; more is lost.
            if start > now + Duration::from_millis(500) {
                self.counters.lost.fetch_add(1, Ordering::SeqCst);
                return;
            }
            start += Duration::from_secs_f64(bytes.len() as f64 / weather.rate as f64);
            device.free[index] = Some(start);
        }
        let mut queue = lock(&self.queue);
        for delay in fate {
            let (leaves, up) = (start + delay, way == Way::Up);
            queue.push(Reverse(Packet { leaves, order: number, device: address, up, bytes: bytes.to_vec() }));
        }
        self.arrived.notify_one();
    }

    fn send_queued(&self) {
        let mut queue = lock(&self.queue);
        while !self.closed.load(Ordering::SeqCst) {
            let now = Instant::now();
            let wait = match queue.peek() {
                Some(Reverse(packet)) if packet.leaves <= now => Duration::ZERO,
                Some(Reverse(packet)) => packet.leaves - now,
                None => Duration::from_millis(100),
            };
            if !wait.is_zero() {
                queue = self.arrived.wait_timeout(queue, wait).unwrap().0;
                continue;
            }
            if let Some(Reverse(packet)) = queue.pop() {
                drop(queue);
                self.send(&packet);
                queue = lock(&self.queue);
            }
        }
    }

    fn send(&self, packet: &Packet) {
        let (sent, counter) = if packet.up {
            let Some(back) = lock(&self.devices).get(&packet.device).map(|device| device.back.clone()) else {
                return;
            };
            (back.socket.send_to(&packet.bytes, self.server), &self.counters.up)
        } else {
            (self.front.send_to(&packet.bytes, packet.device), &self.counters.down)
        };
        // A full system buffer or an ended process loses packets, like any router.
        match sent {
            Ok(len) => counter.fetch_add(len as u64, Ordering::SeqCst),
            Err(_) => self.counters.lost.fetch_add(1, Ordering::SeqCst),
        };
    }
}

/// A loopback socket with a timeout, so that readers notice the end.
fn socket() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    Ok(socket)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::process::wait_for;

    const BAD: Weather = Weather {
        delay: Duration::from_millis(10),
        jitter: Duration::from_millis(5),
        loss: 0.2,
        repeat: 0.1,
        reorder: 0.1,
        rate: 0,
    };

    #[test]
    fn the_same_seed_gives_the_same_decisions() {
        let fates = |seed, device, way| -> Vec<_> {
            (0..1000).map(|number| BAD.fate(seed, device, way, number)).collect()
        };
        assert_eq!(fates(7, 3, Way::Up), fates(7, 3, Way::Up));
        assert_ne!(fates(7, 3, Way::Up), fates(7, 3, Way::Down));
        assert_ne!(fates(7, 3, Way::Up), fates(8, 3, Way::Up));
        assert_ne!(fates(7, 3, Way::Up), fates(7, 4, Way::Up));
        let fates = fates(7, 3, Way::Up);
        let lost = fates.iter().filter(|fate| fate.is_empty()).count();
        let twice = fates.iter().filter(|fate| fate.len() == 2).count();
        assert!((150..250).contains(&lost) && (50..150).contains(&twice), "{lost} lost, {twice} twice");
        assert!(fates.iter().flatten().all(|delay| (10..=36).contains(&delay.as_millis())));
    }

    /// The packets of two devices that arrive if the devices start in this order.
    fn arrived(order: [usize; 2]) -> BTreeSet<[u8; 2]> {
        const COUNT: u8 = 100;
        let server = socket().unwrap();
        let weather = Weather { loss: 0.3, ..Weather::FAIR };
        let relays = Relay::each(&server.local_addr().unwrap().to_string(), 7, weather, 2);
        let device = socket().unwrap();
        for index in order {
            for number in 0..COUNT {
                device.send_to(&[index as u8, number], relays[index].address).unwrap();
            }
        }
        let mut arrived = BTreeSet::new();
        wait_for("all packets", || {
            let mut packet = [0; 2];
            if server.recv(&mut packet).is_ok() {
                arrived.insert(packet);
            }
            let lost: u64 = relays.iter().map(Relay::lost).sum();
            (arrived.len() as u64 + lost == 2 * u64::from(COUNT)).then_some(())
        });
        arrived
    }

    #[test]
    fn the_order_of_devices_does_not_matter() {
        let arrived = [arrived([0, 1]), arrived([1, 0])];
        assert_eq!(arrived[0], arrived[1]);
        let of =
            |index| arrived[0].iter().filter(|packet| packet[0] == index).map(|packet| packet[1]).collect();
        let numbers: [Vec<u8>; 2] = [of(0), of(1)];
        assert!(numbers[0] != numbers[1] && numbers.iter().all(|numbers| (50..90).contains(&numbers.len())));
    }

    #[test]
    fn packets_pass_and_are_cut_off() {
        let server = socket().unwrap();
        let relay = Relay::start(&server.local_addr().unwrap().to_string(), 1, Weather::FAIR);
        let device = socket().unwrap();
        let receive = |socket: &UdpSocket| {
            let mut bytes = [0; 16];
            let patience = Instant::now() + Duration::from_secs(10);
            loop {
                match socket.recv_from(&mut bytes) {
                    Ok((len, from)) => return (bytes[..len].to_vec(), from),
                    Err(error) => assert!(Instant::now() < patience, "{error}"),
                }
            }
        };
        device.send_to(b"up", relay.address).unwrap();
        let (bytes, first) = receive(&server);
        assert_eq!(bytes, b"up");
        server.send_to(b"down", first).unwrap();
        assert_eq!(receive(&device), (b"down".to_vec(), relay.address));

        relay.change_ports();
        device.send_to(b"again", relay.address).unwrap();
        let (bytes, second) = receive(&server);
        assert_eq!(bytes, b"again");
        assert_ne!(first, second);

        relay.cut();
        device.send_to(b"lost", relay.address).unwrap();
        wait_for("a packet to be lost", || (relay.lost() > 0).then_some(()));
        relay.heal();
        device.send_to(b"healed", relay.address).unwrap();
        assert_eq!(receive(&server).0, b"healed");
        // A packet is counted after it was forwarded.
        wait_for("all packets to be counted", || (relay.bytes_up() >= 13).then_some(()));
        assert_eq!((relay.bytes_up(), relay.bytes_down()), (13, 4));
    }
}
