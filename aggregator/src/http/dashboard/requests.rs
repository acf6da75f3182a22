//! Requests that only read.

use std::{sync::Arc, time::Instant};

use axum::{
    extract::{FromRequestParts, Query, State},
    http::{StatusCode, header, request::Parts},
    response::{Html, IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::Dashboard;
use crate::http::{
    access::{User, cookie_of},
    pages::{DevicesQuery, NameQuery, Page, PageQuery, RoundQuery, SCRIPT, message, style},
};

/// Someone who may read: logged in, or on a loopback address where no login is needed.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    pub user: Option<User>,
    /// What the action has done that led to this page.
    said: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    said: String,
}

impl FromRequestParts<Arc<Dashboard>> for Reader {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, dashboard: &Arc<Dashboard>) -> Result<Self, Response> {
        let user = dashboard.user_of(cookie_of(&parts.headers), parts.uri.path() != "/events").await;
        if user.is_none() && dashboard.options.login_to_read {
            return Err(Redirect::to("/login").into_response());
        }
        let said = user.as_ref().and_then(|_| {
            let Query(Said { said }) = Query::try_from_uri(&parts.uri).ok()?;
            dashboard.sessions.told(cookie_of(&parts.headers)?, &said)
        });
        Ok(Self { user, said })
    }
}

impl Dashboard {
    /// The user of a session. An account that was removed or has another role ends it.
    pub(super) async fn user_of(self: &Arc<Self>, secret: Option<&str>, used: bool) -> Option<User> {
        let secret = secret?.to_owned();
        let user = self.sessions.find(&secret, used, Instant::now())?;
        let this = self.clone();
        tokio::task::spawn_blocking(move || {
            // An unreadable file ends no session.
            let same = this.accounts.role(&user.name).map_or(true, |role| role == Some(user.role));
            if !same {
                this.sessions.end(&secret);
            }
            same.then_some(user)
        })
        .await
        .ok()?
    }

    async fn show(self: Arc<Self>, page: Page, Reader { user, said }: Reader) -> Response {
        match self.html(page, user, said).await {
            Some(html) => Html(html).into_response(),
            None => (StatusCode::INTERNAL_SERVER_ERROR, Html(message("Error", "The page cannot be made.")))
                .into_response(),
        }
    }
}

type Site = State<Arc<Dashboard>>;

pub(super) async fn overview(State(site): Site, reader: Reader) -> Response {
    site.show(Page::Overview, reader).await
}

pub(super) async fn tiers(State(site): Site, reader: Reader) -> Response {
    site.show(Page::Tiers, reader).await
}

pub(super) async fn devices(
    State(site): Site,
    reader: Reader,
    Query(query): Query<DevicesQuery>,
) -> Response {
    site.show(Page::Devices(query), reader).await
}

pub(super) async fn device(State(site): Site, reader: Reader, Query(query): Query<NameQuery>) -> Response {
    site.show(Page::Device(query.name), reader).await
}

pub(super) async fn rounds(State(site): Site, reader: Reader, Query(query): Query<PageQuery>) -> Response {
    site.show(Page::Rounds(query.page.unwrap_or(1)), reader).await
}

pub(super) async fn round(State(site): Site, reader: Reader, Query(query): Query<RoundQuery>) -> Response {
    match site.round(query).await {
        Some(round) => site.show(Page::Round(Box::new(round)), reader).await,
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

pub(super) async fn style_sheet() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")], style())
        .into_response()
}

pub(super) async fn script() -> Response {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")], SCRIPT)
        .into_response()
}

pub(super) async fn not_found(_: Reader) -> Response {
    (StatusCode::NOT_FOUND, Html(message("Not found", "There is no such page."))).into_response()
}
