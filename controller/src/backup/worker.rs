//! The worker pod of one shard of a backup, and what its end means. Pure.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, EnvVar, HostPathVolumeSource, PersistentVolumeClaimVolumeSource, Pod,
    PodSecurityContext, PodSpec, SeccompProfile, SecretVolumeSource, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plan::NodeId;
use types::agent::WorkerReport;
use types::backup::ArtifactStatus;
use types::cluster::{BackupTarget, ClaimTarget, DirectoryTarget, Mode};
use types::names;

use crate::build::ANNOTATION_OWNER_UID;
use crate::build::stateful_set::{confined, copy_agent};
use crate::probe::Probed;
use crate::resolve::Resolved;

/// Name of the worker's container.
const CONTAINER: &str = "backup";
/// Where the target is mounted.
const TARGET: &str = "/backup";
/// A worker that hangs is killed: at 50 MB/s a day is 4 TB.
const DEADLINE_SECONDS: i64 = 24 * 3600;
/// Characters of an illegible report that are passed on.
const WORDS_MOST: usize = 300;
/// uid and gid of the official images' `redis` user.
const REDIS_USER: i64 = 999;

/// The member a worker copies from: where its agent is, and who it must be.
pub(super) fn source(probed: &Probed, shard: u16) -> Option<(SocketAddr, NodeId)> {
    let (address, id) = super::best_source(probed, shard)?;
    Some((SocketAddr::new(address.ip(), names::PORT_AGENT), id))
}

/// What a worker is to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order<'a> {
    pub(super) backup: &'a str,
    pub(super) location: &'a str,
    pub(super) target: &'a BackupTarget,
    pub(super) shard: u16,
    pub(super) attempt: u16,
    pub(super) source: (SocketAddr, NodeId),
}

/// The worker pod. It carries the cluster's label but not the members' name, so that no Service sends clients to it.
pub(super) fn pod(resolved: &Resolved, order: Order<'_>) -> Pod {
    let key = &resolved.key;
    let labels = BTreeMap::from([
        ("app.kubernetes.io/name".to_owned(), "redis-backup".to_owned()),
        ("app.kubernetes.io/managed-by".to_owned(), names::MANAGED_BY.to_owned()),
        (names::LABEL_CLUSTER.to_owned(), key.name.clone()),
        (names::LABEL_SHARD.to_owned(), order.shard.to_string()),
        (names::LABEL_BACKUP.to_owned(), order.backup.to_owned()),
    ]);
    Pod {
        metadata: ObjectMeta {
            name: Some(names::backup_pod(order.backup, order.shard, order.attempt)),
            namespace: Some(key.namespace.clone()),
            labels: Some(labels),
            annotations: Some(BTreeMap::from([(ANNOTATION_OWNER_UID.to_owned(), resolved.uid.clone())])),
            ..ObjectMeta::default()
        },
        spec: Some(spec(resolved, order)),
        status: None,
    }
}

fn spec(resolved: &Resolved, order: Order<'_>) -> PodSpec {
    PodSpec {
        init_containers: Some(vec![copy_agent(resolved)]),
        containers: vec![container(resolved, order)],
        restart_policy: Some("Never".to_owned()),
        active_deadline_seconds: Some(DEADLINE_SECONDS),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(REDIS_USER),
            run_as_group: Some(REDIS_USER),
            fs_group: Some(REDIS_USER),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), ..SeccompProfile::default() }),
            ..PodSecurityContext::default()
        }),
        volumes: Some(volumes(resolved, order.target)),
        ..PodSpec::default()
    }
}

