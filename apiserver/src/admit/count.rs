//! What admission counts besides webhook calls, under the names of Kubernetes where there are any.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::filter::metrics::Metrics;

/// A decision of a policy.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct Check {
    pub(super) policy: String,
    pub(super) policy_binding: String,
    /// `allow`, `deny`, `warn`, `audit`.
    pub(super) enforcement_action: &'static str,
    /// `no_error`, `compile_error`, `invalid_error`, `out_of_budget`.
    pub(super) error_type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Conditions {
    name: String,
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Ignored {
    name: String,
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Quota {
    namespace: String,
    quota: String,
}

/// Counters of the chain. The names in their labels are those of objects an administrator wrote.
#[derive(Debug, Default)]
pub(super) struct Counts {
    validating: Family<Check, Counter>,
    mutating: Family<Check, Counter>,
    condition_errors: Family<Conditions, Counter>,
    condition_exclusions: Family<Conditions, Counter>,
    ignored: Family<Ignored, Counter>,
    quotas: Family<Quota, Counter>,
}

impl Counts {
    /// Counters that are shown with the others of the server.
    pub(super) fn new(metrics: &Metrics) -> Self {
        let counts = Self::default();
        metrics.register(|registry| {
            let mut add = |name: &str, help: &str, family: &Family<Check, Counter>| {
                registry.register(name, help, family.clone());
            };
            add("apiserver_validating_admission_policy_check", "Decisions of policies", &counts.validating);
            add("apiserver_mutating_admission_policy_check", "Changes by policies", &counts.mutating);
            registry.register(
                "apiserver_admission_match_condition_evaluation_errors",
                "Match conditions that could not be told",
                counts.condition_errors.clone(),
            );
            registry.register(
                "apiserver_admission_match_condition_exclusions",
                "Requests that a match condition excluded",
                counts.condition_exclusions.clone(),
            );
            registry.register(
                "apiserver_admission_ignored_errors",
                "Webhooks and policies that could not be evaluated and were passed over, as their failure policy says",
                counts.ignored.clone(),
            );
            registry.register(
                "apiserver_admission_quota_refusals",
                "Requests refused because a quota is used up",
                counts.quotas.clone(),
            );
        });
        counts
    }

    pub(super) fn validated(&self, check: &Check) {
        self.validating.get_or_create(check).inc();
    }

    pub(super) fn mutated(&self, check: &Check) {
        self.mutating.get_or_create(check).inc();
    }

    /// Conditions that could not be told. `is_ignored`: whoever they belong to was passed over for it.
    pub(super) fn conditions_failed(&self, kind: &'static str, name: &str, is_ignored: bool) {
        self.condition_errors.get_or_create(&Conditions { name: name.to_owned(), kind }).inc();
        if is_ignored {
            self.ignored(kind, name);
        }
    }

    pub(super) fn conditions_excluded(&self, kind: &'static str, name: &str) {
        self.condition_exclusions.get_or_create(&Conditions { name: name.to_owned(), kind }).inc();
    }

    pub(super) fn ignored(&self, kind: &'static str, name: &str) {
        self.ignored.get_or_create(&Ignored { name: name.to_owned(), kind }).inc();
    }

    pub(super) fn quota_refused(&self, namespace: &str, quota: &str) {
        let labels = Quota { namespace: namespace.to_owned(), quota: quota.to_owned() };
        self.quotas.get_or_create(&labels).inc();
    }
}
