//! RedisPolicy: what the platform team allows. It binds what is created or made worse, never a repair or a deletion.

use types::{
    RedisCluster, RedisPolicy,
    cluster::RedisClusterSpec,
    engine::Engine,
    field::{Fault, Path},
    policy::{IntRange, LabelSelector, PolicyAction, Requirement},
    quantity::Quantity,
    version::{Range, Version},
};

use super::{Objection, Verdict, capacity::persists};
use crate::facts::Facts;

/// A policy with its texts parsed. A rule that is not legible is left out: validation keeps such policies from being
/// stored, and guessing at one would refuse what nobody forbade.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    selector: Option<LabelSelector>,
    engines: Vec<Engine>,
    /// Ranges with the text that names them.
    versions: Vec<(String, Range)>,
    images: Vec<String>,
    shards: Option<IntRange>,
    replicas: Option<IntRange>,
    memory: Bounds,
    storage: Bounds,
    namespace_memory: Option<Quantity>,
    require: Vec<Requirement>,
    forbidden_config: Vec<String>,
    action: PolicyAction,
    message: Option<String>,
}

/// Bounds of a quantity.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    min: Option<Quantity>,
    max: Option<Quantity>,
}

impl From<&RedisPolicy> for Policy {
    fn from(policy: &RedisPolicy) -> Self {
        let spec = &policy.spec;
        let parse = |text: &Option<String>| text.as_deref().and_then(|text| Quantity::parse(text).ok());
        let bounds = |range: &Option<types::policy::QuantityRange>| {
            range.as_ref().map(|range| Bounds { min: parse(&range.min), max: parse(&range.max) }).unwrap_or_default()
        };
        Self {
            selector: spec.namespace_selector.clone(),
            engines: spec.engines.clone(),
            versions: spec.versions.iter().filter_map(|text| Some((text.clone(), text.parse().ok()?))).collect(),
            images: spec.images.clone(),
            shards: spec.shards,
            replicas: spec.replicas_per_shard,
            memory: bounds(&spec.memory_per_pod),
            storage: bounds(&spec.storage_per_pod),
            namespace_memory: parse(&spec.namespace_memory),
            require: spec.require.clone(),
            forbidden_config: spec.forbidden_config.clone(),
            action: spec.action,
            message: spec.message.clone(),
        }
    }
}

impl Policy {
    /// Which namespaces it binds; absent: all.
    #[must_use]
    pub const fn selector(&self) -> Option<&LabelSelector> {
        self.selector.as_ref()
    }
}

/// Below what a policy wants at least: another rule than [`MOST`], as what is too little gets no better by being too much.
const LEAST: &str = "least";
/// Above what it allows at most.
const MOST: &str = "most";

/// One rule that a cluster breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Breach {
    /// Which rule, or which side of it; with the path it tells one breach from another.
    rule: &'static str,
    path: Path,
    /// How far beyond the bound, where that can be told; a change that comes nearer is an improvement.
    distance: Option<u128>,
    /// What breaks it; where no distance is told, another value is another breach.
    value: String,
    /// The sentence.
    why: String,
}

/// Holds a cluster (`old`: what it was) against the policies of its namespace.
pub(super) fn apply(
    verdict: &mut Verdict,
    namespace: &str,
    new: &RedisCluster,
    old: Option<&RedisCluster>,
    facts: &Facts,
) {
    let Some(policies) = facts.policies_of(namespace) else {
        let why = format!(
            "namespace {namespace:?} has not been observed yet, so its RedisPolicies are not known; try again in a second"
        );
        verdict.refuse(Objection::Unknown, Fault::forbidden(Path::new("metadata.namespace"), why));
        return;
    };
    if policies.is_empty() {
        return;
    }
    let name = new.metadata.name.as_deref().unwrap_or_default();
    let others = others_memory(namespace, name, facts);
    for (policy_name, policy) in policies {
        let before = old.map(|old| breaches(policy, &old.spec, others)).unwrap_or_default();
        let mut found: Vec<(Breach, bool)> = Vec::new();
        for breach in breaches(policy, &new.spec, others) {
            let is_worse = is_worse(&breach, &before);
            // One sentence may stand for several bounds.
            match found.last_mut().filter(|(last, _)| last.path == breach.path && last.why == breach.why) {
                Some((_, worse)) => *worse |= is_worse,
                None => found.push((breach, is_worse)),
            }
        }
        for (breach, is_worse) in &found {
            report(verdict, policy_name, policy, breach, *is_worse);
        }
    }
}

