//! Floods and fleets in virtual time, without sockets. Every scenario returns whether all devices that should come in did.

use super::*;

/// As in the default configuration.
const LIMITS: Limits = Limits { connections: 4096, per_address: 4096, handshakes: 1000 };
const TICK: Duration = Duration::from_millis(10);
const TICKS_PER_S: u32 = 100;
/// How long a device takes to prove itself, and a stranger to run into the timeout of handshakes.
const PROOF: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(20);
const FLOODER: u32 = 1;

type Scenario = (&'static str, fn(Policy) -> bool);
type Field = fn(&mut Policy) -> &mut usize;
const SCENARIOS: [Scenario; 6] = [
    ("many addresses flood", many_addresses_flood),
    ("one address floods", one_address_floods),
    ("a recent address and many others flood", a_recent_address_floods),
    ("forged addresses flood", forged_addresses_flood),
    ("a stranger trickles", a_stranger_trickles),
    ("a router with 10,000 devices", a_router_with_10_000_devices),
];

struct World {
    admission: Admission,
    now: Instant,
    devices: VecDeque<(Instant, Permit)>,
    strangers: VecDeque<(Instant, Permit)>,
    inside: Vec<Permit>,
}

fn host(number: u32) -> IpAddr {
    IpAddr::from((0x0a00_0000 + number).to_be_bytes())
}

impl World {
    fn new(limits: Limits, policy: Policy) -> Self {
        let admission = Admission::with_policy(limits, policy);
        let (devices, strangers) = (VecDeque::new(), VecDeque::new());
        Self { admission, now: Instant::now(), devices, strangers, inside: vec![] }
    }

    fn tick(&mut self) {
        self.now += TICK;
        let now = self.now;
        while let Some((_, mut permit)) = self.devices.pop_front_if(|(done, _)| *done <= now) {
            assert!(permit.admit());
            self.inside.push(permit);
        }
        while self.strangers.pop_front_if(|(done, _)| *done <= now).is_some() {}
    }

    /// A device tries once, and answers a Retry.
    fn device(&mut self, number: u32) -> bool {
        let permit = come(&self.admission, host(number), self.now);
        let came_in = permit.is_some();
        self.devices.extend(permit.map(|permit| (self.now + PROOF, permit)));
        came_in
    }

    /// A stranger answers a Retry, and never proves who it is.
    fn stranger(&mut self, number: u32) {
        let permit = come(&self.admission, host(number), self.now);
        self.strangers.extend(permit.map(|permit| (self.now + TIMEOUT, permit)));
    }

    /// Devices of 50 addresses come in, and leave again after a second.
    fn make_recent(&mut self) {
        for number in 0..50 {
            assert!(self.device(1000 + number));
        }
        (0..2 * TICKS_PER_S).for_each(|_| self.tick());
        self.inside.clear();
    }

    /// For five seconds an attack comes before every device. 33 times a second a device comes back, from one of 50 addresses.
    /// If `new`, another one comes from a new address. Returns whether all came in.
    fn withstands(mut self, new: bool, mut attack: impl FnMut(&mut Self, u32)) -> bool {
        (0..5 * TICKS_PER_S).all(|tick| {
            self.tick();
            attack(&mut self, tick);
            tick % 3 > 0 || self.device(1000 + tick % 50) && (!new || self.device(5000 + tick))
        })
    }
}

fn with_recent(policy: Policy) -> World {
    let mut world = World::new(LIMITS, policy);
    world.make_recent();
    world
}

fn many_addresses_flood(policy: Policy) -> bool {
    let attack = |world: &mut World, tick| (0..30).for_each(|n| world.stranger(100_000 + tick * 30 + n));
    with_recent(policy).withstands(false, attack)
}

fn one_address_floods(policy: Policy) -> bool {
    let attack = |world: &mut World, _| (0..30).for_each(|_| world.stranger(FLOODER));
    with_recent(policy).withstands(true, attack)
}

fn a_recent_address_floods(policy: Policy) -> bool {
    let mut world = with_recent(policy);
    assert!(world.device(FLOODER));
    (0..TICKS_PER_S).for_each(|_| world.tick());
    world.withstands(false, |world, tick| {
        (0..30).for_each(|n| world.stranger(100_000 + tick * 30 + n));
        (0..30).for_each(|_| world.stranger(FLOODER));
    })
}

fn forged_addresses_flood(policy: Policy) -> bool {
    with_recent(policy).withstands(true, |world, tick| {
        for number in 0..30 {
            let decision = world.admission.decide(host(100_000 + tick * 30 + number), false, world.now);
            if let Decision::Accept(permit) = decision {
                world.strangers.push_back((world.now + TIMEOUT, permit));
            }
        }
    })
}

/// Within every limit per second, but all its connections stay open until they time out.
fn a_stranger_trickles(policy: Policy) -> bool {
    let mut world = with_recent(policy);
    for _ in 0..20 * TICKS_PER_S {
        world.tick();
        world.stranger(FLOODER);
    }
    world.withstands(true, |world, _| world.stranger(FLOODER))
}

/// After a restart of the gateway no address is recent. All devices try at once, and again every second.
fn a_router_with_10_000_devices(policy: Policy) -> bool {
    let all = 10_000;
    let mut world = World::new(Limits { connections: all, per_address: all, ..LIMITS }, policy);
    let mut away = all;
    for _ in 0..20 {
        away -= (0..away).filter(|_| world.device(FLOODER)).count();
        (0..TICKS_PER_S).for_each(|_| world.tick());
    }
    world.inside.len() == all
}

#[test]
fn devices_that_came_in_before_still_come_in() {
    for (name, scenario) in SCENARIOS {
        assert!(scenario(POLICY), "{name}");
    }
}

#[test]
fn each_changed_constant_fails_known_scenarios() {
    let fields: [(&str, Field); 6] = [
        ("unvalidated", |policy| &mut policy.unvalidated),
        ("one_address", |policy| &mut policy.one_address),
        ("reserved", |policy| &mut policy.reserved),
        ("one_recent_address", |policy| &mut policy.one_recent_address),
        ("unproven", |policy| &mut policy.unproven),
        ("min_unproven", |policy| &mut policy.min_unproven),
    ];
    let mut failed = vec![];
    for (field, value) in fields {
        for (change, factor) in [("halved", 1), ("doubled", 4)] {
            let mut policy = POLICY;
            *value(&mut policy) = *value(&mut policy) * factor / 2;
            let fails = SCENARIOS.iter().filter(|(_, scenario)| !scenario(policy));
            failed.extend(fails.map(|(name, _)| format!("{field} {change}: {name}")));
        }
    }
    // One address must leave as much for another one, in the shared part and in the reserved one.
    let expected = [
        "unvalidated doubled: one address floods",
        "unvalidated doubled: a stranger trickles",
        "one_address doubled: one address floods",
        "one_address doubled: a stranger trickles",
        "reserved halved: a recent address and many others flood",
        "reserved doubled: one address floods",
        "reserved doubled: a stranger trickles",
        "one_recent_address doubled: a recent address and many others flood",
    ];
    assert_eq!(failed, expected);
}
