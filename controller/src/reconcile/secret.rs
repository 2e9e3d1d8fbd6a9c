//! The Secret that a user brings: whether it is there. Pods that run keep the files they have; every pod that is made needs it, so it is
//! told of before a node restarts.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;

use super::{Context, Local};
use crate::chain;
use crate::credentials::key::PASSWORD;
use crate::resolve::Resolved;

/// While something is under way a cluster is looked at many times a second, and the Secret, which no cache holds, once.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long it may take: the members are looked at after it.
const PATIENCE: Duration = Duration::from_secs(1);

/// What it lacks, as a sentence; `None`: nothing, or it was never found out. While it cannot be found out, what it was last counts.
pub(super) async fn missing(context: &Context, resolved: &Resolved, local: &mut Local) -> Option<String> {
    let name = &resolved.auth_secret;
    if !resolved.auth_is_brought {
        return None;
    }
    if let Some((at, of, missing)) = &local.secret
        && of == name
        && at.elapsed() < LOOK_AGAIN
    {
        return missing.clone();
    }
    let before = local.secret.take().filter(|(_, of, _)| of == name).and_then(|(_, _, missing)| missing);
    let live = tokio::time::timeout(PATIENCE, context.kubernetes.live::<Secret>(&resolved.key.namespace, name)).await;
    let missing = match live {
        Ok(Ok(secret)) => lack(name, secret.as_ref()),
        Ok(Err(error)) => {
            tracing::debug!(name, error = %chain(&error), "whether the Secret is there is not known");
            before
        }
        Err(_) => {
            tracing::debug!(name, "whether the Secret is there is not answered in time");
            before
        }
    };
    local.secret = Some((Instant::now(), name.clone(), missing.clone()));
    missing
}

fn lack(name: &str, secret: Option<&Secret>) -> Option<String> {
    let Some(secret) = secret else {
        return Some(format!("there is no Secret {name}, of which every pod that is made needs the key {PASSWORD}"));
    };
    let has = secret.data.as_ref().and_then(|data| data.get(PASSWORD)).is_some_and(|value| !value.0.is_empty());
    (!has).then(|| format!("the Secret {name} has no key {PASSWORD}, which every pod that is made needs"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_that_is_not_there_or_has_no_password_is_told_by_name_and_key() {
        let of = |data: serde_json::Value| serde_json::from_value::<Secret>(json!({"data": data})).unwrap();
        let gone = "there is no Secret mine, of which every pod that is made needs the key password";
        assert_eq!(lack("mine", None).as_deref(), Some(gone));
        let empty = "the Secret mine has no key password, which every pod that is made needs";
        for data in [json!({}), json!({"Password": "eA=="}), json!({"password": ""})] {
            assert_eq!(lack("mine", Some(&of(data))).as_deref(), Some(empty));
        }
        assert_eq!(lack("mine", Some(&of(json!({"password": "eA=="})))), None);
    }
}
