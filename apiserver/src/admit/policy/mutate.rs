//! Mutating policies: one after the other, each seeing what the one before it made of the object. Those that ask for it
//! are carried out a second time, once, if something changed the object after them.

use std::collections::BTreeMap;

use merge::typed;
use merge::{ListType, MapType, Node, PatchError, Schema, Shape};
use serde_json::{Value as Json, json};

use super::spot::{self, Spot};
use super::validate::{BUDGET, denied, error_type};
use super::{Binding, Body, Compiled, Mutation, Policy};
use crate::admission::Attributes;
use crate::admit::condition::{self, Met, evaluated};
use crate::admit::config::FailurePolicy;
use crate::admit::count::Check;
use crate::admit::expression::{Answers, Machine, Question, Value};
use crate::admit::means::Means;
use crate::admit::mutate::Again;
use crate::admit::sight;
use crate::error::{Error, Result};

/// What is carried out: policy, binding, and namespace and name of the parameter.
pub(in crate::admit) type Invocation = (String, String, String);

/// Carries out all mutating policies; the object as they leave it.
pub(in crate::admit) async fn run(
    policies: &[Policy],
    attributes: &Attributes,
    mut object: Json,
    means: Means<'_>,
    again: &mut Again<Invocation>,
) -> Result<Json> {
    again.begin(&object);
    let spots =
        if object.is_null() { Vec::new() } else { spot::spots(policies, attributes, Some(&object), means).await };
    if spots.is_empty() {
        again.end(&object);
        return Ok(object);
    }
    let namespace = spot::namespace(attributes, means).await?;
    let mut failures = Failures { attributes, means, found: Vec::new() };
    let mut answers = Answers::new();
    for spot in &spots {
        let (policy, binding, param, version) = match spot {
            Spot::Fault { policy, binding, why } => {
                failures.note(policy, *binding, why, "Forbidden");
                continue;
            }
            Spot::Here { policy, binding, param, version } => (policy, binding, param, version),
        };
        let key = invocation(policy, binding, param.as_deref());
        if !again.is_wanted(&key) {
            continue;
        }
        let Body::Change { mutations, reinvoke } = &policy.body else { continue };
        let seen = attributes.in_version(version);
        let scene =
            Scene { policy, attributes: &seen, means, namespace: namespace.as_deref(), param: param.as_deref() };
        let shown = seen.shown(&object);
        match scene.carry_out(mutations, &shown, &mut answers).await {
            Ok(None) => continue,
            Ok(Some(changed)) => {
                means.counts.mutated(&check(policy, Some(binding), "no_error"));
                if changed != *shown {
                    object = seen.back(changed);
                    again.object_changed();
                }
            }
            Err(why) => failures.note(policy, Some(binding), &why, "Invalid"),
        }
        if *reinvoke {
            again.was_asked(key);
        }
    }
    again.end(&object);
    failures.end()?;
    Ok(object)
}

fn invocation(policy: &Policy, binding: &Binding, param: Option<&Json>) -> Invocation {
    let text = |field: &str| {
        let found = param.and_then(|param| param.pointer(&format!("/metadata/{field}"))?.as_str());
        found.unwrap_or_default().to_owned()
    };
    (policy.name.clone(), binding.name.clone(), format!("{}/{}", text("namespace"), text("name")))
}

fn check(policy: &Policy, binding: Option<&Binding>, error_type: &'static str) -> Check {
    Check {
        policy: policy.name.clone(),
        policy_binding: binding.map(|binding| binding.name.clone()).unwrap_or_default(),
        enforcement_action: if error_type == "no_error" { "allow" } else { "deny" },
        error_type,
    }
}

/// One policy on one request.
struct Scene<'a> {
    policy: &'a Policy,
    attributes: &'a Attributes,
    means: Means<'a>,
    namespace: Option<&'a Json>,
    param: Option<&'a Json>,
}

