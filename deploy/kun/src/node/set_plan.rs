//! What a StatefulSet needs next, pure: the set, its pods and the claims that exist go in; pods and claims to create,
//! pods to delete and the status come out. It must not know the API; `sets.rs` carries the plan out.
//!
//! Differences from Kubernetes, on purpose: there are no ControllerRevisions, so a pod that is made anew always gets
//! the present template (with OnDelete that is Kubernetes' rule too); claims are always retained.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// Label: the set's revision a pod was made from.
pub const LABEL_REVISION: &str = "controller-revision-hash";
/// Label: the pod's own name.
pub const LABEL_POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// Label: the pod's ordinal.
pub const LABEL_INDEX: &str = "apps.kubernetes.io/pod-index";
/// Most replicas of one set; more than the node can run is a mistake.
const REPLICAS_MAX: i32 = 500;

/// A pod of a set, as far as planning needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member<'a> {
    ordinal: i32,
    name: &'a str,
    uid: &'a str,
    revision: &'a str,
    ready: bool,
    terminating: bool,
    over: bool,
    /// Its containers have not begun: its claim may be gone.
    pending: bool,
}

/// What to do for a set now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Claims to create, before the pods that use them.
    pub claims: Vec<core::PersistentVolumeClaim>,
    /// Pods to create.
    pub create: Vec<core::Pod>,
    /// Pods to delete: name and uid.
    pub delete: Vec<(String, String)>,
    /// A pod has not begun: its claim may go, and nobody tells of that.
    pub pending: bool,
    /// The set's status.
    pub status: apps::StatefulSetStatus,
}

/// Plans one round. `pods` may hold others' pods; only those the set controls count.
#[must_use]
pub fn plan(set: &apps::StatefulSet, pods: &[&core::Pod], claims: &BTreeSet<String>) -> Plan {
    let revision = revision(set);
    let members = members(set, pods);
    let status = status(set, &members, &revision);
    if set.metadata.deletion_timestamp.is_some() {
        // Its pods are the garbage collector's business.
        return Plan { status, ..Plan::default() };
    }
    let mut plan = Plan { status, ..Plan::default() };
    let spec = set.spec.clone().unwrap_or_default();
    let start = spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0).max(0);
    let wanted: Vec<i32> = (start..start.saturating_add(replicas(set))).collect();
    let ordered = spec.pod_management_policy.as_deref() != Some("Parallel");
    fill(set, &members, &wanted, ordered, &revision, claims, &mut plan);
    trim(&members, &wanted, ordered, &mut plan);
    update(&spec, &members, &wanted, &revision, &mut plan);
    plan
}

/// Creates what is missing, replaces what has run its course. The claim of a pod that has not begun may have been on its way out when the pod was made.
fn fill(
    set: &apps::StatefulSet,
    members: &[Member<'_>],
    wanted: &[i32],
    ordered: bool,
    revision: &str,
    claims: &BTreeSet<String>,
    plan: &mut Plan,
) {
    let is_missing =
        |claim: &core::PersistentVolumeClaim| claim.metadata.name.as_ref().is_some_and(|name| !claims.contains(name));
    for ordinal in wanted {
        match members.iter().find(|member| member.ordinal == *ordinal) {
            None => {
                plan.claims.extend(build_claims(set, *ordinal).into_iter().filter(is_missing));
                plan.create.push(build_pod(set, *ordinal, revision));
            }
            Some(member) if member.pending && !member.terminating => {
                plan.claims.extend(build_claims(set, *ordinal).into_iter().filter(is_missing));
                plan.pending = true;
            }
            Some(member) if member.over && !member.terminating => {
                plan.delete.push((member.name.to_owned(), member.uid.to_owned()));
            }
            Some(_) => {}
        }
        let healthy = members.iter().any(|m| m.ordinal == *ordinal && m.ready && !m.terminating && !m.over);
        if ordered && !healthy {
            return;
        }
    }
}

/// Deletes what is too many, from the highest ordinal; in order means one at a time and only while all below are ready.
fn trim(members: &[Member<'_>], wanted: &[i32], ordered: bool, plan: &mut Plan) {
    let mut surplus: Vec<&Member<'_>> = members.iter().filter(|member| !wanted.contains(&member.ordinal)).collect();
    surplus.sort_by_key(|member| std::cmp::Reverse(member.ordinal));
    if ordered {
        let below_ready =
            wanted.iter().all(|ordinal| members.iter().any(|m| m.ordinal == *ordinal && m.ready && !m.terminating));
        if !below_ready || surplus.iter().any(|member| member.terminating) {
            return;
        }
        surplus.truncate(1);
    }
    plan.delete.extend(surplus.iter().filter(|m| !m.terminating).map(|m| (m.name.to_owned(), m.uid.to_owned())));
}

/// RollingUpdate: replaces one pod of an old revision at a time, from the highest ordinal, when all others are ready.
fn update(spec: &apps::StatefulSetSpec, members: &[Member<'_>], wanted: &[i32], revision: &str, plan: &mut Plan) {
    let strategy = spec.update_strategy.as_ref();
    if strategy.and_then(|s| s.type_.as_deref()) == Some("OnDelete")
        || !plan.delete.is_empty()
        || !plan.create.is_empty()
    {
        return;
    }
    let partition = strategy.and_then(|s| s.rolling_update.as_ref()).and_then(|r| r.partition).unwrap_or(0);
    let mut kept: Vec<&Member<'_>> = members.iter().filter(|member| wanted.contains(&member.ordinal)).collect();
    kept.sort_by_key(|member| std::cmp::Reverse(member.ordinal));
    for member in kept {
        if member.ordinal < partition {
            return;
        }
        if member.terminating {
            return;
        }
        if member.revision != revision {
            plan.delete.push((member.name.to_owned(), member.uid.to_owned()));
            return;
        }
        if !member.ready {
            return;
        }
    }
}

fn replicas(set: &apps::StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1).clamp(0, REPLICAS_MAX)
}

fn members<'a>(set: &apps::StatefulSet, pods: &[&'a core::Pod]) -> Vec<Member<'a>> {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let mut members: Vec<Member<'a>> =
        pods.iter().filter(|pod| is_controlled(set, pod)).filter_map(|pod| member(name, pod)).collect();
    members.sort_by_key(|member| member.ordinal);
    members
}

