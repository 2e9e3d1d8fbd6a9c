//! What a StatefulSet says of the RedisCluster it belongs to: all that is needed to make it anew, as the same object, should
//! the store that held it be lost or put back from an older copy.
//!
//! It has the shape of the RedisCluster itself, so what is read here is what `recover` is asked to create. Status, owners of
//! fields and finalizers are left out: their writers write them again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::RedisCluster;
use crate::cluster::RedisClusterSpec;

/// The most bytes of labels and annotations that are kept: all annotations of a StatefulSet together may have 256 KiB, and
/// the specification goes first.
const KEPT_MOST: usize = 64 << 10;

/// What is known of a RedisCluster besides the object itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Always `redis.kun.io/v1`.
    pub api_version: String,
    /// Always `RedisCluster`.
    pub kind: String,
    /// Which object it is.
    pub metadata: Identity,
    /// The specification as last applied.
    pub spec: RedisClusterSpec,
}

/// Which object it is, and at which generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its uid: what was made for it is known by this.
    pub uid: String,
    /// The generation of the specification, 1 at least.
    pub generation: i64,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Why an annotation is no record.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is something else, or was written by another version.
    #[error("reading the record of a RedisCluster")]
    Unreadable(#[from] serde_json::Error),
    /// No API server counts like this.
    #[error("reading the record of a RedisCluster: its generation is {0}")]
    Generation(i64),
}

impl Record {
    /// What is to be known of an object; `None`: it has no identity, which no API server stores.
    #[must_use]
    pub fn of(cluster: &RedisCluster) -> Option<Record> {
        let meta = &cluster.metadata;
        let labels = meta.labels.clone().unwrap_or_default();
        let annotations = meta.annotations.clone().unwrap_or_default();
        let fits = size(&labels).saturating_add(size(&annotations)) <= KEPT_MOST;
        Some(Record {
            api_version: crate::API_VERSION.to_owned(),
            kind: <RedisCluster as k8s_openapi::Resource>::KIND.to_owned(),
            metadata: Identity {
                name: meta.name.clone()?,
                namespace: meta.namespace.clone()?,
                uid: meta.uid.clone()?,
                generation: meta.generation.unwrap_or(1).max(1),
                labels: if size(&labels) <= KEPT_MOST { labels } else { BTreeMap::new() },
                annotations: if fits { annotations } else { BTreeMap::new() },
            },
            spec: cluster.spec.clone(),
        })
    }

    /// Reads the annotation.
    ///
    /// # Errors
    /// When it is no record that this version understands.
    pub fn parse(text: &str) -> Result<Record, Error> {
        let record: Record = serde_json::from_str(text)?;
        if record.metadata.generation < 1 {
            return Err(Error::Generation(record.metadata.generation));
        }
        Ok(record)
    }
}

fn size(map: &BTreeMap<String, String>) -> usize {
    map.iter().map(|(name, value)| name.len().saturating_add(value.len())).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn cluster(annotation: &str) -> RedisCluster {
        serde_json::from_value(json!({
            "apiVersion": "redis.kun.io/v1", "kind": "RedisCluster",
            "metadata": {
                "name": "orders", "namespace": "shop", "uid": "u1", "generation": 4, "resourceVersion": "9",
                "labels": {"team": "a"}, "annotations": {"why": annotation}, "finalizers": ["redis.kun.io/teardown"],
            },
            "spec": {"shards": 5, "config": {"databases": "16"}},
            "status": {"phase": "Ready"},
        }))
        .unwrap()
    }

    #[test]
    fn a_record_is_the_object_without_what_others_write_again() {
        let record = Record::of(&cluster("because")).unwrap();
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(Record::parse(&text).unwrap(), record);
        let metadata = json!({
            "name": "orders", "namespace": "shop", "uid": "u1", "generation": 4,
            "labels": {"team": "a"}, "annotations": {"why": "because"},
        });
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value.get("metadata"), Some(&metadata));
        assert_eq!(value.get("status"), None);
        let again: RedisCluster = serde_json::from_str(&text).unwrap();
        assert_eq!((again.spec, again.status), (cluster("").spec, None));
    }

    #[test]
    fn annotations_that_are_too_long_to_be_kept_cost_nothing_else() {
        let record = Record::of(&cluster(&"x".repeat(KEPT_MOST))).unwrap();
        let Identity { labels, annotations, .. } = record.metadata;
        assert_eq!((labels.len(), annotations.len()), (1, 0));
        assert_eq!(record.spec, cluster("").spec);
    }

    #[test]
    fn what_is_no_record_is_not_taken_for_one() {
        let good = serde_json::to_string(&Record::of(&cluster("")).unwrap()).unwrap();
        for bad in ["", "{}", r#"{"uid":"u1","generation":3,"spec":{}}"#, &good.replace("\"u1\"", "null")] {
            assert!(matches!(Record::parse(bad), Err(Error::Unreadable(_))), "{bad}");
        }
        assert!(matches!(Record::parse(&good.replace(":4", ":0")), Err(Error::Generation(0))));
    }
}
