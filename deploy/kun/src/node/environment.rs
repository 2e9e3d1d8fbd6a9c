//! Environment and command line of a container, pure: `$(VAR)`, references to fields, resources, ConfigMaps and Secrets,
//! and the translation of mounted paths.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use k8s_openapi::api::core::v1 as core;
use types::quantity::Quantity;

use super::machine::Waiting;
use super::volume::{Mounts, TERMINATION_LOG};

/// Paths of our executable inside pods, as the agent's copy and in our own image; the node runs its own executable for
/// both.
pub const OWN_PROGRAMS: [&str; 2] = ["/kun/bin/kun", "/usr/local/bin/kun"];

/// What the pod's surroundings say.
pub trait Surroundings {
    /// A key of a ConfigMap of the pod's namespace; `None` when the ConfigMap or the key is missing.
    fn config_map(&self, name: &str) -> Option<BTreeMap<String, String>>;
    /// The same of a Secret.
    fn secret(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>>;
}

/// Facts about the node and the pod's place on it.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The pod's address.
    pub address: Ipv4Addr,
    /// The node's name.
    pub node_name: String,
    /// Memory of the machine in bytes: what `limits.memory` says when there is no limit.
    pub memory: u64,
    /// Processors of the machine in thousandths.
    pub cpu_millis: u64,
    /// PATH for the pod's processes.
    pub path: String,
    /// The container's working directory if it names none.
    pub work: PathBuf,
    /// Our own executable.
    pub own_program: PathBuf,
    /// redis-server, which stands for an image's entry point.
    pub redis_server: PathBuf,
}

/// A process to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Program: a path, or a name to be looked up on `PATH`.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment.
    pub env: BTreeMap<String, String>,
    /// Where it starts.
    pub work: PathBuf,
}

/// Builds the command of a container.
pub fn build(
    pod: &core::Pod,
    container: &core::Container,
    mounts: &Mounts,
    facts: &Facts,
    around: &dyn Surroundings,
) -> Result<Command, Waiting> {
    let plain = variables(pod, container, facts, around)?;
    let mut words: Vec<String> = match container.command.as_deref().unwrap_or_default() {
        [] => vec![facts.redis_server.display().to_string()],
        command => command.iter().map(|word| expand(word, &plain)).collect(),
    };
    words.extend(container.args.iter().flatten().map(|word| expand(word, &plain)));
    if let Some(word) = words.iter().find(|word| word.contains('\0')) {
        return Err(config_error(format!("command word {word:?} contains NUL")));
    }
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_default();
    let is_own = OWN_PROGRAMS.contains(&program.as_str());
    let program = if is_own { facts.own_program.display().to_string() } else { mounts.apply(&program) };
    let args = words.map(|word| mounts.apply(&word)).collect();
    let mut env: BTreeMap<String, String> =
        plain.into_iter().map(|(name, value)| (name, mounts.apply(&value))).collect();
    for (name, value) in [
        ("PATH", facts.path.clone()),
        ("HOME", facts.work.display().to_string()),
        ("KUN_TERMINATION_LOG", mounts.apply(container.termination_message_path.as_deref().unwrap_or(TERMINATION_LOG))),
    ] {
        env.entry(name.to_owned()).or_insert(value);
    }
    let work =
        container.working_dir.as_deref().map_or_else(|| facts.work.clone(), |dir| PathBuf::from(mounts.apply(dir)));
    Ok(Command { program, args, env, work })
}

fn variables(
    pod: &core::Pod,
    container: &core::Container,
    facts: &Facts,
    around: &dyn Surroundings,
) -> Result<BTreeMap<String, String>, Waiting> {
    let mut env = BTreeMap::new();
    for from in container.env_from.iter().flatten() {
        env.extend(imported(from, around)?);
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value_from, &variable.value) {
            (Some(from), _) => referred(&variable.name, from, pod, container, facts, around)?,
            (None, value) => Some(expand(value.as_deref().unwrap_or_default(), &env)),
        };
        if variable.name.is_empty() || variable.name.contains(['=', '\0']) {
            return Err(config_error(format!("environment variable name {:?} is not allowed", variable.name)));
        }
        if let Some(value) = value {
            if value.contains('\0') {
                return Err(config_error(format!("the value of environment variable {} contains NUL", variable.name)));
            }
            env.insert(variable.name.clone(), value);
        }
    }
    Ok(env)
}

fn imported(from: &core::EnvFromSource, around: &dyn Surroundings) -> Result<BTreeMap<String, String>, Waiting> {
    let prefix = from.prefix.as_deref().unwrap_or_default();
    let (kind, name, optional, data) = if let Some(source) = &from.config_map_ref {
        ("configmap", &source.name, source.optional, around.config_map(&source.name))
    } else if let Some(source) = &from.secret_ref {
        let data = around.secret(&source.name).map(|data| {
            data.into_iter()
                .filter_map(|(key, value)| String::from_utf8(value).ok().map(|value| (key, value)))
                .collect()
        });
        ("secret", &source.name, source.optional, data)
    } else {
        return Ok(BTreeMap::new());
    };
    match data {
        Some(data) => Ok(data.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value)).collect()),
        None if optional == Some(true) => Ok(BTreeMap::new()),
        None => Err(config_error(format!("{kind} {name:?} not found"))),
    }
}

