//! Follows a page: once a second, the parts that have changed.

use std::{
    collections::HashMap,
    convert::Infallible,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use axum::{
    extract::{Query, State},
    http::{HeaderMap, StatusCode, Uri},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream;
use serde::Deserialize;
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::{Dashboard, requests::Reader};
use crate::http::{access::cookie_of, pages::Page};

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// A browser connects again after this time.
const LONGEST: Duration = Duration::from_secs(600);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Followed {
    /// Path and query of the page.
    of: String,
}

struct Follower {
    site: Arc<Dashboard>,
    page: Page,
    reader: Reader,
    secret: Option<String>,
    /// Digest of each part as it was sent.
    sent: HashMap<&'static str, u64>,
    hasher: RandomState,
    began: Instant,
    waiting: Vec<Event>,
    over: bool,
    _place: OwnedSemaphorePermit,
}

pub(super) async fn follow(
    State(site): State<Arc<Dashboard>>,
    reader: Reader,
    headers: HeaderMap,
    Query(Followed { of }): Query<Followed>,
) -> Response {
    let Some(page) = page_of(&of) else {
        return (StatusCode::NOT_FOUND, "this page does not change\n").into_response();
    };
    let Ok(place) = site.following.clone().try_acquire_owned() else {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "too many pages follow the run; load the page again by hand\n",
        )
            .into_response();
    };
    let follower = Follower {
        site,
        page,
        reader,
        secret: cookie_of(&headers).map(str::to_owned),
        sent: HashMap::new(),
        hasher: RandomState::new(),
        began: Instant::now(),
        waiting: vec![],
        over: false,
        _place: place,
    };
    let events = stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((Ok::<_, Infallible>(event), follower))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// The page that is followed; `None` for pages that do not change.
fn page_of(of: &str) -> Option<Page> {
    let uri: Uri = of.parse().ok()?;
    if uri.authority().is_some() {
        return None;
    }
    match uri.path() {
        "/" => Some(Page::Overview),
        "/tiers" => Some(Page::Tiers),
        "/devices" => Some(Page::Devices(Query::try_from_uri(&uri).ok()?.0)),
        "/device" => {
            let Query(super::super::pages::NameQuery { name }) = Query::try_from_uri(&uri).ok()?;
            Some(Page::Device(name))
        }
        "/rounds" => {
            let Query(super::super::pages::PageQuery { page }) = Query::try_from_uri(&uri).ok()?;
            Some(Page::Rounds(page.unwrap_or(1)))
        }
        // As `Page::follows` says.
        _ => None,
    }
}

impl Follower {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop() {
                return Some(event);
            }
            if self.over || self.began.elapsed() > LONGEST {
                return None;
            }
            if !self.sent.is_empty() {
                tokio::time::sleep(EVERY).await;
            }
            if self.reader.user.is_some() && self.site.user_of(self.secret.as_deref(), false).await.is_none()
            {
                self.over = true;
                return Some(Event::default().event("closed").data("session"));
            }
            let (page, user) = (self.page.clone(), self.reader.user.clone());
            let parts = self.site.make(user, None, move |view| page.parts(view)).await?;
            for part in parts {
                // An event cannot hold this letter; HTML spells it.
                let html = part.element.to_string().replace('\r', "&#13;");
                let digest = self.hasher.hash_one(&html);
                if self.sent.insert(part.id, digest) != Some(digest) && part.follows {
                    self.waiting.push(Event::default().event("part").data(html));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_that_change_are_followed() {
        for of in ["/", "/tiers", "/devices?sort=loss&order=down", "/device?name=a%20b", "/rounds?page=2"] {
            assert!(page_of(of).is_some(), "{of}");
        }
        for of in [
            "",
            "/round?number=1",
            "/login",
            "/events",
            "http://evil.example/../x",
            "http://evil.example/",
            "\u{0}",
            "/devices?page=x",
        ] {
            assert!(page_of(of).is_none(), "{of}");
        }
        assert_eq!(page_of("/device?name=..%2F%3Cb%3E"), Some(Page::Device("../<b>".into())));
    }
}
