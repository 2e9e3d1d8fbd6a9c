//! Quotas of a cluster, for the objects of our own store. They are asked for at every create: what a watch says may be
//! older than the last write.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Map, Value, json};

use super::unanswered;
use crate::admit::quota::{Quota, Quotas, counted};
use crate::admit::source::StoreSources;
use crate::error::{Error, Result};
use crate::registry::Registry;

/// Quotas of the cluster, for objects of our own store.
pub struct CoreQuotas {
    client: Client,
    own: Arc<StoreSources>,
    registry: Registry,
}

impl CoreQuotas {
    /// Counts what `own` holds, which are the kinds of `registry`.
    #[must_use]
    pub const fn new(client: Client, own: Arc<StoreSources>, registry: Registry) -> Self {
        Self { client, own, registry }
    }

    /// Whether an entry counts objects that this server keeps.
    fn is_ours(&self, entry: &str) -> bool {
        counted(entry).is_some_and(|(resource, group)| self.registry.resource(group, resource).is_some())
    }

    fn resource() -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "ResourceQuota"), "resourcequotas")
    }
}

impl Quotas for CoreQuotas {
    fn quotas<'a>(&'a self, namespace: Option<&'a str>) -> BoxFuture<'a, Result<Vec<Quota>>> {
        Box::pin(async move {
            let resource = Self::resource();
            let api = match namespace {
                Some(namespace) => Api::<DynamicObject>::namespaced_with(self.client.clone(), namespace, &resource),
                None => Api::<DynamicObject>::all_with(self.client.clone(), &resource),
            };
            let listed = api.list(&ListParams::default()).await;
            let listed = listed.map_err(|error| unanswered("resourcequotas", &error.to_string()))?;
            let quota = |object: &DynamicObject| {
                let revision = object.resource_version().and_then(|text| text.parse().ok()).unwrap_or_default();
                let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
                Ok(Quota { namespace, name, revision, object: value(object)? })
            };
            listed.items.iter().map(quota).collect()
        })
    }

    fn names<'a>(
        &'a self,
        group: &'a str,
        resource: &'a str,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<BTreeSet<String>>> {
        self.own.names(group, resource, namespace)
    }

    fn set_status<'a>(&'a self, quota: &'a Quota, status: Value) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let failed = |error: String| unanswered("resourcequotas/status", &error);
            let used = status.get("used").and_then(Value::as_object).into_iter().flatten();
            let ours: Map<String, Value> = used
                .filter(|(entry, _)| self.is_ours(entry))
                .map(|(entry, count)| (entry.clone(), count.clone()))
                .collect();
            // The version makes it a compare-and-swap; what others count is not ours to write.
            let version = quota.revision.to_string();
            let patch = json!({"metadata": {"resourceVersion": version}, "status": {"used": ours}});
            let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &quota.namespace, &Self::resource());
            match api.patch_status(&quota.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(_) => Ok(true),
                // Somebody else was faster, or it is gone.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
                Err(error) => Err(failed(error.to_string())),
            }
        })
    }
}

fn value(object: &DynamicObject) -> Result<Value> {
    serde_json::to_value(object).map_err(|error| Error::internal(format!("reading {}: {error}", object.name_any())))
}
