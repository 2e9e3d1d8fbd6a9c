//! The thin TLS server around `decide`: limits, timeouts, health, metrics, draining.

use std::{convert::Infallible, sync::Arc, time::Duration, time::Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request as HttpRequest, Response, StatusCode, body::Incoming, header::CONTENT_TYPE, service::service_fn,
};
use listen::Limits;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    decide::{Objection, Verdict, decide, reach},
    gather::Gathered,
    metrics::Metrics,
    review::{self, Request, Stage},
    rights::Rights,
};

/// Largest body: an object and its old self of 1.5 MiB each, the API server's own limit.
const BODY_MAX: usize = 3 << 20;
/// An API server keeps one connection or a few, probes and scrapers come and go. Behind a Service many callers may have one address.
const LIMITS: Limits = Limits {
    connections: 512,
    per_address: 256,
    head: Duration::from_secs(5),
    // More reviews wait in the API server.
    streams: 256,
    ping: Duration::from_secs(10),
};
/// Longest time for a body to arrive; API servers give up after 10 s at the latest unless told otherwise.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a review waits for a namespace or cluster that is younger than our watches.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long running reviews may take to end when we stop.
const DRAIN: Duration = Duration::from_secs(10);

/// Who may ask for a review; health and metrics are open to everyone who can connect.
#[derive(Clone, Debug)]
pub enum Callers {
    /// Everyone: the network decides.
    Anyone,
    /// Clients whose certificate (verified by the TLS configuration) carries one of these common names.
    Named(Vec<String>),
}

/// What the webhook runs on.
pub struct Options {
    /// Where to listen; bound by the caller, so that it knows the port.
    pub listener: TcpListener,
    /// TLS, with client certificates requested where `callers` are named.
    pub tls: Arc<ServerConfig>,
    /// Who may ask.
    pub callers: Callers,
    /// A client of the API with the identity `kun:webhook`, for the watches and the rights of authors.
    pub client: kube::Client,
}

/// Watches the facts and serves reviews until `shutdown`; then running reviews are finished.
pub async fn run(options: Options, shutdown: CancellationToken) {
    let Options { listener, tls, callers, client } = options;
    let gathered = Gathered::unsynced();
    let rights = Rights::new(client.clone());
    let following = tokio::spawn(Arc::clone(&gathered).follow(client));
    serve(listener, tls, Judge { callers, gathered, rights }, shutdown).await;
    following.abort();
}

/// What reviews are answered with.
pub struct Judge {
    /// Who may ask.
    pub callers: Callers,
    /// What is known.
    pub gathered: Arc<Gathered>,
    /// The rights of authors.
    pub rights: Rights,
}

/// What every connection shares.
struct Server {
    judge: Judge,
    metrics: Metrics,
    draining: CancellationToken,
}

/// Serves reviews over facts that somebody else keeps.
pub async fn serve(listener: TcpListener, tls: Arc<ServerConfig>, judge: Judge, shutdown: CancellationToken) {
    let server = Arc::new(Server { judge, metrics: Metrics::new(), draining: shutdown.clone() });
    let known = match &server.judge.callers {
        Callers::Anyone => Vec::new(),
        Callers::Named(names) => names.clone(),
    };
    let keeps: listen::Keeps = Box::new(move |identity| known.contains(&identity.common_name));
    let options = listen::Options { listener, tls, limits: LIMITS, keeps, shutdown, drain: DRAIN };
    let serving = listen::serve(options, move |caller| {
        let server = Arc::clone(&server);
        let may_ask = match &server.judge.callers {
            Callers::Anyone => true,
            Callers::Named(names) => caller.identity.is_some_and(|identity| names.contains(&identity.common_name)),
        };
        service_fn(move |request| {
            let server = Arc::clone(&server);
            async move { Ok::<_, Infallible>(answer(&server, request, may_ask).await) }
        })
    });
    serving.await;
}

