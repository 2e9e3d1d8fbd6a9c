//! Mutating- and ValidatingWebhookConfiguration objects, read into what the chain works with; pure.
//!
//! Everything is checked once, here. What cannot be understood is a [`Cause`] when the object is written, and a webhook
//! with a fault when it was written nevertheless: then its failure policy applies, as if the call had failed.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::Uri;
use serde::Deserialize;
use serde_json::Value;

use super::condition::{self, Condition, RawCondition};
use super::expression::Scope;
use super::select::{MatchPolicy, Rule, Selector};
use crate::error::Cause;

/// Most webhooks of one configuration; each costs a call per matching request.
const WEBHOOKS_MAX: usize = 64;
/// Time for a call when the webhook names none.
const TIMEOUT_DEFAULT: u64 = 10;
/// Longest time for a call, in seconds.
const TIMEOUT_MAX: u64 = 30;

/// The two kinds of configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// MutatingWebhookConfiguration.
    Mutating,
    /// ValidatingWebhookConfiguration.
    Validating,
}

impl Kind {
    /// The kind behind a plural.
    #[must_use]
    pub fn of(plural: &str) -> Option<Self> {
        [Self::Mutating, Self::Validating].into_iter().find(|kind| kind.plural() == plural)
    }

    /// The plural.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
        }
    }

    /// The word of metrics.
    pub(crate) fn metric(self) -> &'static str {
        match self {
            Self::Mutating => "admit",
            Self::Validating => "validating",
        }
    }
}

/// What happens when a webhook cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The request fails.
    Fail,
    /// The request goes on, and the audit says so.
    Ignore,
}

/// In which version a webhook is asked, and answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `admission.k8s.io/v1`.
    #[default]
    V1,
    /// `admission.k8s.io/v1beta1`: the same fields; an answer needs no uid, no version of its own and no type of patch.
    V1beta1,
}

impl ReviewVersion {
    const ALL: [Self; 2] = [Self::V1, Self::V1beta1];

    /// The word of `admissionReviewVersions`.
    fn word(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        }
    }

    /// Group and version of the review.
    #[must_use]
    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1beta1 => "admission.k8s.io/v1beta1",
        }
    }

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.word() == word)
    }
}

/// Whom to call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where, without the timeout parameter.
    pub url: Uri,
    /// Whom to believe, PEM.
    pub authorities_pem: String,
}

/// One webhook, ready to be matched and called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Name of its configuration.
    pub configuration: String,
    /// Its own name.
    pub name: String,
    /// What it wants to see.
    pub rules: Vec<Rule>,
    /// Of which versions.
    pub match_policy: MatchPolicy,
    /// In which namespaces.
    pub namespace_selector: Selector,
    /// With which labels on the object, old or new.
    pub object_selector: Selector,
    /// Which of them: what all of these expressions are true for.
    pub conditions: Vec<Condition>,
    /// What happens when it cannot be asked.
    pub failure_policy: FailurePolicy,
    /// True if a dry run does nothing behind the scenes.
    pub suits_dry_run: bool,
    /// True if it wants to be asked again when a later webhook changed the object.
    pub reinvoke: bool,
    /// Time for a call.
    pub timeout: Duration,
    /// In which version it is asked: the first of its own that there is.
    pub review: ReviewVersion,
    /// Whom to call, or why nobody can be.
    pub target: Result<Target, String>,
}

/// The faults for which a configuration is refused when it is written.
#[must_use]
pub fn check(kind: Kind, object: &Value) -> Vec<Cause> {
    let webhooks = match webhooks(object) {
        Ok(webhooks) => webhooks,
        Err(cause) => return vec![cause],
    };
    let mut causes = Vec::new();
    let mut names = BTreeSet::new();
    for (index, webhook) in webhooks.iter().enumerate() {
        let path = format!("webhooks[{index}]");
        match Raw::deserialize(*webhook) {
            Err(error) => causes.push(Cause::invalid(&path, &"the webhook", &error.to_string())),
            Ok(raw) => {
                causes.extend(raw.faults(kind, &path));
                if !names.insert(raw.name.clone()) {
                    causes.push(Cause {
                        reason: "FieldValueDuplicate".to_owned(),
                        message: format!("Duplicate value: {:?}", raw.name),
                        field: format!("{path}.name"),
                    });
                }
            }
        }
    }
    causes
}

/// The webhooks of a configuration, in its order. One that cannot be understood stands in for itself with its fault: it
/// matches what it would match, or everything if even that is unknown.
#[must_use]
pub fn parse(kind: Kind, object: &Value) -> Vec<Webhook> {
    let configuration = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    match webhooks(object) {
        Err(cause) => vec![unknown(configuration, configuration, format!("{}: {}", cause.field, cause.message))],
        Ok(webhooks) => webhooks.into_iter().map(|webhook| read(kind, configuration, webhook)).collect(),
    }
}

