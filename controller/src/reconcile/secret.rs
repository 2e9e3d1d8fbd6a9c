//! The Secret with the application's password: whether what a user brings is there, and whether it can be used. Pods that run keep what they have;
//! every pod that is made needs it, so it is told of before a node restarts.

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

/// Reason and sentence of what it lacks.
pub(super) type Lack = (&'static str, String);

/// What it lacks; `None`: nothing, or it was never found out. While it cannot be found out, what it was last counts.
pub(super) async fn lack(context: &Context, resolved: &Resolved, local: &mut Local) -> Option<Lack> {
    let name = &resolved.auth_secret;
    if !resolved.auth_is_brought {
        return resolved.credentials.application.as_ref().and_then(|password| fault(name, password.as_bytes()));
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
        Ok(Ok(secret)) => of(name, secret.as_ref()),
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

fn of(name: &str, secret: Option<&Secret>) -> Option<Lack> {
    let missing = |text: String| Some(("SecretMissing", text));
    let Some(secret) = secret else {
        return missing(format!("there is no Secret {name}, of which every pod that is made needs the key {PASSWORD}"));
    };
    match secret.data.as_ref().and_then(|data| data.get(PASSWORD)).filter(|value| !value.0.is_empty()) {
        None => missing(format!("the Secret {name} has no key {PASSWORD}, which every pod that is made needs")),
        Some(value) => fault(name, &value.0),
    }
}

fn fault(name: &str, password: &[u8]) -> Option<Lack> {
    let why = types::password::of_file(password).err()?;
    let text = format!(
        "the password in the Secret {name} cannot be used: it {why}. Members keep the one they have, and no pod that is made now starts"
    );
    Some(("SecretUnusable", text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    fn secret(data: serde_json::Value) -> Secret {
        serde_json::from_value(json!({"data": data})).unwrap()
    }

    #[test]
    fn a_secret_that_is_not_there_or_has_no_password_is_told_by_name_and_key() {
        let told = |text: &str| Some(("SecretMissing", text.to_owned()));
        let gone = "there is no Secret mine, of which every pod that is made needs the key password";
        assert_eq!(of("mine", None), told(gone));
        let empty = "the Secret mine has no key password, which every pod that is made needs";
        for data in [json!({}), json!({"Password": "eA=="}), json!({"password": ""})] {
            assert_eq!(of("mine", Some(&secret(data))), told(empty));
        }
        assert_eq!(of("mine", Some(&secret(json!({"password": "eA=="})))), None);
    }

    /// Before, nothing was said of it: the former password stayed in use, and a pod that was made anew did not start.
    #[test]
    fn a_password_that_no_agent_takes_is_told_and_not_shown() {
        let told = |password: &[u8]| {
            let mut secret = secret(json!({}));
            secret.data.get_or_insert_default().insert(PASSWORD.to_owned(), ByteString(password.to_vec()));
            of("mine", Some(&secret))
        };
        let table: [(&[u8], _); 4] = [
            (b"canary\ny", "contains a control character"),
            (b"\n", "is empty"),
            (b"\xff", "is not UTF-8"),
            (&[b'c'; 600], "is longer than 512 bytes"),
        ];
        for (password, why) in table {
            let text = format!(
                "the password in the Secret mine cannot be used: it {why}. Members keep the one they have, and no pod that is made now starts"
            );
            assert_eq!(told(password), Some(("SecretUnusable", text)));
        }
        assert_eq!(told(b"good\r\n"), None);
    }
}
