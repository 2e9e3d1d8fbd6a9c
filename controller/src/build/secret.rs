//! The Secrets: passwords and certificates. The application's only when the user brings none.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use types::names;

use super::{Error, meta, sealed};
use crate::credentials::key;
use crate::resolve::Resolved;

/// The internal Secret and, if it is generated, the application's.
pub(super) fn secrets(resolved: &Resolved) -> Result<Vec<Secret>, Error> {
    let cluster = &resolved.key.name;
    let mut secrets = vec![secret(resolved, names::internal_secret(cluster), &resolved.credentials.internal)?];
    if let Some(password) = &resolved.credentials.application {
        let data = BTreeMap::from([(key::PASSWORD.to_owned(), password.clone())]);
        secrets.push(secret(resolved, names::auth_secret(cluster), &data)?);
    }
    Ok(secrets)
}

fn secret(resolved: &Resolved, name: String, data: &BTreeMap<String, String>) -> Result<Secret, Error> {
    let data = data.iter().map(|(name, value)| (name.clone(), ByteString(value.clone().into_bytes()))).collect();
    let secret = Secret {
        metadata: meta(resolved, name, None),
        data: Some(data),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    };
    sealed(secret, "a Secret")
}
