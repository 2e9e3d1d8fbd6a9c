//! The audit trail: which requests are recorded, and what is known of one while it goes on.
//!
//! A [`Record`] is made when somebody has been authenticated, handed on with the request, told what is sent and what is
//! answered, and turned into events at the stages Kubernetes has.

use std::convert::Infallible;
use std::io::Read as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Response, StatusCode, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::Value;

use super::event::{self, Event, ObjectRef, ResponseStatus, Who};
use super::log::Log;
use super::policy::{Decision, Level, Policy, Stage};
use super::{ANNOTATION_DRY_RUN, ANNOTATION_NAME};
use crate::filter::authz::{DECISION, REASON};
use crate::request::{Annotations, Call, User, Verb};
use crate::wire::body::ResponseBody;
use crate::wire::yaml;

/// Largest answer that is recorded: Kubernetes' limit for an event that is truncated. A larger one is left out, and the
/// event says so.
const ANSWER_MAX: usize = 10 << 20;
/// Largest answer that is looked at because it may be a Status.
const STATUS_MAX: usize = 1 << 20;
/// Annotation of an event that lacks an object for its size.
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// A policy and where its events go.
#[derive(Debug)]
pub struct Trail {
    policy: Policy,
    log: Arc<Log>,
}

impl Trail {
    /// Records what the policy says.
    #[must_use]
    pub fn new(policy: Policy, log: Arc<Log>) -> Self {
        Self { policy, log }
    }

    /// Writes what is queued, and records nothing more. Blocks until it is written.
    pub fn close(&self) {
        self.log.close();
    }
}

/// What is known of a request when it arrives.
pub(in crate::filter) struct Arrival {
    received: Timestamp,
    audit_id: String,
    uri: String,
    source_ips: Vec<String>,
    user_agent: String,
}

impl Arrival {
    pub(in crate::filter) fn of(audit_id: &str, uri: &Uri, headers: &HeaderMap, peer: std::net::IpAddr) -> Self {
        Self {
            received: Timestamp::now(),
            audit_id: audit_id.to_owned(),
            uri: uri.path_and_query().map_or_else(|| uri.path().to_owned(), ToString::to_string),
            source_ips: event::source_ips(headers, peer),
            user_agent: event::user_agent(headers),
        }
    }
}

/// What is recorded of one request; by default nothing.
#[derive(Clone, Default)]
pub struct Record(Option<Arc<Inner>>);

struct Inner {
    log: Arc<Log>,
    decision: Decision,
    arrival: Arrival,
    call: Call,
    /// None if nobody has been authenticated.
    user: Option<User>,
    annotations: Annotations,
    state: Mutex<State>,
}

/// What becomes known later.
#[derive(Default)]
struct State {
    object_ref: Option<ObjectRef>,
    acts_as: Option<User>,
    sent: Option<Value>,
    status: Option<ResponseStatus>,
    answered: Option<Value>,
    is_truncated: bool,
    /// The last event was made.
    is_over: bool,
}

impl Record {
    /// Begins to record a request, if the policy says so.
    pub(in crate::filter) fn begin(
        trail: &Trail,
        arrival: Arrival,
        call: &Call,
        user: Option<&User>,
        annotations: &Annotations,
    ) -> Self {
        let nobody = User::default();
        let decision = trail.policy.decide(user.unwrap_or(&nobody), call);
        if decision.level == Level::None {
            return Self::default();
        }
        if decision.level >= Level::Request {
            annotations.want_details();
        }
        let object_ref = call.resource.as_ref().map(ObjectRef::of);
        let record = Self(Some(Arc::new(Inner {
            log: Arc::clone(&trail.log),
            decision,
            arrival,
            call: call.clone(),
            user: user.cloned(),
            annotations: annotations.clone(),
            state: Mutex::new(State { object_ref, ..State::default() }),
        })));
        if user.is_some() {
            record.tell(Stage::RequestReceived);
        }
        record
    }

    /// Whom the user acts as.
    pub(in crate::filter) fn acts_as(&self, user: &User) {
        self.note(Level::Metadata, |state, _| state.acts_as = Some(user.clone()));
    }

