//! The agent's HTTPS door: probes and metrics for anybody, `/v1/*` for the controller; the snapshot also for backup workers of the same
//! cluster, and the report for its agents, who ask each other who they are.
//!
//! A client certificate is optional because the kubelet's probes bring none; what it does not bring it may not ask for.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use axum::{
    Extension, Json, Router,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use certs::{ALPN_H1, ALPN_H2, ClientAuth, Identity, MaterialPaths, Reloading};
use http_body_util::LengthLimitError;
use hyper_util::service::TowerToHyperService;
use listen::Limits;
use resp::{Command, Info, Node, Reply};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use types::{
    agent::{AgentPhase, Release},
    cluster::Mode,
    names::{CONTROLLER_USER, PORT_AGENT},
};

use crate::{config::Options, handover, metrics, process, ready, shared::Shared, snapshot};

/// How long a TLS handshake, or the head of a request, may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// A probe, a scrape, the controller and one backup are four connections; each costs about 50 KiB of the pod's memory.
const LIMITS: Limits =
    Limits { connections: 128, per_address: 16, head: PATIENCE, streams: 16, ping: Duration::from_secs(10) };
/// Longest request body: a Release has 20 bytes.
const BODY_MAX: usize = 4096;
/// How often certificate files are looked at.
const CERTIFICATES_EVERY: Duration = Duration::from_secs(1);
/// How long Redis may be silent (not even an error) before the container is killed. Long: a busy script is not death.
const SILENCE: Duration = Duration::from_secs(60);

/// Why the door cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The agent's certificate cannot be used.
    #[error("load the agent's certificate from {dir}: {source}")]
    Certificate {
        /// Where.
        dir: std::path::PathBuf,
        /// Why.
        source: certs::Error,
    },
    /// The port cannot be listened on.
    #[error("listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

fn paths(dir: &Path) -> MaterialPaths {
    MaterialPaths { identity: Some((dir.join("tls.crt"), dir.join("tls.key"))), authorities: Some(dir.join("ca.crt")) }
}

/// What this agent shows who it is with, to those who call and to those whom it calls. [`serve`] follows its files.
///
/// # Errors
/// When the certificate cannot be used.
pub fn certificates(options: &Options) -> Result<Reloading, Error> {
    let dir = &options.internal_dir;
    let failed = |source| Error::Certificate { dir: dir.clone(), source };
    Reloading::new(paths(dir).read().map_err(failed)?).map_err(failed)
}

/// Opens the door; serves until the runtime ends.
///
/// # Errors
/// When certificate or port cannot be had.
pub async fn serve(shared: Arc<Shared>, certificates: Reloading) -> Result<(), Error> {
    let dir = shared.options.internal_dir.clone();
    let failed = |source| Error::Certificate { dir: dir.clone(), source };
    let paths = paths(&dir);
    let tls = certificates.server_config(ClientAuth::Requested, &[ALPN_H2, ALPN_H1]).map_err(failed)?;
    tokio::spawn(async move { certificates.watch_files(paths, CERTIFICATES_EVERY).await });
    let address = SocketAddr::new(shared.options.pod_ip, PORT_AGENT);
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
    let own = shared.own_name();
    let keeps: listen::Keeps =
        Box::new(move |identity| permits(&identity.common_name, Allowed::ControllerOrOwnCluster, &own));
    let router = router(shared);
    let shutdown = CancellationToken::new();
    let options = listen::Options { listener, tls, limits: LIMITS, keeps, shutdown, drain: PATIENCE };
    tokio::spawn(listen::serve(options, move |caller| {
        TowerToHyperService::new(router.clone().layer(Extension(Caller(caller.identity))))
    }));
    Ok(())
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/startupz", get(startupz))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(serve_metrics))
        .route("/v1/report", get(report))
        .route("/v1/release", post(release))
        .route("/v1/snapshot", get(serve_snapshot))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(shared)
}

/// Who called, by certificate; `None`: anonymous. The TLS layer has verified it against the agents' authority.
#[derive(Clone, Debug)]
struct Caller(Option<Identity>);

/// Who may call a path under /v1.
#[derive(Clone, Copy)]
enum Allowed {
    Controller,
    ControllerOrOwnCluster,
}

impl Caller {
    /// The refusal, if there is one.
    fn refusal(&self, allowed: Allowed, shared: &Shared) -> Option<Response> {
        let own = shared.own_name();
        match &self.0 {
            None => Some(text(StatusCode::UNAUTHORIZED, "a client certificate is needed".to_owned())),
            Some(caller) if permits(&caller.common_name, allowed, &own) => None,
            Some(caller) => Some(text(StatusCode::FORBIDDEN, format!("{:?} may not do this", caller.common_name))),
        }
    }
}

fn permits(common_name: &str, allowed: Allowed, own: &str) -> bool {
    match allowed {
        Allowed::Controller => common_name == CONTROLLER_USER,
        Allowed::ControllerOrOwnCluster => common_name == CONTROLLER_USER || common_name == own,
    }
}

fn text(status: StatusCode, sentence: String) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{sentence}\n")).into_response()
}

