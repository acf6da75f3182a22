//! What every answer carries, and which requests are looked at: those for a host that the gateway has.
//!
//! A page of another site can make a browser look up its own name as 127.0.0.1, and would then read the dashboard as its own.
//! It cannot change the name in the request, so a name that is not the gateway's is refused.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};

/// Bytes of a request's body.
const BODY: usize = 16 << 10;
/// For the answer to a request, up to its first byte.
const ANSWER: Duration = Duration::from_secs(30);

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/// Names under which the gateway may be asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowedHosts {
    /// Besides `localhost` and addresses.
    pub names: Vec<String>,
    /// Only loopback addresses, not all.
    pub loopback_only: bool,
}

impl AllowedHosts {
    /// `host`: as in a request, with or without a port.
    pub fn allows(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        };
        if let Ok(address) = name.parse::<IpAddr>() {
            return !self.loopback_only || address.to_canonical().is_loopback();
        }
        name.eq_ignore_ascii_case("localhost") || self.names.iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}

/// A router behind these checks.
pub fn guarded(router: Router, hosts: AllowedHosts) -> Router {
    let hosts = Arc::new(hosts);
    let check = move |request: Request, next: Next| {
        let hosts = hosts.clone();
        async move {
            let mut answer = if host_of(request.headers()).is_some_and(|host| hosts.allows(host)) {
                match tokio::time::timeout(ANSWER, next.run(request)).await {
                    Ok(answer) => answer,
                    Err(_) => {
                        (StatusCode::SERVICE_UNAVAILABLE, "the gateway is busy; try again\n").into_response()
                    }
                }
            } else {
                (StatusCode::MISDIRECTED_REQUEST, "this gateway has another name\n").into_response()
            };
            decorate(&mut answer);
            answer
        }
    };
    router.layer(DefaultBodyLimit::max(BODY)).layer(middleware::from_fn(check))
}

fn host_of(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::HOST).iter();
    match (all.next(), all.next()) {
        (Some(host), None) => host.to_str().ok(),
        _ => None,
    }
}

fn decorate(answer: &mut Response) {
    let headers: [(HeaderName, &str); 6] = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in headers {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    // Assets say how long they may be kept; pages name devices and their losses.
    answer.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_sites_are_refused() {
        let hosts = AllowedHosts { names: vec!["gw.example".into()], loopback_only: true };
        for own in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:8080", "127.3.2.1", "gw.example:1"]
        {
            assert!(hosts.allows(own), "{own}");
        }
        for other in ["evil.example", "", ":", "[", "192.0.2.1", "[2001:db8::1]:80", "localhost.evil.example"]
        {
            assert!(!hosts.allows(other), "{other}");
        }
        let all = AllowedHosts { names: vec![], loopback_only: false };
        assert!(all.allows("192.0.2.1:443") && !all.allows("gw.example"));
    }
}