/// Whether the set is the pod's controller: by uid, because a set of the same name may be another one.
#[must_use]
pub fn is_controlled(set: &apps::StatefulSet, pod: &core::Pod) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    let controller = owners
        .filter(|owner| owner.controller == Some(true))
        .find(|owner| Some(&owner.uid) == set.metadata.uid.as_ref());
    controller.is_some()
}

fn member<'a>(set: &str, pod: &'a core::Pod) -> Option<Member<'a>> {
    let name = pod.metadata.name.as_deref()?;
    let ordinal = name.strip_prefix(set)?.strip_prefix('-')?;
    // "a-01" is not the pod of ordinal 1.
    let ordinal = ordinal.parse::<i32>().ok().filter(|number| number.to_string() == ordinal)?;
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    Some(Member {
        ordinal,
        name,
        uid: pod.metadata.uid.as_deref().unwrap_or_default(),
        revision: pod.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL_REVISION)).map_or("", String::as_str),
        ready: conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True")),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        over: matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed")),
        pending: matches!(status.and_then(|status| status.phase.as_deref()), Some("Pending") | None),
    })
}

fn status(set: &apps::StatefulSet, members: &[Member<'_>], revision: &str) -> apps::StatefulSetStatus {
    let count = |test: &dyn Fn(&Member<'_>) -> bool| {
        i32::try_from(members.iter().filter(|m| test(m)).count()).unwrap_or(i32::MAX)
    };
    let before = set.status.as_ref().and_then(|status| status.current_revision.clone());
    let updated = count(&|m| m.revision == revision && !m.terminating);
    let ready = count(&|m| m.ready && !m.terminating);
    let all_updated =
        updated == replicas(set) && i32::try_from(members.len()).is_ok_and(|n| n == updated) && ready == updated;
    let current = if all_updated { revision.to_owned() } else { before.unwrap_or_else(|| revision.to_owned()) };
    apps::StatefulSetStatus {
        observed_generation: set.metadata.generation,
        replicas: count(&|_| true),
        ready_replicas: Some(ready),
        available_replicas: Some(ready),
        current_replicas: Some(count(&|m| m.revision == current && !m.terminating)),
        updated_replicas: Some(updated),
        current_revision: Some(current),
        update_revision: Some(revision.to_owned()),
        collision_count: Some(0),
        conditions: None,
    }
}

/// The name of the set's revision: a hash of its template, so that a change to anything else restarts nothing.
#[must_use]
pub fn revision(set: &apps::StatefulSet) -> String {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let template = set.spec.as_ref().map(|spec| &spec.template);
    // A template came in as JSON; it can be written as JSON.
    let bytes = serde_json::to_vec(&template).unwrap_or_default();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &bytes);
    let hash: String = digest.as_ref().iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    format!("{name}-{hash}")
}

