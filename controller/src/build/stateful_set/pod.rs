//! The pod of a member: the agent as PID 1 beside the server, within Pod Security "restricted".

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource,
    HTTPGetAction, KeyToPath, ObjectFieldSelector, PodSecurityContext, PodSpec, Probe, ResourceFieldSelector,
    ResourceRequirements, SeccompProfile, SecretVolumeSource, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use types::names;

use super::placement;
use crate::credentials::key;
use crate::resolve::Resolved;

/// Name of the Redis container.
pub const CONTAINER: &str = "redis";
/// Name of the data volume and of its claim template.
pub(super) const DATA: &str = "data";
/// Name of the volume with the application's password.
pub(crate) const AUTH: &str = "auth";

/// Where the binary lies that the init container copies.
const BINARY: &str = "/kun/bin/kun";
/// Where it lies in our own image.
pub(crate) const BINARY_IN_IMAGE: &str = "/usr/local/bin/kun";
/// uid and gid of the user that official images have for the server.
const REDIS_USER: i64 = 999;
/// Longer than a manual failover may take (5 s) and a few retries; the agent hands the primary role over in this time.
const GRACE_LEAST: u64 = 30;
/// An hour per 57 GB of memory is what slow network disks need to have it saved; nobody waits for longer than two.
const GRACE_MOST: u64 = 7_200;
/// What is saved in a second even by a slow disk.
const SAVED_PER_SECOND: u64 = 16 << 20;
/// Where the memory is not limited.
const GRACE_UNLIMITED: u64 = 3_600;
/// Mode of mounted secrets: readable by the group, which is the pod's alone.
const SECRET_MODE: i32 = 0o440;
/// Loading a large data set takes long and must not be taken for a failure: an hour at one probe a second.
const STARTUP_TRIES: i32 = 3600;

pub(super) fn spec(resolved: &Resolved, shard: u16) -> PodSpec {
    PodSpec {
        init_containers: Some(vec![copy_agent(resolved)]),
        containers: vec![redis(resolved, shard)],
        volumes: Some(volumes(resolved)),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(REDIS_USER),
            run_as_group: Some(REDIS_USER),
            fs_group: Some(REDIS_USER),
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), ..SeccompProfile::default() }),
            ..PodSecurityContext::default()
        }),
        termination_grace_period_seconds: i64::try_from(grace_seconds(resolved)).ok(),
        // The agent has no access to the API server.
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        restart_policy: Some("Always".to_owned()),
        ..placement::of_member(&resolved.placement, &resolved.key.name, shard)
    }
}

/// How long stopping may take: what is in memory may have to be saved first, and an append-only file to be written anew. The agent ends a
/// server that shows no work long before. It follows from the limit of the memory, not from what is in it: else every pod would be
/// restarted as the data set grows.
fn grace_seconds(resolved: &Resolved) -> u64 {
    resolved
        .memory_limit
        .map_or(GRACE_UNLIMITED, |bytes| GRACE_LEAST.saturating_add(bytes.div_ceil(SAVED_PER_SECOND)).min(GRACE_MOST))
}

fn copy_agent(resolved: &Resolved) -> Container {
    Container {
        name: "agent".to_owned(),
        image: Some(resolved.kun_image.clone()),
        command: Some(vec![BINARY_IN_IMAGE.to_owned(), "install-agent".to_owned(), BINARY.to_owned()]),
        // A quota takes no pod of which one container says nothing. It runs before the other one, so the two count once.
        resources: Some(resources(resolved)),
        security_context: Some(confined()),
        volume_mounts: Some(vec![mount("bin", "/kun/bin", false)]),
        ..Container::default()
    }
}

fn redis(resolved: &Resolved, shard: u16) -> Container {
    let port = |name: &str, port: u16| ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(port),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    Container {
        name: CONTAINER.to_owned(),
        image: Some(resolved.image.clone()),
        command: Some(vec![BINARY.to_owned(), "agent".to_owned()]),
        env: Some(environment(resolved, shard)),
        ports: Some(vec![
            port("redis", names::PORT_REDIS),
            port("bus", names::PORT_BUS),
            port("agent", names::PORT_AGENT),
        ]),
        resources: Some(resources(resolved)),
        startup_probe: Some(Probe { failure_threshold: Some(STARTUP_TRIES), ..probe("/startupz", 1, 2) }),
        // Readiness is looked at every second: creation and rolling restarts wait for it.
        readiness_probe: Some(Probe { failure_threshold: Some(3), ..probe("/readyz", 1, 2) }),
        liveness_probe: Some(Probe { failure_threshold: Some(6), ..probe("/livez", 10, 5) }),
        // Why the agent gave up is then in the pod's status, where `kubectl describe pod` shows it.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        security_context: Some(confined()),
        volume_mounts: Some(vec![
            mount(DATA, "/data", false),
            mount("run", "/run/kun", false),
            mount("bin", "/kun/bin", true),
            mount("config", "/etc/kun/config", true),
            mount(AUTH, "/etc/kun/auth", true),
            mount("internal", "/etc/kun/internal", true),
        ]),
        ..Container::default()
    }
}