fn webhooks(object: &Value) -> Result<Vec<&Value>, Cause> {
    match object.get("webhooks") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() <= WEBHOOKS_MAX => Ok(list.iter().collect()),
        Some(Value::Array(list)) => Err(Cause {
            reason: "FieldValueTooMany".to_owned(),
            message: format!("Too many: {}: must have at most {WEBHOOKS_MAX} items", list.len()),
            field: "webhooks".to_owned(),
        }),
        Some(_) => Err(Cause::invalid("webhooks", &"the value", "must be a list")),
    }
}

fn read(kind: Kind, configuration: &str, webhook: &Value) -> Webhook {
    let raw = match Raw::deserialize(webhook) {
        Ok(raw) => raw,
        Err(error) => {
            let name = webhook.get("name").and_then(Value::as_str).unwrap_or(configuration);
            return unknown(configuration, name, error.to_string());
        }
    };
    let faults = raw.faults(kind, "webhook");
    let rules = raw.rules.iter().filter_map(|rule| rule.read().ok()).collect();
    let target = match faults.first() {
        Some(fault) => Err(format!("{}: {}", fault.field, fault.message)),
        None => raw.client_config.target(),
    };
    Webhook {
        configuration: configuration.to_owned(),
        rules,
        match_policy: MatchPolicy::read(raw.match_policy.as_deref()),
        namespace_selector: Selector::read(&raw.namespace_selector).unwrap_or_default(),
        object_selector: Selector::read(&raw.object_selector).unwrap_or_default(),
        conditions: condition::read(&raw.match_conditions, &scope()),
        failure_policy: raw.failure_policy(),
        suits_dry_run: matches!(raw.side_effects.as_str(), "None" | "NoneOnDryRun"),
        reinvoke: raw.reinvocation_policy.as_deref() == Some("IfNeeded"),
        timeout: Duration::from_secs(raw.timeout_seconds.unwrap_or(TIMEOUT_DEFAULT).clamp(1, TIMEOUT_MAX)),
        review: raw.review().unwrap_or_default(),
        target,
        name: raw.name,
    }
}

/// What the conditions of a webhook may refer to.
fn scope() -> Scope {
    Scope::admission().with_authorizer()
}

/// A webhook nothing is known of: it concerns everything and cannot be asked, so everything fails until it is mended.
fn unknown(configuration: &str, name: &str, fault: String) -> Webhook {
    Webhook {
        configuration: configuration.to_owned(),
        name: name.to_owned(),
        rules: vec![Rule::everything()],
        match_policy: MatchPolicy::Equivalent,
        namespace_selector: Selector::default(),
        object_selector: Selector::default(),
        conditions: Vec::new(),
        failure_policy: FailurePolicy::Fail,
        suits_dry_run: false,
        reinvoke: false,
        timeout: Duration::from_secs(TIMEOUT_DEFAULT),
        review: ReviewVersion::default(),
        target: Err(fault),
    }
}

/// A webhook as written. Fields of newer versions of the API are ignored, as everywhere in Kubernetes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    #[serde(default)]
    name: String,
    client_config: RawClient,
    #[serde(default)]
    rules: Vec<RawRule>,
    failure_policy: Option<String>,
    match_policy: Option<String>,
    #[serde(default)]
    namespace_selector: Value,
    #[serde(default)]
    object_selector: Value,
    #[serde(default)]
    side_effects: String,
    timeout_seconds: Option<u64>,
    #[serde(default)]
    admission_review_versions: Vec<String>,
    reinvocation_policy: Option<String>,
    #[serde(default)]
    match_conditions: Vec<RawCondition>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawClient {
    url: Option<String>,
    service: Option<RawService>,
    ca_bundle: Option<String>,
}

#[derive(Deserialize)]
struct RawService {
    namespace: String,
    name: String,
    path: Option<String>,
    port: Option<u16>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRule {
    #[serde(default)]
    operations: Vec<String>,
    #[serde(default)]
    api_groups: Vec<String>,
    #[serde(default)]
    api_versions: Vec<String>,
    #[serde(default)]
    resources: Vec<String>,
    scope: Option<String>,
}

impl Raw {
    fn failure_policy(&self) -> FailurePolicy {
        if self.failure_policy.as_deref() == Some("Ignore") { FailurePolicy::Ignore } else { FailurePolicy::Fail }
    }

    fn faults(&self, kind: Kind, path: &str) -> Vec<Cause> {
        let at = |field: &str| format!("{path}.{field}");
        let mut causes = self.word_faults(kind, path);
        if self.name.split('.').filter(|label| !label.is_empty()).count() < 3 {
            causes.push(Cause::invalid(
                &at("name"),
                &format!("{:?}", self.name),
                "should be a domain with at least three segments separated by dots",
            ));
        }
        causes.extend(self.review_faults(&at("admissionReviewVersions")));
        if let Some(seconds) = self.timeout_seconds.filter(|seconds| !(1..=TIMEOUT_MAX).contains(seconds)) {
            causes.push(Cause::invalid(
                &at("timeoutSeconds"),
                &seconds,
                "the timeout must be between 1 and 30 seconds",
            ));
        }
        causes.extend(condition::faults(&self.match_conditions, &scope(), &at("matchConditions")));
        for (field, selector) in
            [("namespaceSelector", &self.namespace_selector), ("objectSelector", &self.object_selector)]
        {
            if let Err(reason) = Selector::read(selector) {
                causes.push(Cause::invalid(&at(field), &selector, &reason));
            }
        }
        for (index, rule) in self.rules.iter().enumerate() {
            if let Err((field, reason)) = rule.read() {
                causes.push(Cause::invalid(&format!("{path}.rules[{index}].{field}"), &"the value", &reason));
            }
        }
        if let Err(reason) = self.client_config.read() {
            causes.push(Cause::invalid(&at("clientConfig"), &"the value", &reason));
        }
        causes
    }