    /// The object that was sent, as it is understood; `complete` adds what it leaves to defaults.
    pub fn object(&self, object: &Value, complete: impl FnOnce(&mut Value)) {
        self.note(Level::Metadata, |state, _| {
            if let Some(object_ref) = &mut state.object_ref {
                object_ref.complete(object);
            }
        });
        self.note(Level::Request, |state, decision| {
            let mut sent = object.clone();
            complete(&mut sent);
            if decision.omit_managed_fields {
                event::without_managed_fields(&mut sent);
            }
            state.sent = Some(sent);
        });
    }

    /// A patch, as it was sent.
    pub fn patch(&self, bytes: &[u8]) {
        self.note(Level::Request, |state, _| state.sent = read(bytes));
    }

    /// The options of a deletion.
    pub fn options(&self, options: &Value) {
        self.note(Level::Request, |state, _| state.sent = Some(options.clone()));
    }

    /// The server failed badly.
    pub(in crate::filter) fn panicked(&self, code: StatusCode) {
        self.note(Level::Metadata, |state, _| {
            state.status = Some(ResponseStatus::of_panic(code.as_u16()));
            state.is_over = true;
        });
        self.tell(Stage::Panic);
    }

    /// The answer on its way out. It is recorded when it has been sent, or given up.
    pub(in crate::filter) fn answer(self, response: Response<ResponseBody>) -> Response<ResponseBody> {
        let Some(inner) = &self.0 else { return response };
        let code = response.status();
        self.note(Level::Metadata, |state, _| state.status = Some(ResponseStatus::of_code(code.as_u16())));
        if inner.user.is_some() && inner.call.is_long_running() && code.is_success() {
            self.tell(Stage::ResponseStarted);
        }
        let kept = inner.keeps(code).then(|| Kept::of(&response, inner.limit()));
        response.map(|body| Recorded { body, kept, record: self, code }.boxed_unsync())
    }

    /// The answer has been sent.
    fn complete(&self, kept: Option<Kept>, code: StatusCode) {
        let Some(inner) = &self.0 else { return };
        let read = kept.map(Kept::value);
        self.note(Level::Metadata, |state, _| {
            state.is_over = true;
            if let Some(Ok(Some(status))) = read.as_ref()
                && event::is_status(status)
            {
                state.status = Some(ResponseStatus::of(status, code.as_u16()));
            }
        });
        self.note(Level::RequestResponse, |state, decision| match read {
            Some(Ok(Some(mut object))) => {
                if decision.omit_managed_fields {
                    event::without_managed_fields(&mut object);
                }
                state.answered = Some(object);
            }
            Some(Ok(None)) | None => {}
            Some(Err(TooLarge)) => state.is_truncated = true,
        });
        // A refusal of somebody unknown is told once, in the stage Kubernetes has for it.
        let stage = if inner.user.is_none() {
            Stage::ResponseStarted
        } else if inner.call.is_long_running() && !code.is_success() {
            self.tell(Stage::ResponseStarted);
            Stage::ResponseComplete
        } else {
            Stage::ResponseComplete
        };
        self.tell(stage);
    }

    /// Changes what is known, if that much is recorded.
    fn note(&self, level: Level, change: impl FnOnce(&mut State, &Decision)) {
        if let Some(inner) = &self.0
            && inner.decision.level >= level
        {
            change(&mut inner.state.lock().unwrap_or_else(PoisonError::into_inner), &inner.decision);
        }
    }

    fn tell(&self, stage: Stage) {
        if let Some(inner) = &self.0 {
            inner.tell(stage);
        }
    }
}

impl Drop for Inner {
    /// A client that hung up before there was an answer: the request ends here.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut state.is_over, true) {
            state.status.get_or_insert_with(ResponseStatus::of_nothing);
            self.tell(Stage::ResponseComplete);
        }
    }
}

impl Inner {
    /// Whether the answer is looked at.
    fn keeps(&self, code: StatusCode) -> bool {
        let is_resource = self.call.resource.is_some() && !self.call.is_long_running();
        match self.call.verb {
            _ if !code.is_success() => true,
            Verb::Delete | Verb::DeleteCollection => true,
            Verb::Get | Verb::List | Verb::Watch | Verb::Create | Verb::Update | Verb::Patch => {
                self.decision.level == Level::RequestResponse && is_resource
            }
        }
    }

    fn limit(&self) -> usize {
        if self.decision.level == Level::RequestResponse { ANSWER_MAX } else { STATUS_MAX }
    }