fn probe(outcome: Result<(), String>) -> Response {
    match outcome {
        Ok(()) => text(StatusCode::OK, "ok".to_owned()),
        Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

/// Started: the agent serves. A held member waits for the controller and a loading one for its disk; neither must be killed.
async fn startupz() -> Response {
    probe(Ok(()))
}

/// Alive: Redis answers anything at all, or has not been silent for long. What waits for its disk goes on once that answers, with all it has; a kill would
/// reach it no sooner, and take that.
async fn livez(State(shared): State<Arc<Shared>>) -> Response {
    if shared.phase() != AgentPhase::Running || shared.local.ask(&[Command::new("PING")]).await.is_ok() {
        return probe(Ok(()));
    }
    let silent = shared.local.last_answer().await.elapsed();
    let waits_for_a_disk = || {
        process::left_running(&shared.options.run_dir).is_ok_and(|redis| redis.is_some_and(|it| it.waits_for_a_disk()))
    };
    probe(if silent < SILENCE || waits_for_a_disk() {
        Ok(())
    } else {
        Err(format!("Redis has not answered for {} s", silent.as_secs()))
    })
}

async fn readyz(State(shared): State<Arc<Shared>>) -> Response {
    let reason = match shared.phase() {
        AgentPhase::Running => unready(&shared).await,
        AgentPhase::Starting => {
            let why = held_because(&shared).or_else(|| shared.report.borrow().waits_for.clone());
            Some(why.unwrap_or_else(|| "redis-server is not started yet".to_owned()))
        }
        AgentPhase::Held => held_because(&shared),
        AgentPhase::Stopping => Some(held_because(&shared).unwrap_or_else(|| "stopping".to_owned())),
    };
    probe(reason.map_or(Ok(()), Err))
}

fn held_because(shared: &Shared) -> Option<String> {
    shared.report.borrow().held_because.clone()
}

async fn unready(shared: &Shared) -> Option<String> {
    let mode = shared.inputs().config.mode;
    let mut commands = vec![Command::new("INFO").arg("replication").arg("persistence")];
    if mode == Mode::Cluster {
        commands.push(Command::new("CLUSTER").arg("NODES"));
    }
    let replies = match shared.local.ask(&commands).await {
        Ok(replies) => replies,
        Err(error) => return Some(format!("Redis does not answer: {error}")),
    };
    let words = |index: usize| replies.get(index).and_then(Reply::text).unwrap_or_default();
    let info = Info::parse(words(0));
    shared.note_log(&info);
    // While it loads Redis refuses CLUSTER; the loading itself is then the reason.
    let table: Vec<Node> = resp::nodes::parse(words(1)).unwrap_or_default();
    ready::unready(mode, &info, &table)
}

async fn serve_metrics(State(shared): State<Arc<Shared>>) -> Response {
    let info = match shared.phase() {
        AgentPhase::Running | AgentPhase::Stopping => handover::info(&shared.local, &["everything"]).await.ok(),
        AgentPhase::Starting | AgentPhase::Held => None,
    };
    let body = metrics::encode_metrics(info.as_ref(), &format!("{:?}", shared.phase()));
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], body).into_response()
}

async fn report(State(shared): State<Arc<Shared>>, Extension(caller): Extension<Caller>) -> Response {
    if let Some(refusal) = caller.refusal(Allowed::ControllerOrOwnCluster, &shared) {
        return refusal;
    }
    Json(shared.told()).into_response()
}

async fn release(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    request: axum::extract::Request,
) -> Response {
    // Before a body is waited for: a stranger may never send one.
    if let Some(refusal) = caller.refusal(Allowed::Controller, &shared) {
        return refusal;
    }
    let read = axum::body::to_bytes(request.into_body(), BODY_MAX);
    let body = match tokio::time::timeout(PATIENCE, read).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => {
            let is_long = std::error::Error::source(&error).is_some_and(|source| source.is::<LengthLimitError>());
            let status = if is_long { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST };
            return text(status, format!("the body cannot be read: {error}"));
        }
        Err(_) => return text(StatusCode::REQUEST_TIMEOUT, "the body does not come".to_owned()),
    };
    let release: Release = match serde_json::from_slice(&body) {
        Ok(release) => release,
        Err(error) => return text(StatusCode::BAD_REQUEST, format!("the body is no Release: {error}")),
    };
    if shared.phase() != AgentPhase::Held {
        return text(StatusCode::CONFLICT, format!("this member is not held, it is {:?}", shared.phase()));
    }
    let runs_at = shared.report.borrow().runs_at.clone();
    if let Some(there) = runs_at {
        return text(StatusCode::CONFLICT, format!("this member's node runs at {there}: nothing is started here"));
    }
    if shared.last_save_waits() {
        let because = shared.report.borrow().held_because.clone().unwrap_or_default();
        return text(StatusCode::CONFLICT, format!("nothing is started yet: {because}"));
    }
    tracing::info!(how = ?release.how, "the controller releases this member");
    shared.released.send_replace(Some(release.how));
    text(StatusCode::ACCEPTED, "released".to_owned())
}

async fn serve_snapshot(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    _headers: HeaderMap,
) -> Response {
    if let Some(refusal) = caller.refusal(Allowed::ControllerOrOwnCluster, &shared) {
        return refusal;
    }
    if shared.phase() != AgentPhase::Running {
        return text(StatusCode::CONFLICT, format!("Redis does not run: {:?}", shared.phase()));
    }
    match snapshot::stream(&shared).await {
        Ok(response) => response,
        Err(error @ snapshot::Error::Busy) => {
            ([(header::RETRY_AFTER, "5")], text(StatusCode::TOO_MANY_REQUESTS, error.to_string())).into_response()
        }
        Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_controller_commands_and_only_the_own_cluster_reads() {
        let own = "kun:agent:default:orders";
        let table = [
            ("kun:controller", true, true),
            ("kun:agent:default:orders", false, true),
            ("kun:agent:default:other", false, false),
            ("kun:agent:default:orders2", false, false),
            ("kun:admin", false, false),
            ("", false, false),
        ];
        for (name, commands, reads) in table {
            assert_eq!(permits(name, Allowed::Controller, own), commands, "{name}");
            assert_eq!(permits(name, Allowed::ControllerOrOwnCluster, own), reads, "{name}");
        }
    }
}