fn build_claims(set: &apps::StatefulSet, ordinal: i32) -> Vec<core::PersistentVolumeClaim> {
    let meta = &set.metadata;
    let set_name = meta.name.as_deref().unwrap_or_default();
    let labels = set.spec.as_ref().and_then(|spec| spec.selector.match_labels.clone()).unwrap_or_default();
    let templates = set.spec.as_ref().and_then(|spec| spec.volume_claim_templates.clone()).unwrap_or_default();
    templates
        .into_iter()
        .map(|template| {
            let mut all = template.metadata.labels.unwrap_or_default();
            all.extend(labels.clone());
            let template_name = template.metadata.name.unwrap_or_default();
            core::PersistentVolumeClaim {
                metadata: ObjectMeta {
                    name: Some(format!("{template_name}-{set_name}-{ordinal}")),
                    namespace: meta.namespace.clone(),
                    labels: Some(all),
                    annotations: template.metadata.annotations,
                    finalizers: Some(vec![super::claims::FINALIZER.to_owned()]),
                    ..ObjectMeta::default()
                },
                spec: template.spec,
                status: None,
            }
        })
        .collect()
}

fn build_pod(set: &apps::StatefulSet, ordinal: i32, revision: &str) -> core::Pod {
    let meta = &set.metadata;
    let set_name = meta.name.as_deref().unwrap_or_default();
    let name = format!("{set_name}-{ordinal}");
    let spec = set.spec.clone().unwrap_or_default();
    let template_meta = spec.template.metadata.unwrap_or_default();
    let mut labels = template_meta.labels.unwrap_or_default();
    labels.insert(LABEL_REVISION.to_owned(), revision.to_owned());
    labels.insert(LABEL_POD_NAME.to_owned(), name.clone());
    labels.insert(LABEL_INDEX.to_owned(), ordinal.to_string());
    let mut pod_spec = spec.template.spec.unwrap_or_default();
    pod_spec.hostname = Some(name.clone());
    // There is one node: a pod of a set is bound to it from birth, which saves a write.
    pod_spec.node_name = Some(super::NAME.to_owned());
    pod_spec.subdomain = spec.service_name.clone().filter(|service| !service.is_empty());
    let mut volumes = pod_spec.volumes.take().unwrap_or_default();
    for template in spec.volume_claim_templates.iter().flatten() {
        let volume_name = template.metadata.name.clone().unwrap_or_default();
        volumes.retain(|volume| volume.name != volume_name);
        volumes.push(core::Volume {
            persistent_volume_claim: Some(core::PersistentVolumeClaimVolumeSource {
                claim_name: format!("{volume_name}-{name}"),
                read_only: None,
            }),
            name: volume_name,
            ..core::Volume::default()
        });
    }
    pod_spec.volumes = Some(volumes).filter(|volumes| !volumes.is_empty());
    core::Pod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: meta.namespace.clone(),
            labels: Some(labels),
            annotations: template_meta.annotations,
            owner_references: Some(vec![OwnerReference {
                api_version: "apps/v1".to_owned(),
                kind: "StatefulSet".to_owned(),
                name: set_name.to_owned(),
                uid: meta.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(pod_spec),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;
    use serde_json::json;

    fn set(replicas: i32, policy: &str, strategy: &str) -> apps::StatefulSet {
        serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "ns", "uid": "set-uid", "generation": 3},
            "spec": {
                "replicas": replicas, "podManagementPolicy": policy, "serviceName": "svc",
                "updateStrategy": {"type": strategy},
                "selector": {"matchLabels": {"app": "x"}},
                "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "redis:7"}]}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}]
            }
        }))
        .unwrap()
    }

    #[derive(Clone, Copy)]
    enum Is {
        Ready,
        NotReady,
        Terminating,
        Failed,
        Old,
        OldNotReady,
    }

    fn pod(set: &apps::StatefulSet, ordinal: i32, is: Is) -> core::Pod {
        let mut pod = build_pod(set, ordinal, &revision(set));
        pod.metadata.uid = Some(format!("u{ordinal}"));
        let ready = matches!(is, Is::Ready | Is::Terminating | Is::Old);
        let phase = if matches!(is, Is::Failed) { "Failed" } else { "Running" };
        let status =
            json!({"phase": phase, "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]});
        pod.status = serde_json::from_value(status).unwrap();
        if matches!(is, Is::Terminating) {
            pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        }
        if matches!(is, Is::Old | Is::OldNotReady) {
            pod.metadata.labels.as_mut().unwrap().insert(LABEL_REVISION.into(), "s-old".into());
        }
        pod
    }

    /// (created ordinals, deleted ordinals)
    fn moves(set: &apps::StatefulSet, pods: &[(i32, Is)]) -> (Vec<String>, Vec<String>) {
        let pods: Vec<core::Pod> = pods.iter().map(|(ordinal, is)| pod(set, *ordinal, *is)).collect();
        let plan = plan(set, &pods.iter().collect::<Vec<_>>(), &BTreeSet::new());
        (
            plan.create.into_iter().map(|pod| pod.metadata.name.unwrap()).collect(),
            plan.delete.into_iter().map(|(name, _)| name).collect(),
        )
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn parallel_creates_and_deletes_all_at_once() {
        let s = set(3, "Parallel", "OnDelete");
        assert_eq!(moves(&s, &[]), (names(&["s-0", "s-1", "s-2"]), vec![]));
        assert_eq!(moves(&s, &[(1, Is::NotReady)]), (names(&["s-0", "s-2"]), vec![]));
        let s = set(1, "Parallel", "OnDelete");
        assert_eq!(
            moves(&s, &[(0, Is::NotReady), (1, Is::Ready), (2, Is::Ready), (3, Is::Terminating)]),
            (vec![], names(&["s-2", "s-1"]))
        );
    }

    #[test]
    fn ordered_goes_one_by_one_up_and_down() {
        let s = set(3, "OrderedReady", "OnDelete");
        assert_eq!(moves(&s, &[]), (names(&["s-0"]), vec![]));
        assert_eq!(moves(&s, &[(0, Is::NotReady)]), (vec![], vec![]));
        assert_eq!(moves(&s, &[(0, Is::Ready)]), (names(&["s-1"]), vec![]));
        assert_eq!(moves(&s, &[(0, Is::Terminating), (1, Is::Ready)]), (vec![], vec![]));
        let s = set(1, "OrderedReady", "OnDelete");
        assert_eq!(moves(&s, &[(0, Is::Ready), (1, Is::Ready), (2, Is::Ready)]), (vec![], names(&["s-2"])));
        assert_eq!(moves(&s, &[(0, Is::Ready), (1, Is::Ready), (2, Is::Terminating)]), (vec![], vec![]));
        assert_eq!(moves(&s, &[(0, Is::NotReady), (1, Is::Ready)]), (vec![], vec![]));
    }

    #[test]
    fn a_claim_that_went_before_its_pod_began_is_made_again() {
        let s = set(2, "Parallel", "OnDelete");
        let of = |phase: &str, claims: &[&str]| {
            let mut pods = [pod(&s, 0, Is::NotReady), pod(&s, 1, Is::NotReady)];
            pods[0].status = serde_json::from_value(json!({"phase": phase})).unwrap();
            let plan = plan(&s, &pods.iter().collect::<Vec<_>>(), &names(claims).into_iter().collect());
            let claims: Vec<_> = plan.claims.into_iter().filter_map(|claim| claim.metadata.name).collect();
            (claims, plan.pending)
        };
        assert_eq!(of("Pending", &["data-s-1"]), (names(&["data-s-0"]), true));
        assert_eq!(of("Pending", &["data-s-0", "data-s-1"]), (vec![], true), "it may still go");
        assert_eq!(of("Running", &[]), (vec![], false), "what a pod uses is there");
    }

    #[test]
    fn a_pod_that_terminates_is_never_replaced_before_it_has_gone() {
        let s = set(1, "Parallel", "OnDelete");
        assert_eq!(moves(&s, &[(0, Is::Terminating)]), (vec![], vec![]));
    }

    #[test]
    fn a_failed_pod_is_deleted_so_that_it_can_be_made_anew() {
        let s = set(1, "Parallel", "OnDelete");
        assert_eq!(moves(&s, &[(0, Is::Failed)]), (vec![], names(&["s-0"])));
    }

    #[test]
    fn on_delete_never_replaces_an_old_pod_and_rolling_update_does_so_one_by_one_from_the_top() {
        let s = set(3, "Parallel", "OnDelete");
        assert_eq!(moves(&s, &[(0, Is::Old), (1, Is::Old), (2, Is::Old)]), (vec![], vec![]));
        let s = set(3, "Parallel", "RollingUpdate");
        assert_eq!(moves(&s, &[(0, Is::Old), (1, Is::Old), (2, Is::Old)]), (vec![], names(&["s-2"])));
        assert_eq!(moves(&s, &[(0, Is::Old), (1, Is::Old), (2, Is::NotReady)]), (vec![], vec![]));
        assert_eq!(moves(&s, &[(0, Is::Old), (1, Is::Old), (2, Is::Terminating)]), (vec![], vec![]));
        assert_eq!(moves(&s, &[(0, Is::Old), (1, Is::Old), (2, Is::Ready)]), (vec![], names(&["s-1"])));
        assert_eq!(
            moves(&s, &[(0, Is::Old), (1, Is::OldNotReady), (2, Is::Ready)]),
            (vec![], names(&["s-1"])),
            "a bad revision can be left"
        );
        let mut partitioned = set(3, "Parallel", "RollingUpdate");
        partitioned.spec.as_mut().unwrap().update_strategy =
            serde_json::from_value(json!({"rollingUpdate": {"partition": 2}})).unwrap();
        assert_eq!(moves(&partitioned, &[(0, Is::Old), (1, Is::Old), (2, Is::Ready)]), (vec![], vec![]));
    }

    #[test]
    fn a_deleted_set_creates_nothing() {
        let mut s = set(3, "Parallel", "OnDelete");
        s.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(moves(&s, &[(5, Is::Ready)]), (vec![], vec![]));
    }

    #[test]
    fn a_pod_carries_its_labels_its_owner_and_its_claim() {
        let s = set(1, "Parallel", "OnDelete");
        let plan = plan(&s, &[], &BTreeSet::new());
        let revision = revision(&s);
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "s-0", "namespace": "ns",
                "labels": {"app": "x", LABEL_REVISION: revision, LABEL_POD_NAME: "s-0", LABEL_INDEX: "0"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "set-uid", "controller": true, "blockOwnerDeletion": true}]},
            "spec": {"hostname": "s-0", "nodeName": "standalone", "subdomain": "svc", "containers": [{"name": "c", "image": "redis:7"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-s-0"}}]}
        });
        assert_eq!(serde_json::to_value(&plan.create[0]).unwrap(), expected);
        let claim = serde_json::to_value(&plan.claims[0]).unwrap();
        assert_eq!(claim["metadata"]["name"], "data-s-0");
        assert_eq!(claim["metadata"]["labels"], json!({"app": "x"}));
        let with = super::plan(&s, &[], &BTreeSet::from(["data-s-0".to_owned()]));
        assert_eq!((with.claims.len(), with.create.len()), (0, 1), "a claim that is there is used");
    }

    #[test]
    fn strangers_and_near_names_do_not_count() {
        let s = set(1, "Parallel", "OnDelete");
        let mut stranger = pod(&s, 0, Is::Ready);
        stranger.metadata.owner_references.as_mut().unwrap()[0].uid = "other".into();
        let mut near = pod(&s, 1, Is::Ready);
        near.metadata.name = Some("s-01".into());
        let plan = plan(&s, &[&stranger, &near], &BTreeSet::new());
        assert_eq!(plan.delete, vec![]);
        assert_eq!(plan.status.replicas, 0);
    }

    #[test]
    fn the_status_counts_and_names_both_revisions() {
        let mut s = set(3, "Parallel", "OnDelete");
        s.status = serde_json::from_value(json!({"replicas": 3, "currentRevision": "s-old"})).unwrap();
        let pods = [pod(&s, 0, Is::Ready), pod(&s, 1, Is::Old), pod(&s, 2, Is::NotReady)];
        let status = plan(&s, &pods.iter().collect::<Vec<_>>(), &BTreeSet::new()).status;
        let expected = json!({"observedGeneration": 3, "replicas": 3, "readyReplicas": 2, "availableReplicas": 2, "currentReplicas": 1,
            "updatedReplicas": 2, "currentRevision": "s-old", "updateRevision": revision(&s), "collisionCount": 0});
        assert_eq!(serde_json::to_value(&status).unwrap(), expected);
        let pods = [pod(&s, 0, Is::Ready), pod(&s, 1, Is::Ready), pod(&s, 2, Is::Ready)];
        let status = plan(&s, &pods.iter().collect::<Vec<_>>(), &BTreeSet::new()).status;
        assert_eq!(status.current_revision, Some(revision(&s)));
    }

    #[test]
    fn only_the_template_changes_the_revision() {
        let s = set(1, "Parallel", "OnDelete");
        let mut scaled = set(5, "Parallel", "RollingUpdate");
        scaled.metadata.generation = Some(9);
        assert_eq!(revision(&s), revision(&scaled));
        scaled.spec.as_mut().unwrap().template.metadata.as_mut().unwrap().annotations =
            Some([("a".to_owned(), "b".to_owned())].into());
        assert_ne!(revision(&s), revision(&scaled));
        assert!(revision(&s).len() <= "s-".len() + 10);
    }
}
