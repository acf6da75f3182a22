//! Hostile devices and strangers against a running aggregator. Each is refused with a code, and nothing of it reaches
//! the model. Honest devices then complete their rounds.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use common::{
    Budget, Code, Tier,
    message::{DataSummary, Hello, Offer, Refusal, Scalars, ToAggregator},
    wire,
};
use fleet::{
    gateway::{Gateway, Serving},
    raw::{Fate, Raw, control, hello, honest, tls},
};

/// Each takes one place in the first round.
const LIARS: [&str; 8] =
    ["bad-bytes", "bad-inf-loss", "bad-loss", "bad-model", "bad-nan", "bad-round", "bad-samples", "replays"];

struct Town {
    gateway: Gateway,
    serving: Serving,
    /// The model file before any training.
    model: Vec<u8>,
}

impl Town {
    fn new(config: &str, devices: &[&str]) -> Self {
        let gateway = Gateway::new(config, devices);
        let serving = gateway.serve("127.0.0.1:0", &[]);
        let model = fleet::process::wait_for("model.onnx", || fs::read(gateway.path("gw/model.onnx")).ok());
        Self { gateway, serving, model }
    }

    async fn connect(&self, device: &str) -> Raw {
        let identity = fs::read(self.gateway.identity(device)).unwrap();
        Raw::connect(&self.serving.address, tls(&identity, false)).await.unwrap()
    }

    fn assert_untouched(&self) {
        let now = fs::read(self.gateway.path("gw/model.onnx")).unwrap();
        assert!(now == self.model, "the model file has changed");
    }

