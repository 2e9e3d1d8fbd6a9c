//! Validating policies: every rule everywhere it applies; what does not hold denies, warns or is audited.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::spot::{self, Spot};
use super::{Action, Binding, Body, Policy, Validation};
use crate::admission::Attributes;
use crate::admit::condition::{self, Failure, Met, evaluated};
use crate::admit::config::FailurePolicy;
use crate::admit::count::Check;
use crate::admit::expression::{Answers, Machine, Question, Value};
use crate::admit::lifecycle;
use crate::admit::means::Means;
use crate::admit::sight::{self, Names};
use crate::error::{Error, Qualified, Result};

/// What all rules and messages of one policy, binding and parameter may cost together, as in Kubernetes.
pub(super) const BUDGET: u64 = 10_000_000;
/// Longest message an expression may make, in bytes, as in Kubernetes.
const MESSAGE_MAX: usize = 5 * 1024;
/// Longest audit annotation, in bytes, as in Kubernetes.
const ANNOTATION_MAX: usize = 10 * 1024;

/// What came of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Decision {
    Holds,
    /// It does not hold: the message and the reason.
    Broken(String, String),
    /// It cannot be told.
    Unknown(String),
}

/// What came of one audit annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Note {
    Nothing,
    Value(String, String),
    Unknown(String),
}

struct Judged {
    decisions: Vec<Decision>,
    notes: Vec<Note>,
}

impl Judged {
    fn unknown(why: &str) -> Self {
        Self { decisions: vec![Decision::Unknown(why.to_owned())], notes: Vec::new() }
    }
}

/// Carries out all validating policies.
pub(in crate::admit) async fn run(policies: &[Policy], attributes: &Attributes, means: Means<'_>) -> Result<()> {
    let object = attributes.object.as_deref();
    let spots = spot::spots(policies, attributes, object, means).await;
    if spots.is_empty() {
        return Ok(());
    }
    let namespace = spot::namespace(attributes, means).await?;
    let bare = sight::names(attributes, object, None);
    let names = sight::names(attributes, object, namespace.as_deref());
    let mut answers = Answers::new();
    let mut outcome = Outcome { attributes, means, denied: None, notes: BTreeMap::new() };
    for spot in &spots {
        match spot {
            Spot::Fault { policy, binding, why } => outcome.unknown(policy, *binding, why),
            Spot::Here { policy, binding, param, version } => {
                let (bare, names) = match attributes.in_version(version) {
                    Cow::Borrowed(_) => (Cow::Borrowed(&bare), Cow::Borrowed(&names)),
                    Cow::Owned(seen) => {
                        let names = |namespace| Cow::Owned(sight::names(&seen, seen.object.as_deref(), namespace));
                        (names(None), names(namespace.as_deref()))
                    }
                };
                let bare = sight::with_params(&bare, param.as_deref());
                let names = sight::with_params(&names, param.as_deref());
                let judge = |answers: &Answers| judge(policy, &bare, &names, answers);
                let judged = means.settled(attributes, &mut answers, judge).await;
                let judged = judged.unwrap_or_else(|| Judged::unknown("too many questions about rights"));
                outcome.take(policy, binding, &judged);
            }
        }
    }
    outcome.end()
}

