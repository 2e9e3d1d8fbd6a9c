//! Policies and bindings as objects, read into what is carried out; pure.
//!
//! What cannot be understood is refused when it is written. One that is there nevertheless (written by a server with
//! other rules) stays, with its fault: its failure policy applies.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::place::{RawMatch, RawParamRef, word_fault};
use super::{Action, Binding, Body, Compiled, Kind, Mutation, ParamKind, Policy, Validation};
use crate::admit::condition::{self, RawCondition, duplicate, expression_fault};
use crate::admit::config::FailurePolicy;
use crate::admit::expression::{Program, Scope, Type, Variables};
use crate::error::Cause;
use crate::object::name;

/// Most audit annotations of a policy, as in Kubernetes.
const ANNOTATIONS_MAX: usize = 20;
/// Longest expression of one, as in Kubernetes.
const ANNOTATION_LENGTH_MAX: usize = 5 * 1024;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawPolicy {
    param_kind: Option<RawParamKind>,
    match_constraints: Option<RawMatch>,
    failure_policy: Option<String>,
    match_conditions: Vec<RawCondition>,
    variables: Vec<RawVariable>,
    validations: Vec<RawValidation>,
    audit_annotations: Vec<RawAnnotation>,
    mutations: Vec<RawMutation>,
    reinvocation_policy: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawParamKind {
    api_version: String,
    kind: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct RawVariable {
    name: String,
    expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawValidation {
    expression: String,
    message: String,
    reason: Option<String>,
    message_expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawAnnotation {
    key: String,
    value_expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawMutation {
    patch_type: String,
    apply_configuration: Option<RawPatch>,
    json_patch: Option<RawPatch>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct RawPatch {
    expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawBinding {
    policy_name: String,
    param_ref: Option<RawParamRef>,
    match_resources: Option<RawMatch>,
    validation_actions: Vec<String>,
}

/// Everything for which a policy is refused when it is written.
#[must_use]
pub fn policy_faults(kind: Kind, object: &Value) -> Vec<Cause> {
    match spec::<RawPolicy>(object) {
        Ok(raw) => raw.faults(kind, object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()),
        Err(why) => vec![Cause::invalid("spec", &"the policy", &why)],
    }
}

/// Everything for which a binding is refused when it is written.
#[must_use]
pub fn binding_faults(kind: Kind, object: &Value) -> Vec<Cause> {
    match spec::<RawBinding>(object) {
        Ok(raw) => raw.faults(kind),
        Err(why) => vec![Cause::invalid("spec", &"the binding", &why)],
    }
}

/// The policies of these objects with the bindings of those, by name. A policy nobody binds does nothing.
#[must_use]
pub fn read(kind: Kind, policies: &[Value], bindings: &[Value]) -> Vec<Policy> {
    let mut bound: BTreeMap<String, Vec<Binding>> = BTreeMap::new();
    for object in bindings {
        let raw = spec::<RawBinding>(object);
        let policy = object.pointer("/spec/policyName").and_then(Value::as_str).unwrap_or_default();
        bound.entry(policy.to_owned()).or_default().push(read_binding(kind, named(object), raw));
    }
    let mut read: Vec<Policy> = Vec::new();
    for object in policies {
        if let Some(mut bindings) = bound.remove(named(object)) {
            bindings.sort_by(|one, two| one.name.cmp(&two.name));
            read.push(read_policy(kind, object, bindings));
        }
    }
    read.sort_by(|one, two| one.name.cmp(&two.name));
    read
}

fn named(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

fn spec<T: for<'de> Deserialize<'de> + Default>(object: &Value) -> Result<T, String> {
    match object.get("spec") {
        None | Some(Value::Null) => Ok(T::default()),
        Some(spec) => T::deserialize(spec).map_err(|error| error.to_string()),
    }
}

fn read_policy(kind: Kind, object: &Value, bindings: Vec<Binding>) -> Policy {
    let (raw, fault) = match spec::<RawPolicy>(object) {
        Ok(raw) => (raw, None),
        Err(why) => (RawPolicy::default(), Some(why)),
    };
    let matches = raw.match_constraints.as_ref().map(RawMatch::read).unwrap_or_default();
    let ignores = object.pointer("/spec/failurePolicy").and_then(Value::as_str) == Some("Ignore");
    let (variables, scope) = raw.variables(kind);
    Policy {
        name: named(object).to_owned(),
        fault,
        failure_policy: if ignores { FailurePolicy::Ignore } else { FailurePolicy::Fail },
        matches,
        param_kind: raw.param_kind.as_ref().map(|RawParamKind { api_version, kind }| ParamKind {
            api_version: api_version.clone(),
            kind: kind.clone(),
        }),
        conditions: condition::read(&raw.match_conditions, &raw.bare_scope()),
        variables,
        body: raw.body(kind, &scope),
        bindings,
    }
}

fn read_binding(kind: Kind, name: &str, raw: Result<RawBinding, String>) -> Binding {
    let (raw, fault) = match raw {
        Ok(raw) => (raw, None),
        Err(why) => (RawBinding::default(), Some(why)),
    };
    let action = |word: &String| match word.as_str() {
        "Deny" => Some(Action::Deny),
        "Warn" => Some(Action::Warn),
        "Audit" => Some(Action::Audit),
        _unknown => None,
    };
    let fault = fault.or_else(|| raw.faults(kind).first().map(|cause| format!("{}: {}", cause.field, cause.message)));
    Binding {
        name: name.to_owned(),
        fault,
        matches: raw.match_resources.as_ref().map(RawMatch::read).unwrap_or_default(),
        param_ref: raw.param_ref.as_ref().map(RawParamRef::read),
        actions: raw.validation_actions.iter().filter_map(action).collect(),
    }
}

impl RawPolicy {
    /// What conditions may refer to: no variables.
    fn bare_scope(&self) -> Scope {
        Scope::admission().with_authorizer().with_params(self.param_kind.is_some())
    }

    /// The variables in their order, each seeing those before it, and what everything else may refer to.
    fn variables(&self, kind: Kind) -> (Variables, Scope) {
        let mut scope = self.bare_scope();
        match kind {
            Kind::Validating if self.variables.is_empty() => {}
            Kind::Validating => scope = scope.with_variables(),
            Kind::Mutating => scope = scope.with_variables().with_patches(),
        }
        let mut variables = Vec::new();
        for RawVariable { name, expression } in &self.variables {
            let program = Program::compile(expression, &scope);
            scope.add_variable(name, program.as_ref().map_or(Type::Dyn, |program| program.result().clone()));
            variables.push((name.clone(), program));
        }
        (variables, scope)
    }

    fn body(&self, kind: Kind, scope: &Scope) -> Body {
        match kind {
            Kind::Validating => {
                let annotation = |RawAnnotation { key, value_expression }: &RawAnnotation| {
                    (key.clone(), compiled(value_expression.trim(), scope, &["string", "null"]))
                };
                Body::Judge {
                    validations: self.validations.iter().map(|raw| raw.read(scope)).collect(),
                    annotations: self.audit_annotations.iter().map(annotation).collect(),
                }
            }
            Kind::Mutating => Body::Change {
                mutations: self.mutations.iter().map(|raw| raw.read(scope)).collect(),
                reinvoke: self.reinvocation_policy == "IfNeeded",
            },
        }
    }

    fn faults(&self, kind: Kind, name: &str) -> Vec<Cause> {
        let mut causes = Vec::new();
        causes.extend(word_fault("spec.failurePolicy", self.failure_policy.as_deref(), &["Fail", "Ignore"]));
        if let Some(RawParamKind { api_version, kind }) = &self.param_kind {
            for (field, text) in [("apiVersion", api_version), ("kind", kind)] {
                if text.is_empty() {
                    causes.push(Cause::required(&format!("spec.paramKind.{field}"), ""));
                }
            }
        }
        match &self.match_constraints {
            None => causes.push(Cause::required("spec.matchConstraints", "")),
            Some(raw) => {
                causes.extend(raw.faults("spec.matchConstraints"));
                if raw.resource_rules.is_empty() {
                    causes.push(Cause::required("spec.matchConstraints.resourceRules", ""));
                }
                if kind == Kind::Mutating {
                    causes.extend(raw.operation_faults("spec.matchConstraints"));
                }
            }
        }
        causes.extend(condition::faults(&self.match_conditions, &self.bare_scope(), "spec.matchConditions"));
        causes.extend(self.variable_faults(kind));
        let (_, scope) = self.variables(kind);
        match kind {
            Kind::Validating => causes.extend(self.judge_faults(&scope, name)),
            Kind::Mutating => causes.extend(self.change_faults(&scope)),
        }
        causes
    }

    fn variable_faults(&self, kind: Kind) -> Vec<Cause> {
        let mut causes = Vec::new();
        let (read, _) = self.variables(kind);
        for (index, (RawVariable { name, expression }, (_, program))) in self.variables.iter().zip(&read).enumerate() {
            let at = |field: &str| format!("spec.variables[{index}].{field}");
            if name.trim().is_empty() {
                causes.push(Cause::required(&at("name"), "name is not specified"));
            } else if !is_identifier(name) {
                causes.push(Cause::invalid(&at("name"), &format!("{name:?}"), "must be a valid CEL identifier"));
            }
            match program {
                _ if expression.trim().is_empty() => {
                    causes.push(Cause::required(&at("expression"), "expression is not specified"));
                }
                Err(why) => causes.push(Cause::invalid(&at("expression"), &format!("{expression:?}"), why)),
                Ok(_) => {}
            }
        }
        causes
    }

    fn judge_faults(&self, scope: &Scope, name: &str) -> Vec<Cause> {
        let mut causes = Vec::new();
        if self.validations.is_empty() && self.audit_annotations.is_empty() {
            let detail = "validations or auditAnnotations must contain at least one item";
            return vec![Cause::required("spec.validations", detail), Cause::required("spec.auditAnnotations", detail)];
        }
        for (index, raw) in self.validations.iter().enumerate() {
            causes.extend(raw.faults(scope, &format!("spec.validations[{index}]")));
        }
        if self.audit_annotations.len() > ANNOTATIONS_MAX {
            let detail = format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations");
            causes.push(Cause::invalid("spec.auditAnnotations", &"the list", &detail));
        }
        let mut keys = BTreeSet::new();
        for (index, RawAnnotation { key, value_expression }) in self.audit_annotations.iter().enumerate() {
            let at = |field: &str| format!("spec.auditAnnotations[{index}].{field}");
            if let Some(fault) = name::qualified_name(&format!("{name}/{key}")) {
                causes.push(Cause::invalid(&at("key"), &format!("{:?}", format!("{name}/{key}")), &fault));
            }
            let text = value_expression.trim();
            if text.is_empty() {
                causes.push(Cause::required(&at("valueExpression"), "valueExpression is not specified"));
            } else if text.len() > ANNOTATION_LENGTH_MAX {
                let detail = format!("must not exceed {ANNOTATION_LENGTH_MAX} bytes in length");
                causes.push(Cause::required(&at("valueExpression"), &detail));
            } else {
                causes.extend(expression_fault(text, scope, &["string", "null"], &at("valueExpression")));
            }
            if !keys.insert(key) {
                causes.push(duplicate(&at("key"), key));
            }
        }
        causes
    }

    fn change_faults(&self, scope: &Scope) -> Vec<Cause> {
        let mut causes = Vec::new();
        if self.mutations.is_empty() {
            causes.push(Cause::required("spec.mutations", "mutations must contain at least one item"));
        }
        for (index, raw) in self.mutations.iter().enumerate() {
            causes.extend(raw.faults(scope, &format!("spec.mutations[{index}]")));
        }
        let word = Some(self.reinvocation_policy.as_str()).filter(|word| !word.is_empty());
        causes.extend(word_fault("spec.reinvocationPolicy", word, &["IfNeeded", "Never"]));
        causes
    }
}

fn is_identifier(name: &str) -> bool {
    let is_head = |next: char| next.is_ascii_alphabetic() || next == '_';
    let is_word = |next: char| next.is_ascii_alphanumeric() || next == '_';
    name.chars().next().is_some_and(is_head)
        && name.chars().all(is_word)
        && !matches!(name, "true" | "false" | "null" | "in")
}

fn compiled(source: &str, scope: &Scope, wanted: &[&str]) -> Compiled {
    Compiled { source: source.to_owned(), program: Program::compile_to(source, scope, wanted) }
}

impl RawValidation {
    fn read(&self, scope: &Scope) -> Validation {
        let Self { expression, message, reason, message_expression } = self;
        let has_expression = !message_expression.trim().is_empty();
        let bare = scope.clone().without_authorizer();
        Validation {
            rule: compiled(expression, scope, &["bool"]),
            message: message.trim().to_owned(),
            message_expression: has_expression.then(|| compiled(message_expression, &bare, &["string"])),
            reason: reason.clone().unwrap_or_else(|| "Invalid".to_owned()),
        }
    }

    fn faults(&self, scope: &Scope, path: &str) -> Vec<Cause> {
        let at = |field: &str| format!("{path}.{field}");
        let mut causes = Vec::new();
        if self.expression.trim().is_empty() {
            causes.push(Cause::required(&at("expression"), "expression is not specified"));
        } else {
            causes.extend(expression_fault(&self.expression, scope, &["bool"], &at("expression")));
        }
        let only_blanks = |text: &str| !text.is_empty() && text.trim().is_empty();
        let text = &self.message_expression;
        if only_blanks(text) {
            causes.push(Cause::invalid(
                &at("messageExpression"),
                &format!("{text:?}"),
                "must be non-empty if specified",
            ));
        } else if !text.is_empty() {
            let bare = scope.clone().without_authorizer();
            causes.extend(expression_fault(text, &bare, &["string"], &at("messageExpression")));
        }
        let message = &self.message;
        if only_blanks(message) {
            causes.push(Cause::invalid(&at("message"), &format!("{message:?}"), "must be non-empty if specified"));
        } else if message.trim().contains(['\n', '\r']) {
            causes.push(Cause::invalid(&at("message"), &format!("{message:?}"), "must not contain line breaks"));
        }
        let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
        causes.extend(self.reason.as_deref().and_then(|word| word_fault(&at("reason"), Some(word), &reasons)));
        causes
    }
}

impl RawMutation {
    fn read(&self, scope: &Scope) -> Mutation {
        let text = |patch: &Option<RawPatch>| patch.clone().unwrap_or_default().expression.trim().to_owned();
        match self.patch_type.as_str() {
            "JSONPatch" => Mutation::JsonPatch(compiled(&text(&self.json_patch), scope, &["list(JSONPatch)"])),
            _apply => Mutation::Apply(compiled(&text(&self.apply_configuration), scope, &["Object"])),
        }
    }

    fn faults(&self, scope: &Scope, path: &str) -> Vec<Cause> {
        let at = |field: &str| format!("{path}.{field}");
        let (field, own, other, other_field, wanted) = match self.patch_type.as_str() {
            "JSONPatch" => {
                ("jsonPatch", &self.json_patch, &self.apply_configuration, "applyConfiguration", "list(JSONPatch)")
            }
            "ApplyConfiguration" => {
                ("applyConfiguration", &self.apply_configuration, &self.json_patch, "jsonPatch", "Object")
            }
            word => {
                let word = Some(word).filter(|word| !word.is_empty());
                let known = ["ApplyConfiguration", "JSONPatch"];
                return word_fault(&at("patchType"), word, &known).into_iter().collect();
            }
        };
        let mut causes = Vec::new();
        match own {
            None => {
                let detail = format!("must be specified when patchType is {}", self.patch_type);
                causes.push(Cause::required(&at(field), &detail));
            }
            Some(RawPatch { expression }) => {
                causes.extend(expression_fault(
                    expression.trim(),
                    scope,
                    &[wanted],
                    &at(&format!("{field}.expression")),
                ));
            }
        }
        if other.is_some() {
            let detail = format!("must not be specified when patchType is {}", self.patch_type);
            causes.push(Cause::invalid(&at(other_field), &format!("\"{{{other_field}}}\""), &detail));
        }
        causes
    }
}

impl RawBinding {
    fn faults(&self, kind: Kind) -> Vec<Cause> {
        let mut causes = Vec::new();
        if self.policy_name.is_empty() {
            causes.push(Cause::required("spec.policyName", ""));
        }
        if let Some(raw) = &self.param_ref {
            causes.extend(raw.faults());
        }
        if let Some(raw) = &self.match_resources {
            causes.extend(raw.faults("spec.matchResources"));
            if kind == Kind::Mutating {
                causes.extend(raw.operation_faults("spec.matchResources"));
            }
        }
        if kind == Kind::Validating {
            causes.extend(self.action_faults());
        }
        causes
    }

    fn action_faults(&self) -> Vec<Cause> {
        let field = "spec.validationActions";
        let mut causes = Vec::new();
        let mut seen = BTreeSet::new();
        for (index, word) in self.validation_actions.iter().enumerate() {
            let at = format!("{field}[{index}]");
            causes.extend(word_fault(&at, Some(word), &["Audit", "Deny", "Warn"]));
            if !seen.insert(word.as_str()) {
                causes.push(duplicate(&at, word));
            }
        }
        if seen.contains("Deny") && seen.contains("Warn") {
            let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the \
                          API response and headers serves no purpose)";
            let value = serde_json::to_string(&self.validation_actions).unwrap_or_default();
            causes.push(Cause::invalid(field, &value, detail));
        }
        if seen.is_empty() {
            causes.push(Cause::required(field, "at least one validation action is required"));
        }
        causes
    }
}
