//! ConfigMaps and Secrets: whoever may make them may give them our labels and a mebibyte each. What the controller reads of its own is a few kilobytes; of
//! all others it has to know that they are there, since they stand in the way of a name.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use types::names;

use super::{Cache, Cached, Caches};
use crate::build::config_map::FILE;
use crate::credentials::key;

/// Longest value that is kept: the agents' configuration has as many parameters as there are, of 256 bytes at most.
const VALUE_MOST: usize = 64 << 10;
/// A uid has 36 characters.
const OWNER_MOST: usize = 64;
/// What we label and annotate begins like this.
const OURS: [&str; 2] = ["redis.kun.io/", "app.kubernetes.io/"];
impl Cached for ConfigMap {
    const PAGE: u32 = 10;
    fn cache(caches: &Caches) -> &Cache<Self> {
        &caches.config_maps
    }
    fn prune(&mut self) {
        only_ours(&mut self.metadata);
        self.binary_data = None;
        self.data.iter_mut().for_each(|data| data.retain(|name, value| name == FILE && value.len() <= VALUE_MOST));
    }
    fn strip(&mut self) {
        *self = Self { metadata: identity(&self.metadata), ..Self::default() };
    }
    fn is_read(name: &str, cluster: &str) -> Option<bool> {
        Some(name == names::config_map(cluster))
    }
}

impl Cached for Secret {
    const PAGE: u32 = 10;
    fn cache(caches: &Caches) -> &Cache<Self> {
        &caches.secrets
    }
    fn prune(&mut self) {
        let is_ours = |name: &str| {
            [key::OPERATOR, key::AGENT, key::REPLICA, key::CA, key::CERTIFICATE, key::PRIVATE_KEY, key::PASSWORD]
                .contains(&name)
        };
        only_ours(&mut self.metadata);
        self.string_data = None;
        self.data.iter_mut().for_each(|data| data.retain(|name, value| is_ours(name) && value.0.len() <= VALUE_MOST));
    }
    fn strip(&mut self) {
        *self = Self { metadata: identity(&self.metadata), ..Self::default() };
    }
    fn is_read(name: &str, cluster: &str) -> Option<bool> {
        Some(name == names::internal_secret(cluster) || name == names::auth_secret(cluster))
    }
}

/// What others add to an object is no difference, and nobody reads it here.
fn only_ours(meta: &mut ObjectMeta) {
    let of = |map: &mut Option<BTreeMap<String, String>>| {
        map.iter_mut().for_each(|map| {
            map.retain(|name, value| OURS.iter().any(|ours| name.starts_with(ours)) && value.len() <= VALUE_MOST);
        });
    };
    of(&mut meta.labels);
    of(&mut meta.annotations);
    meta.owner_references = None;
}

/// Which object it is, and whose: a cluster that goes takes all that is its own along.
fn identity(meta: &ObjectMeta) -> ObjectMeta {
    let of = |map: &Option<BTreeMap<String, String>>, name: &str| {
        let value = map.as_ref()?.get(name).filter(|value| value.len() <= OWNER_MOST)?;
        Some(BTreeMap::from([(name.to_owned(), value.clone())]))
    };
    ObjectMeta {
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        deletion_timestamp: meta.deletion_timestamp.clone(),
        labels: of(&meta.labels, names::LABEL_CLUSTER),
        annotations: of(&meta.annotations, names::ANNOTATION_OWNER_UID),
        ..ObjectMeta::default()
    }
}
