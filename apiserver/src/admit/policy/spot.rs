//! Where policies apply to a request: policy by policy, binding by binding, parameter by parameter.

use std::sync::Arc;

use serde_json::Value;

use super::{Binding, Policy, param};
use crate::admission::Attributes;
use crate::admit::means::Means;
use crate::admit::select::Selector;
use crate::admit::{select::Concern, validate};
use crate::error::Result;

/// Most times one request may be evaluated. A binding that selects more parameters is refused rather than half applied.
const SPOTS_MAX: usize = 1000;

/// One place where a policy applies, or why it cannot be told.
pub(super) enum Spot<'p> {
    /// It is evaluated here.
    Here {
        /// The policy.
        policy: &'p Policy,
        /// By this binding.
        binding: &'p Binding,
        /// With this parameter.
        param: Option<Arc<Value>>,
        /// On the request as this version of the resource shows it.
        version: &'p str,
    },
    /// It cannot be.
    Fault {
        /// The policy.
        policy: &'p Policy,
        /// The binding, if it is its fault.
        binding: Option<&'p Binding>,
        /// Why.
        why: String,
    },
}

/// All places, in the order of policies and bindings.
pub(super) async fn spots<'p>(
    policies: &'p [Policy],
    attributes: &'p Attributes,
    object: Option<&Value>,
    means: Means<'_>,
) -> Vec<Spot<'p>> {
    let mut spots = Vec::new();
    for policy in policies {
        let fault = |why| Spot::Fault { policy, binding: None, why };
        let Some(version) = policy.matches.version(attributes) else { continue };
        let concern = policy.matches.placed(attributes, object);
        match applies(concern, &policy.matches.namespace_selector, means).await {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => {
                spots.push(fault(format!("failed to configure policy: {error}")));
                continue;
            }
        }
        if let Some(why) = &policy.fault {
            spots.push(fault(format!("failed to configure policy: {why}")));
            continue;
        }
        for binding in &policy.bindings {
            let fault = |why: String| {
                let why = format!("failed to configure binding: {why}");
                Spot::Fault { policy, binding: Some(binding), why }
            };
            match params(policy, binding, attributes, object, means).await {
                Ok(params) if spots.len().saturating_add(params.len()) > SPOTS_MAX => {
                    spots.push(fault(format!("more than {SPOTS_MAX} evaluations for one request")));
                }
                Ok(params) => {
                    spots.extend(params.into_iter().map(|param| Spot::Here { policy, binding, param, version }));
                }
                Err(why) => spots.push(fault(why)),
            }
        }
    }
    spots
}

async fn applies(concern: Concern, selector: &Selector, means: Means<'_>) -> Result<bool> {
    validate::is_selected(concern, selector, means).await
}

/// The parameters of a binding; none if it does not apply.
async fn params(
    policy: &Policy,
    binding: &Binding,
    attributes: &Attributes,
    object: Option<&Value>,
    means: Means<'_>,
) -> Result<Vec<Option<Arc<Value>>>, String> {
    if let Some(why) = &binding.fault {
        return Err(why.clone());
    }
    if binding.matches.version(attributes).is_none() {
        return Ok(Vec::new());
    }
    let concern = binding.matches.placed(attributes, object);
    let selected = applies(concern, &binding.matches.namespace_selector, means).await;
    if !selected.map_err(|error| error.to_string())? {
        return Ok(Vec::new());
    }
    let namespace = attributes.namespace.as_deref();
    param::collect(policy.param_kind.as_ref(), binding.param_ref.as_ref(), namespace, means.sources).await
}

/// The object of the namespace of a request; none for what lies in none, and for namespaces themselves.
pub(super) async fn namespace(attributes: &Attributes, means: Means<'_>) -> Result<Option<Arc<Value>>> {
    let is_namespace = attributes.resource.group.is_empty() && attributes.resource.name == "namespaces";
    match &attributes.namespace {
        Some(name) if !is_namespace => Ok(means.sources.namespace(name).await?.map(|found| found.object)),
        Some(_) | None => Ok(None),
    }
}
