//! Where members should be, by what Kubernetes says: which pods exist, which containers are proven not to run.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ContainerStateTerminated, ContainerStatus, PersistentVolumeClaim, Pod as KubePod, PodSpec,
};
use plan::{NodeId, Pod, Site};
use types::names;

use crate::build::stateful_set::{self, CONTAINER};
use crate::gather::{Gathered, shard_of};

/// What a pod made from today's template carries, per wanted shard.
pub type Marks = BTreeMap<u16, Mark>;

/// What a pod made from today's template carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Digest of everything that needs a restart.
    digest: Option<String>,
    /// The restart that runs, if one does.
    restart: Option<String>,
    /// It stays away from the nodes of its shard's other members.
    apart: bool,
    /// The image of its server.
    image: Option<String>,
    /// The Secret with the application's password.
    auth: Option<String>,
}

/// One place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the pod that belongs there.
    pub name: String,
    /// The pod was made from an older template than the wanted one.
    pub outdated: bool,
    /// … and runs another image than the wanted one: what its engine says is not what the wanted one will say.
    pub other_image: bool,
    /// The pod is being deleted.
    pub terminating: bool,
    /// Its kubelet found the pod ready: only then do Services lead to it.
    pub ready: bool,
    /// Its volume was there before the cluster was.
    pub older_volume: bool,
    /// Nothing has ever run there, nor can anything lie there.
    pub blank: bool,
    /// Node ID last seen there.
    pub last_id: Option<NodeId>,
    /// The node it runs on.
    pub site: Site,
    /// uid of the pod, if there is one.
    pub uid: Option<String>,
    /// Why it does not start, in the scheduler's or the kubelet's words.
    pub stuck: Option<String>,
    /// Its container ends again and again: how often it was started anew, and its server's last words.
    pub crashes: Option<String>,
    /// The restart it was made for, as the uid of its operation.
    pub restarted_by: Option<String>,
    /// What Kubernetes says about its Redis container.
    pub container: Container,
}

/// What Kubernetes says about a Redis container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Container {
    /// There is no such pod.
    None,
    /// It is proven not to run: terminated, or never started.
    Stopped,
    /// It runs, as far as the kubelet last said.
    Running {
        /// Where its Redis listens.
        address: SocketAddr,
    },
    /// Nothing was reported about it: it may run.
    Unreported,
}

/// Every place of every StatefulSet that exists.
#[must_use]
pub fn places(gathered: &Gathered, marks: &Marks) -> BTreeMap<Pod, Place> {
    let last = last_ids(gathered);
    let mut places = BTreeMap::new();
    for set in gathered.stateful_sets.values() {
        let Some(shard) = shard_of(&set.metadata) else { continue };
        let size = set.spec.as_ref().and_then(|spec| spec.replicas).and_then(|n| u16::try_from(n).ok()).unwrap_or(0);
        // Pods beyond the size are on their way out and still members.
        let beyond = gathered.pods.values().filter(|pod| shard_of(&pod.metadata) == Some(shard)).filter_map(ordinal);
        for ordinal in (0..size).chain(beyond) {
            let name = names::pod(&gathered.key().name, shard, ordinal);
            let pod = gathered.pods.get(&name).map(|pod| &**pod);
            let mut place = place(name, pod, marks.get(&shard), &last);
            place.older_volume = has_older_volume(gathered, shard, ordinal);
            place.blank = is_blank(gathered, (shard, ordinal), pod);
            let mark = marks.get(&shard);
            place.outdated |= mark.zip(pod).is_some_and(|(mark, pod)| mounts_another(pod, mark, set));
            place.outdated |= mark.is_some() && pod.is_some_and(|pod| has_never_run(pod) && is_of_old(pod, set));
            let fellows = || (0..ordinal).filter_map(|fellow| places.get(&Pod::new(shard, fellow)));
            place.outdated |= mark.is_some_and(|mark| mark.apart)
                && pod.is_some_and(|pod| !is_kept_apart(pod))
                && place.site.name().is_some()
                && fellows().any(|fellow: &Place| fellow.site == place.site);
            places.insert(Pod::new(shard, ordinal), place);
        }
    }
    places
}

