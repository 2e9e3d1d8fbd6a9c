//! Calling webhooks: one question, one answer, over TLS, in a bounded time. The only I/O of the chain.
//!
//! Connections are kept and shared (HTTP/2 if the webhook speaks it). The server shows its own client certificate, so
//! that a webhook can turn everybody else away.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use certs::{ALPN_H1, ALPN_H2, Issued};
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::config::{Kind, Webhook};
use super::review::{self, Verdict};
use crate::admission::Attributes;
use crate::error::Error;
use crate::filter::metrics::{Metrics, WebhookLabels};

mod connect;

use connect::Connector;

/// Largest answer: a patch may replace the largest object, and base64 makes four bytes of three.
const ANSWER_MAX: usize = 8 * 1024 * 1024;
/// Most different trust bundles with connections of their own. There are about as many as there are webhooks; a server
/// that sees more begins anew rather than keeping all of them.
const CLIENTS_MAX: usize = 64;
/// How long an unused connection is kept.
const IDLE_MAX: Duration = Duration::from_secs(90);
/// Time between two pings on an HTTP/2 connection in use, and for their answer: finds a webhook that is gone.
const PING: Duration = Duration::from_secs(15);

/// What came of asking.
pub(super) enum Asked {
    /// The webhook said something that makes sense.
    Answered(Verdict),
    /// It could not be asked, or made no sense.
    Failed(Failure),
}

