//! Mutating webhooks: one after the other, each seeing what the one before it made of the object. Those that ask for it
//! are asked a second time, once, if a later one changed the object.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::call::{Asked, Caller};
use super::config::{FailurePolicy, Kind, Webhook};
use super::source::Sources;
use super::{patch, review, validate};
use crate::admission::Attributes;
use crate::error::{Error, Result};

/// Runs all webhooks that are concerned; the object as they leave it.
pub(super) async fn run(
    webhooks: &[Webhook],
    attributes: &Attributes,
    mut object: Value,
    sources: &dyn Sources,
    caller: &Caller,
) -> Result<Value> {
    let mut again = Again::default();
    for round in [0, 1] {
        let mut index = 0;
        for (number, webhook) in webhooks.iter().enumerate() {
            if round == 1 && !again.wanted.contains(&number) {
                continue;
            }
            let seen = if object.is_null() { None } else { Some(&object) };
            if !validate::is_concerned(webhook, attributes, seen, sources).await? {
                continue;
            }
            let changed = ask(webhook, attributes, &object, caller, Place { round, index }).await?;
            index += 1;
            if let Some(changed) = changed {
                object = changed;
                again.object_changed();
            }
            again.was_asked(number, webhook);
        }
        if again.wanted.is_empty() {
            break;
        }
    }
    Ok(object)
}

/// Who must be asked again.
#[derive(Default)]
struct Again {
    asked: BTreeSet<usize>,
    wanted: BTreeSet<usize>,
}

impl Again {
    fn was_asked(&mut self, number: usize, webhook: &Webhook) {
        if webhook.reinvoke {
            self.asked.insert(number);
        }
    }

    fn object_changed(&mut self) {
        self.wanted.append(&mut self.asked);
    }
}

/// Which call this is, for the audit.
#[derive(Clone, Copy)]
struct Place {
    round: usize,
    index: usize,
}

/// Asks one webhook; the object it changed, if it did.
async fn ask(
    webhook: &Webhook,
    attributes: &Attributes,
    object: &Value,
    caller: &Caller,
    place: Place,
) -> Result<Option<Value>> {
    validate::suits_dry_run(webhook, attributes)?;
    let Place { round, index } = place;
    let verdict = match caller.ask(Kind::Mutating, webhook, attributes, object).await {
        Asked::Answered(verdict) => verdict,
        Asked::Failed(failure) => match webhook.failure_policy {
            FailurePolicy::Fail => return Err(failure.into_error(webhook)),
            FailurePolicy::Ignore => {
                let key = format!("failed-open.mutation.webhook.admission.k8s.io/round_{round}_index_{index}");
                attributes.annotations.set(key, &webhook.name);
                return Ok(None);
            }
        },
    };
    validate::pass_on(webhook, attributes, &verdict);
    if !verdict.allowed {
        return Err(review::denied(&webhook.name, verdict.status));
    }
    let changed = match &verdict.patch {
        None => None,
        Some(bytes) => patch::apply(bytes, object).map_err(|reason| unusable(webhook, &reason))?,
    };
    let changed = changed.filter(|changed| changed != object);
    let key = format!("mutation.webhook.admission.k8s.io/round_{round}_index_{index}");
    let note = json!({"configuration": webhook.configuration, "webhook": webhook.name, "mutated": changed.is_some()});
    attributes.annotations.set(key, note.to_string());
    Ok(changed)
}

/// A patch that cannot be applied is the webhook's fault, whatever its failure policy says: it did answer.
fn unusable(webhook: &Webhook, reason: &str) -> Error {
    Error::internal(format!("admission webhook {:?} {reason}", webhook.name))
}
