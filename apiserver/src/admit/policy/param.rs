//! The parameters of a binding: objects of the kind its policy names.

use std::sync::Arc;

use serde_json::Value;

use super::{ParamKind, ParamRef, Which};
use crate::admit::source::Sources;

/// The parameters to evaluate with, one after the other; `None` stands for none. A sentence says why there can be none.
pub(super) async fn collect(
    kind: Option<&ParamKind>,
    wanted: Option<&ParamRef>,
    namespace: Option<&str>,
    sources: &dyn Sources,
) -> Result<Vec<Option<Arc<Value>>>, String> {
    let (Some(kind), Some(wanted)) = (kind, wanted) else { return Ok(vec![None]) };
    let served = sources.params(kind).await.map_err(|error| error.to_string())?;
    let Some(served) = served else {
        let ParamKind { api_version, kind } = kind;
        return Err(format!("paramKind kind `&ParamKind{{APIVersion:{api_version},Kind:{kind},}}` not known"));
    };
    let place = match (served.is_namespaced, wanted.namespace.as_str()) {
        (false, "") => None,
        (false, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
        (true, "") => match namespace {
            Some(namespace) => Some(namespace),
            None => {
                return Err(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned()
                );
            }
        },
        (true, named) => Some(named),
    };
    if wanted.which == Which::Named(String::new()) {
        return Err("one of name or selector must be provided".to_owned());
    }
    let found = sources.find(&served, place, &wanted.which).await.map_err(|error| error.to_string())?;
    if found.is_empty() && wanted.deny_if_absent {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found.into_iter().map(Some).collect())
}