fn container(resolved: &Resolved, order: Order<'_>) -> Container {
    let key = &resolved.key;
    let mount = |name: &str, path: &str, read_only: bool| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    };
    let (address, node) = order.source;
    let mut words = vec![
        "/kun/bin/kun".to_owned(),
        "agent".to_owned(),
        "backup".to_owned(),
        "--source".to_owned(),
        address.to_string(),
        "--expect-cn".to_owned(),
        format!("kun:agent:{}:{}", key.namespace, key.name),
        "--out".to_owned(),
        format!("{TARGET}/{}", order.location),
        "--file".to_owned(),
        format!("shard-{}.rdb", order.shard),
    ];
    if resolved.mode == Mode::Cluster {
        words.extend(["--expect-node".to_owned(), node.to_string()]);
    }
    Container {
        name: CONTAINER.to_owned(),
        image: Some(resolved.image.clone()),
        command: Some(words),
        env: Some(vec![EnvVar {
            name: "KUN_INTERNAL_DIR".to_owned(),
            value: Some("/etc/kun/internal".to_owned()),
            value_from: None,
        }]),
        security_context: Some(confined()),
        volume_mounts: Some(vec![
            mount("bin", "/kun/bin", false),
            mount("internal", "/etc/kun/internal", true),
            mount("target", TARGET, false),
        ]),
        ..Container::default()
    }
}

fn volumes(resolved: &Resolved, target: &BackupTarget) -> Vec<Volume> {
    let named = |name: &str| Volume { name: name.to_owned(), ..Volume::default() };
    let BackupTarget { directory, persistent_volume_claim } = target;
    let directory = directory.as_ref().map(|DirectoryTarget { path }| HostPathVolumeSource {
        path: path.clone(),
        type_: Some("DirectoryOrCreate".to_owned()),
    });
    let claim = persistent_volume_claim.as_ref().map(|ClaimTarget { claim_name }| PersistentVolumeClaimVolumeSource {
        claim_name: claim_name.clone(),
        read_only: None,
    });
    vec![
        Volume { empty_dir: Some(EmptyDirVolumeSource::default()), ..named("bin") },
        Volume {
            secret: Some(SecretVolumeSource {
                secret_name: Some(names::internal_secret(&resolved.key.name)),
                default_mode: Some(0o440),
                ..SecretVolumeSource::default()
            }),
            ..named("internal")
        },
        Volume { host_path: directory, persistent_volume_claim: claim, ..named("target") },
    ]
}

/// What became of a worker.
pub(super) enum Outcome {
    /// It has not ended.
    Runs,
    /// The artifact is stored and was read back.
    Stored(Box<ArtifactStatus>),
    /// It failed, with its own words where it had some.
    Failed(String),
}

/// Reads a worker's end: its exit code, and the summary it left as termination message.
pub(super) fn outcome(pod: &Pod, shard: u16) -> Outcome {
    let status = pod.status.as_ref();
    let ended = status
        .and_then(|status| status.container_statuses.as_ref())
        .and_then(|all| all.iter().find(|container| container.name == CONTAINER))
        .and_then(|container| container.state.as_ref()?.terminated.as_ref());
    let Some(ended) = ended else {
        let phase = status.and_then(|status| status.phase.as_deref());
        return if matches!(phase, Some("Failed" | "Succeeded")) {
            let why = status.and_then(|status| status.message.clone().or_else(|| status.reason.clone()));
            Outcome::Failed(why.unwrap_or_else(|| "the pod ended and its container's state is not known".to_owned()))
        } else {
            Outcome::Runs
        };
    };
    let message = ended.message.as_deref().unwrap_or_default();
    match serde_json::from_str(message) {
        Ok(WorkerReport::Stored { artifact, engine_version: _ }) if artifact.index == i32::from(shard) => {
            Outcome::Stored(Box::new(artifact))
        }
        Ok(WorkerReport::Stored { artifact, engine_version: _ }) => {
            Outcome::Failed(format!("the member that answered belongs to shard {}", artifact.index))
        }
        Ok(WorkerReport::Failed { message }) => Outcome::Failed(message),
        Err(error) => {
            let words: String = message.chars().take(WORDS_MOST).collect();
            Outcome::Failed(format!("exit code {}, and its report is not legible ({error}): {words}", ended.exit_code))
        }
    }
}
