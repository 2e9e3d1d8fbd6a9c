//! What the controller counts about itself. Names follow Prometheus' rules; nothing here carries a key or a secret.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Result of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Kind of a step, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabel {
    step: &'static str,
    result: &'static str,
}

/// Why a cluster is held back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// The controller's metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    reconciles: Family<ResultLabel, Counter>,
    reconcile_seconds: Histogram,
    rests: Counter,
    steps: Family<StepLabel, Counter>,
    moved_keys: Counter,
    moved_bytes: Counter,
    moved_slots: Counter,
    api_writes: Gauge<i64, std::sync::atomic::AtomicI64>,
    leading: Gauge<i64, std::sync::atomic::AtomicI64>,
    queued: Gauge<i64, std::sync::atomic::AtomicI64>,
    held: Family<ReasonLabel, Gauge>,
    panics: Counter<u64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("kun_controller");
        let metrics = Self {
            registry: Arc::default(),
            reconciles: Family::default(),
            reconcile_seconds: Histogram::new([0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]),
            rests: Counter::default(),
            steps: Family::default(),
            moved_keys: Counter::default(),
            moved_bytes: Counter::default(),
            moved_slots: Counter::default(),
            api_writes: Gauge::default(),
            leading: Gauge::default(),
            queued: Gauge::default(),
            held: Family::default(),
            panics: Counter::default(),
        };
        registry.register("reconciles", "Reconciles by result", metrics.reconciles.clone());
        registry.register("reconcile_seconds", "Duration of a reconcile", metrics.reconcile_seconds.clone());
        registry.register(
            "rests",
            "Reconciles that found nothing new and asked the members only",
            metrics.rests.clone(),
        );
        registry.register("steps", "Steps of plans by kind and result", metrics.steps.clone());
        registry.register("moved_keys", "Keys moved between primaries", metrics.moved_keys.clone());
        registry.register("moved_bytes", "Bytes moved, by Redis' estimate", metrics.moved_bytes.clone());
        registry.register("moved_slots", "Slots handed over", metrics.moved_slots.clone());
        registry.register("api_writes", "Writes to the API server since start", metrics.api_writes.clone());
        registry.register("leading", "1 while this controller holds the lease", metrics.leading.clone());
        registry.register("queued", "Objects waiting to be reconciled", metrics.queued.clone());
        registry.register(
            "held",
            "Clusters that are not touched, because what exists is not theirs",
            metrics.held.clone(),
        );
        registry.register("panics", "Reconciles that ended in a panic", metrics.panics.clone());
        Self { registry: Arc::new(Mutex::new(registry)), ..metrics }
    }
}

impl Metrics {
    /// The text a scraper reads.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        match prometheus_client::encoding::text::encode(&mut text, &registry) {
            Ok(()) => text,
            // Writing to a String does not fail.
            Err(std::fmt::Error) => String::new(),
        }
    }

    pub(crate) fn reconciled(&self, result: &'static str, took: Duration) {
        self.reconciles.get_or_create(&ResultLabel { result }).inc();
        self.reconcile_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn rested(&self) {
        self.rests.inc();
    }

    pub(crate) fn step(&self, step: &'static str, result: &'static str) {
        self.steps.get_or_create(&StepLabel { step, result }).inc();
    }

    pub(crate) fn moved(&self, slots: u64, keys: u64, bytes: u64) {
        self.moved_slots.inc_by(slots);
        self.moved_keys.inc_by(keys);
        self.moved_bytes.inc_by(bytes);
    }

    pub(crate) fn state(&self, leading: bool, queued: usize, api_writes: u64) {
        self.leading.set(i64::from(leading));
        self.queued.set(i64::try_from(queued).unwrap_or(i64::MAX));
        self.api_writes.set(i64::try_from(api_writes).unwrap_or(i64::MAX));
    }

    /// How many clusters are held back, by reason.
    pub(crate) fn held(&self, counts: &BTreeMap<&'static str, i64>) {
        self.held.clear();
        for (reason, count) in counts {
            self.held.get_or_create(&ReasonLabel { reason }).set(*count);
        }
    }

    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }
}