    /// Two honest devices finish the run. Returns the output of the aggregator.
    fn finish_with(self, devices: [&str; 2]) -> String {
        let Self { gateway, mut serving, .. } = self;
        assert!(serving.process.is_running());
        let start =
            |(index, name): (usize, &&str)| gateway.device(&serving, name, &format!("{index}/2"), &[]);
        let started: Vec<_> = devices.iter().enumerate().map(start).collect();
        started.into_iter().for_each(|device| _ = device.succeed());
        let status = gateway.wait_committed(1);
        let named: Vec<_> = status["last_round"]["devices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line["device"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(named, devices);
        assert!(gateway.parameters().iter().all(|value| value.is_finite()));
        serving.process.terminate();
        serving.process.succeed()
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn assert_refused(what: &str, fate: Fate, code: Code) {
    assert_eq!(fate.refusal.map(|refusal| refusal.code), Some(code), "{what}: {fate:?}");
    assert_eq!(fate.closed, Some(code), "{what}: {fate:?}");
}

#[test]
fn invalid_frames_are_refused_with_their_code() {
    let town = Town::new("run = { rounds = 1, min_devices = 2 }", &["bad", "good-0", "good-1"]);
    block_on(async {
        let good = control(&ToAggregator::Hello(hello("bad")));

        let mut raw = town.connect("bad").await;
        raw.write(&wire::frame_prefix(good.len())).await;
        raw.write(&good[..good.len() / 2]).await;
        raw.stop_talking();
        assert_refused("truncated frame", raw.fate().await, Code::BadFrame);

        let mut raw = town.connect("bad").await;
        let mut garbled = good.clone();
        garbled[7] ^= 0x10;
        raw.frame(&garbled).await;
        assert_refused("garbled frame", raw.fate().await, Code::BadChecksum);

        let mut raw = town.connect("bad").await;
        raw.frame(&sealed(9, 0, &good[2..good.len() - 4])).await;
        assert_refused("other protocol version", raw.fate().await, Code::WrongVersion);

        let mut raw = town.connect("bad").await;
        raw.frame(&sealed(wire::FRAME_FORMAT, 7, b"what is this")).await;
        assert_refused("unknown kind", raw.fate().await, Code::BadFrame);

        let mut raw = town.connect("bad").await;
        raw.frame(&sealed(wire::FRAME_FORMAT, 0, &[0xff; 40])).await;
        assert_refused("no message", raw.fate().await, Code::BadMessage);

        for prefix in [0, 5, 1 << 20, u32::MAX] {
            let mut raw = town.connect("bad").await;
            raw.write(&u32::to_le_bytes(prefix)).await;
            assert_refused(&format!("length {prefix}"), raw.fate().await, Code::BadFrame);
        }

        // A stream without data, and a connection that is dropped inside a frame.
        drop(town.connect("bad").await);
        let mut raw = town.connect("bad").await;
        raw.write(&good[..3]).await;
        drop(raw);
    });
    town.assert_untouched();
    town.finish_with(["good-0", "good-1"]);
}

/// A frame of any version and kind with the right checksum.
fn sealed(version: u8, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = [&[version, kind][..], body].concat();
    frame.extend(wire::crc32(&frame).to_le_bytes());
    frame
}

#[test]
fn an_unsuitable_hello_is_refused_with_its_code() {
    let town = Town::new("run = { rounds = 1, min_devices = 2 }", &["bad", "good-0", "good-1"]);
    // Even with a single sample per pass.
    let smallest = town.gateway.model().sparing(Tier::new(4).unwrap(), 0).unwrap_err();
    block_on(async {
        let mut raw = town.connect("bad").await;
        raw.say(&ToAggregator::Ready).await;
        assert_refused("Ready before Hello", raw.fate().await, Code::Unexpected);

        let fate = greet(&town, hello("good-0")).await;
        assert_refused("another device's name", fate, Code::WrongIdentity);

        let budget = Budget { ram: smallest - 1, ..Budget::UNLIMITED };
        let fate = greet(&town, Hello { budget, ..hello("bad") }).await;
        assert_refused("a byte too little", fate, Code::DoesNotFit);
        assert_eq!(
            fate.refusal,
            Some(Refusal { code: Code::DoesNotFit, need: smallest, have: smallest - 1 })
        );

        let data = hello("bad").data;
        let fate =
            greet(&town, Hello { data: DataSummary { inputs: 784, ..data.clone() }, ..hello("bad") }).await;
        assert_refused("other samples", fate, Code::WrongData);
        assert_eq!(fate.refusal, Some(Refusal { code: Code::WrongData, need: 64, have: 784 }));
        let fate =
            greet(&town, Hello { data: DataSummary { classes: 11, ..data.clone() }, ..hello("bad") }).await;
        assert_refused("too many classes", fate, Code::WrongData);
        let fate =
            greet(&town, Hello { data: DataSummary { train_samples: 0, ..data.clone() }, ..hello("bad") })
                .await;
        assert_refused("no samples", fate, Code::EmptyShard);
        let fate = greet(&town, Hello { max_nodes: 2, ..hello("bad") }).await;
        assert_refused("no room for the plan", fate, Code::DoesNotFit);
    });
    town.assert_untouched();
    town.finish_with(["good-0", "good-1"]);
}

async fn greet(town: &Town, hello: Hello) -> Fate {
    let mut raw = town.connect("bad").await;
    raw.say(&ToAggregator::Hello(hello)).await;
    raw.fate().await
}

#[test]
fn strangers_are_turned_away() {
    let town = Town::new("run = { rounds = 1, min_devices = 2 }", &["revoked", "good-0", "good-1"]);
    let other = Gateway::new("", &["good-0"]);
    fs::remove_file(town.gateway.path("gw/identity/devices/revoked.crt")).unwrap();
    let own = fs::read(town.gateway.identity("good-0")).unwrap();
    let foreign = fs::read(other.identity("good-0")).unwrap();
    block_on(async {
        let identity = fs::read(town.gateway.identity("revoked")).unwrap();
        let closed = match Raw::connect(&town.serving.address, tls(&identity, false)).await {
            Ok(raw) => raw.fate().await.closed,
            Err(quinn::ConnectionError::ApplicationClosed(close)) => {
                Code::of(u16::try_from(close.error_code.into_inner()).unwrap())
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(closed, Some(Code::UnknownDevice));

        // Without a certificate, a peer can only enrol.
        let anonymous = match Raw::connect(&town.serving.address, tls(&own, true)).await {
            Ok(raw) => raw.fate().await.closed,
            Err(quinn::ConnectionError::ApplicationClosed(close)) => {
                Code::of(u16::try_from(close.error_code.into_inner()).unwrap())
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(anonymous, Some(Code::UnknownDevice));

        // TLS ends these before any message, on the side that notices first.
        for (what, tls) in [
            ("certificate of another authority", foreign_certificate(&own, &foreign)),
            ("trusts another authority", tls(&foreign, false)),
        ] {
            match Raw::connect(&town.serving.address, tls).await {
                Ok(raw) => assert_eq!(raw.fate().await, Fate { refusal: None, closed: None }, "{what}"),
                Err(error) => assert!(is_tls(&error), "{what}: {error}"),
            }
        }
    });
    // The messages that a user sees.
    let run = |identity: std::path::PathBuf, more: &[&str]| {
        let identity = identity.to_str().unwrap().to_owned();
        let args = ["run", "--data", "digits", "--server", &town.serving.address, "--identity", &identity];
        fleet::process::Process::start("stranger", "device", &[&args, more].concat()).fail()
    };
    let output = run(town.gateway.identity("revoked"), &["--leave-after", "0"]);
    assert!(output.contains("E30") && output.contains("fairtier gateway enroll"), "{output}");
    // The server is not authenticated, so it cannot end a device; the device gives up after its own limit.
    let output = run(other.identity("good-0"), &["--give-up-after", "1"]);
    assert!(output.contains("is --server the gateway that made this identity or token?"), "{output}");
    let output = run(town.gateway.identity("good-0"), &["--device", "good-1"]);
    assert!(output.contains("E31") && output.contains("--device"), "{output}");
    let output = run(town.gateway.identity("good-0"), &["--ram", "1k"]);
    assert!(output.contains("E33") && output.contains("needs"), "{output}");
    town.assert_untouched();
    town.finish_with(["good-0", "good-1"]);
}

/// Trusts the right aggregator, but presents a certificate of another authority.
fn foreign_certificate(own: &[u8], foreign: &[u8]) -> rustls::ClientConfig {
    let pem = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (own, foreign) = (pem(own), pem(foreign));
    let authority = &own[own.rfind("-----BEGIN CERTIFICATE").unwrap()..];
    let member = &foreign[..foreign.rfind("-----BEGIN CERTIFICATE").unwrap()];
    tls(format!("{member}{authority}").as_bytes(), false)
}

fn is_tls(error: &quinn::ConnectionError) -> bool {
    match error {
        quinn::ConnectionError::TransportError(error) => (0x100..0x200).contains(&u64::from(error.code)),
        quinn::ConnectionError::ConnectionClosed(close) => {
            (0x100..0x200).contains(&u64::from(close.error_code))
        }
        _ => false,
    }
}

#[test]
fn invalid_updates_are_refused_and_not_counted() {
    let config = "run = { rounds = 2, min_devices = 8 }\nround = { quorum = 0.25 }\n\
                  strategy = { name = \"heterofl\" }";
    let all = [&LIARS[..], &["late", "good-0", "good-1"]].concat();
    let town = Town::new(config, &all);
    block_on(async {
        let mut liars = vec![];
        for name in LIARS {
            let mut raw = town.connect(name).await;
            let welcome = raw.join(hello(name)).await;
            liars.push((name, raw, welcome));
        }
        for (name, mut raw, welcome) in liars {
            let assignment = raw.assignment().await;
            let (good, update) = honest(&assignment, &welcome);
            match name {
                "bad-bytes" => {
                    let mut late = town.connect("late").await;
                    late.join(hello("late")).await;
                    assert_eq!(late.deliver(&good, &update).await, Some(Code::NotSelected));
                    late.leave().await;
                    let mut offer = good;
                    offer.update.bytes += 4;
                    assert_eq!(raw.deliver(&offer, &update).await, Some(Code::WrongShape));
                }
                "bad-inf-loss" => {
                    let offer =
                        with(&good, Scalars { loss_after: Some(f64::INFINITY), ..good.scalars.clone() });
                    assert_eq!(raw.deliver(&offer, &update).await, Some(Code::NonFiniteLoss));
                    // The refusal is final for this round: a correct offer is refused with the same code.
                    assert_eq!(raw.deliver(&good, &update).await, Some(Code::NonFiniteLoss));
                }
                "bad-loss" => {
                    let offer = with(&good, Scalars { loss_before: -1.0, ..good.scalars.clone() });
                    assert_eq!(raw.deliver(&offer, &update).await, Some(Code::NonFiniteLoss));
                }
                "bad-model" => {
                    let offer = Offer { model_check: good.model_check ^ 1, ..good };
                    assert_eq!(raw.deliver(&offer, &update).await, Some(Code::WrongModel));
                }
                "bad-nan" => {
                    let mut update = update;
                    update[400..404].copy_from_slice(&f32::NAN.to_le_bytes());
                    assert_eq!(raw.deliver(&good, &update).await, Some(Code::NonFiniteUpdate));
                }
                "bad-round" => {
                    let mut offer = good.clone();
                    offer.ticket.round += 1;
                    assert_eq!(raw.deliver(&offer, &update).await, Some(Code::WrongRound));
                    let mut offer = good.clone();
                    offer.ticket.run.0 ^= 1;
                    assert_eq!(raw.deliver(&offer, &update).await, Some(Code::WrongRound));
                    let mut offer = good.clone();
                    offer.ticket.attempt += 1;
                    assert_eq!(raw.deliver(&offer, &update).await, Some(Code::WrongRound));
                    // These offers were for another round, so the device may still deliver.
                    let offer = with(&good, Scalars { loss_before: f64::NAN, ..good.scalars.clone() });
                    assert_eq!(raw.deliver(&offer, &update).await, Some(Code::NonFiniteLoss));
                }
                "bad-samples" => {
                    let offer = with(&good, Scalars { samples: 0, ..good.scalars.clone() });
                    assert_eq!(raw.deliver(&offer, &update).await, Some(Code::EmptyShard));
                }
                _ => {
                    town.assert_untouched();
                    assert_eq!(raw.deliver(&good, &update).await, None);
                    // A replay gets the same answer and is counted once.
                    raw.upload(good.update.transfer, 0, &update).await;
                    assert_eq!(raw.deliver(&good, &update).await, None);
                }
            }
            raw.leave().await;
        }
        let status = town.gateway.wait_committed(1);
        let round = &status["last_round"];
        let named = |key: &str| -> Vec<String> {
            let lines = round[key].as_array().unwrap();
            lines.iter().map(|line| line["device"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(named("devices"), ["replays"], "{round}");
        assert_eq!(named("refused"), LIARS[..7], "{round}");
        assert_eq!(round["devices"][0]["weight"], 1.0);
        // The only accepted update is zero, so the model does not change.
        let model = models::Graph::from_onnx(&town.model).unwrap().1;
        assert_eq!(town.gateway.parameters(), model);
    });
    // The second round needs two devices, and the hostile ones have left.
    town.finish_with(["good-0", "good-1"]);
}

fn with(offer: &Offer, scalars: Scalars) -> Offer {
    Offer { scalars, ..offer.clone() }
}

#[test]
fn repeated_requests_cost_no_more_than_one() {
    let town = Town::new("run = { rounds = 1, min_devices = 3 }", &["bad", "good-0", "good-1"]);
    let identity = fs::read(town.gateway.identity("bad")).unwrap();
    let (address, over) = (town.serving.address.clone(), Arc::new(AtomicBool::new(false)));
    let flood = {
        let over = over.clone();
        thread::spawn(move || block_on(ask_without_end(&address, &identity, &over)))
    };
    let output = town.finish_with(["good-0", "good-1"]);
    over.store(true, Ordering::Relaxed);
    let asked = flood.join().unwrap();
    assert!(asked >= 5000, "{asked} questions");
    let count =
        |what: &[&str]| output.lines().filter(|line| what.iter().all(|word| line.contains(word))).count();
    // Exports: one per model. Registrations: one at first and one per round.
    let (exported, registered) = (count(&[" exported"]), count(&[" registered", "bad"]));
    assert!((1..=2).contains(&exported), "{exported} exports for {asked} questions");
    assert!((1..=3).contains(&registered), "{registered} registrations for {asked} questions");
}

/// Repeats Hello with another budget and a request for the model file, without doing any work. Returns the number
/// of requests.
async fn ask_without_end(server: &str, identity: &[u8], over: &AtomicBool) -> usize {
    let mut raw = Raw::connect(server, tls(identity, false)).await.unwrap();
    raw.join(hello("bad")).await;
    let mut asked = 0;
    while asked < 5000 || !over.load(Ordering::Relaxed) && asked < 100_000 {
        for _ in 0..50 {
            asked += 1;
            let budget = Budget { ram: Budget::UNLIMITED.ram - asked as u64, ..Budget::UNLIMITED };
            raw.say(&ToAggregator::Hello(Hello { budget, ..hello("bad") })).await;
            raw.say(&ToAggregator::PullOnnx).await;
        }
        raw.say(&ToAggregator::Refusal(Code::NotReady.into())).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    asked
}