fn has_older_volume(gathered: &Gathered, shard: u16, ordinal: u16) -> bool {
    let claim = gathered.claims.get(&names::claim(&gathered.key().name, shard, ordinal));
    gathered.cluster.spec.storage.is_some()
        && claim.is_some_and(|claim| crate::delete::is_older(&gathered.cluster, claim))
}

/// Its volume is still to be made, and its pod, if there is one, waits for that. A claim that is not listed may be one that a person has made, without our
/// labels, of a volume that he has found.
fn is_blank(gathered: &Gathered, (shard, ordinal): (u16, u16), pod: Option<&KubePod>) -> bool {
    let claim = gathered.claims.get(&names::claim(&gathered.key().name, shard, ordinal));
    // What it is to be filled from, or which volume it is to get, may be said already.
    let is_filled = |claim: &PersistentVolumeClaim| {
        let spec = claim.spec.as_ref();
        spec.is_none_or(|spec| {
            spec.volume_name.is_some() || spec.data_source.is_some() || spec.data_source_ref.is_some()
        })
    };
    let is_unbound = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending") && !is_filled(claim)
    };
    match (&gathered.cluster.spec.storage, pod) {
        (Some(_), pod) => claim.is_some_and(|claim| is_unbound(claim)) && pod.is_none_or(has_never_run),
        (None, pod) => pod.is_some_and(has_never_run),
    }
}

/// Made to stay away from the nodes of its shard's other members. Who shares one all the same was put there by somebody who does not
/// heed that, and would be put there again.
fn is_kept_apart(pod: &KubePod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| stateful_set::is_kept_apart(&pod.metadata, spec))
}

/// The scheduler has looked at it and found no node: nothing of it runs or ever has.
fn was_never_placed(pod: &KubePod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let unscheduled = |c: &k8s_openapi::api::core::v1::PodCondition| c.type_ == "PodScheduled" && c.status == "False";
    node_of(pod).is_none() && conditions.is_some_and(|all| all.iter().any(unscheduled))
}

/// Nothing of it runs or ever has: it has no node, or its container is still to be started for the first time.
fn has_never_run(pod: &KubePod) -> bool {
    let waits = redis_of(pod).is_some_and(|container| {
        let is_waiting = container.state.as_ref().is_some_and(|state| state.waiting.is_some());
        let ran = container.last_state.as_ref().is_some_and(|state| state.terminated.is_some());
        is_waiting && !ran && container.restart_count == 0
    });
    was_never_placed(pod) || waits
}

fn redis_of(pod: &KubePod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.iter().flatten().find(|container| container.name == CONTAINER)
}

/// Made from another template than the set's present one, in whatever they differ: it may be just what keeps it from finding a node, or
/// from starting.
fn is_of_old(pod: &KubePod, set: &StatefulSet) -> bool {
    revisions(pod, set).is_some_and(|(own, newest)| own != newest)
}

/// The template it was made from, and the set's present one.
fn revisions<'a>(pod: &'a KubePod, set: &'a StatefulSet) -> Option<(&'a String, &'a String)> {
    let status = set.status.as_ref().filter(|status| status.observed_generation == set.metadata.generation)?;
    let own = pod.metadata.labels.as_ref()?.get("controller-revision-hash")?;
    Some((own, status.update_revision.as_ref()?))
}

/// It has the application's password from another Secret than is wished. Who was made from a template with that one all the same was given
/// another one by somebody who rewrites pods, and would be again.
fn mounts_another(pod: &KubePod, mark: &Mark, set: &StatefulSet) -> bool {
    let of = |spec: Option<&PodSpec>| spec.and_then(stateful_set::auth_secret).map(str::to_owned);
    let template = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let was_made_so = || of(template) == mark.auth && revisions(pod, set).is_some_and(|(own, newest)| own == newest);
    of(pod.spec.as_ref()).is_some_and(|auth| mark.auth.as_ref().is_some_and(|wished| auth != *wished)) && !was_made_so()
}

