//! The worker pods of a backup, the one that stores a shard and the one that deletes everything, and what their ends
//! mean. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerStateTerminated, ContainerStatus, EnvVar, HostPathVolumeSource,
    PersistentVolumeClaimVolumeSource, Pod, PodSecurityContext, PodSpec, ResourceRequirements, SeccompProfile,
    SecretVolumeSource, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use types::agent::WorkerReport;
use types::backup::ArtifactStatus;
use types::cluster::{BackupTarget, ClaimTarget, DirectoryTarget, Mode, Placement};
use types::names;

use super::source::Source;
use crate::build::stateful_set::{BINARY_IN_IMAGE, confined, mount, of_worker};
use crate::build::worker_labels;
use crate::probe::stuck;
use crate::resolve::Resolved;

/// Name of the worker's container.
const CONTAINER: &str = "backup";
/// Name of the container that makes the backup's folder before that.
const FOLDER: &str = "folder";
/// Where the target is mounted.
const TARGET: &str = "/backup";
/// A worker that hangs is killed: at 50 MB/s a day is 4 TB.
pub(super) const DEADLINE_SECONDS: i64 = 24 * 3600;
/// How long after the time at which it is to have gone a worker is waited for, in seconds.
const END_LATE_MOST: i64 = 60;
/// How long a worker that runs may not be ready, in seconds. It has no probe: it is its node that is not heard of. Kubernetes waits as long before it
/// deletes such pods.
const UNREADY_MOST: i64 = 300;
/// Characters of an illegible report that are passed on.
const WORDS_MOST: usize = 300;
/// uid and gid of the official images' `redis` user.
const REDIS_USER: i64 = 999;

/// What a worker is to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order<'a> {
    pub(super) backup: &'a str,
    pub(super) uid: &'a str,
    pub(super) location: &'a str,
    pub(super) target: &'a BackupTarget,
    pub(super) shard: u16,
    pub(super) attempt: u16,
    pub(super) source: Source<'a>,
}

/// The worker pod.
pub(super) fn pod(resolved: &Resolved, order: Order<'_>) -> Pod {
    let key = &resolved.key;
    let mut labels = labels(&key.name, order.backup, order.uid);
    labels.insert(names::LABEL_SHARD.to_owned(), order.shard.to_string());
    Pod {
        metadata: ObjectMeta {
            name: Some(names::backup_pod(order.backup, order.shard, order.attempt)),
            namespace: Some(key.namespace.clone()),
            labels: Some(labels),
            annotations: Some(BTreeMap::from([(names::ANNOTATION_OWNER_UID.to_owned(), resolved.uid.clone())])),
            ..ObjectMeta::default()
        },
        spec: Some(spec(resolved, order)),
        status: None,
    }
}

/// What a worker is to delete.
#[derive(Clone, Debug)]
pub(super) struct Erasure<'a> {
    pub(super) namespace: &'a str,
    pub(super) cluster: &'a str,
    pub(super) backup: &'a str,
    pub(super) uid: &'a str,
    pub(super) folder: String,
    pub(super) target: BackupTarget,
    pub(super) attempt: u16,
    pub(super) kun_image: &'a str,
    /// Of the cluster, as long as there is one.
    pub(super) placement: Option<&'a Placement>,
}

/// The worker pod that deletes the artifacts of a backup. It needs no Redis and no secret, only our own program.
pub(super) fn eraser(order: Erasure<'_>) -> Pod {
    let Erasure { namespace, cluster, backup, uid, folder, target, attempt, kun_image, placement } = order;
    let words = [BINARY_IN_IMAGE, "agent", "erase", "--target", TARGET, "--folder", &folder];
    let container = Container {
        name: CONTAINER.to_owned(),
        image: Some(kun_image.to_owned()),
        command: Some(words.map(str::to_owned).to_vec()),
        resources: Some(resources()),
        security_context: Some(confined()),
        volume_mounts: Some(vec![mount("target", TARGET, false)]),
        ..Container::default()
    };
    Pod {
        metadata: ObjectMeta {
            name: Some(names::erase_pod(backup, attempt)),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels(cluster, backup, uid)),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![container],
            volumes: Some(vec![target_volume(&target)]),
            ..confined_once(placement)
        }),
        status: None,
    }
}

fn labels(cluster: &str, backup: &str, uid: &str) -> BTreeMap<String, String> {
    let mut labels = worker_labels(cluster);
    labels.insert(names::LABEL_BACKUP.to_owned(), backup.to_owned());
    labels.insert(names::LABEL_BACKUP_UID.to_owned(), uid.to_owned());
    labels
}

fn spec(resolved: &Resolved, order: Order<'_>) -> PodSpec {
    PodSpec {
        init_containers: Some(vec![folder(resolved, order)]),
        containers: vec![container(resolved, order)],
        volumes: Some(volumes(resolved, order.target)),
        ..confined_once(Some(&resolved.placement))
    }
}

