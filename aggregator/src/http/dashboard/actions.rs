//! What operators can do: revoke, issue a token, pause and resume, export. Each action is logged with its user.
//!
//! After an action the browser is sent to a page, which says what was done. Loading that page again repeats nothing.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Form, Router,
    extract::{FromRequestParts, State},
    http::{StatusCode, header, request::Parts},
    response::{Html, IntoResponse, Redirect, Response},
    routing::post,
};
use common::DeviceId;
use serde::Deserialize;
use tracing::{info, warn};

use super::{Dashboard, requests::Reader};
use crate::{
    ca::{Existing, GrantOptions},
    config::OPERATOR_LOG,
    export,
    http::{
        access::{Role, User, cookie_of, is_same_origin},
        listener::Client,
        pages::{device_link, message},
    },
};

/// Hours for which a token may be valid.
const MOST_HOURS: u64 = 24 * 366;

/// An operator whose request comes from a page of this host.
#[derive(Clone, Debug)]
struct Operator {
    user: User,
    /// Of the session.
    secret: String,
}

impl FromRequestParts<Arc<Dashboard>> for Operator {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, site: &Arc<Dashboard>) -> Result<Self, Response> {
        let Reader { user, .. } = Reader::from_request_parts(parts, site).await?;
        let Ok(Extension(Client(address))) = Extension::<Client>::from_request_parts(parts, site).await
        else {
            return Err(StatusCode::INTERNAL_SERVER_ERROR.into_response());
        };
        let (by, path) = (user.as_ref().map(|user| user.name.clone()), parts.uri.path().to_owned());
        let no = |why: &str| {
            // Without a session anyone could fill the log.
            if let Some(user) = &by {
                warn!(target: OPERATOR_LOG, user, %address, path, why, "an action on the dashboard was refused");
            }
            (StatusCode::FORBIDDEN, Html(message("Not allowed", why))).into_response()
        };
        if !site.options.actions {
            return Err(no("This gateway was started without --dashboard-actions."));
        }
        let (Some(user), Some(secret)) = (user, cookie_of(&parts.headers)) else {
            return Err(no("Log in first."));
        };
        if user.role != Role::Operator {
            return Err(no("This account can only read."));
        }
        if !is_same_origin(&parts.headers) {
            return Err(no("The request comes from another page."));
        }
        Ok(Self { user, secret: secret.to_owned() })
    }
}

#[derive(Deserialize)]
struct Given {
    csrf: String,
    #[serde(default)]
    device: String,
    #[serde(default)]
    hours: String,
    #[serde(default)]
    tier: String,
}

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/actions/revoke", post(revoke))
        .route("/actions/token", post(token))
        .route("/actions/pause", post(pause))
        .route("/actions/resume", post(resume))
        .route("/actions/export", post(send_model))
}

type Site = State<Arc<Dashboard>>;
type Sender = Extension<Client>;

