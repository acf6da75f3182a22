//! Who may see the pages, and who may change the run.
//!
//! | module | knows |
//! |---|---|
//! | `accounts` | names, roles and hashes of passwords, in a file |
//! | `sessions` | who is logged in, and until when |
//! | `attempts` | how often a name or an address has failed |

use axum::http::{HeaderMap, header};

mod accounts;
mod attempts;
mod sessions;

pub use accounts::{AccountError, Accounts, Role};
pub use attempts::Attempts;
pub use sessions::{Sessions, User};

/// The cookie of a session. It is sent to this host alone, and never with a request that another site starts.
const COOKIE: &str = "fairtier_session";

/// The session's secret in a request.
pub fn cookie_of(headers: &HeaderMap) -> Option<&str> {
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    pairs
        .flat_map(|text| text.split(';'))
        .find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// The header that gives a browser its session; `secure`: only for HTTPS.
pub fn set_cookie(secret: &str, secure: bool) -> String {
    let secure = if secure { "; Secure" } else { "" };
    format!("{COOKIE}={secret}; Path=/; HttpOnly; SameSite=Strict{secure}")
}

/// The header that takes it away.
pub fn clear_cookie() -> String {
    format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0")
}

/// Whether a request that changes something comes from a page of this host: a browser states the origin of every such request.
pub fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &axum::http::HeaderValue| value.to_str().ok());
    let (Some(origin), Some(host)) = (text(header::ORIGIN), text(header::HOST)) else { return false };
    origin.split_once("://").is_some_and(|(_, of)| of.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_request_of_another_site_changes_nothing() {
        for (origin, own) in [
            ("http://127.0.0.1:8080", true),
            ("https://127.0.0.1:8080", true),
            ("http://127.0.0.1:8081", false),
            ("http://evil.example", false),
            ("null", false),
            ("http://127.0.0.1:8080.evil.example", false),
        ] {
            let sent = HeaderMap::from_iter([
                (header::HOST, "127.0.0.1:8080".parse().unwrap()),
                (header::ORIGIN, origin.parse().unwrap()),
            ]);
            assert_eq!(is_same_origin(&sent), own, "{origin}");
        }
        assert!(!is_same_origin(&headers(&[("host", "127.0.0.1:8080")])), "no origin is stated");
    }

    #[test]
    fn the_session_is_found_among_other_cookies() {
        let sent = headers(&[("cookie", "a=b; fairtier_session=xyz; fairtier_session_=1")]);
        assert_eq!(cookie_of(&sent), Some("xyz"));
        assert_eq!(cookie_of(&headers(&[("cookie", "fairtier_sessionx=1")])), None);
    }
}