/// Why a webhook's word is not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Its configuration cannot be used.
    #[error("{0}")]
    Configuration(String),
    /// The question could not be written.
    #[error("encoding the request: {0}")]
    Encode(#[from] serde_json::Error),
    /// No TLS client can be made.
    #[error("preparing TLS: {0}")]
    Tls(#[from] certs::Error),
    /// The question was not delivered or not answered.
    #[error("failed to call webhook: Post \"{url}\": {reason}")]
    Call {
        /// Where it went.
        url: String,
        /// What happened.
        reason: String,
    },
    /// The answer is none.
    #[error("{0}")]
    Answer(String),
}

impl Failure {
    /// What the client is told when the failure policy is Fail.
    pub(super) fn into_error(self, webhook: &Webhook) -> Error {
        Error::internal(format!("failed calling webhook {:?}: {self}", webhook.name))
    }
}

type Https = Client<Connector, Full<Bytes>>;

/// Calls webhooks.
pub struct Caller {
    metrics: Arc<Metrics>,
    /// Names of the servers that are shown the identity; `None`: whoever asks for one.
    shown_to: Option<Vec<String>>,
    state: Mutex<State>,
}

struct State {
    identity: Option<Issued>,
    /// By trust bundle, and whether the identity is shown: connections made under one must never serve a webhook of another.
    clients: BTreeMap<(String, bool), Https>,
}

impl Caller {
    /// A caller that shows `identity` to webhooks that ask for a certificate.
    #[must_use]
    pub fn new(identity: Option<Issued>, metrics: Arc<Metrics>) -> Self {
        Self { metrics, shown_to: None, state: Mutex::new(State { identity, clients: BTreeMap::new() }) }
    }

    /// The same, for webhooks by the names in their URLs: others would refuse a certificate of an authority they do not know, where
    /// they let in who shows none.
    #[must_use]
    pub fn showing_to(mut self, names: Vec<String>) -> Self {
        self.shown_to = Some(names);
        self
    }

    /// Where calls are counted.
    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Shows another certificate from the next connection on.
    pub fn renew(&self, identity: Issued) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.identity = Some(identity);
        state.clients.clear();
    }

    /// Asks one webhook about `object` (null on DELETE).
    pub(super) async fn ask(&self, kind: Kind, webhook: &Webhook, attributes: &Attributes, object: &Value) -> Asked {
        let started = Instant::now();
        let uid = uuid::Uuid::new_v4().to_string();
        let answer = self.converse(webhook, &uid, attributes, object).await;
        let asked = match answer
            .and_then(|bytes| review::verdict(kind, webhook.review, &uid, &bytes).map_err(Failure::Answer))
        {
            Ok(verdict) => Asked::Answered(verdict),
            Err(failure) => Asked::Failed(failure),
        };
        self.count(kind, webhook, attributes, &asked, started.elapsed());
        asked
    }

    async fn converse(
        &self,
        webhook: &Webhook,
        uid: &str,
        attributes: &Attributes,
        object: &Value,
    ) -> Result<Bytes, Failure> {
        let target = webhook.target.as_ref().map_err(|fault| Failure::Configuration(fault.clone()))?;
        let question = review::question(webhook.review, uid, attributes, object)?;
        let client = self.client(&target.authorities_pem, self.is_shown_to(&target.url))?;
        let url = with_timeout(&target.url, webhook.timeout);
        let failed = |reason: String| Failure::Call { url: url.clone(), reason };
        let request = request(&url, question).map_err(|error| failed(error.to_string()))?;
        match timeout(webhook.timeout, exchange(&client, request)).await {
            Ok(outcome) => outcome.map_err(failed),
            Err(_elapsed) => Err(failed("context deadline exceeded".to_owned())),
        }
    }

    fn is_shown_to(&self, url: &Uri) -> bool {
        self.shown_to.as_ref().is_none_or(|names| names.iter().any(|name| url.host() == Some(name.as_str())))
    }

    fn client(&self, authorities_pem: &str, is_shown: bool) -> Result<Https, certs::Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let which = (authorities_pem.to_owned(), is_shown);
        if let Some(client) = state.clients.get(&which) {
            return Ok(client.clone());
        }
        let identity = state.identity.as_ref().filter(|_| is_shown);
        let tls = certs::client_config(authorities_pem, identity, &[ALPN_H2, ALPN_H1])?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .http2_keep_alive_interval(PING)
            .http2_keep_alive_timeout(PING)
            .build(Connector::new(tls));
        if state.clients.len() >= CLIENTS_MAX {
            state.clients.clear();
        }
        state.clients.insert(which, client.clone());
        Ok(client)
    }

    fn count(&self, kind: Kind, webhook: &Webhook, attributes: &Attributes, asked: &Asked, took: Duration) {
        let is_ignored = webhook.failure_policy == super::config::FailurePolicy::Ignore;
        let rejected = match asked {
            Asked::Answered(verdict) => !verdict.allowed,
            Asked::Failed(failure) => {
                tracing::warn!(webhook = webhook.name, %failure, ignored = is_ignored, "a webhook could not be asked");
                if is_ignored {
                    self.metrics.webhook_failed_open();
                }
                !is_ignored
            }
        };
        let labels = WebhookLabels {
            name: webhook.name.clone(),
            r#type: kind.metric(),
            operation: attributes.operation.as_str(),
            rejected: if rejected { "true" } else { "false" },
        };
        self.metrics.webhook_called(&labels, took);
    }
}

fn with_timeout(url: &Uri, timeout: Duration) -> String {
    format!("{url}?timeout={}s", timeout.as_secs())
}

fn request(url: &str, question: Vec<u8>) -> http::Result<Request<Full<Bytes>>> {
    let json = HeaderValue::from_static("application/json");
    Request::builder()
        .method(Method::POST)
        .uri(url)
        .header(CONTENT_TYPE, json.clone())
        .header(ACCEPT, json)
        .header(USER_AGENT, "kun-apiserver-admission")
        .body(Full::new(Bytes::from(question)))
}

/// Sends the question and reads the answer, up to its limit. Redirects are not followed: they would carry an object to
/// a place nobody named.
async fn exchange(client: &Https, request: Request<Full<Bytes>>) -> Result<Bytes, String> {
    let response = client.request(request).await.map_err(|error| explain(&error))?;
    if response.status() != StatusCode::OK {
        return Err(format!("the webhook answered {}", response.status()));
    }
    match Limited::new(response.into_body(), ANSWER_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(format!("the answer is larger than {ANSWER_MAX} bytes")),
        Err(error) => Err(format!("reading the answer: {error}")),
    }
}

/// The last cause of an error is the one that helps.
fn explain(error: &legacy::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
