//! Counters and latencies in Prometheus' text form.

use std::time::Duration;

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use crate::review::{Operation, Request, Stage, Target};

/// Upper bounds of latencies in seconds: a decision takes microseconds, waiting for a fact up to half a second.
const BUCKETS: [f64; 9] = [0.000_05, 0.000_2, 0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    path: &'static str,
    resource: &'static str,
    operation: &'static str,
    allowed: &'static str,
}

/// What is counted.
pub(crate) struct Metrics {
    registry: Registry,
    reviews: Family<Labels, Counter>,
    seconds: Histogram,
    rejected: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let reviews = Family::<Labels, Counter>::default();
        let seconds = Histogram::new(BUCKETS);
        let rejected = Counter::default();
        let mut registry = Registry::with_prefix("kun_webhook");
        registry.register("reviews", "Reviews answered", reviews.clone());
        registry.register("review_seconds", "Time from body read to answer", seconds.clone());
        registry.register("rejected_requests", "Requests that were not a review", rejected.clone());
        Self { registry, reviews, seconds, rejected }
    }

    pub(crate) fn answered(&self, request: &Request<'_>, allowed: bool, took: Duration) {
        let path = match request.stage {
            Stage::Mutate => "mutate",
            Stage::Validate => "validate",
        };
        let resource = match request.target {
            Target::Cluster => "redisclusters",
            Target::Scale => "redisclusters/scale",
            Target::Backup => "redisbackups",
            Target::Operation => "redisoperations",
            Target::Policy => "redispolicies",
            Target::Status => "status",
            Target::Other => "other",
        };
        let operation = match request.operation {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        };
        let allowed = if allowed { "true" } else { "false" };
        self.reviews.get_or_create(&Labels { path, resource, operation, allowed }).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn rejected(&self) {
        self.rejected.inc();
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Encoding into a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
