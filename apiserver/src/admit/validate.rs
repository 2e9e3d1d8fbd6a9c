//! Validating webhooks, all at once: of several refusals the first by order is the answer. And what both kinds of
//! webhooks share.

use futures::future::join_all;
use serde_json::Value;

use super::call::{Asked, Caller};
use super::config::{FailurePolicy, Kind, Webhook};
use super::review::{self, Verdict};
use super::select::{self, Concern};
use super::source::Sources;
use crate::admission::Attributes;
use crate::error::{Error, Qualified, Result};

/// Asks all webhooks that are concerned.
pub(super) async fn run(
    webhooks: &[Webhook],
    attributes: &Attributes,
    sources: &dyn Sources,
    caller: &Caller,
) -> Result<()> {
    let object = attributes.object.as_deref();
    let mut concerned = Vec::new();
    for webhook in webhooks {
        if is_concerned(webhook, attributes, object, sources).await? {
            concerned.push(webhook);
        }
    }
    for webhook in &concerned {
        suits_dry_run(webhook, attributes)?;
    }
    let answers = concerned.iter().enumerate().map(|(index, webhook)| ask(webhook, attributes, caller, index));
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

/// Whether the webhook wants to see the operation; looks the namespace up only if that depends on it.
pub(super) async fn is_concerned(
    webhook: &Webhook,
    attributes: &Attributes,
    object: Option<&Value>,
    sources: &dyn Sources,
) -> Result<bool> {
    match select::concern(webhook, attributes, object) {
        Concern::No => Ok(false),
        Concern::Yes => Ok(true),
        Concern::IfSelected(labels) => Ok(webhook.namespace_selector.selects(&labels)),
        Concern::IfNamespace(name) => match sources.namespace(&name).await? {
            Some(namespace) => Ok(webhook.namespace_selector.selects(&namespace.labels)),
            None => Err(Error::NotFound { resource: Qualified::new("", "namespaces"), name }),
        },
    }
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