impl Scene<'_> {
    /// The object after all changes of the policy; `None`: its conditions leave it out.
    async fn carry_out(
        &self,
        mutations: &[Mutation],
        object: &Json,
        answers: &mut Answers,
    ) -> Result<Option<Json>, String> {
        let bare = sight::with_params(&sight::names(self.attributes, Some(object), None), self.param);
        let judge = |answers: &Answers| condition::met(&self.policy.conditions, &bare, answers);
        match self.means.settled(self.attributes, answers, judge).await {
            Some(Met::Yes) => {}
            Some(Met::No) => return Ok(None),
            Some(Met::Unknown(why)) => return Err(why),
            None => return Err("too many questions about rights".to_owned()),
        }
        let mut object = object.clone();
        for mutation in mutations {
            object = self.change(mutation, object, answers).await?;
        }
        Ok(Some(object))
    }

    async fn change(&self, mutation: &Mutation, object: Json, answers: &mut Answers) -> Result<Json, String> {
        let (Mutation::Apply(compiled) | Mutation::JsonPatch(compiled)) = mutation;
        let names = sight::with_params(&sight::names(self.attributes, Some(&object), self.namespace), self.param);
        let evaluate = |answers: &Answers| value(self.policy, compiled, &names, answers);
        let built = self.means.settled(self.attributes, answers, evaluate).await;
        let built = built.unwrap_or_else(|| Err("too many questions about rights".to_owned()))?;
        let kind = self.means.sources.kind(&self.attributes.kind);
        let mut changed = match mutation {
            Mutation::JsonPatch(_) => patched(object, &built)?,
            Mutation::Apply(_) => match &kind {
                Some(kind) => applied(kind.shape.shared(), object, &built)?,
                // What has no schema here (a Scale) is merged field by field.
                None => applied(open()?.shared(), object, &built)?,
            },
        };
        if let Some(kind) = kind {
            kind.strategy.before_default(&mut changed);
            kind.shape.default(&mut changed);
            kind.strategy.default(&mut changed);
        }
        Ok(changed)
    }
}

fn value(
    policy: &Policy,
    compiled: &Compiled,
    names: &BTreeMap<String, Value>,
    answers: &Answers,
) -> Result<Result<Value, String>, Box<Question>> {
    let machine = Machine::new(names, &policy.variables, answers, BUDGET);
    Ok(evaluated(&machine, &compiled.program, &compiled.source)?.map_err(|failure| failure.text().to_owned()))
}

fn open() -> Result<Schema, String> {
    Schema::compile(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}))
        .map_err(|error| error.to_string())
}

/// What an object is cannot be changed.
fn same_kind(changed: Json, object: &Json) -> Result<Json, String> {
    let is_kept = |field: &&str| changed.get(*field) == object.get(*field);
    match ["apiVersion", "kind"].iter().find(|field| !is_kept(field)) {
        Some(field) => Err(format!("the policy changes {field}")),
        None if changed.is_object() => Ok(changed),
        None => Err("the policy leaves no object".to_owned()),
    }
}

/// The object after a JSON patch built by an expression. A patch whose test does not hold changes nothing.
fn patched(object: Json, built: &Value) -> Result<Json, String> {
    let Value::List(operations) = built else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    };
    let mut patch = Vec::new();
    for operation in operations.iter() {
        let Value::Object(name, fields) = operation else {
            return Err("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch".to_owned());
        };
        if &**name != "JSONPatch" {
            return Err(format!(
                "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of {name}"
            ));
        }
        if let Some(value @ Value::Object(name, _)) = fields.get("value") {
            named_right(value, name)?;
        }
        patch.push(operation.json()?);
    }
    let patch = Json::Array(patch);
    let mut changed = object.clone();
    match merge::json_patch(&mut changed, &patch) {
        Ok(()) => same_kind(changed, &object),
        Err(PatchError::Failed { at, .. }) if patch.pointer(&format!("/{at}/op")) == Some(&json!("test")) => Ok(object),
        Err(error) => Err(format!("JSON Patch: {error}")),
    }
}

/// The types an expression builds of must be named after the fields they stand in.
fn named_right(value: &Value, root: &str) -> Result<(), String> {
    let mut wrong = Vec::new();
    misnamed(value, root, &mut wrong);
    if wrong.is_empty() { Ok(()) } else { Err(format!("type mismatch: {}", wrong.join("\n"))) }
}

