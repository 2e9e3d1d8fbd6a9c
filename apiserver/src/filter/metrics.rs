//! What the server counts, under the names dashboards know from Kubernetes, and /metrics.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{Response, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::error::{Error, Result};
use crate::request::{Call, Verb};
use crate::wire::body::{ResponseBody, full, respond};

/// Path of the exposition.
pub(super) const PATH: &str = "/metrics";
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Most resources told apart in labels. A client chooses the path; it must not choose how much memory labels take.
const RESOURCES_MAX: usize = 256;
/// Bounds of the request duration histogram, in seconds: Kubernetes' own, thinned out.
const BUCKETS: [f64; 14] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
    dry_run: &'static str,
    code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DurationLabels {
    verb: &'static str,
    group: String,
    resource: String,
    subresource: String,
    scope: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestKind {
    request_kind: &'static str,
}

/// Labels of one webhook call.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct WebhookLabels {
    /// Name of the webhook.
    pub(crate) name: String,
    /// `admit` (mutating) or `validating`.
    pub(crate) r#type: &'static str,
    /// CREATE, UPDATE, DELETE, CONNECT.
    pub(crate) operation: &'static str,
    /// `true` if the request was refused for it.
    pub(crate) rejected: &'static str,
}

/// The server's metrics. One per process.
pub struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Counter>,
    durations: Family<DurationLabels, Histogram, fn() -> Histogram>,
    long_running: Gauge,
    in_flight: Family<RequestKind, Gauge>,
    dropped: Family<RequestKind, Counter>,
    handshake_errors: Counter,
    audited: Counter,
    audit_failed: Counter,
    connections: Gauge,
    webhooks: Family<WebhookLabels, Histogram, fn() -> Histogram>,
    webhooks_failed_open: Counter,
    known: Mutex<BTreeSet<(String, String)>>,
}

/// Something that is going on; counted until dropped.
pub(super) struct InProgress(Gauge);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        let metrics = Self {
            registry: Mutex::new(Registry::default()),
            requests: Family::default(),
            durations: Family::new_with_constructor(histogram),
            long_running: Gauge::default(),
            in_flight: Family::default(),
            dropped: Family::default(),
            handshake_errors: Counter::default(),
            audited: Counter::default(),
            audit_failed: Counter::default(),
            connections: Gauge::default(),
            webhooks: Family::new_with_constructor(histogram),
            webhooks_failed_open: Counter::default(),
            known: Mutex::default(),
        };
        metrics.register(|registry| metrics.register_own(registry));
        metrics
    }
}