/// A pod that runs once, within Pod Security "restricted", on the nodes that are the cluster's.
fn confined_once(placement: Option<&Placement>) -> PodSpec {
    PodSpec {
        restart_policy: Some("Never".to_owned()),
        active_deadline_seconds: Some(DEADLINE_SECONDS),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(REDIS_USER),
            run_as_group: Some(REDIS_USER),
            fs_group: Some(REDIS_USER),
            // What lies on a volume of others stays as it is.
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), ..SeccompProfile::default() }),
            ..PodSecurityContext::default()
        }),
        ..placement.map(of_worker).unwrap_or_default()
    }
}

/// What every container of a worker asks for. Without a request of processor time it has the smallest weight that there is, and on a busy node an
/// agent ends its connection before it has said who it is; where a quota counts requests or limits of memory, a pod without them is refused. It holds a
/// few MiB; the rest of its memory is what it has written and what is not on the disk yet, at most a few dozen MiB.
fn resources() -> ResourceRequirements {
    let of = |amounts: &[(&str, &str)]| {
        Some(amounts.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned()))).collect())
    };
    ResourceRequirements {
        requests: of(&[("cpu", "50m"), ("memory", "32Mi")]),
        limits: of(&[("memory", "256Mi")]),
        ..ResourceRequirements::default()
    }
}

/// What sees the whole target: it makes the folder and hears nobody. A kubelet would make it, too, but as root's.
fn folder(resolved: &Resolved, order: Order<'_>) -> Container {
    let words = [BINARY_IN_IMAGE, "agent", "folder", "--target", TARGET, "--folder", order.location];
    Container {
        name: FOLDER.to_owned(),
        image: Some(resolved.kun_image.clone()),
        command: Some(words.map(str::to_owned).to_vec()),
        resources: Some(resources()),
        security_context: Some(confined()),
        volume_mounts: Some(vec![mount("target", TARGET, false)]),
        ..Container::default()
    }
}

/// What hears a member, which may be anybody's image. Of the target it sees the backup's folder.
fn container(resolved: &Resolved, order: Order<'_>) -> Container {
    let key = &resolved.key;
    let Source { agent, id, not_before } = order.source;
    let out = format!("{TARGET}/{}", order.location);
    let mut words = vec![
        BINARY_IN_IMAGE.to_owned(),
        "agent".to_owned(),
        "backup".to_owned(),
        "--source".to_owned(),
        agent.to_string(),
        "--expect-cn".to_owned(),
        names::agent_user(&key.namespace, &key.name),
        "--out".to_owned(),
        out.clone(),
        "--file".to_owned(),
        names::backup_file(order.shard),
    ];
    if resolved.mode == Mode::Cluster {
        words.extend(["--expect-node".to_owned(), id.to_string()]);
    }
    if let Some((stream, offset)) = not_before {
        words.extend(["--not-before".to_owned(), format!("{stream}:{offset}")]);
    }
    Container {
        name: CONTAINER.to_owned(),
        // Whoever may name an image of Redis must not run it beside a claim that is not theirs.
        image: Some(resolved.kun_image.clone()),
        command: Some(words),
        env: Some(vec![EnvVar {
            name: "KUN_INTERNAL_DIR".to_owned(),
            value: Some("/etc/kun/internal".to_owned()),
            value_from: None,
        }]),
        resources: Some(resources()),
        security_context: Some(confined()),
        volume_mounts: Some(vec![
            mount("internal", "/etc/kun/internal", true),
            VolumeMount { sub_path: Some(order.location.to_owned()), ..mount("target", &out, false) },
        ]),
        ..Container::default()
    }
}

fn volumes(resolved: &Resolved, target: &BackupTarget) -> Vec<Volume> {
    let named = |name: &str| Volume { name: name.to_owned(), ..Volume::default() };
    vec![
        Volume {
            secret: Some(SecretVolumeSource {
                secret_name: Some(names::internal_secret(&resolved.key.name)),
                default_mode: Some(0o440),
                ..SecretVolumeSource::default()
            }),
            ..named("internal")
        },
        target_volume(target),
    ]
}

fn target_volume(target: &BackupTarget) -> Volume {
    let BackupTarget { directory, persistent_volume_claim } = target;
    let directory = directory.as_ref().map(|DirectoryTarget { path }| HostPathVolumeSource {
        path: path.clone(),
        type_: Some("DirectoryOrCreate".to_owned()),
    });
    let claim = persistent_volume_claim.as_ref().map(|ClaimTarget { claim_name }| PersistentVolumeClaimVolumeSource {
        claim_name: claim_name.clone(),
        read_only: None,
    });
    Volume { name: "target".to_owned(), host_path: directory, persistent_volume_claim: claim, ..Volume::default() }
}

