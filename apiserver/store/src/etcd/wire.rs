//! Calls to etcd: gRPC over HTTP/2, to the first of its members that answers, with bounded patience.
//!
//! The one question this module answers beyond "what came back" is whether a call that failed can have reached etcd: a
//! write is sent again only if it cannot. It must not know what keys mean.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use prost::Message;
use rustls::ClientConfig;
use tokio::sync::mpsc;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::message::{WatchRequest, WatchResponse};

/// How long a connection may take to be made.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// How often a connection that carries nothing is asked whether it lives.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(5);

/// How long the answer may take before the connection is given up. A watch learns by this that its etcd is gone.
const KEEP_ALIVE_LIMIT: Duration = Duration::from_secs(5);

/// The pause before a failed call is tried again; etcd elects a leader within a second.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The largest answer taken: a page of 500 objects of the largest size has 750 MiB.
const ANSWER_LIMIT: usize = 1 << 30;

/// How many requests may wait on a watch stream: the one that opens it and one that asks for progress.
const WATCH_REQUESTS: usize = 2;

pub(super) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(super) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(super) const COMPACT: &str = "/etcdserverpb.KV/Compact";
pub(super) const STATUS: &str = "/etcdserverpb.Maintenance/Status";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
/// The header by which etcd knows that a stream is no use without a leader.
const REQUIRE_LEADER: &str = "hasleader";

/// How long a call waits and how often it is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// For one answer.
    pub(super) answer: Duration,
    /// How often the call is made in all, as long as making it again is harmless.
    pub(super) attempts: usize,
}

/// For what reads little.
pub(super) const SMALL: Patience = Patience { answer: Duration::from_secs(2), attempts: 3 };

/// For what may read hundreds of megabytes.
pub(super) const LARGE: Patience = Patience { answer: Duration::from_secs(20), attempts: 2 };

/// For writes: etcd itself gives up on a proposal after 7 s, and who waits longer learns nothing more.
pub(super) const WRITE: Patience = Patience { answer: Duration::from_secs(8), attempts: 3 };

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// Whether etcd can have received it.
    pub(super) sent: bool,
    pub(super) code: Code,
    pub(super) message: String,
}

/// What a call may do to etcd, which decides whether it may be made twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// None.
    Read,
    /// Making it twice could do something else than making it once.
    Write,
}

type Http = legacy::Client<HttpsConnector<HttpConnector>, tonic::body::Body>;

/// The way to etcd. Clones share connections.
#[derive(Debug, Clone)]
pub(super) struct Wire {
    http: Http,
    members: Arc<[Uri]>,
    /// Which member is asked now. It changes when that one does not answer.
    turn: Arc<AtomicUsize>,
}

/// An open watch stream.
#[derive(Debug)]
pub(super) struct WatchStream {
    pub(super) requests: mpsc::Sender<WatchRequest>,
    pub(super) answers: Streaming<WatchResponse>,
}

