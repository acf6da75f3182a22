//! The addresses that a gateway listens on.

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpListener, UdpSocket},
};

use super::CheckReport;

const ABOUT: &str = "ports";

pub(super) fn check(
    report: &mut CheckReport,
    listen: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    dashboard: Option<SocketAddr>,
    serving: bool,
) {
    if serving {
        return report.ok(ABOUT, "not tried: a server runs in this directory");
    }
    let tries = [
        listen.map(|address| (address, "UDP", UdpSocket::bind(address).map(drop))),
        metrics.map(|address| (address, "TCP", TcpListener::bind(address).map(drop))),
        dashboard.map(|address| (address, "TCP", TcpListener::bind(address).map(drop))),
    ];
    for (address, protocol, bound) in tries.into_iter().flatten() {
        match bound {
            Ok(()) => report.ok(ABOUT, format!("{protocol} {address} can be listened on")),
            Err(error) => {
                let remedy = match error.kind() {
                    ErrorKind::AddrInUse => {
                        "stop the other program, or change server.listen, dashboard.listen, --listen or --metrics"
                    }
                    ErrorKind::AddrNotAvailable => {
                        "use an address of this machine; 0.0.0.0 and [::] are all of them"
                    }
                    ErrorKind::PermissionDenied => "use a port from 1024 on, or allow this user lower ones",
                    _ => "change server.listen, dashboard.listen, --listen or --metrics",
                };
                report.problem(ABOUT, format!("{protocol} {address}: {error}"), remedy);
            }
        }
    }
}
