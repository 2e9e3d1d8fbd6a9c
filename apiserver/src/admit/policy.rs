//! Admission policies: rules in expressions, bound to what they apply to.
//!
//! A ValidatingAdmissionPolicy judges, a MutatingAdmissionPolicy changes; both do so only where a binding says, once for
//! each object of parameters the binding names. This module knows what a policy is; `config` reads one, `param` finds
//! its parameters, `validate` and `mutate` carry it out.

use std::sync::Arc;

use super::condition::Condition;
use super::config::FailurePolicy;
use super::expression::{Program, Variables};
use super::select::{Concern, MatchPolicy, Rule, Selector};
use crate::admission::Attributes;

pub mod config;
pub(super) mod mutate;
pub(super) mod param;
mod place;
mod spot;
pub(super) mod validate;

/// The two kinds of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// ValidatingAdmissionPolicy.
    Validating,
    /// MutatingAdmissionPolicy.
    Mutating,
}

impl Kind {
    /// Plural of the policies.
    #[must_use]
    pub fn policies(self) -> &'static str {
        match self {
            Self::Validating => "validatingadmissionpolicies",
            Self::Mutating => "mutatingadmissionpolicies",
        }
    }

    /// Plural of their bindings.
    #[must_use]
    pub fn bindings(self) -> &'static str {
        match self {
            Self::Validating => "validatingadmissionpolicybindings",
            Self::Mutating => "mutatingadmissionpolicybindings",
        }
    }
}

/// An expression, understood or not, and as it was written.
#[derive(Clone, Debug)]
pub struct Compiled {
    source: String,
    program: Result<Program, String>,
}

/// A policy with its bindings.
#[derive(Clone, Debug)]
pub struct Policy {
    name: String,
    /// Why it cannot be used at all.
    fault: Option<String>,
    failure_policy: FailurePolicy,
    matches: Match,
    param_kind: Option<ParamKind>,
    conditions: Vec<Condition>,
    variables: Variables,
    body: Body,
    bindings: Vec<Binding>,
}

/// What a policy does.
#[derive(Clone, Debug)]
enum Body {
    Judge { validations: Vec<Validation>, annotations: Vec<(String, Compiled)> },
    Change { mutations: Vec<Mutation>, reinvoke: bool },
}

/// One rule of a policy.
#[derive(Clone, Debug)]
struct Validation {
    rule: Compiled,
    message: String,
    message_expression: Option<Compiled>,
    reason: String,
}

/// One change of a policy.
#[derive(Clone, Debug)]
enum Mutation {
    /// An expression that builds what is merged into the object.
    Apply(Compiled),
    /// An expression that builds a JSON patch.
    JsonPatch(Compiled),
}

/// What a policy or a binding is about.
#[derive(Clone, Debug, Default)]
pub(super) struct Match {
    rules: Vec<NamedRule>,
    excluded: Vec<NamedRule>,
    policy: MatchPolicy,
    namespace_selector: Selector,
    object_selector: Selector,
}

#[derive(Clone, Debug)]
struct NamedRule {
    rule: Rule,
    names: Vec<String>,
}

impl NamedRule {
    fn covers_in(&self, version: &str, attributes: &Attributes) -> bool {
        self.rule.covers_in(version, attributes) && (self.names.is_empty() || self.names.contains(&attributes.name))
    }
}

impl Match {
    /// The version of the resource in which it is about an operation; `None`: it is not. Without rules, it is about every
    /// one that is not excluded.
    fn version<'a>(&self, attributes: &'a Attributes) -> Option<&'a str> {
        let covered = |rules: &[NamedRule]| {
            let covers = |version: &str| rules.iter().any(|rule| rule.covers_in(version, attributes));
            self.policy.version(attributes, covers)
        };
        match covered(&self.excluded) {
            Some(_) => None,
            None if self.rules.is_empty() => Some(&attributes.resource.version),
            None => covered(&self.rules),
        }
    }

    /// Whether what it is about by its rules lies where it applies.
    fn placed(&self, attributes: &Attributes, object: Option<&serde_json::Value>) -> Concern {
        super::select::placed(&self.namespace_selector, &self.object_selector, attributes, object)
    }
}

/// The kind of a policy's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamKind {
    /// `group/version`, or `version` for the core group.
    pub api_version: String,
    /// CamelCase.
    pub kind: String,
}

/// Which objects are the parameters of a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ParamRef {
    which: Which,
    namespace: String,
    deny_if_absent: bool,
}

/// Objects by name or by labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one of this name.
    Named(String),
    /// All that are selected.
    Selected(Selector),
}

/// Where a policy applies, with which parameters, and what follows.
#[derive(Clone, Debug)]
struct Binding {
    name: String,
    fault: Option<String>,
    matches: Match,
    param_ref: Option<ParamRef>,
    actions: Vec<Action>,
}

/// What follows when a rule does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Deny,
    Warn,
    Audit,
}

impl Action {
    const fn word(self) -> &'static str {
        match self {
            Self::Deny => "Deny",
            Self::Warn => "Warn",
            Self::Audit => "Audit",
        }
    }
}

/// Policies by name.
pub type Policies = Arc<[Policy]>;
