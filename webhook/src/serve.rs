//! The thin TLS server around `decide`: limits, timeouts, health, metrics, draining.

use std::{convert::Infallible, sync::Arc, time::Duration, time::Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request as HttpRequest, Response, StatusCode, body::Incoming, header::CONTENT_TYPE, service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use rustls::ServerConfig;
use tokio::{
    net::TcpListener,
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
};
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
/// Most connections: an API server keeps one or a few, probes and scrapers come and go.
const CONNECTIONS_MAX: usize = 512;
/// Most concurrent reviews on one HTTP/2 connection; more wait in the API server.
const STREAMS_MAX: u32 = 256;
/// Longest TLS handshake and longest wait for a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for a body to arrive; API servers give up after 10 s at the latest unless told otherwise.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a review waits for a namespace or cluster that is younger than our watches.
const PATIENCE: Duration = Duration::from_millis(500);
/// Pause after a failed accept: with no file left, trying again at once would only burn time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
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

/// Why serving ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The listener broke.
    #[error("accepting connections")]
    Accept(#[source] std::io::Error),
}

/// Watches the facts and serves reviews until `shutdown`; then running reviews are finished.
///
/// # Errors
/// When the listener breaks.
pub async fn run(options: Options, shutdown: CancellationToken) -> Result<(), Error> {
    let Options { listener, tls, callers, client } = options;
    let gathered = Gathered::unsynced();
    let rights = Rights::new(client.clone());
    let following = tokio::spawn(Arc::clone(&gathered).follow(client));
    let served = serve(listener, tls, Judge { callers, gathered, rights }, shutdown).await;
    following.abort();
    served
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
///
/// # Errors
/// When the listener breaks.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    judge: Judge,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let server = Arc::new(Server { judge, metrics: Metrics::new(), draining: shutdown.clone() });
    let acceptor = tokio_rustls::TlsAcceptor::from(tls);
    let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    while let Some(accepted) = accept(&listener, &seats, &shutdown).await {
        let (stream, seat) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_passing(&error) => {
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
            Err(error) => return Err(Error::Accept(error)),
        };
        let (server, acceptor, watcher) = (Arc::clone(&server), acceptor.clone(), graceful.watcher());
        tokio::spawn(async move {
            connection(server, acceptor, stream, watcher).await;
            drop(seat);
        });
    }
    // From here on nobody new is let in; the socket is closed, not just ignored.
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!(seconds = DRAIN.as_secs(), "connections were still open after draining");
    }
    Ok(())
}

/// The next connection and its seat; `None` when it is time to stop.
async fn accept(
    listener: &TcpListener,
    seats: &Arc<Semaphore>,
    shutdown: &CancellationToken,
) -> Option<std::io::Result<(TcpStream, OwnedSemaphorePermit)>> {
    let next = async {
        // The semaphore is never closed.
        let seat = Arc::clone(seats).acquire_owned().await.ok()?;
        Some(listener.accept().await.map(|(stream, _)| (stream, seat)))
    };
    tokio::select! {
        () = shutdown.cancelled() => None,
        next = next => next,
    }
}

/// Errors of one connection, or of a full table of files, which passes.
fn is_passing(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted)
        || matches!(error.raw_os_error(), Some(23 | 24))
}

async fn connection(
    server: Arc<Server>,
    acceptor: tokio_rustls::TlsAcceptor,
    stream: TcpStream,
    watcher: hyper_util::server::graceful::Watcher,
) {
    // Small answers must not wait for the next acknowledgement.
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HEAD_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake took too long"),
    };
    let caller = certs::peer_identity(stream.get_ref().1).map(|identity| identity.common_name);
    let may_ask = match &server.judge.callers {
        Callers::Anyone => true,
        Callers::Named(names) => caller.is_some_and(|caller| names.contains(&caller)),
    };
    let service = service_fn(move |request| {
        let server = Arc::clone(&server);
        async move { Ok::<_, Infallible>(answer(&server, request, may_ask).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX).keep_alive_interval(BODY_TIMEOUT);
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "connection ended");
    }
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
    for right in reach::rights(request) {
        match rights.has(&request.author, &right).await {
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