async fn answer(server: &Server, request: HttpRequest<Incoming>, may_ask: bool) -> Response<Full<Bytes>> {
    let stage = match (request.method(), request.uri().path()) {
        (&Method::POST, "/mutate") => Stage::Mutate,
        (&Method::POST, "/validate") => Stage::Validate,
        (&Method::GET, "/healthz" | "/livez") => return text(StatusCode::OK, "ok"),
        (&Method::GET, "/readyz") => return readiness(server),
        (&Method::GET, "/metrics") => return text(StatusCode::OK, server.metrics.text()),
        (_, "/mutate" | "/validate") => return text(StatusCode::METHOD_NOT_ALLOWED, "use POST"),
        (_, _) => return text(StatusCode::NOT_FOUND, "not found"),
    };
    let answered = if may_ask { review(server, request, stage).await } else { Err(forbidden()) };
    answered.unwrap_or_else(|(code, why)| {
        server.metrics.rejected();
        text(code, why)
    })
}

fn forbidden() -> (StatusCode, String) {
    (StatusCode::FORBIDDEN, "only the API server may ask for a review; show its client certificate".to_owned())
}

fn readiness(server: &Server) -> Response<Full<Bytes>> {
    if server.draining.is_cancelled() {
        text(StatusCode::SERVICE_UNAVAILABLE, "shutting down")
    } else if server.judge.gathered.is_synced() {
        text(StatusCode::OK, "ok")
    } else {
        let waits = server.judge.gathered.waits_for();
        text(StatusCode::SERVICE_UNAVAILABLE, format!("the first lists are not complete: {waits}"))
    }
}

/// One review: read, decide, write.
async fn review(
    server: &Server,
    request: HttpRequest<Incoming>,
    stage: Stage,
) -> Result<Response<Full<Bytes>>, (StatusCode, String)> {
    let body = body(request).await?;
    let started = Instant::now();
    let request = review::read(&body, stage).map_err(|error| (StatusCode::BAD_REQUEST, chain(&error)))?;
    if stage == Stage::Validate && !server.judge.gathered.wait(PATIENCE, |_| server.judge.gathered.is_synced()).await {
        return Err((StatusCode::SERVICE_UNAVAILABLE, "the first lists are not complete; try again".to_owned()));
    }
    let mut verdict = settled(&server.judge.gathered, &request).await;
    if verdict.is_allowed() {
        demand(&mut verdict, &server.judge.rights, &request).await;
    }
    let answer = review::write(&request, &verdict);
    server.metrics.answered(&request, verdict.is_allowed(), started.elapsed());
    let answer = answer.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let mut response = Response::new(Full::new(Bytes::from(answer)));
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
    Ok(response)
}

async fn body(request: HttpRequest<Incoming>) -> Result<Bytes, (StatusCode, String)> {
    let collected = Limited::new(request.into_body(), BODY_MAX).collect();
    match tokio::time::timeout(BODY_TIMEOUT, collected).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {BODY_MAX} bytes")))
        }
        Ok(Err(error)) => Err((StatusCode::BAD_REQUEST, error.to_string())),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, format!("the body took longer than {} s", BODY_TIMEOUT.as_secs()))),
    }
}

/// The verdict; one that hangs on something not known is given a moment, because a namespace or cluster that was made
/// just before may be younger than our watches.
async fn settled(gathered: &Gathered, request: &Request<'_>) -> Verdict {
    let verdict = decide(request, &gathered.read());
    if !verdict.hangs_on_unknown() {
        return verdict;
    }
    gathered.wait(PATIENCE, |facts| !decide(request, facts).hangs_on_unknown()).await;
    decide(request, &gathered.read())
}

/// Refuses a request whose author lacks a right that it needs, or of whom that is not known.
async fn demand(verdict: &mut Verdict, rights: &Rights, request: &Request<'_>) {
    let needed = reach::rights(request);
    let asked = needed.iter().map(|right| rights.has(&request.author, right));
    let told = futures::future::join_all(asked).await;
    for (right, told) in needed.iter().zip(told) {
        match told {
            Ok(true) => {}
            Ok(false) => verdict.refuse(Objection::Forbidden, right.lacked_by(&request.author)),
            Err(error) => {
                tracing::warn!(error = chain(&error), "the rights of an author are not known");
                verdict.refuse(Objection::Unknown, right.unknown(&request.author, &chain(&error)));
            }
        }
    }
}

fn text(code: StatusCode, text: impl Into<String>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text.into())));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}
