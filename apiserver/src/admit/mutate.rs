//! Mutating webhooks: one after the other, each seeing what the one before it made of the object. Those that ask for it
//! are asked a second time, once, if a later one changed the object, or a policy did.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

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
        let place = Place { round: again.round, index: number };
        let changed = ask(webhook, &attributes, &shown, means.caller, place).await?;
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

/// Which call this is, for the audit: in which round, and of which of all webhooks there are.
#[derive(Clone, Copy)]
struct Place {
    round: usize,
    index: usize,
}

/// Asks one webhook, and tells the audit; the object it changed, if it did.
async fn ask(
    webhook: &Webhook,
    attributes: &Attributes,
    object: &Value,
    caller: &Caller,
    place: Place,
) -> Result<Option<Value>> {
    let outcome = outcome(webhook, attributes, object, caller, place).await;
    let patch = outcome.as_ref().ok().and_then(|outcome| outcome.patch.as_deref());
    let has_changed = outcome.as_ref().is_ok_and(|outcome| outcome.changed.is_some());
    note(webhook, attributes, place, has_changed, patch);
    outcome.map(|outcome| outcome.changed)
}

/// What came of a call.
#[derive(Default)]
struct Outcome {
    /// The object, if it is another one now.
    changed: Option<Value>,
    /// The patch, if it has operations.
    patch: Option<Vec<u8>>,
}

async fn outcome(
    webhook: &Webhook,
    attributes: &Attributes,
    object: &Value,
    caller: &Caller,
    place: Place,
) -> Result<Outcome> {
    validate::suits_dry_run(webhook, attributes)?;
    let verdict = match caller.ask(Kind::Mutating, webhook, attributes, object).await {
        Asked::Answered(verdict) => verdict,
        Asked::Failed(failure) => match webhook.failure_policy {
            FailurePolicy::Fail => return Err(failure.into_error(webhook)),
            FailurePolicy::Ignore => {
                let Place { round, index } = place;
                let key = format!("failed-open.mutation.webhook.admission.k8s.io/round_{round}_index_{index}");
                attributes.annotations.set(key, &webhook.name);
                return Ok(Outcome::default());
            }
        },
    };
    validate::pass_on(webhook, attributes, &verdict);
    if !verdict.allowed {
        return Err(review::denied(&webhook.name, verdict.status));
    }
    let Some(patch) = verdict.patch else { return Ok(Outcome::default()) };
    let Some(patched) = patch::apply(&patch, object).map_err(|reason| unusable(webhook, &reason))? else {
        return Ok(Outcome::default());
    };
    Ok(Outcome { changed: Some(patched).filter(|patched| patched != object), patch: Some(patch) })
}

/// What the audit says of a call. Fields in the order of Kubernetes: the value is a text.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Note<'a> {
    configuration: &'a str,
    webhook: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mutated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
}

/// Notes for the audit that a webhook was asked and whether it changed the object; for one that records what was sent,
/// how it did, too.
fn note(webhook: &Webhook, attributes: &Attributes, place: Place, has_changed: bool, patch: Option<&[u8]>) {
    let Place { round, index } = place;
    let key = |what: &str| format!("{what}.webhook.admission.k8s.io/round_{round}_index_{index}");
    let plain = Note {
        configuration: &webhook.configuration,
        webhook: &webhook.name,
        mutated: Some(has_changed),
        patch: None,
        patch_type: None,
    };
    attributes.annotations.set(key("mutation"), text(&plain));
    let Some(patch) = patch else { return };
    attributes.annotations.set_detail(key("patch"), || {
        let patch = serde_json::from_slice(patch).ok();
        text(&Note { mutated: None, patch, patch_type: Some(review::PATCH_TYPE), ..plain })
    });
}

fn text(note: &Note<'_>) -> String {
    serde_json::to_string(note).unwrap_or_default()
}

/// A patch that cannot be applied is the webhook's fault, whatever its failure policy says: it did answer.
fn unusable(webhook: &Webhook, reason: &str) -> Error {
    Error::internal(format!("admission webhook {:?} {reason}", webhook.name))
}
