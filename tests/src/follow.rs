//! Reads objects of a cluster from this process, and waits for them by watching: the start of a kubectl takes more of the processors than all
//! that is asked and answered.
//!
//! It must not know what is waited for.

use std::{path::Path, pin::pin, time::Duration};

use anyhow::{Context, Result, bail};
use futures::TryStreamExt as _;
use kube::{
    Client,
    api::{GetParams, ListParams, WatchParams},
    core::{Request, WatchEvent},
};
use serde_json::Value;

/// After so long without an answer or an event it is asked anew: a server that hangs, or whose machine is gone, says nothing.
const SILENT: Duration = Duration::from_secs(5);
/// Pause before whoever is away is asked again.
const AGAIN: Duration = Duration::from_millis(200);

/// How kinds are called by kubectl, where they are served, and whether they have a namespace.
const KINDS: &[(&[&str], &str, &str, bool)] = &[
    (&["rdc", "redisclusters"], "/apis/redis.kun.io/v1", "redisclusters", true),
    (&["rbk", "redisbackup", "redisbackups"], "/apis/redis.kun.io/v1", "redisbackups", true),
    (&["rop", "redisoperation", "redisoperations"], "/apis/redis.kun.io/v1", "redisoperations", true),
    (&["pod", "pods"], "/api/v1", "pods", true),
    (&["service"], "/api/v1", "services", true),
    (&["secret"], "/api/v1", "secrets", true),
    (&["configmap"], "/api/v1", "configmaps", true),
    (&["resourcequota"], "/api/v1", "resourcequotas", true),
    (&["events"], "/api/v1", "events", true),
    (&["node"], "/api/v1", "nodes", false),
    (&["statefulset", "statefulsets"], "/apis/apps/v1", "statefulsets", true),
    (&["pdb"], "/apis/policy/v1", "poddisruptionbudgets", true),
    (&["netpol"], "/apis/networking.k8s.io/v1", "networkpolicies", true),
    (&["lease"], "/apis/coordination.k8s.io/v1", "leases", true),
    (&["certificate"], "/apis/cert-manager.io/v1", "certificates", true),
];

/// Which objects of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which<'a> {
    /// The one of this name.
    Named(&'a str),
    /// Those that a selector of labels finds.
    Labelled(&'a str),
}

/// Some objects of a cluster.
pub(crate) struct Followed {
    client: Client,
    request: Request,
    fields: Option<String>,
    labels: Option<String>,
}

impl Followed {
    /// Whether its path is known here.
    pub(crate) fn knows(resource: &str) -> bool {
        KINDS.iter().any(|(names, ..)| names.contains(&resource))
    }

    /// Objects of a kind, as kubectl calls it, in a namespace or else in the one that the kubeconfig names.
    pub(crate) async fn new(
        kubeconfig: &Path,
        namespace: Option<&str>,
        resource: &str,
        which: Which<'_>,
    ) -> Result<Self> {
        let found = KINDS.iter().find(|(names, ..)| names.contains(&resource));
        let (_, group, plural, has_namespace) = found.with_context(|| format!("no kind {resource} is known here"))?;
        let config = kube::config::Kubeconfig::read_from(kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await?;
        let namespace = namespace.unwrap_or(&config.default_namespace);
        let path = if *has_namespace {
            format!("{group}/namespaces/{namespace}/{plural}")
        } else {
            format!("{group}/{plural}")
        };
        let (fields, labels) = match which {
            Which::Named(name) => (Some(format!("metadata.name={name}")), None),
            Which::Labelled(selector) => (None, Some(selector.to_owned())),
        };
        Ok(Self { client: Client::try_from(config)?, request: Request::new(path), fields, labels })
    }

    /// Returns when `holds` is true of them, in the order in which they were listed; `last` has what was seen until then. Whoever is
    /// away is asked again.
    pub(crate) async fn until(
        &self,
        last: &mut Result<Vec<Value>>,
        holds: &(impl Fn(&[Value]) -> bool + ?Sized),
    ) -> Vec<Value> {
        loop {
            match self.once(last, holds).await {
                Ok(Some(found)) => return found,
                Ok(None) => {}
                Err(error) => *last = Err(error),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Lists them and follows the changes. None: the server is silent, or has ended the watch.
    async fn once(
        &self,
        last: &mut Result<Vec<Value>>,
        holds: &(impl Fn(&[Value]) -> bool + ?Sized),
    ) -> Result<Option<Vec<Value>>> {
        let (mut objects, version) = self.list().await?;
        if holds(&objects) {
            return Ok(Some(objects));
        }
        *last = Ok(objects.clone());
        let mut selection = WatchParams::default();
        selection.field_selector.clone_from(&self.fields);
        selection.label_selector.clone_from(&self.labels);
        let begun = self.client.request_events::<Value>(self.request.watch(&selection, &version)?);
        let mut events = pin!(tokio::time::timeout(SILENT, begun).await.context("a watch is not begun")??);
        while let Ok(event) = tokio::time::timeout(SILENT, events.try_next()).await {
            match event? {
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => put(&mut objects, object),
                Some(WatchEvent::Deleted(object)) => objects.retain(|other| name(other) != name(&object)),
                Some(WatchEvent::Bookmark(_)) => {}
                Some(WatchEvent::Error(status)) => bail!("{status:?}"),
                None => break,
            }
            if holds(&objects) {
                return Ok(Some(objects));
            }
            *last = Ok(objects.clone());
        }
        Ok(None)
    }

    /// The one of this name, read as it is and not found in a list: who reads may not be allowed to list.
    pub(crate) async fn get(&self, name: &str) -> Result<Value> {
        let asked = self.client.request::<Value>(self.request.get(name, &GetParams::default())?);
        Ok(tokio::time::timeout(SILENT, asked).await.context("a read is not answered")??)
    }

    /// Them, and of which version that is.
    pub(crate) async fn list(&self) -> Result<(Vec<Value>, String)> {
        let mut selection = ListParams::default();
        selection.field_selector.clone_from(&self.fields);
        selection.label_selector.clone_from(&self.labels);
        let asked = self.client.request::<Value>(self.request.list(&selection)?);
        let mut list = tokio::time::timeout(SILENT, asked).await.context("a list is not answered")??;
        let version = list.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok((items, version)),
            _ => bail!("no list: {list}"),
        }
    }
}

fn put(objects: &mut Vec<Value>, object: Value) {
    match objects.iter_mut().find(|other| name(other) == name(&object)) {
        Some(other) => *other = object,
        None => objects.push(object),
    }
}

fn name(object: &Value) -> Option<&Value> {
    object.pointer("/metadata/name")
}
