//! Validating webhooks, all at once: of several refusals the first by order is the answer. And what both kinds of
//! webhooks share.

use futures::future::join_all;
use serde_json::Value;

use super::call::{Asked, Caller};
use super::condition::{self, Met};
use super::config::{FailurePolicy, Kind, Webhook};
use super::expression::Answers;
use super::means::Means;
use super::review::{self, Verdict};
use super::select::{self, Concern, Selector};
use super::sight;
use crate::admission::Attributes;
use crate::error::{Error, Qualified, Result};

/// Asks all webhooks that are concerned.
pub(super) async fn run(webhooks: &[Webhook], attributes: &Attributes, means: Means<'_>) -> Result<()> {
    let mut concerned = Vec::new();
    for webhook in webhooks {
        let Some(attributes) = select::view(webhook, attributes) else { continue };
        if is_concerned(webhook, &attributes, attributes.object.as_deref(), means).await? {
            concerned.push((webhook, attributes));
        }
    }
    for (webhook, attributes) in &concerned {
        suits_dry_run(webhook, attributes)?;
    }
    let answers = concerned.iter().enumerate().map(|(index, pair)| ask(pair.0, &pair.1, means.caller, index));
    join_all(answers).await.into_iter().collect()
}

async fn ask(webhook: &Webhook, attributes: &Attributes, caller: &Caller, index: usize) -> Result<()> {
    let object = attributes.object.as_deref().unwrap_or(&Value::Null);
    match caller.ask(Kind::Validating, webhook, attributes, object).await {
        Asked::Answered(verdict) => {
            pass_on(webhook, attributes, &verdict);
            if verdict.allowed { Ok(()) } else { Err(review::denied(&webhook.name, verdict.status)) }
        }
        Asked::Failed(failure) => match webhook.failure_policy {
            FailurePolicy::Fail => Err(failure.into_error(webhook)),
            FailurePolicy::Ignore => {
                let key = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}");
                attributes.annotations.set(key, &webhook.name);
                Ok(())
            }
        },
    }
}

/// Whether the webhook wants to see the operation; looks the namespace up only if that depends on it, and evaluates
/// its conditions last.
pub(super) async fn is_concerned(
    webhook: &Webhook,
    attributes: &Attributes,
    object: Option<&Value>,
    means: Means<'_>,
) -> Result<bool> {
    let concern = select::concern(webhook, attributes, object);
    if !is_selected(concern, &webhook.namespace_selector, means).await? {
        return Ok(false);
    }
    meets_conditions(webhook, attributes, object, means).await
}

/// Whether a concern holds, once the labels of the namespace are known.
pub(super) async fn is_selected(concern: Concern, selector: &Selector, means: Means<'_>) -> Result<bool> {
    match concern {
        Concern::No => Ok(false),
        Concern::Yes => Ok(true),
        Concern::IfSelected(labels) => Ok(selector.selects(&labels)),
        Concern::IfNamespace(name) => match means.sources.namespace(&name).await? {
            Some(namespace) => Ok(selector.selects(&namespace.labels)),
            None => Err(Error::NotFound { resource: Qualified::new("", "namespaces"), name }),
        },
    }
}

/// Conditions that cannot be told fail the request or leave the webhook out, as its failure policy says.
async fn meets_conditions(
    webhook: &Webhook,
    attributes: &Attributes,
    object: Option<&Value>,
    means: Means<'_>,
) -> Result<bool> {
    if webhook.conditions.is_empty() {
        return Ok(true);
    }
    let (names, mut answers) = (sight::names(attributes, object, None), Answers::new());
    let judge = |answers: &Answers| condition::met(&webhook.conditions, &names, answers);
    let why = match means.settled(attributes, &mut answers, judge).await {
        Some(Met::Yes) => return Ok(true),
        Some(Met::No) => {
            means.counts.conditions_excluded("webhook", &webhook.name);
            return Ok(false);
        }
        Some(Met::Unknown(why)) => why,
        None => "too many questions about rights".to_owned(),
    };
    let is_ignored = webhook.failure_policy == FailurePolicy::Ignore;
    means.counts.conditions_failed("webhook", &webhook.name, is_ignored);
    tracing::warn!(webhook = webhook.name, why, ignored = is_ignored, "match conditions could not be evaluated");
    if is_ignored {
        return Ok(false);
    }
    Err(forbidden(attributes, &attributes.name, &why))
}

/// The refusal of a request about this resource and name, in the words of Kubernetes.
pub(super) fn forbidden(attributes: &Attributes, name: &str, why: &str) -> Error {
    let resource = Qualified::new(&attributes.resource.group, &attributes.resource.name);
    let message = match name {
        "" => format!("{resource} is forbidden: {why}"),
        name => format!("{resource} {name:?} is forbidden: {why}"),
    };
    Error::Forbidden { resource, name: name.to_owned(), message, causes: Vec::new() }
}

/// A webhook with side effects is not asked about what will not happen.
pub(super) fn suits_dry_run(webhook: &Webhook, attributes: &Attributes) -> Result<()> {
    if attributes.dry_run && !webhook.suits_dry_run {
        return Err(Error::bad_request(format!("admission webhook {:?} does not support dry run", webhook.name)));
    }
    Ok(())
}

/// Warnings go to the client, annotations to the audit.
pub(super) fn pass_on(webhook: &Webhook, attributes: &Attributes, verdict: &Verdict) {
    for warning in &verdict.warnings {
        attributes.warnings.add(warning);
    }
    for (key, value) in &verdict.annotations {
        attributes.annotations.set(format!("{}/{key}", webhook.name), value);
    }
}
