//! What every request passes before a verb sees it, and what every answer passes on its way out: the order, only.
//!
//! The order decides which of several possible answers wins, and is the one of Kubernetes: audit id, panics, readiness,
//! deadline, warnings, authentication, audit, impersonation, in-flight limits, authorization. Each filter is a file of its own. Nothing
//! here knows TLS or sockets (see [`crate::serve`]), and nothing here reads a body.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use certs::Shown;
use futures::FutureExt;
use http::{Method, Request, Response, StatusCode};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::error::Result;
use crate::handler::Handler;
use crate::request::{Annotations, Call, Context, Rights, User, Warnings};
use crate::route;
use crate::wire::body::{RequestBody, ResponseBody, full, respond};
use crate::wire::status;

pub mod audit;
pub mod authn;
pub mod authz;
pub mod body;
pub mod deadline;
pub mod headers;
pub mod health;
mod impersonate;
pub mod lifecycle;
pub mod limit;
pub mod metrics;
pub mod remember;
pub mod rights;

use authn::{Authenticator, Verdict};
use authz::{Attributes, Authorizer};
use health::Health;
use lifecycle::Lifecycle;
use limit::InFlight;
use metrics::Metrics;

/// Who is on the other end of a connection, as TLS established it.
#[derive(Debug)]
pub struct Peer {
    /// Where the connection comes from.
    pub address: SocketAddr,
    /// The client certificate that was shown; it need not mean anything.
    pub shown: Option<Shown>,
    verdict: Verdict,
    /// A request on the connection was from somebody who is known.
    known: AtomicBool,
}

impl Peer {
    /// Somebody, perhaps with a certificate.
    #[must_use]
    pub fn new(address: SocketAddr, shown: Option<Shown>) -> Self {
        Self { address, shown, verdict: Verdict::default(), known: AtomicBool::new(false) }
    }

    /// Whether a request on this connection was from somebody who is known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }
}

/// The edge of the server: every filter, then the handler.
pub struct Edge {
    handler: Arc<dyn Handler>,
    authenticator: Arc<Authenticator>,
    authorizer: Arc<dyn Authorizer>,
    limits: InFlight,
    metrics: Arc<Metrics>,
    /// Starting, serving, stopping.
    pub lifecycle: Arc<Lifecycle>,
    health: Health,
    trail: OnceLock<Arc<audit::Trail>>,
}

/// What is known about one request, from its arrival to its audit line.
struct Exchange {
    started: Instant,
    audit_id: String,
    user_agent: String,
    peer: Arc<Peer>,
    method: Method,
    path: String,
    call: Option<Call>,
    user: Option<User>,
    /// Whom the user acts as, if anybody.
    acts_as: Option<User>,
    record: audit::Record,
    warnings: Warnings,
    annotations: Annotations,
}

impl Edge {
    /// An edge around `handler`.
    #[must_use]
    pub fn new(
        handler: Arc<dyn Handler>,
        authenticator: Arc<Authenticator>,
        authorizer: Arc<dyn Authorizer>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        Self::with_limits(handler, authenticator, authorizer, metrics, InFlight::default())
    }

    /// An edge with other limits on what is in flight.
    #[must_use]
    pub fn with_limits(
        handler: Arc<dyn Handler>,
        authenticator: Arc<Authenticator>,
        authorizer: Arc<dyn Authorizer>,
        metrics: Arc<Metrics>,
        limits: InFlight,
    ) -> Arc<Self> {
        let lifecycle = Arc::new(Lifecycle::default());
        let health = Health::new(handler.clone(), lifecycle.clone());
        let trail = OnceLock::new();
        Arc::new(Self { handler, authenticator, authorizer, limits, metrics, lifecycle, health, trail })
    }

    /// Records what a policy asks for, instead of a line for each change. Only the first call counts.
    pub fn record(&self, trail: Arc<audit::Trail>) {
        if self.trail.set(trail).is_err() {
            tracing::warn!("the API server was given a second audit policy; the first one stays");
        }
    }

    /// Answers one request. There is always an answer, also to a panic.
    ///
    /// A request that may change something runs to its end, and to its audit line, even if the client hangs up.
    pub async fn answer(self: Arc<Self>, peer: Arc<Peer>, request: Request<RequestBody>) -> Response<ResponseBody> {
        let exchange = Exchange::begin(peer, &request);
        if matches!(exchange.method, Method::GET | Method::HEAD) {
            return self.run(exchange, request).await;
        }
        tokio::spawn(self.run(exchange, request)).await.unwrap_or_else(|_stopped| broken())
    }

