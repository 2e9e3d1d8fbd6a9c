//! Where policies and bindings apply, as written: resources, selectors, parameters; pure.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::{Match, NamedRule, ParamRef, Which};
use crate::admit::condition::duplicate;
use crate::admit::select::{MatchPolicy, Rule, Selector};
use crate::error::Cause;

/// A word that must be there and one of a few.
pub(super) fn word_fault(field: &str, word: Option<&str>, known: &[&str]) -> Option<Cause> {
    match word {
        None => Some(Cause::required(field, "")),
        Some(word) if known.contains(&word) => None,
        Some(word) => Some(Cause::not_supported(field, word, known)),
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawMatch {
    pub(super) namespace_selector: Value,
    pub(super) object_selector: Value,
    pub(super) resource_rules: Vec<RawRule>,
    pub(super) exclude_resource_rules: Vec<RawRule>,
    pub(super) match_policy: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawRule {
    resource_names: Vec<String>,
    operations: Vec<String>,
    api_groups: Vec<String>,
    api_versions: Vec<String>,
    resources: Vec<String>,
    scope: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawParamRef {
    name: String,
    namespace: String,
    selector: Option<Value>,
    parameter_not_found_action: Option<String>,
}

impl RawMatch {
    pub(super) fn read(&self) -> Match {
        let rules = |raw: &[RawRule]| raw.iter().filter_map(|raw| raw.read().ok()).collect();
        Match {
            rules: rules(&self.resource_rules),
            excluded: rules(&self.exclude_resource_rules),
            policy: MatchPolicy::read(self.match_policy.as_deref()),
            namespace_selector: Selector::read(&self.namespace_selector).unwrap_or_default(),
            object_selector: Selector::read(&self.object_selector).unwrap_or_default(),
        }
    }

    pub(super) fn faults(&self, path: &str) -> Vec<Cause> {
        let at = |field: &str| format!("{path}.{field}");
        let mut causes = Vec::new();
        causes.extend(word_fault(&at("matchPolicy"), self.match_policy.as_deref(), &["Equivalent", "Exact"]));
        for (field, selector) in
            [("namespaceSelector", &self.namespace_selector), ("objectSelector", &self.object_selector)]
        {
            if selector.is_null() {
                causes.push(Cause::required(&at(field), ""));
            } else if let Err(why) = Selector::read(selector) {
                causes.push(Cause::invalid(&at(field), selector, &why));
            }
        }
        for (list, rules) in
            [("resourceRules", &self.resource_rules), ("excludeResourceRules", &self.exclude_resource_rules)]
        {
            for (index, raw) in rules.iter().enumerate() {
                let path = at(&format!("{list}[{index}]"));
                if let Err((field, why)) = raw.read() {
                    causes.push(Cause::invalid(&format!("{path}.{field}"), &"the value", &why));
                }
                let mut names = BTreeSet::new();
                for (index, name) in raw.resource_names.iter().enumerate() {
                    if !names.insert(name) {
                        causes.push(duplicate(&format!("{path}.resourceNames[{index}]"), name));
                    }
                }
            }
        }
        causes
    }

    /// What is deleted or connected to cannot be changed.
    pub(super) fn operation_faults(&self, path: &str) -> Vec<Cause> {
        let field = format!("{path}.resourceRules.operations");
        let operations = self.resource_rules.iter().flat_map(|rule| &rule.operations);
        let fault = |word: &String| word_fault(&field, Some(word), &["CREATE", "UPDATE"]);
        operations.filter_map(fault).collect()
    }
}

impl RawRule {
    pub(super) fn read(&self) -> Result<NamedRule, (&'static str, String)> {
        let Self { resource_names, operations, api_groups, api_versions, resources, scope } = self;
        let rule = Rule::read(operations, api_groups, api_versions, resources, scope.as_deref())?;
        Ok(NamedRule { rule, names: resource_names.clone() })
    }
}

impl RawParamRef {
    pub(super) fn read(&self) -> ParamRef {
        let which = match &self.selector {
            Some(selector) if self.name.is_empty() => Which::Selected(Selector::read(selector).unwrap_or_default()),
            Some(_) | None => Which::Named(self.name.clone()),
        };
        let deny_if_absent = self.parameter_not_found_action.as_deref() != Some("Allow");
        ParamRef { which, namespace: self.namespace.clone(), deny_if_absent }
    }

    pub(super) fn faults(&self) -> Vec<Cause> {
        let mut causes = Vec::new();
        let both = "name and selector are mutually exclusive";
        match (self.name.is_empty(), &self.selector) {
            (false, Some(_)) => {
                causes.push(Cause::forbidden("spec.paramRef.name", both));
                causes.push(Cause::forbidden("spec.paramRef.selector", both));
            }
            (true, None) => {
                causes.push(Cause::required("spec.paramRef", "one of name or selector must be specified"));
            }
            (true, Some(selector)) => {
                if let Err(why) = Selector::read(selector) {
                    causes.push(Cause::invalid("spec.paramRef.selector", selector, &why));
                }
            }
            (false, None) => {}
        }
        let word = self.parameter_not_found_action.as_deref();
        causes.extend(word_fault("spec.paramRef.parameterNotFoundAction", word, &["Deny", "Allow"]));
        causes
    }
}