fn environment(resolved: &Resolved, shard: u16) -> Vec<EnvVar> {
    let plain =
        |name: &str, value: &str| EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None };
    let field = |name: &str, path: &str| EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { api_version: None, field_path: path.to_owned() }),
            ..EnvVarSource::default()
        }),
    };
    let mut environment = vec![
        field("POD_NAME", "metadata.name"),
        field("POD_NAMESPACE", "metadata.namespace"),
        field("POD_IP", "status.podIP"),
        plain("KUN_SHARD", &shard.to_string()),
        plain("KUN_GRACE_SECONDS", &grace_seconds(resolved).to_string()),
        plain("KUN_DATA_DIR", "/data"),
        plain("KUN_RUN_DIR", "/run/kun"),
        plain("KUN_CONFIG_DIR", "/etc/kun/config"),
        plain("KUN_AUTH_DIR", "/etc/kun/auth"),
        plain("KUN_INTERNAL_DIR", "/etc/kun/internal"),
        plain("KUN_REDIS_SERVER", resolved.engine.server()),
    ];
    if resolved.memory_limit.is_some() {
        environment.push(EnvVar {
            name: "KUN_MEMORY_LIMIT".to_owned(),
            value: None,
            value_from: Some(EnvVarSource {
                resource_field_ref: Some(ResourceFieldSelector {
                    container_name: Some(CONTAINER.to_owned()),
                    resource: "limits.memory".to_owned(),
                    divisor: None,
                }),
                ..EnvVarSource::default()
            }),
        });
    }
    environment
}

fn resources(resolved: &Resolved) -> ResourceRequirements {
    let quantities = |map: &std::collections::BTreeMap<String, String>| {
        (!map.is_empty()).then(|| map.iter().map(|(name, text)| (name.clone(), Quantity(text.clone()))).collect())
    };
    ResourceRequirements {
        requests: quantities(&resolved.resources.requests),
        limits: quantities(&resolved.resources.limits),
        ..ResourceRequirements::default()
    }
}

fn probe(path: &str, period: i32, timeout: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::Int(i32::from(names::PORT_AGENT)),
            scheme: Some("HTTPS".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(timeout),
        ..Probe::default()
    }
}

pub(crate) fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

/// The Secret from which a pod of this specification has the application's password.
#[must_use]
pub fn auth_secret(spec: &PodSpec) -> Option<&str> {
    let volume = spec.volumes.as_ref()?.iter().find(|volume| volume.name == AUTH)?;
    volume.secret.as_ref()?.secret_name.as_deref()
}

fn volumes(resolved: &Resolved) -> Vec<Volume> {
    let named = |name: &str| Volume { name: name.to_owned(), ..Volume::default() };
    let secret = |name: &str, secret: String, items: Option<Vec<KeyToPath>>| Volume {
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret),
            default_mode: Some(SECRET_MODE),
            items,
            optional: None,
        }),
        ..named(name)
    };
    let password = KeyToPath { key: key::PASSWORD.to_owned(), path: key::PASSWORD.to_owned(), mode: None };
    let mut volumes = vec![
        Volume { empty_dir: Some(EmptyDirVolumeSource::default()), ..named("bin") },
        Volume {
            empty_dir: Some(EmptyDirVolumeSource { medium: Some("Memory".to_owned()), size_limit: None }),
            ..named("run")
        },
        Volume {
            config_map: Some(ConfigMapVolumeSource {
                name: names::config_map(&resolved.key.name),
                ..ConfigMapVolumeSource::default()
            }),
            ..named("config")
        },
        // Only the password: what else a user keeps in that Secret is none of our business. It is not optional: a kubelet takes the files
        // of an optional Secret that is deleted away from a pod that runs.
        secret(AUTH, resolved.auth_secret.clone(), Some(vec![password])),
        secret("internal", names::internal_secret(&resolved.key.name), None),
    ];
    if resolved.storage.is_none() {
        volumes.push(Volume { empty_dir: Some(EmptyDirVolumeSource::default()), ..named(DATA) });
    }
    volumes
}

/// The security context of a container under Pod Security "restricted".
pub(crate) fn confined() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), ..SeccompProfile::default() }),
        ..SecurityContext::default()
    }
}
