//! Mutating webhooks: one after the other, each seeing what the one before it made of the object. Those that ask for it
//! are asked a second time, once, if a later one changed the object, or a policy did.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::call::{Asked, Caller};
use super::config::{FailurePolicy, Kind, Webhook};
use super::means::Means;
use super::{patch, review, select, validate};
use crate::admission::Attributes;
use crate::error::{Error, Result};

/// Runs all webhooks that are concerned; the object as they leave it. In the second round, only those that want to see
/// what changed since they were asked.
pub(super) async fn run(
    webhooks: &[Webhook],
    attributes: &Attributes,
    mut object: Value,
    means: Means<'_>,
    again: &mut Again<usize>,
) -> Result<Value> {
    again.begin(&object);
    let mut index = 0;
    for (number, webhook) in webhooks.iter().enumerate() {
        if !again.is_wanted(&number) {
            continue;
        }
        let Some(attributes) = select::view(webhook, attributes) else { continue };
        let shown = attributes.shown(&object);
        let seen = if shown.is_null() { None } else { Some(&*shown) };
        if !validate::is_concerned(webhook, &attributes, seen, means).await? {
            continue;
        }
        let place = Place { round: again.round, index };
        let changed = ask(webhook, &attributes, &shown, means.caller, place).await?;
        index += 1;
        if let Some(changed) = changed {
            object = attributes.back(changed);
            again.object_changed();
        }
        if webhook.reinvoke {
            again.was_asked(number);
        }
    }
    again.end(&object);
    Ok(object)
}

/// Who must be asked again: those who want it and were asked before something changed. There are two rounds.
#[derive(Debug)]
pub(super) struct Again<T> {
    round: usize,
    asked: BTreeSet<T>,
    wanted: BTreeSet<T>,
    left: Option<Value>,
    changed: bool,
}

impl<T: Ord> Default for Again<T> {
    fn default() -> Self {
        Self { round: 0, asked: BTreeSet::new(), wanted: BTreeSet::new(), left: None, changed: false }
    }
}

impl<T: Ord> Again<T> {
    /// A round begins with this object: if it is not the one that was left, others have changed it.
    pub(super) fn begin(&mut self, object: &Value) {
        if self.left.as_ref().is_some_and(|left| left != object) {
            self.object_changed();
        }
    }

    /// A round ends with this object.
    pub(super) fn end(&mut self, object: &Value) {
        self.round = self.round.saturating_add(1);
        // Kept only for who may be asked again.
        self.left = (!self.asked.is_empty()).then(|| object.clone());
    }

    pub(super) fn is_wanted(&self, who: &T) -> bool {
        self.round == 0 || self.wanted.contains(who)
    }

    pub(super) fn was_asked(&mut self, who: T) {
        self.asked.insert(who);
    }

    pub(super) fn object_changed(&mut self) {
        self.changed = true;
        self.wanted.append(&mut self.asked);
    }

    /// Whether something changed the object in the rounds so far.
    pub(super) fn has_changed(&self) -> bool {
        self.changed
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
