//! Labels and selectors of core/v1 and meta/v1, judged in the words of Kubernetes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{Faults, placement::ENTRIES_MAX};
use crate::{
    field::{Fault, Path},
    label,
};

/// A map of labels. Kubernetes names the map, not the entry.
pub(super) fn labels(faults: &mut Faults, path: &Path, given: &BTreeMap<String, String>) {
    if given.len() > ENTRIES_MAX {
        faults.push(Fault::too_many(path.clone(), given.len(), ENTRIES_MAX));
        return;
    }
    for (key, value) in given {
        faults.words(path, key, label::key(key));
        faults.words(path, value, label::value(value));
    }
}

pub(super) fn selector(faults: &mut Faults, path: &Path, given: Option<&LabelSelector>) {
    let Some(LabelSelector { match_labels, match_expressions }) = given else { return };
    if let Some(given) = match_labels {
        labels(faults, &path.child("matchLabels"), given);
    }
    let expressions = match_expressions.as_deref().unwrap_or_default();
    faults.each(&path.child("matchExpressions"), expressions, |faults, path, given| {
        let values = given.values.as_deref().unwrap_or_default();
        operator(faults, path, &given.operator, values);
        faults.words(&path.child("key"), &given.key, label::key(&given.key));
        requirement_values(faults, path, values, true);
    });
}

/// How many values go with an operator.
pub(super) fn operator(faults: &mut Faults, path: &Path, operator: &str, values: &[String]) {
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            let why = "must be specified when `operator` is 'In' or 'NotIn'";
            faults.push(Fault::required(path.child("values"), why));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            faults.push(Fault::forbidden(path.child("values"), why));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => faults.push(Fault::invalid(path.child("operator"), other, "not a valid selector operator")),
    }
}

pub(super) fn requirement_values(faults: &mut Faults, path: &Path, values: &[String], are_labels: bool) {
    faults.each(&path.child("values"), values, |faults, path, value| {
        if are_labels {
            faults.words(path, value, label::value(value));
        }
    });
}

/// Keys whose values are taken from the pod itself, those that must match and those that must not.
pub(super) fn keys(faults: &mut Faults, path: &Path, both: (&[String], &[String]), selector: Option<&LabelSelector>) {
    let (matched, mismatched) = both;
    for (name, given) in [("matchLabelKeys", matched), ("mismatchLabelKeys", mismatched)] {
        let path = path.child(name);
        if !given.is_empty() && selector.is_none() {
            faults.push(Fault::forbidden(path, "must not be specified when labelSelector is not set"));
            continue;
        }
        faults.each(&path, given, |faults, path, key| faults.words(path, key, label::key(key)));
    }
    for (at, key) in matched.iter().enumerate() {
        let path = path.child("matchLabelKeys").index(at);
        if selector.is_some_and(|selector| names(selector, key)) {
            // A template may have both; no pod that is made of it is accepted.
            faults.push(Fault::invalid(path.clone(), key.as_str(), "exists in both matchLabelKeys and labelSelector"));
        }
        if mismatched.contains(key) {
            faults.push(Fault::invalid(path, key.as_str(), "exists in both matchLabelKeys and mismatchLabelKeys"));
        }
    }
}

fn names(selector: &LabelSelector, key: &String) -> bool {
    selector.match_labels.as_ref().is_some_and(|labels| labels.contains_key(key))
        || selector.match_expressions.iter().flatten().any(|expression| expression.key == *key)
}