fn is_worse(breach: &Breach, before: &[Breach]) -> bool {
    let same = before.iter().find(|old| old.rule == breach.rule && old.path == breach.path);
    !same.is_some_and(|old| match (breach.distance, old.distance) {
        (Some(now), Some(then)) => now <= then,
        (None, None) => breach.value == old.value,
        (Some(_), None) | (None, Some(_)) => false,
    })
}

fn report(verdict: &mut Verdict, name: &str, policy: &Policy, breach: &Breach, worse: bool) {
    let mut why = format!("RedisPolicy {name:?} {}", breach.why);
    if let Some(message) = &policy.message {
        why.push_str(": ");
        why.push_str(message);
    }
    match policy.action {
        PolicyAction::Deny if worse => verdict.refuse(Objection::Forbidden, Fault::forbidden(breach.path.clone(), why)),
        PolicyAction::Deny => verdict.warn(format!("{}: {why} (not made worse)", breach.path)),
        PolicyAction::Warn => verdict.warn(format!("{}: {why}", breach.path)),
        PolicyAction::Audit => {
            let told = verdict.audit.entry(format!("policy-{name}")).or_default();
            if !told.is_empty() {
                told.push_str("; ");
            }
            told.push_str(&format!("{}: {why}", breach.path));
        }
    }
}

/// Memory limits of all pods of the namespace's other clusters.
fn others_memory(namespace: &str, name: &str, facts: &Facts) -> u128 {
    let others = facts.clusters.within(namespace).filter(|(other, _)| *other != name);
    others.map(|(_, cluster)| total_memory(&cluster.spec).unwrap_or(0)).sum()
}

fn total_memory(spec: &RedisClusterSpec) -> Option<u128> {
    Some(u128::from(spec.memory_limit_bytes()?) * pods(spec))
}

fn pods(spec: &RedisClusterSpec) -> u128 {
    u128::from(spec.shards()) * u128::from(spec.members_per_shard())
}

/// Every rule of the policy that the spec breaks, in the order of the fields.
fn breaches(policy: &Policy, spec: &RedisClusterSpec, others_memory: u128) -> Vec<Breach> {
    let path = Path::new("spec");
    let mut found = Vec::new();
    found.extend(engine(policy, &path, spec));
    found.extend(version(policy, &path, spec));
    found.extend(image(policy, &path, spec));
    let (shards, replicas) = (i64::from(spec.shards()), i64::from(spec.replicas()));
    found.extend(number(policy.shards, path.child("shards"), shards, "shards"));
    found.extend(number(policy.replicas, path.child("replicasPerShard"), replicas, "replicas per shard"));
    let limit = spec.resources.as_ref().and_then(|resources| resources.limits.get("memory")).map(String::as_str);
    let limit_path = path.child("resources.limits.memory");
    found.extend(amount(policy.memory, limit_path.clone(), limit, "memory per pod", true));
    let size = spec.storage.as_ref().map(|storage| storage.size.as_str());
    found.extend(amount(policy.storage, path.child("storage.size"), size, "storage per pod", false));
    found.extend(namespace_memory(policy, limit_path, spec, others_memory));
    found.extend(policy.require.iter().filter_map(|requirement| obligation(*requirement, &path, spec)));
    found.extend(policy.forbidden_config.iter().filter_map(|name| {
        let value = spec.config.get(name)?.clone();
        let why = format!("does not allow the parameter {name}");
        Some(Breach { rule: "forbiddenConfig", path: path.child("config").key(name), distance: None, value, why })
    }));
    found
}

fn engine(policy: &Policy, path: &Path, spec: &RedisClusterSpec) -> Option<Breach> {
    if policy.engines.is_empty() || policy.engines.contains(&spec.engine) {
        return None;
    }
    let allowed: Vec<String> = policy.engines.iter().map(|engine| format!("{engine:?}")).collect();
    let value = format!("{:?}", spec.engine);
    let why = format!("allows engines {}, not {value}", allowed.join(" or "));
    Some(Breach { rule: "engines", path: path.child("engine"), distance: None, value, why })
}

fn version(policy: &Policy, path: &Path, spec: &RedisClusterSpec) -> Option<Breach> {
    let version: Version = spec.version.parse().ok()?;
    if policy.versions.is_empty() || policy.versions.iter().any(|(_, range)| range.contains(version)) {
        return None;
    }
    let allowed: Vec<&str> = policy.versions.iter().map(|(text, _)| text.as_str()).collect();
    let why = format!("allows versions {}, not {version}", allowed.join(" or "));
    Some(Breach { rule: "versions", path: path.child("version"), distance: None, value: spec.version.clone(), why })
}