/// Everything one policy says about one request; pure.
fn judge(policy: &Policy, bare: &Names, names: &Names, answers: &Answers) -> Result<Judged, Box<Question>> {
    let Body::Judge { validations, annotations } = &policy.body else {
        return Ok(Judged::unknown("it judges nothing"));
    };
    match condition::met(&policy.conditions, bare, answers)? {
        Met::Yes => {}
        Met::No => return Ok(Judged { decisions: Vec::new(), notes: Vec::new() }),
        Met::Unknown(why) => return Ok(Judged::unknown(&why)),
    }
    let machine = Machine::new(names, &policy.variables, answers, BUDGET);
    let mut decisions = Vec::new();
    for validation in validations {
        match evaluated(&machine, &validation.rule.program, &validation.rule.source)? {
            Ok(Value::Bool(true)) => decisions.push(Decision::Holds),
            Ok(_false) => decisions.push(broken(validation, &machine)?),
            Err(Failure::OutOfBudget) => return Ok(Judged::unknown(Failure::OutOfBudget.text())),
            Err(Failure::Expression(why)) => decisions.push(Decision::Unknown(why)),
        }
    }
    let machine = Machine::new(names, &policy.variables, answers, BUDGET);
    let mut notes = Vec::new();
    for (key, annotation) in annotations {
        notes.push(match evaluated(&machine, &annotation.program, &annotation.source)? {
            Ok(Value::String(text)) if text.trim().is_empty() => Note::Nothing,
            Ok(Value::String(text)) => Note::Value(key.clone(), cut(text.trim())),
            Ok(Value::Null) => Note::Nothing,
            Ok(other) => Note::Unknown(format!(
                "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                annotation.source,
                other.kind()
            )),
            Err(failure) => Note::Unknown(failure.text().to_owned()),
        });
    }
    Ok(Judged { decisions, notes })
}

