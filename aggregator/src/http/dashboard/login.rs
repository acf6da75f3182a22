//! Login and logout.

use std::{sync::Arc, time::Instant};

use axum::{
    Extension, Form, Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{Html, IntoResponse, Redirect, Response},
    routing::{get, post},
};
use serde::Deserialize;
use tracing::{error, info, warn};

use super::Dashboard;
use crate::{
    config::OPERATOR_LOG,
    http::{
        access::{clear_cookie, cookie_of, is_same_origin, set_cookie},
        listener::Client,
        pages::login,
    },
};

/// Bytes of a name and a password that are looked at.
const LONGEST: usize = 256;

#[derive(Deserialize)]
struct Given {
    name: String,
    password: String,
}

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route("/login", get(form).post(enter)).route("/logout", post(leave))
}

async fn form() -> Response {
    Html(login(None)).into_response()
}

async fn enter(
    State(site): State<Arc<Dashboard>>,
    Extension(Client(address)): Extension<Client>,
    headers: HeaderMap,
    Form(Given { name, password }): Form<Given>,
) -> Response {
    let again = |code: StatusCode, why: &str| (code, Html(login(Some(why)))).into_response();
    if !is_same_origin(&headers) {
        return again(StatusCode::FORBIDDEN, "The request comes from another page. Log in here.");
    }
    if name.len() > LONGEST || password.len() > LONGEST {
        return again(StatusCode::UNAUTHORIZED, "Name or password is wrong.");
    }
    let who = [format!("name {name}"), format!("address {address}")];
    let who: Vec<&str> = who.iter().map(String::as_str).collect();
    if let Some(wait) = site.attempts.begin(&who, Instant::now()) {
        let seconds = wait.as_secs() + 1;
        let why = format!("Too many attempts. Try again in {seconds} s.");
        let mut answer = again(StatusCode::TOO_MANY_REQUESTS, &why);
        answer.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        return answer;
    }
    let Ok(_place) = site.checking.acquire().await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let (accounts, given) = (site.accounts.clone(), name.clone());
    let checked = tokio::task::spawn_blocking(move || accounts.check(&given, &password)).await;
    let account = match checked {
        Ok(Ok(account)) => account,
        Ok(Err(failed)) => {
            error!("no login to the dashboard is possible: {failed}");
            return again(
                StatusCode::INTERNAL_SERVER_ERROR,
                "The accounts cannot be read; see the gateway's log.",
            );
        }
        Err(_) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    let Some(account) = account else {
        warn!(target: OPERATOR_LOG, name = ?name, %address, "a login to the dashboard was refused");
        return again(StatusCode::UNAUTHORIZED, "Name or password is wrong.");
    };
    let Some(secret) = site.sessions.begin(&account.name, account.role, Instant::now()) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    site.attempts.succeed(&who);
    info!(target: OPERATOR_LOG, user = account.name, role = account.role.name(), %address, "logged in to the dashboard");
    ([(header::SET_COOKIE, set_cookie(&secret, site.options.https))], Redirect::to("/")).into_response()
}

async fn leave(State(site): State<Arc<Dashboard>>, headers: HeaderMap) -> Response {
    if !is_same_origin(&headers) {
        return StatusCode::FORBIDDEN.into_response();
    }
    if let Some(secret) = cookie_of(&headers) {
        site.sessions.end(secret);
    }
    ([(header::SET_COOKIE, clear_cookie())], Redirect::to("/")).into_response()
}