fn image(policy: &Policy, path: &Path, spec: &RedisClusterSpec) -> Option<Breach> {
    let image = spec.image();
    if policy.images.is_empty() || policy.images.iter().any(|prefix| image.starts_with(prefix.as_str())) {
        return None;
    }
    let why = format!("allows images that begin with {}, not {image}", policy.images.join(" or "));
    Some(Breach { rule: "images", path: path.child("image"), distance: None, value: image, why })
}

fn number(range: Option<IntRange>, path: Path, found: i64, what: &str) -> Option<Breach> {
    let IntRange { min, max } = range?;
    let (rule, distance, why) = match (min.map(i64::from), max.map(i64::from)) {
        (Some(min), _) if found < min => {
            (LEAST, min - found, format!("wants at least {min} {what}, this would have {found}"))
        }
        (_, Some(max)) if found > max => {
            (MOST, found - max, format!("allows at most {max} {what}, this would have {found}"))
        }
        (_, _) => return None,
    };
    Some(Breach { rule, path, distance: u128::try_from(distance).ok(), value: found.to_string(), why })
}

/// `absent_is_unlimited`: what an absent value means for the upper bound.
fn amount(bounds: Bounds, path: Path, given: Option<&str>, what: &str, absent_is_unlimited: bool) -> Option<Breach> {
    let Bounds { min, max } = bounds;
    let Some(text) = given else {
        let bound = min.or(if absent_is_unlimited { max } else { None })?;
        let why = format!("bounds {what} (such as {bound}), this has none");
        return Some(Breach { rule: "none", path, distance: None, value: String::new(), why });
    };
    let found = Quantity::parse(text).ok()?;
    let apart = |left: Quantity, right: Quantity| u128::from(left.bytes().abs_diff(right.bytes()));
    let (rule, distance, why) = match (min, max) {
        (Some(min), _) if found.bytes() < min.bytes() => {
            (LEAST, apart(min, found), format!("wants at least {min} {what}, this would have {found}"))
        }
        (_, Some(max)) if found.bytes() > max.bytes() => {
            (MOST, apart(found, max), format!("allows at most {max} {what}, this would have {found}"))
        }
        (_, _) => return None,
    };
    Some(Breach { rule, path, distance: Some(distance), value: text.to_owned(), why })
}

fn namespace_memory(policy: &Policy, path: Path, spec: &RedisClusterSpec, others: u128) -> Vec<Breach> {
    let Some(most) = policy.namespace_memory else { return Vec::new() };
    let Some(own) = total_memory(spec) else { return without_limit(most, &path, spec) };
    let all = own + others;
    let Some(excess) = all.checked_sub(u128::from(most.bytes())).filter(|excess| *excess > 0) else {
        return Vec::new();
    };
    let show = |bytes: u128| Quantity::from_bytes(u64::try_from(bytes).unwrap_or(u64::MAX)).to_string();
    let why = format!(
        "allows {most} of memory in the namespace; this cluster would take {} and the others take {}, {} too much",
        show(own),
        show(others),
        show(excess)
    );
    Vec::from([Breach { rule: "namespaceMemory", path, distance: Some(excess), value: own.to_string(), why }])
}

/// What it takes is not known, but what takes more is: more pods, or pods that are told to use more. Neither makes up for the other.
fn without_limit(most: Quantity, path: &Path, spec: &RedisClusterSpec) -> Vec<Breach> {
    let (pods, per_pod) = (pods(spec), u128::from(spec.max_memory_bytes().unwrap_or(u64::MAX)));
    let why = format!("allows {most} of memory in the namespace, so every pod needs a limit; this has none");
    let breach = |rule, distance| Breach {
        rule,
        path: path.clone(),
        distance: Some(distance),
        value: String::new(),
        why: why.clone(),
    };
    Vec::from([
        breach("namespaceMemory without a limit: pods", pods),
        breach("namespaceMemory without a limit: each", per_pod),
    ])
}

fn obligation(requirement: Requirement, path: &Path, spec: &RedisClusterSpec) -> Option<Breach> {
    let (rule, kept, field, why) = match requirement {
        Requirement::Persistence => (
            "Persistence",
            spec.storage.is_some() && persists(spec),
            if spec.storage.is_some() { "persistence" } else { "storage" },
            "requires persistence: spec.storage, and an append-only file or snapshots",
        ),
        Requirement::Backup => ("Backup", spec.backup.is_some(), "backup", "requires a backup target"),
        Requirement::Replicas => {
            ("Replicas", spec.replicas() > 0, "replicasPerShard", "requires at least one replica per shard")
        }
        Requirement::DeletionProtection => {
            ("DeletionProtection", spec.deletion.protected, "deletion.protected", "requires protection from deletion")
        }
    };
    (!kept).then(|| Breach { rule, path: path.child(field), distance: None, value: String::new(), why: why.to_owned() })
}
