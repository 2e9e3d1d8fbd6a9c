//! One StatefulSet per shard. Pods are replaced only when the plan deletes them (OnDelete), and start side by side
//! (Parallel): the order of everything is the planner's, not the StatefulSet controller's.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{
    StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec, StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PodTemplateSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use types::cluster::Placement;
use types::names;

use super::{Error, digest, labels, meta, sealed};
use crate::resolve::{Resolved, Volume};

mod placement;
mod pod;

pub use placement::is_kept_apart;
pub(crate) use placement::of_worker;
pub(crate) use pod::{AUTH, BINARY_IN_IMAGE, confined, mount};
pub use pod::{CONTAINER, auth_secret};

/// Annotation on a pod template: uid of the RedisOperation that last asked for a restart. It stays when the operation
/// is gone, or its disappearance would be a change of the template again.
pub const ANNOTATION_RESTARTED_BY: &str = "redis.kun.io/restarted-by";

/// The shard whose StatefulSet carries the record of its owner: every cluster has it, and scaling never takes it away.
pub const RECORD_SHARD: u16 = 0;

/// Old templates kept for people who look at them; nothing rolls back through them.
const REVISIONS: i32 = 2;

/// The StatefulSet of one shard.
pub(super) fn stateful_set(resolved: &Resolved, shard: u16) -> Result<StatefulSet, Error> {
    let cluster = &resolved.key.name;
    let mut metadata = meta(resolved, names::shard(cluster, shard), Some(shard));
    if shard == RECORD_SHARD {
        metadata.annotations.get_or_insert_default().insert(names::ANNOTATION_OWNER.to_owned(), record(resolved)?);
    }
    let spec = StatefulSetSpec {
        service_name: Some(names::headless_service(cluster)),
        selector: LabelSelector { match_labels: Some(labels(cluster, Some(shard))), ..LabelSelector::default() },
        pod_management_policy: Some("Parallel".to_owned()),
        update_strategy: Some(StatefulSetUpdateStrategy {
            type_: Some("OnDelete".to_owned()),
            ..StatefulSetUpdateStrategy::default()
        }),
        // Claims are deleted by the controller, in its order, or not at all.
        persistent_volume_claim_retention_policy: Some(StatefulSetPersistentVolumeClaimRetentionPolicy {
            when_deleted: Some("Retain".to_owned()),
            when_scaled: Some("Retain".to_owned()),
        }),
        revision_history_limit: Some(REVISIONS),
        template: template(resolved, shard)?,
        volume_claim_templates: resolved.storage.as_ref().map(|v| vec![claim(cluster, shard, v)]),
        ..StatefulSetSpec::default()
    };
    // The size is not part of the digest: `apply` may raise it, only a step of the plan lowers it.
    let mut set = sealed(StatefulSet { metadata, spec: Some(spec), status: None }, "a StatefulSet")?;
    if let Some(spec) = set.spec.as_mut() {
        spec.replicas = Some(i32::from(resolved.members));
    }
    Ok(set)
}

/// Who asked for the last restart, as the template says.
#[must_use]
pub fn restarted_by(set: &StatefulSet) -> Option<String> {
    set.spec.as_ref()?.template.metadata.as_ref()?.annotations.as_ref()?.get(ANNOTATION_RESTARTED_BY).cloned()
}

/// The annotations by which a pod shows the template it was made from.
#[must_use]
pub fn restart_marks(annotations: Option<&BTreeMap<String, String>>) -> (Option<&String>, Option<&String>) {
    let get = |name| annotations.and_then(|all| all.get(name));
    (get(names::ANNOTATION_RESTART), get(ANNOTATION_RESTARTED_BY))
}

/// What is needed to make the owner anew, should its store be lost. It is on the set and not on its template: no pod is
/// restarted by it.
fn record(resolved: &Resolved) -> Result<String, Error> {
    serde_json::to_string(&resolved.record).map_err(|source| Error::Json { what: "the owner annotation", source })
}

fn template(resolved: &Resolved, shard: u16) -> Result<PodTemplateSpec, Error> {
    let mut annotations = BTreeMap::from([(names::ANNOTATION_RESTART.to_owned(), restart_digest(resolved)?)]);
    if let Some(uid) = resolved.restarted_by.get(&shard) {
        annotations.insert(ANNOTATION_RESTARTED_BY.to_owned(), uid.clone());
    }
    Ok(PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels(&resolved.key.name, Some(shard))),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(pod::spec(resolved, shard)),
    })
}

/// Changes exactly when a restart is due, but for the Secret with the password, which a pod itself shows ([`auth_secret`]): so clusters that an earlier
/// release made are not restarted. The image with our own binary is not part of it: a new KUN must not
/// restart anybody's database.
fn restart_digest(resolved: &Resolved) -> Result<String, Error> {
    let parameters: BTreeMap<_, _> = resolved.agent.parameters.iter().filter(|(name, _)| needs_restart(name)).collect();
    let inputs = (&resolved.image, &resolved.version, &resolved.resources, parameters, resolved.mode);
    let placement = resolved.placement.of_pods();
    if placement == Placement::default() {
        // As it was before there was more of it than the spread.
        return digest(&inputs, "the restart annotation");
    }
    digest(&(inputs, placement), "the restart annotation")
}

/// A parameter nobody knows cannot be assumed to be accepted by a running server.
fn needs_restart(parameter: &str) -> bool {
    types::config::parameter(parameter).is_none_or(|known| match known.class {
        types::config::Class::Restart => true,
        types::config::Class::Live => false,
    })
}

fn claim(cluster: &str, shard: u16, volume: &Volume) -> PersistentVolumeClaim {
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(pod::DATA.to_owned()),
            labels: Some(labels(cluster, Some(shard))),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: volume.class_name.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), Quantity(volume.size.clone()))])),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }
}