impl Metrics {
    /// Adds metrics of other parts of the process to the same exposition.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn register_own(&self, registry: &mut Registry) {
        registry.register("apiserver_request", "Requests answered", self.requests.clone());
        registry.register("apiserver_request_duration_seconds", "Time to answer", self.durations.clone());
        registry.register("apiserver_longrunning_requests", "Watches open now", self.long_running.clone());
        registry.register(
            "apiserver_current_inflight_requests",
            "Requests being worked on now",
            self.in_flight.clone(),
        );
        registry.register("apiserver_dropped_requests", "Requests refused with 429", self.dropped.clone());
        registry.register(
            "apiserver_tls_handshake_errors",
            "Connections that failed before they spoke HTTP",
            self.handshake_errors.clone(),
        );
        registry.register("apiserver_audit_event", "Audit lines written", self.audited.clone());
        registry.register("apiserver_audit_error", "Audit events that were lost", self.audit_failed.clone());
        registry.register("apiserver_open_connections", "Connections open now", self.connections.clone());
        registry.register(
            "apiserver_admission_webhook_admission_duration_seconds",
            "Time a webhook took",
            self.webhooks.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_fail_open",
            "Calls of webhooks that failed and were ignored",
            self.webhooks_failed_open.clone(),
        );
    }

    pub(super) fn answer(&self) -> Result<Response<ResponseBody>> {
        Ok(respond(StatusCode::OK, CONTENT_TYPE, full(self.text()?)))
    }

    /// Everything that was counted, in the text format.
    pub fn text(&self) -> Result<String> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock().unwrap_or_else(PoisonError::into_inner)).map_err(Error::internal)?;
        Ok(text)
    }

    /// Counts an answer. A watch is counted when it begins; its duration says nothing.
    pub(super) fn count(&self, call: Option<&Call>, code: StatusCode, took: Duration) {
        let labels = self.labels(call, code);
        if !call.is_some_and(Call::is_long_running) {
            let RequestLabels { verb, group, version: _, resource, subresource, scope, dry_run: _, code: _ } =
                labels.clone();
            let labels = DurationLabels { verb, group, resource, subresource, scope };
            self.durations.get_or_create(&labels).observe(took.as_secs_f64());
        }
        self.requests.get_or_create(&labels).inc();
    }

    pub(super) fn long_running(&self) -> InProgress {
        self.long_running.inc();
        InProgress(self.long_running.clone())
    }

    pub(super) fn in_flight(&self, is_mutating: bool) -> InProgress {
        let gauge = self.in_flight.get_or_create_owned(&kind(is_mutating));
        gauge.inc();
        InProgress(gauge)
    }

    pub(super) fn dropped(&self, is_mutating: bool) {
        self.dropped.get_or_create(&kind(is_mutating)).inc();
    }

    pub(super) fn audited(&self) {
        self.audited.inc();
    }

    pub(super) fn audit_failed(&self) {
        self.audit_failed.inc();
    }

    pub(crate) fn connection_opened(&self) {
        self.connections.inc();
    }

    pub(crate) fn connection_closed(&self) {
        self.connections.dec();
    }

    pub(crate) fn handshake_failed(&self) {
        self.handshake_errors.inc();
    }

    pub(crate) fn webhook_called(&self, labels: &WebhookLabels, took: Duration) {
        self.webhooks.get_or_create(labels).observe(took.as_secs_f64());
    }

    pub(crate) fn webhook_failed_open(&self) {
        self.webhooks_failed_open.inc();
    }

    fn labels(&self, call: Option<&Call>, code: StatusCode) -> RequestLabels {
        let mut labels = RequestLabels {
            verb: call.map_or("OTHER", |call| verb(call.verb)),
            group: String::new(),
            version: String::new(),
            resource: String::new(),
            subresource: String::new(),
            scope: "",
            dry_run: "",
            code: code.as_u16(),
        };
        let Some(path) = call.and_then(|call| call.resource.as_ref()) else { return labels };
        if !self.is_known(&path.group, &path.resource, code) {
            return labels;
        }
        labels.group.clone_from(&path.group);
        labels.version.clone_from(&path.version);
        labels.resource.clone_from(&path.resource);
        // A subresource that does not exist is the client's invention; one that answered is ours.
        if code.is_success() {
            labels.subresource = path.subresource.clone().unwrap_or_default();
        }
        labels.scope = match (&path.namespace, &path.name) {
            (_, Some(_)) => "resource",
            (Some(_), None) => "namespace",
            (None, None) => "cluster",
        };
        if call.is_some_and(|call| call.query.get("dryRun").is_some_and(|value| value == "All")) {
            labels.dry_run = "All";
        }
        labels
    }

    /// A resource gets labels of its own once a request for it succeeded.
    fn is_known(&self, group: &str, resource: &str, code: StatusCode) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (group.to_owned(), resource.to_owned());
        if known.contains(&key) {
            return true;
        }
        let is_new = code.is_success() && known.len() < RESOURCES_MAX;
        is_new && known.insert(key)
    }
}

fn kind(is_mutating: bool) -> RequestKind {
    RequestKind { request_kind: if is_mutating { "mutating" } else { "readOnly" } }
}

/// The word Kubernetes' metrics use.
fn verb(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "GET",
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::Create => "POST",
        Verb::Update => "PUT",
        Verb::Patch => "PATCH",
        Verb::Delete => "DELETE",
        Verb::DeleteCollection => "DELETECOLLECTION",
    }
}