/// The value of a reference; `None` when it is optional and missing.
fn referred(
    variable: &str,
    from: &core::EnvVarSource,
    pod: &core::Pod,
    container: &core::Container,
    facts: &Facts,
    around: &dyn Surroundings,
) -> Result<Option<String>, Waiting> {
    let missing = |kind: &str, name: &str, key: &str, optional: Option<bool>| match optional {
        Some(true) => Ok(None),
        Some(false) | None => Err(config_error(format!("couldn't find key {key:?} in {kind} {name:?} for {variable}"))),
    };
    if let Some(field) = &from.field_ref {
        return field_value(pod, facts, &field.field_path).map(Some).ok_or_else(|| {
            config_error(format!("{variable}: field {:?} is not known to the standalone node", field.field_path))
        });
    }
    if let Some(resource) = &from.resource_field_ref {
        return resource_value(container, facts, resource)
            .map(Some)
            .map_err(|why| config_error(format!("{variable}: resource {:?}: {why}", resource.resource)));
    }
    if let Some(source) = &from.config_map_key_ref {
        return match around.config_map(&source.name).and_then(|mut data| data.remove(&source.key)) {
            Some(value) => Ok(Some(value)),
            None => missing("configmap", &source.name, &source.key, source.optional),
        };
    }
    if let Some(source) = &from.secret_key_ref {
        return match around.secret(&source.name).and_then(|mut data| data.remove(&source.key)) {
            Some(value) => String::from_utf8(value).map(Some).map_err(|_| {
                config_error(format!("{variable}: key {:?} of secret {:?} is not text", source.key, source.name))
            }),
            None => missing("secret", &source.name, &source.key, source.optional),
        };
    }
    Err(config_error(format!("{variable}: valueFrom names no source the standalone node knows")))
}

fn field_value(pod: &core::Pod, facts: &Facts, path: &str) -> Option<String> {
    let meta = &pod.metadata;
    let entry = |map: &Option<BTreeMap<String, String>>, rest: &str| {
        let key = rest.strip_prefix("['").and_then(|rest| rest.strip_suffix("']"))?;
        Some(map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default())
    };
    if let Some(rest) = path.strip_prefix("metadata.labels") {
        return entry(&meta.labels, rest);
    }
    if let Some(rest) = path.strip_prefix("metadata.annotations") {
        return entry(&meta.annotations, rest);
    }
    match path {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "spec.nodeName" => Some(facts.node_name.clone()),
        "spec.serviceAccountName" => {
            Some(pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone()).unwrap_or_default())
        }
        "status.podIP" | "status.podIPs" => Some(facts.address.to_string()),
        "status.hostIP" | "status.hostIPs" => Some(Ipv4Addr::LOCALHOST.to_string()),
        _ => None,
    }
}

fn resource_value(
    container: &core::Container,
    facts: &Facts,
    selector: &core::ResourceFieldSelector,
) -> Result<String, String> {
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|r| r.limits.as_ref());
    let requests = resources.and_then(|r| r.requests.as_ref());
    let find = |map: Option<&BTreeMap<String, _>>, key: &str| -> Option<Result<Quantity, String>> {
        let quantity: &k8s_openapi::apimachinery::pkg::api::resource::Quantity = map?.get(key)?;
        Some(Quantity::parse(&quantity.0).map_err(|error| error.to_string()))
    };
    let divisor = match selector.divisor.as_ref().map(|d| d.0.as_str()).filter(|d| !d.is_empty() && *d != "0") {
        Some(text) => Quantity::parse(text).map_err(|error| error.to_string())?,
        None => Quantity::parse("1").map_err(|error| error.to_string())?,
    };
    let (kind, name) = selector.resource.split_once('.').ok_or("must be limits.<name> or requests.<name>")?;
    let quantity = match kind {
        "limits" => find(limits, name),
        "requests" => find(requests, name).or_else(|| find(limits, name)),
        _ => return Err("must be limits.<name> or requests.<name>".to_owned()),
    };
    let quantity = quantity.transpose()?;
    match name {
        "cpu" => {
            let millis = quantity.map_or(facts.cpu_millis, Quantity::millis);
            Ok(millis.div_ceil(divisor.millis().max(1)).to_string())
        }
        "memory" => {
            let bytes = quantity.map_or(facts.memory, Quantity::bytes);
            Ok(bytes.div_ceil(divisor.bytes().max(1)).to_string())
        }
        _ => Err("the standalone node knows cpu and memory".to_owned()),
    }
}

/// Replaces `$(NAME)` by the variable's value; `$$(NAME)` is a literal `$(NAME)`; an unknown name stays as it is.
#[must_use]
pub fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        if let Some(after) = from.strip_prefix("$$") {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = from.strip_prefix("$(").and_then(|tail| tail.split_once(')')) {
            match env.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            out.push('$');
            rest = from.strip_prefix('$').unwrap_or_default();
        }
    }
    out.push_str(rest);
    out
}