    /// The first of the versions of reviews it takes that there is.
    fn review(&self) -> Option<ReviewVersion> {
        self.admission_review_versions.iter().find_map(|word| ReviewVersion::of(word))
    }

    fn review_faults(&self, path: &str) -> Vec<Cause> {
        let known = ReviewVersion::ALL.map(ReviewVersion::word).join(", ");
        let versions = &self.admission_review_versions;
        if versions.is_empty() {
            return vec![Cause::required(path, &format!("must specify one of {known}"))];
        }
        let mut seen = BTreeSet::new();
        let doubled = versions.iter().enumerate().filter(|(_, version)| !seen.insert(version.as_str()));
        let doubled = doubled.map(|(index, version)| {
            Cause::invalid(&format!("{path}[{index}]"), &format!("{version:?}"), "duplicate version")
        });
        let mut causes: Vec<Cause> = doubled.collect();
        if self.review().is_none() {
            let list = serde_json::json!(versions);
            causes.push(Cause::invalid(path, &list, &format!("must include at least one of {known}")));
        }
        causes
    }

    /// Fields that must be one of a few words.
    fn word_faults(&self, kind: Kind, path: &str) -> Vec<Cause> {
        let reinvocation: &[&str] = match kind {
            Kind::Mutating => &["Never", "IfNeeded"],
            Kind::Validating => &[],
        };
        let words: [(&str, Option<&str>, &[&str]); 4] = [
            ("sideEffects", Some(&self.side_effects), &["None", "NoneOnDryRun"]),
            ("failurePolicy", self.failure_policy.as_deref(), &["Fail", "Ignore"]),
            ("matchPolicy", self.match_policy.as_deref(), &["Exact", "Equivalent"]),
            ("reinvocationPolicy", self.reinvocation_policy.as_deref(), reinvocation),
        ];
        let wrong = words.into_iter().filter_map(|(field, word, known)| {
            let word = word.filter(|word| !known.contains(word))?;
            Some(Cause::not_supported(&format!("{path}.{field}"), word, known))
        });
        wrong.collect()
    }
}

impl RawRule {
    fn read(&self) -> Result<Rule, (&'static str, String)> {
        Rule::read(&self.operations, &self.api_groups, &self.api_versions, &self.resources, self.scope.as_deref())
    }
}

impl RawClient {
    fn target(&self) -> Result<Target, String> {
        let (url, authorities_pem) = self.read()?;
        if authorities_pem.is_empty() {
            return Err(
                "clientConfig.caBundle: there is none, and this server believes no authority by default".to_owned()
            );
        }
        Ok(Target { url, authorities_pem })
    }

    /// Address and authorities. An absent bundle may be filled in later and is no fault of the object.
    fn read(&self) -> Result<(Uri, String), String> {
        let text = match (&self.url, &self.service) {
            (Some(url), None) => url.clone(),
            (None, Some(service)) => service.url(),
            (None, None) | (Some(_), Some(_)) => return Err("exactly one of url or service is required".to_owned()),
        };
        Ok((address(&text)?, authorities(self.ca_bundle.as_deref().unwrap_or_default())?))
    }
}

impl RawService {
    fn url(&self) -> String {
        let Self { namespace, name, path, port } = self;
        let path = path.as_deref().unwrap_or_default().trim_start_matches('/');
        format!("https://{name}.{namespace}.svc:{}/{path}", port.unwrap_or(443))
    }
}

fn address(text: &str) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|error| format!("{text:?} is no URL: {error}"))?;
    let authority = url.authority().ok_or("the URL must have a host")?;
    if url.scheme_str() != Some("https") {
        return Err("the URL must begin with https://".to_owned());
    }
    if authority.as_str().contains('@') || url.query().is_some() || text.contains('#') {
        return Err("the URL must have no user, query or fragment".to_owned());
    }
    Ok(url)
}

fn authorities(bundle: &str) -> Result<String, String> {
    let bytes = BASE64_STANDARD.decode(bundle).map_err(|_| "caBundle is not base64".to_owned())?;
    let pem = String::from_utf8(bytes).map_err(|_| "caBundle is not PEM".to_owned())?;
    if pem.is_empty() {
        return Ok(pem);
    }
    certs::client_config(&pem, None, &[]).map_err(|error| format!("caBundle holds no usable certificate: {error}"))?;
    Ok(pem)
}

#[cfg(test)]
mod tests;