fn misnamed(value: &Value, path: &str, wrong: &mut Vec<String>) {
    match value {
        Value::Object(name, fields) => {
            if &**name != path {
                wrong.push(format!(
                    "unexpected type name {name:?}, expected {path:?}, which matches field name path from root Object type"
                ));
            }
            fields.iter().for_each(|(field, value)| misnamed(value, &format!("{path}.{field}"), wrong));
        }
        Value::List(items) => items.iter().for_each(|item| misnamed(item, path, wrong)),
        Value::Map(entries) => entries.values().for_each(|value| misnamed(value, path, wrong)),
        _no_parts => {}
    }
}

/// The object with a configuration merged into it, by the rules of server-side apply; nobody owns what it adds.
fn applied(node: &Node, object: Json, built: &Value) -> Result<Json, String> {
    named_right(built, "Object")?;
    let mut patch = built.json()?;
    for field in ["apiVersion", "kind"] {
        if let (Some(map), Some(own)) = (patch.as_object_mut(), object.get(field)) {
            map.insert(field.to_owned(), own.clone());
        }
    }
    let failed = |why: String| format!("error applying patch: {why}");
    typed::check(node, &patch)
        .map_err(|faults| failed(format!("failed to convert patch object to typed object: {faults}")))?;
    let mut atomic = Vec::new();
    atomics(Some(node), &patch, "", &mut atomic);
    if !atomic.is_empty() {
        let list = atomic.join(", ");
        return Err(failed(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {list}"
        )));
    }
    let merged = typed::merge(node, Some(&object), Some(&patch));
    same_kind(merged.unwrap_or(Json::Null), &object)
}

/// Everything in a configuration that is replaced as a whole: to set a part of it would take the rest away. Where the
/// schema is open, lists are; Kubernetes may know better how those of its own kinds merge, so they are not guessed at.
fn atomics(node: Option<&Node>, value: &Json, path: &str, found: &mut Vec<String>) {
    match (node.map(|node| &node.shape), value) {
        (Some(Shape::Object(object)), Json::Object(fields)) => {
            if object.map_type == MapType::Atomic {
                found.push(path.to_owned());
            }
            for (name, value) in fields {
                let known = object.properties.get(name).or(object.additional.as_deref());
                atomics(known, value, &format!("{path}.{name}"), found);
            }
        }
        (Some(Shape::Array(array)), Json::Array(items)) => {
            if array.list_type == ListType::Atomic {
                found.push(path.to_owned());
            }
            for (index, item) in items.iter().enumerate() {
                atomics(Some(&array.items), item, &format!("{path}[{index}]"), found);
            }
        }
        (Some(Shape::Any) | None, Json::Array(_)) => found.push(path.to_owned()),
        (Some(Shape::Any) | None, Json::Object(fields)) => {
            for (name, value) in fields {
                atomics(None, value, &format!("{path}.{name}"), found);
            }
        }
        (_, _) => {}
    }
}

/// What could not be carried out, in order.
struct Failures<'a> {
    attributes: &'a Attributes,
    means: Means<'a>,
    found: Vec<(String, &'static str)>,
}

impl Failures<'_> {
    fn note(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str, reason: &'static str) {
        let ignored = policy.failure_policy == FailurePolicy::Ignore;
        let name = binding.map_or("", |binding| binding.name.as_str());
        tracing::warn!(policy = policy.name, binding = name, why, ignored, "a policy could not be carried out");
        self.means.counts.mutated(&check(policy, binding, error_type(why)));
        if ignored {
            self.means.counts.ignored("mutatingadmissionpolicy", &policy.name);
            return;
        }
        let message = match binding {
            Some(binding) => format!("policy '{}' with binding '{}' denied request: {why}", policy.name, binding.name),
            None => format!("policy {:?} denied request: {why}", policy.name),
        };
        self.found.push((message, reason));
    }

    fn end(self) -> Result<()> {
        let Some((message, reason)) = self.found.first() else { return Ok(()) };
        let causes: Vec<String> = self.found.iter().map(|(message, _)| message.clone()).collect();
        match denied(self.attributes, message, reason, 403, &causes) {
            // The words of the first failure alone, as in Kubernetes.
            Error::Denied { reason, code, details, .. } => {
                Err(Error::Denied { message: message.clone(), reason, code, details })
            }
            other => Err(other),
        }
    }
}