fn config_error(message: String) -> Waiting {
    Waiting { reason: "CreateContainerConfigError".to_owned(), message }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;
    use serde_json::json;
    use std::path::Path;

    struct Around;
    impl Surroundings for Around {
        fn config_map(&self, name: &str) -> Option<BTreeMap<String, String>> {
            (name == "c").then(|| BTreeMap::from([("k".to_owned(), "from-config".to_owned())]))
        }
        fn secret(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
            (name == "s")
                .then(|| BTreeMap::from([("k".to_owned(), b"from-secret".to_vec()), ("bin".to_owned(), vec![0xff])]))
        }
    }

    fn facts() -> Facts {
        Facts {
            address: Ipv4Addr::new(127, 86, 0, 9),
            node_name: "standalone".into(),
            memory: 1 << 30,
            cpu_millis: 2_000,
            path: "/opt/redis:/usr/bin".into(),
            work: "/d/p/work".into(),
            own_program: "/opt/kun".into(),
            redis_server: "/opt/redis/redis-server".into(),
        }
    }

    fn pod() -> core::Pod {
        serde_json::from_value(
            json!({"metadata": {"name": "a-0", "namespace": "ns", "uid": "u", "labels": {"x/y": "z"}}}),
        )
        .unwrap()
    }

    fn built(container: serde_json::Value) -> Result<Command, Waiting> {
        let container: core::Container = serde_json::from_value(container).unwrap();
        let mut c = container.clone();
        c.volume_mounts =
            Some(vec![core::VolumeMount { name: "data".into(), mount_path: "/data".into(), ..Default::default() }]);
        let volume = super::super::volume::Volume {
            name: "data".into(),
            source: super::super::volume::Source::Empty,
            directory: "/real/data".into(),
        };
        let mounts = Mounts::new(&c, &[volume], Path::new("/real/termination-log")).unwrap();
        build(&pod(), &container, &mounts, &facts(), &Around)
    }

    #[test]
    fn the_agent_runs_as_our_own_executable_with_real_paths() {
        let command = built(json!({
            "name": "redis", "command": ["/kun/bin/kun", "agent"], "args": ["--dir=/data/x", "$(POD_IP)"],
            "env": [
                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['x/y']"}}},
                {"name": "KUN_DATA_DIR", "value": "/data"},
                {"name": "BOTH", "value": "$(POD_NAME)-$$(POD_NAME)-$(NONE)-$x"},
                {"name": "LIMIT", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
                {"name": "MIB", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
                {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "O", "valueFrom": {"secretKeyRef": {"name": "none", "key": "k", "optional": true}}}
            ],
            "resources": {"limits": {"memory": "256Mi", "cpu": "1500m"}}
        }))
        .unwrap();
        assert_eq!(command.program, "/opt/kun");
        assert_eq!(command.args, ["agent", "--dir=/real/data/x", "127.86.0.9"]);
        let expected = [
            ("BOTH", "a-0-$(POD_NAME)-$(NONE)-$x"),
            ("C", "from-config"),
            ("CPU", "2"),
            ("HOME", "/d/p/work"),
            ("KUN_DATA_DIR", "/real/data"),
            ("KUN_TERMINATION_LOG", "/real/termination-log"),
            ("LABEL", "z"),
            ("LIMIT", "268435456"),
            ("MIB", "256"),
            ("PATH", "/opt/redis:/usr/bin"),
            ("POD_IP", "127.86.0.9"),
            ("POD_NAME", "a-0"),
            ("S", "from-secret"),
        ];
        let env: Vec<(&str, &str)> = command.env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(env, expected);
    }

    #[test]
    fn what_is_missing_or_not_allowed_is_a_sentence() {
        for (variable, part) in [
            (json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": "none", "key": "k"}}}), "\"none\""),
            (json!({"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "zz"}}}), "\"zz\""),
            (json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "bin"}}}), "not text"),
            (json!({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nope"}}}), "spec.nope"),
            (json!({"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.gpu"}}}), "cpu and memory"),
            (json!({"name": "A=B", "value": "x"}), "not allowed"),
            (json!({"name": "A", "value": "x\u{0}y"}), "NUL"),
        ] {
            let refusal = built(json!({"name": "c", "env": [variable]})).unwrap_err();
            assert!(refusal.message.contains(part), "{}", refusal.message);
        }
        assert!(built(json!({"name": "c", "command": ["a\u{0}b"]})).is_err());
    }

    #[test]
    fn a_container_without_command_runs_redis_server() {
        let command = built(json!({"name": "c", "args": ["--port", "0"], "workingDir": "/data/w"})).unwrap();
        assert_eq!(command.program, "/opt/redis/redis-server");
        assert_eq!(
            (command.args, command.work),
            (vec!["--port".to_owned(), "0".to_owned()], PathBuf::from("/real/data/w"))
        );
    }
}