fn node_of(pod: &KubePod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

fn site_of(pod: &KubePod) -> Site {
    match node_of(pod) {
        Some(node) => Site::At(node.to_owned()),
        None if was_never_placed(pod) => Site::Nowhere,
        None => Site::Unknown,
    }
}

/// Shards whose StatefulSet is not written as it is wished: a pod that is made now is made as it was before.
#[must_use]
pub fn unwritten(wished: &Marks, written: &Marks) -> BTreeSet<u16> {
    let of = |mark: &Mark| (mark.digest.clone(), mark.auth.clone());
    let differs = |shard: &u16, mark: &Mark| written.get(shard).is_some_and(|written| of(written) != of(mark));
    wished.iter().filter(|(shard, mark)| differs(shard, mark)).map(|(shard, _)| *shard).collect()
}

/// The marks of StatefulSets. Who asked for the last restart counts only while that restart runs: one that was
/// cancelled, or whose record is gone, restarts nobody any more.
#[must_use]
pub fn marks<'a>(sets: impl IntoIterator<Item = &'a StatefulSet>, running_restart: Option<&str>) -> Marks {
    sets.into_iter()
        .filter_map(|set| {
            let template = &set.spec.as_ref()?.template;
            let metadata = template.metadata.as_ref()?;
            let (digest, by) = stateful_set::restart_marks(metadata.annotations.as_ref());
            let by = by.filter(|by| running_restart == Some(by.as_str()));
            let apart = template.spec.as_ref().is_some_and(|spec| stateful_set::is_kept_apart(metadata, spec));
            let image = template.spec.as_ref().and_then(image_of).cloned();
            let auth = template.spec.as_ref().and_then(stateful_set::auth_secret).map(str::to_owned);
            let (digest, restart) = (digest.cloned(), by.cloned());
            Some((shard_of(&set.metadata)?, Mark { digest, restart, apart, image, auth }))
        })
        .collect()
}

fn ordinal(pod: &std::sync::Arc<KubePod>) -> Option<u16> {
    pod.metadata.name.as_deref()?.rsplit_once('-')?.1.parse().ok()
}

fn last_ids(gathered: &Gathered) -> BTreeMap<&str, NodeId> {
    let status = gathered.cluster.status.as_ref();
    let members = status.into_iter().flat_map(|status| &status.shards).flat_map(|shard| &shard.members);
    members.filter_map(|m| Some((m.pod.as_str(), NodeId::parse(m.node_id.as_deref()?)?))).collect()
}

pub(super) fn place(name: String, pod: Option<&KubePod>, mark: Option<&Mark>, last: &BTreeMap<&str, NodeId>) -> Place {
    let outdated = match (pod, mark) {
        (Some(pod), Some(Mark { digest, restart, apart: _, image: _, auth: _ })) => {
            let (has, by) = stateful_set::restart_marks(pod.metadata.annotations.as_ref());
            has != digest.as_ref() || (restart.is_some() && by != restart.as_ref())
        }
        (None, _) | (_, None) => false,
    };
    let image = pod.and_then(|pod| image_of(pod.spec.as_ref()?));
    let wanted = mark.and_then(|mark| mark.image.as_ref());
    Place {
        outdated,
        // Who rewrites the images of pods does that to new ones as well.
        other_image: outdated && wanted.is_some() && image != wanted,
        terminating: pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()),
        ready: pod.is_some_and(is_ready),
        older_volume: false,
        blank: false,
        last_id: last.get(name.as_str()).copied(),
        site: pod.map_or(Site::Nowhere, site_of),
        uid: pod.and_then(|pod| pod.metadata.uid.clone()),
        stuck: pod.and_then(stuck),
        crashes: pod.and_then(crashes),
        restarted_by: pod.and_then(|pod| stateful_set::restart_marks(pod.metadata.annotations.as_ref()).1.cloned()),
        container: pod.map_or(Container::None, container_of),
        name,
    }
}

