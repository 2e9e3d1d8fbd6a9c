//! Values that kube-apiserver sealed are opened by ours, and it opens what ours sealed.

use anyhow::{Context, Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    client::Call,
    kubernetes::{Kubernetes, post},
};

/// One resource for each way of sealing.
pub(super) const CONFIGURATION: &str = "apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aesgcm: {keys: [{name: one, secret: c2VjcmV0IGlzIHNlY3VyZSBhbmQgbG9uZyBlbm91Z2g=}, {name: two, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}
  - identity: {}
- resources: [configmaps]
  providers:
  - secretbox: {keys: [{name: box, secret: YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXphYmNkZWY=}]}
  - identity: {}
- resources: [redisclusters.redis.kun.io]
  providers:
  - aesgcm: {keys: [{name: two, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}
  - identity: {}
- resources: ['*.*']
  providers: [{identity: {}}]
";

/// What is to be found in no sealed value.
const PLAIN: &str = "not-to-be-seen";

/// Both ways for each resource; how many values.
pub(super) async fn check(kubernetes: &Kubernetes) -> Result<usize> {
    let ring = apiserver::encryption::parse(CONFIGURATION).map_err(|fault| anyhow::anyhow!("{fault}"))?;
    let named = |kind: &str, version: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "sealed", "annotations": {"a": PLAIN}}, "spec": {}});
    let cluster = "/apis/redis.kun.io/v1/namespaces/default/redisclusters";
    let subjects = [
        ("secrets", "/api/v1/namespaces/default/secrets", named("Secret", "v1"), "aesgcm:v1:one:"),
        ("configmaps", "/api/v1/namespaces/default/configmaps", named("ConfigMap", "v1"), "secretbox:v1:box:"),
        ("redis.kun.io/redisclusters", cluster, named("RedisCluster", "redis.kun.io/v1"), "aesgcm:v1:two:"),
    ];
    let mut session = kubernetes.access().session();
    for (resource, path, object, prefix) in &subjects {
        let created = session.send(&post(path, object)).await?;
        ensure!(created.status == 201, "{resource}: {}", String::from_utf8_lossy(&created.body));
        let key = format!("/registry/{resource}/default/sealed");
        let theirs = kubernetes.kept(&key).await?;
        ensure!(theirs.starts_with(format!("k8s:enc:{prefix}").as_bytes()), "{resource} begins otherwise");
        ensure!(!holds(&theirs), "{resource} can be read");
        let opened = ring.open(resource, key.as_bytes(), &Bytes::from(theirs.clone()));
        let opened = opened.map_err(|why| anyhow::anyhow!("we cannot open theirs: {resource}: {why}"))?;
        ensure!(!opened.is_stale && holds(&opened.value), "{resource} was opened as something else");
        let moved = ring.open(resource, format!("{key}2").as_bytes(), &Bytes::from(theirs));
        ensure!(moved.is_err() || prefix.starts_with("secretbox"), "{resource} opens at another place");

        let ours = ring.seal(resource, key.as_bytes(), opened.value).map_err(|error| anyhow::anyhow!("{error}"))?;
        ensure!(ours.starts_with(format!("k8s:enc:{prefix}").as_bytes()));
        let before = version(&created.body)?;
        kubernetes.keep(&key, &ours).await?;
        let get = Call { method: "GET".into(), target: format!("{path}/sealed"), headers: vec![], body: vec![] };
        let read = session.send(&get).await?;
        ensure!(read.status == 200, "they cannot open ours: {resource}: {}", String::from_utf8_lossy(&read.body));
        let delete = Call { method: "DELETE".into(), ..get };
        ensure!(session.send(&delete).await?.status == 200, "what we sealed cannot be deleted");
        ensure!(holds(&read.body) && version(&read.body)? > before, "{resource} is not what we sealed");
    }
    Ok(subjects.len() * 2)
}

fn holds(bytes: &[u8]) -> bool {
    let encoded = BASE64_STANDARD.encode(PLAIN);
    [PLAIN, &encoded].iter().any(|text| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
}

fn version(body: &[u8]) -> Result<u64> {
    let object: Value = serde_json::from_slice(body)?;
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    Ok(version.context("resourceVersion")?.parse()?)
}