/// A rule that does not hold, with the best message there is.
fn broken(validation: &Validation, machine: &Machine<'_>) -> Result<Decision, Box<Question>> {
    let mut message = String::new();
    if let Some(expression) = &validation.message_expression {
        match evaluated(machine, &expression.program, &expression.source)? {
            Ok(Value::String(text)) => {
                let text = text.trim();
                if text.len() <= MESSAGE_MAX && !text.contains('\n') {
                    text.clone_into(&mut message);
                }
            }
            Ok(_no_text) => {}
            Err(Failure::OutOfBudget) => {
                return Ok(Decision::Unknown(format!("failed messageExpression: {}", Failure::OutOfBudget.text())));
            }
            Err(Failure::Expression(why)) => tracing::debug!(why, "a message could not be evaluated"),
        }
    }
    if message.is_empty() {
        message.clone_from(&validation.message);
    }
    if message.is_empty() {
        message = format!("failed expression: {}", validation.rule.source.trim());
    }
    Ok(Decision::Broken(message, validation.reason.clone()))
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(ANNOTATION_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

/// What has come of all policies so far.
struct Outcome<'a> {
    attributes: &'a Attributes,
    means: Means<'a>,
    denied: Option<Error>,
    /// By policy and key: values without repetition.
    notes: BTreeMap<(String, String), Vec<String>>,
}

impl Outcome<'_> {
    fn take(&mut self, policy: &Policy, binding: &Binding, judged: &Judged) {
        for (index, decision) in judged.decisions.iter().enumerate() {
            match decision {
                Decision::Holds => self.count(policy, Some(binding), "allow", "no_error"),
                Decision::Broken(message, reason) => {
                    self.follow(policy, binding, (index, message, reason), "no_error");
                }
                Decision::Unknown(why) => self.unknown_rule(policy, binding, index, why),
            }
        }
        for note in &judged.notes {
            match note {
                Note::Nothing => {}
                Note::Value(key, value) => {
                    let values = self.notes.entry((policy.name.clone(), key.clone())).or_default();
                    if !values.contains(value) {
                        values.push(value.clone());
                    }
                }
                Note::Unknown(why) => self.unknown(policy, Some(binding), why),
            }
        }
    }

    /// A rule that cannot be told does what one does that does not hold, unless failures are ignored.
    fn unknown_rule(&mut self, policy: &Policy, binding: &Binding, index: usize, why: &str) {
        self.report(policy, Some(binding), why);
        match policy.failure_policy {
            FailurePolicy::Ignore => self.count(policy, Some(binding), "allow", error_type(why)),
            FailurePolicy::Fail => self.follow(policy, binding, (index, why, "Invalid"), error_type(why)),
        }
    }

    /// What cannot even be set up denies, whatever the binding's actions, unless failures are ignored.
    fn unknown(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        self.report(policy, binding, why);
        match policy.failure_policy {
            FailurePolicy::Ignore => self.count(policy, binding, "allow", error_type(why)),
            FailurePolicy::Fail => {
                self.count(policy, binding, "deny", error_type(why));
                self.deny(policy, binding, why, "Invalid");
            }
        }
    }

    fn report(&self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        let ignored = policy.failure_policy == FailurePolicy::Ignore;
        let binding = binding.map_or("", |binding| binding.name.as_str());
        tracing::warn!(policy = policy.name, binding, why, ignored, "a policy could not be evaluated");
        if ignored {
            self.means.counts.ignored("validatingadmissionpolicy", &policy.name);
        }
    }

    fn count(&self, policy: &Policy, binding: Option<&Binding>, action: &'static str, error: &'static str) {
        self.means.counts.validated(&Check {
            policy: policy.name.clone(),
            policy_binding: binding.map(|binding| binding.name.clone()).unwrap_or_default(),
            enforcement_action: action,
            error_type: error,
        });
    }

    fn follow(
        &mut self,
        policy: &Policy,
        binding: &Binding,
        (index, message, reason): (usize, &str, &str),
        error: &'static str,
    ) {
        for action in &binding.actions {
            match action {
                Action::Deny => {
                    self.count(policy, Some(binding), "deny", error);
                    self.deny(policy, Some(binding), message, reason);
                }
                Action::Warn => {
                    self.count(policy, Some(binding), "warn", error);
                    self.attributes.warnings.add(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                        policy.name, binding.name
                    ));
                }
                Action::Audit => {
                    self.count(policy, Some(binding), "audit", error);
                    let actions: Vec<&str> = binding.actions.iter().map(|action| action.word()).collect();
                    let failure = json!([{
                        "message": message, "policy": policy.name, "binding": binding.name,
                        "expressionIndex": index, "validationActions": actions,
                    }]);
                    let key = "validation.policy.admission.k8s.io/validation_failure";
                    self.attributes.annotations.set(key, failure.to_string());
                }
            }
        }
    }

    /// The first denial is the answer.
    fn deny(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str, reason: &str) {
        let binding = binding.map(|binding| format!(" with binding '{}'", binding.name)).unwrap_or_default();
        let why = format!("ValidatingAdmissionPolicy '{}'{binding} denied request: {why}", policy.name);
        let code = match reason {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            _invalid => 422,
        };
        if self.denied.is_none() {
            self.denied = Some(denied(self.attributes, &why, reason, code, std::slice::from_ref(&why)));
        }
    }

    fn end(self) -> Result<()> {
        for ((policy, key), values) in self.notes {
            self.attributes.annotations.set(format!("{policy}/{key}"), values.join(", "));
        }
        self.denied.map_or(Ok(()), Err)
    }
}

/// Which kind of failure a sentence tells of, for metrics.
pub(super) fn error_type(why: &str) -> &'static str {
    if why.starts_with("compilation") {
        "compile_error"
    } else if why == condition::OUT_OF_BUDGET {
        "out_of_budget"
    } else {
        "invalid_error"
    }
}

/// The refusal of a request by a policy, as Kubernetes writes it.
pub(super) fn denied(attributes: &Attributes, why: &str, reason: &str, code: u16, causes: &[String]) -> Error {
    let resource = Qualified::new(&attributes.resource.group, &attributes.resource.name);
    let object = attributes.object.as_deref().unwrap_or(&Json::Null);
    let name = lifecycle::shown_name(attributes, object);
    let mut details = json!({"name": name, "kind": resource.name});
    if let Some(map) = details.as_object_mut() {
        if !resource.group.is_empty() {
            map.insert("group".to_owned(), json!(resource.group));
        }
        map.insert("causes".to_owned(), causes.iter().map(|cause| json!({"message": cause})).collect());
    }
    let message = format!("{resource} {name:?} is forbidden: {why}");
    Error::Denied { message, reason: reason.to_owned(), code: Some(code), details: Some(details) }
}