    /// Makes the event of a stage.
    fn tell(&self, stage: Stage) {
        if self.decision.omitted.contains(&stage) {
            return;
        }
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut annotations = self.annotations.snapshot();
        annotations.remove(ANNOTATION_NAME);
        annotations.remove(ANNOTATION_DRY_RUN);
        // As in Kubernetes: whoever decided without a reason has an empty one.
        if annotations.contains_key(DECISION) {
            annotations.entry(REASON.to_owned()).or_default();
        }
        if state.is_truncated {
            annotations.insert(TRUNCATED.to_owned(), "true".to_owned());
        }
        let received = event::micros(self.arrival.received);
        let (level, word) = event::words(self.decision.level, stage);
        let event = Event {
            kind: Event::KIND,
            api_version: Event::API_VERSION,
            level,
            audit_id: &self.arrival.audit_id,
            stage: word,
            request_uri: &self.arrival.uri,
            verb: if self.call.resource.is_some() { self.call.verb.as_str() } else { &self.call.method },
            user: self.user.as_ref().map_or(Who::Nobody {}, |user| Who::Known(user.info())),
            impersonated_user: state.acts_as.as_ref().map(User::info),
            source_ips: &self.arrival.source_ips,
            user_agent: &self.arrival.user_agent,
            object_ref: state.object_ref.as_ref(),
            response_status: state.status.as_ref(),
            request_object: state.sent.as_ref(),
            response_object: state.answered.as_ref(),
            stage_timestamp: match stage {
                Stage::RequestReceived => received.clone(),
                Stage::ResponseStarted | Stage::ResponseComplete | Stage::Panic => event::micros(Timestamp::now()),
            },
            request_received_timestamp: received,
            annotations,
        };
        match event.line() {
            Ok(line) => self.log.push(line),
            Err(error) => tracing::error!(%error, audit_id = self.arrival.audit_id, "an audit event cannot be encoded"),
        }
    }
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Record").field(&self.0.as_ref().map(|inner| inner.decision.level)).finish()
    }
}

/// What JSON or YAML says; nothing if it is neither.
fn read(bytes: &[u8]) -> Option<Value> {
    let as_yaml = || std::str::from_utf8(bytes).ok().and_then(|text| yaml::read(text).ok()).map(|read| read.value);
    serde_json::from_slice(bytes).ok().or_else(as_yaml)
}

/// It has more than may be recorded.
struct TooLarge;

/// An answer as it goes by.
struct Kept {
    bytes: Vec<u8>,
    limit: usize,
    is_too_large: bool,
    is_gzip: bool,
    is_object: bool,
}

impl Kept {
    fn of(response: &Response<ResponseBody>, limit: usize) -> Self {
        let is = |name, part: &str| {
            response.headers().get(name).and_then(|value| value.to_str().ok()).is_some_and(|text| text.contains(part))
        };
        let is_object = is(CONTENT_TYPE, "json") || is(CONTENT_TYPE, "yaml");
        Self { bytes: Vec::new(), limit, is_too_large: false, is_gzip: is(CONTENT_ENCODING, "gzip"), is_object }
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.bytes.len() + bytes.len() > self.limit {
            self.is_too_large = true;
            self.bytes = Vec::new();
        }
        if !self.is_too_large {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// What was answered; none if it is no object.
    fn value(self) -> Result<Option<Value>, TooLarge> {
        if self.is_too_large {
            return Err(TooLarge);
        }
        if !self.is_object {
            return Ok(None);
        }
        if !self.is_gzip {
            return Ok(read(&self.bytes));
        }
        let mut plain = Vec::new();
        let limit = self.limit as u64 + 1;
        // What was not sent to its end cannot be read; then there is no object to tell of.
        let unpacked = GzDecoder::new(self.bytes.as_slice()).take(limit).read_to_end(&mut plain);
        match unpacked {
            Ok(size) if size > self.limit => Err(TooLarge),
            Ok(_) => Ok(read(&plain)),
            Err(_) => Ok(None),
        }
    }
}

/// A body that is recorded when it is done with.
struct Recorded {
    body: ResponseBody,
    kept: Option<Kept>,
    record: Record,
    code: StatusCode,
}

impl Body for Recorded {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let (Some(data), Some(kept)) = (frame.data_ref(), &mut self.kept)
        {
            kept.add(data);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let kept = self.kept.take();
        self.record.complete(kept, self.code);
    }
}