impl Wire {
    /// To these members, of which there is at least one.
    pub(super) fn new(members: Vec<Uri>, tls: Arc<ClientConfig>) -> Wire {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_LIMIT));
        let http = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http2_only(true)
            .http2_adaptive_window(true)
            .http2_keep_alive_interval(KEEP_ALIVE_EVERY)
            .http2_keep_alive_timeout(KEEP_ALIVE_LIMIT)
            .http2_keep_alive_while_idle(true)
            .build(HttpsConnector::from((tcp, tls)));
        Wire { http, members: members.into(), turn: Arc::default() }
    }

    /// Asks `path` and waits for the answer.
    pub(super) async fn call<Q, A>(
        &self,
        path: &'static str,
        question: Q,
        effect: Effect,
        patience: Patience,
    ) -> Result<A, Failure>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut attempt = 1;
        loop {
            let (turn, mut grpc) = self.next();
            let mut request = Request::new(question.clone());
            request.set_timeout(patience.answer);
            let call = async {
                grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
                grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::<Q, A>::default()).await
            };
            let failure = match bounded(patience.answer, call).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(failure) => failure,
            };
            if !failure.is_refusal() {
                self.pass(turn);
            }
            if failure.is_final(effect) || attempt >= patience.attempts {
                return Err(failure);
            }
            tracing::debug!(path, attempt, ?failure, "etcd did not answer; asking again");
            tokio::time::sleep(RETRY_PAUSE).await;
            attempt += 1;
        }
    }

    /// Opens a watch stream that ends when its member loses its leader. Returns when the first answer is on its way.
    pub(super) async fn watch(&self, create: WatchRequest) -> Result<WatchStream, Failure> {
        let (turn, mut grpc) = self.next();
        let (requests, waiting) = mpsc::channel(WATCH_REQUESTS);
        // The channel is new and has room.
        let _ = requests.try_send(create);
        let stream = futures::stream::unfold(waiting, |mut waiting| async {
            waiting.recv().await.map(|request: WatchRequest| (request, waiting))
        });
        let request = with_leader(stream);
        let call = async {
            grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
            grpc.streaming(request, PathAndQuery::from_static(WATCH), ProstCodec::default()).await
        };
        match bounded(SMALL.answer, call).await {
            Ok(answers) => Ok(WatchStream { requests, answers: answers.into_inner() }),
            Err(failure) => {
                self.pass(turn);
                Err(failure)
            }
        }
    }

    fn next(&self) -> (usize, Grpc<Http>) {
        let turn = self.turn.load(Ordering::Relaxed);
        let member = self.members.get(turn % self.members.len().max(1)).cloned().unwrap_or_default();
        let grpc = Grpc::with_origin(self.http.clone(), member);
        (turn, grpc.max_decoding_message_size(ANSWER_LIMIT))
    }

    /// The member of this turn does not answer: the next one has its turn, unless somebody has passed already.
    fn pass(&self, turn: usize) {
        let _ = self.turn.compare_exchange(turn, turn.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// A request that etcd ends as soon as the member that serves it has lost its leader: a watch there would say nothing
/// more, and look like one to which nothing happens.
fn with_leader<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(REQUIRE_LEADER, MetadataValue::from_static("true"));
    request
}

async fn bounded<T>(limit: Duration, call: impl Future<Output = Result<T, Status>>) -> Result<T, Failure> {
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(status)) => Err(Failure::of(&status)),
        Err(_) => {
            let message = format!("no answer within {} s", limit.as_secs());
            Err(Failure { sent: true, code: Code::DeadlineExceeded, message })
        }
    }
}

impl Failure {
    /// What a status means.
    pub(super) fn of(status: &Status) -> Failure {
        let mut message = status.message().to_owned();
        let mut cause = std::error::Error::source(status);
        let mut sent = true;
        while let Some(error) = cause {
            sent &= !error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect);
            let text = error.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            cause = error.source();
        }
        Failure { sent, code: status.code(), message }
    }

    /// Whether asking again is no use, or not harmless.
    fn is_final(&self, effect: Effect) -> bool {
        match effect {
            Effect::Read => self.is_refusal(),
            Effect::Write => self.sent,
        }
    }

    /// Whether etcd itself said no, and will again. Everything else is a failure to answer, which tells nothing about
    /// what was or will be done.
    pub(super) fn is_refusal(&self) -> bool {
        match self.code {
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Unauthenticated => true,
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_asks_to_be_ended_where_there_is_no_leader() {
        let request = with_leader(());
        let header = request.metadata().get("hasleader").map(|value| value.as_bytes().to_vec());
        assert_eq!((header.as_deref(), request.metadata().len()), (Some(b"true".as_slice()), 1));
    }

    fn failure(sent: bool, code: Code) -> Failure {
        Failure { sent, code, message: String::new() }
    }

    #[test]
    fn a_write_is_made_again_only_if_etcd_cannot_have_received_it() {
        for code in [Code::Unavailable, Code::DeadlineExceeded, Code::Unknown, Code::Cancelled, Code::InvalidArgument] {
            assert!(failure(true, code).is_final(Effect::Write), "{code:?}");
        }
        assert!(!failure(false, Code::Unknown).is_final(Effect::Write));
    }

    #[test]
    fn a_read_is_made_again_unless_etcd_said_no() {
        for code in [Code::Unavailable, Code::DeadlineExceeded, Code::Unknown, Code::Cancelled] {
            assert!(!failure(true, code).is_final(Effect::Read), "{code:?}");
        }
        for code in [Code::OutOfRange, Code::InvalidArgument, Code::PermissionDenied] {
            assert!(failure(true, code).is_final(Effect::Read), "{code:?}");
        }
    }
}