    async fn run(self: Arc<Self>, mut exchange: Exchange, request: Request<RequestBody>) -> Response<ResponseBody> {
        let passed = AssertUnwindSafe(self.pass(&mut exchange, request)).catch_unwind().await;
        let response = match passed {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => status::response(&error),
            Err(_panic) => {
                tracing::error!(audit_id = %exchange.audit_id, path = %exchange.path, "a request panicked");
                let response = broken();
                std::mem::take(&mut exchange.record).panicked(response.status());
                response
            }
        };
        self.finish(exchange, response)
    }

    /// The filters, in order.
    async fn pass(&self, exchange: &mut Exchange, request: Request<RequestBody>) -> Result<Response<ResponseBody>> {
        body::refuse_upgrade(&request)?;
        let call = route::parse(request.method().as_str(), request.uri().path(), request.uri().query())?;
        exchange.call = Some(call.clone());
        if let Some(answer) = self.health.answer(&call) {
            return Ok(answer);
        }
        self.health.refuse_until_ready()?;
        let deadline = deadline::of(&call, exchange.started)?;
        let mut request = body::limited(request)?;
        let user = self.identify(exchange, &mut request).await?;
        let _in_flight = self.limits.enter(&user, &call, &self.metrics)?;
        let asked = Attributes::of(&call);
        authz::authorize(self.authorizer.as_ref(), &user, &asked, &exchange.annotations).await?;
        if call.path == metrics::PATH && call.resource.is_none() {
            return self.metrics.answer();
        }
        let refused_create = authz::refused_create(self.authorizer.as_ref(), &user, &call, request.headers()).await?;
        let context = Context {
            user,
            refused_create,
            rights: Rights(Arc::clone(&self.authorizer)),
            call,
            deadline,
            warnings: exchange.warnings.clone(),
            annotations: exchange.annotations.clone(),
            record: exchange.record.clone(),
            user_agent: exchange.user_agent.clone(),
            audit_id: exchange.audit_id.clone(),
        };
        deadline::bounded(deadline, self.handler.clone().handle(context, request)).await
    }

    /// Who asks, or whom he may act as; nothing behind this sees the headers that say it.
    async fn identify(&self, exchange: &mut Exchange, request: &mut Request<RequestBody>) -> Result<User> {
        let authenticated = self.authenticator.authenticate(&exchange.peer, request.headers(), Timestamp::now()).await;
        self.begin_record(exchange, request, authenticated.as_ref().ok());
        let user = authenticated?;
        exchange.peer.known.store(true, Ordering::Relaxed);
        self.authenticator.strip(request.headers_mut());
        exchange.user = Some(user.clone());
        let acts_as = impersonate::impersonated(self.authorizer.as_ref(), &user, request.headers()).await?;
        impersonate::strip(request.headers_mut());
        acts_as.iter().for_each(|user| exchange.record.acts_as(user));
        exchange.acts_as.clone_from(&acts_as);
        Ok(acts_as.unwrap_or(user))
    }

    /// Asks the audit policy, if there is one, what is recorded of this request.
    fn begin_record(&self, exchange: &mut Exchange, request: &Request<RequestBody>, user: Option<&User>) {
        let (Some(trail), Some(call)) = (self.trail.get(), &exchange.call) else { return };
        let peer = exchange.peer.address.ip();
        let arrival = audit::trail::Arrival::of(&exchange.audit_id, request.uri(), request.headers(), peer);
        exchange.record = audit::Record::begin(trail, arrival, call, user, &exchange.annotations);
    }

    /// What every answer gets: 503 instead of a 404 that is not to be believed, headers, a body that ends when the
    /// server drains, and a line in the books.
    fn finish(&self, exchange: Exchange, response: Response<ResponseBody>) -> Response<ResponseBody> {
        let mut response = self.health.doubt_not_found(response);
        headers::finish(&mut response, &exchange.audit_id, &exchange.warnings);
        self.metrics.count(exchange.call.as_ref(), response.status(), exchange.started.elapsed());
        if self.trail.get().is_none() && audit::record(&exchange, response.status()) {
            self.metrics.audited();
        }
        let response = exchange.record.answer(response);
        if exchange.call.as_ref().is_some_and(Call::is_long_running) && response.status() == StatusCode::OK {
            return response.map(|body| self.lifecycle.until_drained(body, self.metrics.long_running()));
        }
        response
    }
}

impl Exchange {
    fn begin(peer: Arc<Peer>, request: &Request<RequestBody>) -> Self {
        Self {
            started: Instant::now(),
            audit_id: audit::id(request.headers()),
            user_agent: headers::user_agent(request.headers()),
            peer,
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            call: None,
            user: None,
            acts_as: None,
            record: audit::Record::default(),
            warnings: Warnings::default(),
            annotations: Annotations::default(),
        }
    }
}

/// The answer to a panic: plain text, as Kubernetes gives it.
fn broken() -> Response<ResponseBody> {
    let text = "This request caused the API server to panic. Look in the logs for details.\n";
    respond(StatusCode::INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", full(text))
}
