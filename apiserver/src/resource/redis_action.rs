//! What the actions of a RedisCluster have in common: the record's place, its label, its first status.

use serde_json::{Value, json};
use types::names::LABEL_CLUSTER;

use crate::{
    error::{Cause, Error, Qualified, Result},
    object::meta,
    request::User,
};

/// A record for the parent: its cluster and label filled in, its name generated unless one is given. What contradicts
/// the path is refused.
pub fn build(kind: &str, parent: &Value, mut body: Value) -> Result<Value> {
    let cluster = meta::text(parent, "name").to_owned();
    if meta::text(&body, "name").is_empty() && meta::text(&body, "generateName").is_empty() {
        meta::set(&mut body, "generateName", format!("{cluster}-"));
    }
    let given = body.pointer("/spec/clusterName").and_then(Value::as_str).unwrap_or_default();
    if !given.is_empty() && given != cluster {
        let cause =
            Cause::invalid("spec.clusterName", &meta::quoted(given), &format!("must be {cluster:?}, as in the path"));
        return Err(refused(kind, &body, vec![cause]));
    }
    if let Some(map) = body.as_object_mut() {
        map.remove("status");
        let spec = map.entry("spec").or_insert_with(|| json!({}));
        if spec.is_null() {
            *spec = json!({});
        }
        if let Some(spec) = spec.as_object_mut() {
            spec.insert("clusterName".to_owned(), json!(cluster));
        }
    }
    label(&mut body, &cluster);
    Ok(body)
}

fn label(body: &mut Value, cluster: &str) {
    let Some(metadata) = meta::map(body) else { return };
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if labels.is_null() {
        *labels = json!({});
    }
    if let Some(labels) = labels.as_object_mut() {
        labels.insert(LABEL_CLUSTER.to_owned(), json!(cluster));
    }
}

/// The first status of a record: pending, and who asked for it, as authenticated.
pub fn begin(object: &mut Value, user: &User) {
    if let Some(map) = object.as_object_mut() {
        map.insert("status".to_owned(), json!({"phase": "Pending", "requestedBy": user.name}));
    }
}

/// 422 about a record, under the name that it has, or with which the one it would get begins.
#[must_use]
pub fn refused(kind: &str, record: &Value, causes: Vec<Cause>) -> Error {
    let given = ["name", "generateName"].map(|field| meta::text(record, field));
    let name = given.into_iter().find(|name| !name.is_empty()).unwrap_or_default().to_owned();
    Error::Invalid { kind: Qualified::new(types::GROUP, kind), name, causes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_which_cluster_it_is_for_in_spec_label_and_name() {
        let parent = json!({"metadata": {"name": "orders"}});
        let built = build("RedisBackup", &parent, json!({"kind": "RedisBackup", "status": {"phase": "Completed"}}));
        let expected = json!({"kind": "RedisBackup", "spec": {"clusterName": "orders"},
            "metadata": {"generateName": "orders-", "labels": {"redis.kun.io/cluster": "orders"}}});
        assert_eq!(built, Ok(expected));
        let named = json!({"metadata": {"name": "b", "labels": {"x": "y"}}, "spec": {"clusterName": "orders"}});
        let built = build("RedisBackup", &parent, named);
        let expected = json!({"metadata": {"name": "b", "labels": {"x": "y", "redis.kun.io/cluster": "orders"}}, "spec": {"clusterName": "orders"}});
        assert_eq!(built, Ok(expected));
        let other = json!({"metadata": {"name": "b"}, "spec": {"clusterName": "users"}});
        assert!(matches!(build("RedisBackup", &parent, other), Err(Error::Invalid { .. })));
    }
}