/// How a worker ended.
pub(super) enum End {
    /// It has not.
    Runs,
    /// It has not begun, and why, in the words of Kubernetes.
    Stuck(String),
    /// With a report.
    Reported(WorkerReport),
    /// Without a legible one; the sentence says what is known.
    Silent(String),
}

fn ended<'a>(
    mut containers: impl Iterator<Item = &'a ContainerStatus>,
    name: &str,
) -> Option<&'a ContainerStateTerminated> {
    containers.find(|container| container.name == name)?.state.as_ref()?.terminated.as_ref()
}

/// The end that counts: the worker's own, or that of the container before it, where that one failed.
fn terminated(pod: &Pod) -> Option<&ContainerStateTerminated> {
    let status = pod.status.as_ref()?;
    let own = ended(status.container_statuses.iter().flatten(), CONTAINER);
    let before = || ended(status.init_container_statuses.iter().flatten(), FOLDER);
    own.or_else(|| before().filter(|ended| ended.exit_code != 0))
}

/// When it ended, by the clock of its node.
pub(super) fn ended_at(pod: &Pod) -> Option<&Time> {
    terminated(pod)?.finished_at.as_ref()
}

/// Reads a worker's end: its exit code, and the summary it left as termination message.
pub(super) fn end(pod: &Pod) -> End {
    let Some(ended) = terminated(pod) else {
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        return if matches!(phase, Some("Failed" | "Succeeded")) {
            let why = status.and_then(|status| status.message.clone().or_else(|| status.reason.clone()));
            End::Silent(why.unwrap_or_else(|| "the pod ended and its container's state is not known".to_owned()))
        } else {
            stuck(pod).map_or(End::Runs, End::Stuck)
        };
    };
    let message = ended.message.as_deref().unwrap_or_default();
    serde_json::from_str(message).map_or_else(
        |error| {
            let words: String = message.chars().take(WORDS_MOST).collect();
            End::Silent(format!("exit code {}, and its report is not legible ({error}): {words}", ended.exit_code))
        },
        End::Reported,
    )
}

/// What became of a worker that was to store a shard.
pub(super) enum Outcome {
    /// It has not ended.
    Runs,
    /// It cannot begin; Kubernetes' words.
    Stuck(String),
    /// Nobody hears of it, and why.
    Unheard(String),
    /// The artifact is stored and was read back.
    Stored(Box<ArtifactStatus>),
    /// It failed, with its own words where it had some.
    Failed(String),
}

/// What a worker's end means for the shard it was to store.
pub(super) fn outcome(pod: &Pod, shard: u16, now: Timestamp) -> Outcome {
    match end(pod) {
        End::Runs => heard(pod, now),
        End::Stuck(why) => Outcome::Stuck(why),
        End::Reported(WorkerReport::Stored { artifact, engine_version: _ }) if artifact.index == i32::from(shard) => {
            Outcome::Stored(Box::new(artifact))
        }
        End::Reported(WorkerReport::Stored { artifact, engine_version: _ }) => {
            Outcome::Failed(format!("the member that answered belongs to shard {}", artifact.index))
        }
        End::Reported(WorkerReport::Erased { .. }) => Outcome::Failed("the worker did something else".to_owned()),
        End::Reported(WorkerReport::Failed { message }) | End::Silent(message) => Outcome::Failed(message),
    }
}

/// Whether anybody hears of a worker that has not ended. Of a lost node Kubernetes says that its pods are not ready, and minutes later that they are
/// to go; nobody says that their processes have ended, so who comes after one counts on nothing that it may still do.
fn heard(pod: &Pod, now: Timestamp) -> Outcome {
    let since = |time: &Time| now.duration_since(time.0).as_secs();
    // The time by which it is to have gone.
    let overdue = pod.metadata.deletion_timestamp.as_ref().map(since).filter(|seconds| *seconds > 0);
    if let Some(seconds) = overdue {
        let why = "its pod is being deleted, and its node does not say that it has ended".to_owned();
        return if seconds > END_LATE_MOST { Outcome::Failed(why) } else { Outcome::Unheard(why) };
    }
    let status = pod.status.as_ref().filter(|status| status.phase.as_deref() == Some("Running"));
    let mut conditions = status.into_iter().flat_map(|status| status.conditions.iter().flatten());
    let lost = conditions.find(|condition| condition.type_ == "Ready" && condition.status != "True");
    let Some(lost) = lost else { return Outcome::Runs };
    let why = "its container runs by the last word of its node, and is not ready".to_owned();
    let is_given_up = lost.last_transition_time.as_ref().is_some_and(|time| since(time) > UNREADY_MOST);
    if is_given_up { Outcome::Failed(why) } else { Outcome::Unheard(why) }
}
