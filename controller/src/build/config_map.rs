//! The ConfigMap the agents read: one file, the same for all members.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use types::names;

use super::{Error, meta, sealed};
use crate::resolve::Resolved;

/// File name of the agents' configuration.
pub const FILE: &str = "agent.json";

pub(super) fn config_map(resolved: &Resolved) -> Result<ConfigMap, Error> {
    let text = serde_json::to_string_pretty(&resolved.agent);
    let text = text.map_err(|source| Error::Json { what: "the agents' configuration", source })?;
    let config_map = ConfigMap {
        metadata: meta(resolved, names::config_map(&resolved.key.name), None),
        data: Some(BTreeMap::from([(FILE.to_owned(), text)])),
        ..ConfigMap::default()
    };
    sealed(config_map, "a ConfigMap")
}