/// The image of the server.
fn image_of(spec: &PodSpec) -> Option<&String> {
    spec.containers.iter().find(|container| container.name == CONTAINER)?.image.as_ref()
}

/// Longest text of others that is passed on.
pub(super) const WORDS_MOST: usize = 300;

/// Why a pod does not start, in the words of the scheduler or of the kubelet; `None`: nothing stands in its way.
#[must_use]
pub fn stuck(pod: &KubePod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let unscheduled = status.conditions.iter().flatten().find(|c| c.type_ == "PodScheduled" && c.status == "False");
    if let Some(condition) = unscheduled {
        let words = condition.message.as_deref().or(condition.reason.as_deref()).unwrap_or("it gives no reason");
        return Some(format!("the scheduler has no node for its pod: {}", short(words)));
    }
    let containers = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    containers.into_iter().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref().filter(|reason| !UNDER_WAY.contains(reason))?;
        let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        let why = match last {
            Some(ended) => format!("exit code {}: {}", ended.exit_code, words(ended)),
            None => waiting.message.clone().unwrap_or_default(),
        };
        Some(format!("its container {} is in {reason}: {}", container.name, short(why.trim())))
    })
}

/// Restarts from which on a short life is no accident.
const LOOP_LEAST: i32 = 3;
/// A life that ends sooner is short.
const SHORT_LIFE_SECONDS: i64 = 60;

/// How a container ends that ends again and again, in its server's last words.
fn crashes(pod: &KubePod) -> Option<String> {
    let container = redis_of(pod)?;
    let is_now = container.state.as_ref().and_then(|state| state.terminated.as_ref());
    let ended = is_now.or(container.last_state.as_ref().and_then(|state| state.terminated.as_ref()))?;
    let waits = container.state.as_ref().and_then(|state| state.waiting.as_ref()?.reason.as_deref());
    let is_loop = waits == Some("CrashLoopBackOff") || container.restart_count >= LOOP_LEAST && was_short(ended);
    let words = words(ended);
    let told = format!("exit code {} after {} restarts: {words}", ended.exit_code, container.restart_count);
    (is_loop && ended.exit_code != 0).then_some(told)
}

fn was_short(life: &ContainerStateTerminated) -> bool {
    let span = life.started_at.as_ref().zip(life.finished_at.as_ref());
    span.is_none_or(|(start, end)| end.0.as_second().saturating_sub(start.0.as_second()) < SHORT_LIFE_SECONDS)
}

/// Why it ended: what its server said last, else the end of its message.
fn words(ended: &ContainerStateTerminated) -> String {
    let message = ended.message.as_deref().unwrap_or_default();
    types::last_words::last_words(message).unwrap_or_else(|| short(message.trim()))
}

/// What the kubelet calls a container that is on its way.
const UNDER_WAY: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The end of what a container said tells why it ended.
fn short(words: &str) -> String {
    let skipped = words.chars().count().saturating_sub(WORDS_MOST);
    let kept: String = words.chars().skip(skipped).collect();
    if skipped > 0 { format!("…{kept}") } else { kept }
}

fn is_ready(pod: &KubePod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// What Kubernetes says about a pod's Redis container.
#[must_use]
pub fn container_of(pod: &KubePod) -> Container {
    let Some(status) = &pod.status else { return Container::Unreported };
    // A pod that has ended keeps its object, and one without a node has no more than that: none of its containers runs.
    if was_never_placed(pod) || matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return Container::Stopped;
    }
    let Some(state) = redis_of(pod).and_then(|container| container.state.as_ref()) else {
        return Container::Unreported;
    };
    if state.running.is_some() {
        let ip: Option<IpAddr> = status.pod_ip.as_deref().and_then(|ip| ip.parse().ok());
        return ip.map_or(Container::Unreported, |ip| Container::Running {
            address: SocketAddr::new(ip, names::PORT_REDIS),
        });
    }
    if state.terminated.is_some() || state.waiting.is_some() { Container::Stopped } else { Container::Unreported }
}
