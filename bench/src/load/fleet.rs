//! All devices: enrols them, connects a few at a time, and runs them to the end of the run.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use aggregator::ca::{Authority, Existing, GrantOptions};
use client::host::{Identity, SILENCE, client_config};
use common::{DeviceId, wire};
use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig};
use tokio::{sync::Semaphore, task::JoinSet};

use super::{Connected, LoadError, LoadLog, LoadOptions, device::Device, turns::Turns, updates::Updates};

/// Devices that share a socket. Real devices have one each, but a socket costs this process 3 MB.
const PER_SOCKET: usize = 16;
/// Attempts of a device to connect before it gives up.
const ATTEMPTS: u64 = 20;
/// Lost connections after which a device gives up.
const LOSSES: u64 = 5;
const PAUSE: Duration = Duration::from_millis(250);

/// A device and its identity.
#[derive(Clone, Debug)]
pub(super) struct LoadDevice {
    pub device: DeviceId,
    pub identity: Identity,
}

pub(super) fn enrol(authority: &Authority, devices: usize) -> Result<Vec<LoadDevice>, LoadError> {
    let enrol = |index: usize| {
        let name = format!("load-{index:05}");
        let device: DeviceId = name
            .parse()
            .map_err(|_| LoadError::Device { device: name, what: "not a valid device name".into() })?;
        // The names may be enrolled already if the gateway was loaded before.
        let bundle = authority.enroll_as(&device, GrantOptions::default(), Existing::Replace, None)?;
        let identity = Identity::parse(bundle.as_bytes())?;
        Ok(LoadDevice { device, identity })
    };
    (0..devices).map(enrol).collect()
}

/// What all devices share.
struct SharedState {
    server: SocketAddr,
    updates: Updates,
    log: Arc<LoadLog>,
    turns: Arc<Turns>,
    /// Permits of devices that are connecting.
    gate: Semaphore,
    started: Instant,
    connected: Mutex<Connected>,
}

/// Connects all devices and waits for the end of the run.
pub(super) async fn run(
    server: SocketAddr,
    members: &[LoadDevice],
    options: &LoadOptions,
    log: Arc<LoadLog>,
    turns: Arc<Turns>,
) -> Result<Connected, LoadError> {
    let common = Arc::new(SharedState {
        server,
        updates: Updates::new(options.seed),
        log,
        turns,
        gate: Semaphore::new(options.concurrency.max(1)),
        started: Instant::now(),
        connected: Mutex::new(Connected { devices: 0, seconds: 0.0, repeated: 0, lost: 0 }),
    });
    let endpoints = endpoints(members.len())?;
    let mut conversations = JoinSet::new();
    for (index, member) in members.iter().enumerate() {
        let endpoint = endpoints[socket_of(index)].clone();
        conversations.spawn(converse(common.clone(), endpoint, index, member.clone()));
    }
    while let Some(ended) = conversations.join_next().await {
        ended.map_err(|error| LoadError::Device { device: "a device".into(), what: error.to_string() })??;
    }
    for endpoint in endpoints {
        endpoint.wait_idle().await;
    }
    let connected = *common.connected.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(connected)
}

async fn converse(
    common: Arc<SharedState>,
    endpoint: Endpoint,
    index: usize,
    member: LoadDevice,
) -> Result<(), LoadError> {
    let named = |what: String| LoadError::Device { device: member.device.to_string(), what };
    let mut lost = 0;
    loop {
        let mut device = {
            let _place = common.gate.acquire().await.map_err(|closed| named(closed.to_string()))?;
            let config = client_config(&member.identity, &[wire::ALPN], SILENCE)
                .map_err(|error| LoadError::Tls(error.to_string()))?;
            let (connection, repeated) = connect(&endpoint, common.server, &member, &config).await?;
            let mut device = Device::open(connection, index).await.map_err(named)?;
            device.join(&member.device).await.map_err(named)?;
            let mut connected = common.connected.lock().unwrap_or_else(PoisonError::into_inner);
            connected.repeated += repeated;
            if lost == 0 {
                connected.devices += 1;
                connected.seconds = common.started.elapsed().as_secs_f64();
            } else {
                connected.lost += 1;
            }
            device
        };
        match device.take_part(&common.updates, &common.log, &common.turns).await {
            Ok(()) => {
                // Measures memory while the other devices are still connected.
                common.log.look();
                return Ok(());
            }
            // A real device reconnects, too.
            Err(_) if lost < LOSSES => lost += 1,
            Err(what) => return Err(named(what)),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

pub(super) fn socket_of(index: usize) -> usize {
    index / PER_SOCKET
}

pub(super) fn endpoints(devices: usize) -> Result<Vec<Endpoint>, LoadError> {
    let open = |_| endpoint().map_err(|source| LoadError::Io { what: "cannot open a socket".into(), source });
    (0..devices.div_ceil(PER_SOCKET)).map(open).collect()
}

fn endpoint() -> io::Result<Endpoint> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    // Asks for the largest buffer available. With a smaller one, shared sockets would drop packets that separate ones
    // would not.
    let room = rustix::net::sockopt::socket_recv_buffer_size(&socket)?.saturating_mul(PER_SOCKET);
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, room);
    Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(quinn::TokioRuntime))
}

/// Connects, with retries; also returns the number of retries.
pub(super) async fn connect(
    endpoint: &Endpoint,
    server: SocketAddr,
    member: &LoadDevice,
    config: &ClientConfig,
) -> Result<(Connection, u64), LoadError> {
    let named = |what: String| LoadError::Device { device: member.device.to_string(), what };
    let mut repeated = 0;
    loop {
        let connecting = endpoint
            .connect_with(config.clone(), server, wire::SERVER_NAME)
            .map_err(|error| named(error.to_string()))?;
        match connecting.await {
            Ok(connection) => return Ok((connection, repeated)),
            Err(error) if repeated == ATTEMPTS => return Err(named(error.to_string())),
            Err(_) => repeated += 1,
        }
        tokio::time::sleep(PAUSE).await;
    }
}