/// The action of a form, if the form was made for this session; then the page that says what was done.
async fn act<F, R>(
    site: &Arc<Dashboard>,
    operator: Operator,
    given: &Given,
    page: String,
    what: F,
) -> Response
where
    F: FnOnce(&Dashboard) -> Result<R, String> + Send + 'static,
    R: Into<String> + Send + 'static,
{
    let Operator { user, secret } = operator;
    if !user.made(&given.csrf) {
        let why = "The form is from another session. Go back, load the page again and repeat it.";
        return (StatusCode::FORBIDDEN, Html(message("Not done", why))).into_response();
    }
    let this = site.clone();
    let done = tokio::task::spawn_blocking(move || what(&this).map(Into::<String>::into)).await;
    match done {
        Ok(Ok(said)) => match site.sessions.tell(&secret, said.clone()) {
            Some(key) => {
                let with = if page.contains('?') { '&' } else { '?' };
                Redirect::to(&format!("{page}{with}said={key}")).into_response()
            }
            // The session has ended meanwhile, and the action is done: a token must not be lost.
            None => Html(message("Done", &said)).into_response(),
        },
        Ok(Err(why)) => (StatusCode::UNPROCESSABLE_ENTITY, Html(message("Not done", &why))).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn revoke(State(site): Site, operator: Operator, from: Sender, Form(given): Form<Given>) -> Response {
    let (name, by) = (given.device.clone(), operator.user.name.clone());
    let address = from.0.0;
    act(&site, operator, &given, device_link(&given.device), move |site| {
        let device = device(&name)?;
        let authority = site.authority.as_ref().ok_or("this directory has no authority")?;
        let revoked = authority.revoke(&device).map_err(|error| error.to_string())?;
        site.members.forget();
        if !revoked {
            return Err(format!("{device} is not enrolled"));
        }
        info!(target: OPERATOR_LOG, user = by, %address, %device, "revoked on the dashboard");
        Ok(format!("{device} is revoked. Its connection is closed within seconds."))
    })
    .await
}

async fn token(State(site): Site, operator: Operator, from: Sender, Form(given): Form<Given>) -> Response {
    let (name, hours, by) = (given.device.clone(), given.hours.clone(), operator.user.name.clone());
    let address = from.0.0;
    act(&site, operator, &given, "/".into(), move |site| {
        let device = device(name.trim())?;
        let hours = hours.trim().parse::<u64>().ok().filter(|hours| (1..=MOST_HOURS).contains(hours));
        let hours = hours.ok_or(format!("hours must be a number from 1 to {MOST_HOURS}"))?;
        let authority = site.authority.as_ref().ok_or("this directory has no authority")?;
        let valid_for = Duration::from_secs(3600 * hours);
        let token = authority
            .token_as(&device, valid_for, GrantOptions::default(), Existing::Refuse)
            .map_err(|error| error.to_string())?;
        info!(target: OPERATOR_LOG, user = by, %address, %device, hours, "issued a token on the dashboard");
        Ok(format!("Token for {device}, valid for {hours} h and shown only now: {token}"))
    })
    .await
}

async fn pause(site: Site, operator: Operator, from: Sender, form: Form<Given>) -> Response {
    set_paused(site, operator, from, form, true).await
}

async fn resume(site: Site, operator: Operator, from: Sender, form: Form<Given>) -> Response {
    set_paused(site, operator, from, form, false).await
}

async fn set_paused(
    State(site): Site,
    operator: Operator,
    from: Sender,
    Form(given): Form<Given>,
    paused: bool,
) -> Response {
    let (by, address) = (operator.user.name.clone(), from.0.0);
    act(&site, operator, &given, "/".into(), move |site| {
        let live = site.options.live.as_ref().ok_or("no server runs, so there is nothing to pause")?;
        live.pause(paused);
        info!(target: OPERATOR_LOG, user = by, %address, "{} on the dashboard", if paused { "paused" } else { "resumed" });
        Ok(if paused {
            "The run is paused: the open round ends, and no other one begins until it is resumed or the gateway restarts."
        } else {
            "The run goes on."
        })
    })
    .await
}

/// The file itself is the answer.
async fn send_model(
    State(site): Site,
    operator: Operator,
    from: Sender,
    Form(given): Form<Given>,
) -> Response {
    let user = operator.user;
    if !user.made(&given.csrf) {
        return (StatusCode::FORBIDDEN, Html(message("Not done", "The form is from another session.")))
            .into_response();
    }
    let tier = match given.tier.as_str() {
        "" => None,
        text => match text.parse::<usize>() {
            Ok(tier) => Some(tier),
            Err(_) => return StatusCode::BAD_REQUEST.into_response(),
        },
    };
    let Ok(_place) = site.computing.acquire().await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let this = site.clone();
    let made = tokio::task::spawn_blocking(move || {
        export::part(&this.options.run, &this.options.config, tier).map_err(|error| format!("{error:#}"))
    });
    match made.await {
        Ok(Ok(bytes)) => {
            info!(target: OPERATOR_LOG, user = user.name, address = %from.0.0, ?tier, "exported on the dashboard");
            let name = tier.map_or("model.onnx".to_owned(), |tier| format!("tier-{tier}.onnx"));
            let headers = [
                (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
                (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
            ];
            (headers, bytes).into_response()
        }
        Ok(Err(why)) => (StatusCode::UNPROCESSABLE_ENTITY, Html(message("Not done", &why))).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn device(name: &str) -> Result<DeviceId, String> {
    name.parse()
        .map_err(|_| format!("{name:?} cannot be the name of a device: up to 32 of a-z A-Z 0-9 . _ -"))
}
