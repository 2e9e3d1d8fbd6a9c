//! Steps that concern pods: letting a held one start, restarting one, taking members away. Before each of them the
//! live object is read from the API server, not from a cache, and what is deleted is named by its uid.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod as KubePod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use plan::{Leaver, ReleaseHow, RestartAs, Seen, Who};
use resp::{Link, Role};
use serde_json::json;
use types::agent::{AgentPhase, Release};
use types::names;

use super::nodes::{Node, count_keys};
use super::{Done, Error, Nodes, World};
use crate::probe::{Container, container_of};

fn refused(why: impl Into<String>) -> Error {
    Error::Refused(why.into())
}

pub(super) async fn release(world: World<'_>, pod: plan::Pod, how: ReleaseHow) -> Result<Done, Error> {
    let Some(Container::Running { address }) = world.places.get(&pod).map(|place| &place.container) else {
        return Err(refused(format!("{pod} does not run")));
    };
    let report = world.agents.report(address.ip(), &world.whose()).await?;
    if report.phase != AgentPhase::Held {
        return Err(refused(format!("{pod} is not held any more")));
    }
    let how = match how {
        ReleaseHow::AsIs => types::agent::ReleaseHow::AsIs,
        ReleaseHow::Blank => types::agent::ReleaseHow::Blank,
    };
    world.leading()?;
    world.agents.release(address.ip(), &world.whose(), Release { how }).await?;
    Ok(Done::default())
}

pub(super) async fn restart(world: World<'_>, nodes: &Nodes, pod: plan::Pod, expect: RestartAs) -> Result<Done, Error> {
    let place = world.places.get(&pod).ok_or_else(|| refused(format!("{pod} is no place of this cluster")))?;
    let namespace = &world.resolved.key.namespace;
    let live: KubePod = world
        .kubernetes
        .live(namespace, &place.name)
        .await?
        .ok_or_else(|| refused(format!("the pod {} is gone already", place.name)))?;
    if live.metadata.uid != place.uid {
        return Err(refused(format!("the pod {} has been replaced already", place.name)));
    }
    if live.metadata.deletion_timestamp.is_some() {
        return Err(refused(format!("the pod {} is being deleted already", place.name)));
    }
    match expect {
        RestartAs::Replica(id) => is_spare(world, nodes, Who { pod, id }).await?,
        RestartAs::Empty(id) => holds_nothing(world, nodes, Who { pod, id }).await?,
        RestartAs::OnlyCopy(id) => still_there(world, nodes, Who { pod, id }).await?,
        RestartAs::NotRunning => redis_is_down(world, &container_of(&live), &place.name).await?,
    }
    world.kubernetes.delete(&live).await?;
    Ok(Done { note: Some(format!("restarting pod {}", place.name)), ..Done::default() })
}

/// The container is down, or its agent has not started Redis.
async fn redis_is_down(world: World<'_>, container: &Container, pod: &str) -> Result<(), Error> {
    match container {
        Container::None | Container::Stopped => Ok(()),
        Container::Unreported => Err(refused(format!("whether the pod {pod} runs is not known"))),
        Container::Running { address } => match world.agents.report(address.ip(), &world.whose()).await?.phase {
            AgentPhase::Held | AgentPhase::Starting => Ok(()),
            AgentPhase::Running | AgentPhase::Stopping => Err(refused(format!("the Redis of pod {pod} runs"))),
        },
    }
}

/// Gives the member itself, for further questions.
async fn owns_nothing(world: World<'_>, nodes: &Nodes, who: Who) -> Result<Node, Error> {
    let mut redis = nodes.at(world.address(who)?, who.id).await?;
    let mine = redis.table().await?.mine();
    if mine.is_empty() { Ok(redis) } else { Err(refused(format!("{who} owns {} slots", mine.len()))) }
}

/// What it holds is also at its primary: that one may have died since it was looked at.
async fn is_spare(world: World<'_>, nodes: &Nodes, who: Who) -> Result<(), Error> {
    let mut redis = owns_nothing(world, nodes, who).await?;
    match redis.connection()?.role().await? {
        Role::Primary { .. } | Role::Replica { link: Link::Connected, .. } => Ok(()),
        Role::Replica { link, .. } => Err(refused(format!(
            "the link of {who} to its primary is {link:?}, not connected: it may hold the only copy of its shard"
        ))),
    }
}

/// A restart takes no key away, whoever else has one.
async fn holds_nothing(world: World<'_>, nodes: &Nodes, who: Who) -> Result<(), Error> {
    let mut redis = owns_nothing(world, nodes, who).await?;
    let keys: u64 = count_keys(&mut redis, &plan::SlotSet::all()).await?.values().sum();
    if keys == 0 { Ok(()) } else { Err(refused(format!("{who} holds {keys} keys by now"))) }
}

async fn still_there(world: World<'_>, nodes: &Nodes, who: Who) -> Result<(), Error> {
    match world.resolved.mode {
        types::cluster::Mode::Cluster => drop(nodes.at(world.address(who)?, who.id).await?),
        // Its identity is its pod's uid, which has just been compared.
        types::cluster::Mode::Standalone => {}
    }
    Ok(())
}

/// A member that stays owns the shard's slots: those who leave may be the only ones left who hold its data.
async fn led_by_one_who_stays(world: World<'_>, nodes: &Nodes, shard: u16, keep: u16) -> Result<(), Error> {
    for (pod, member) in &world.probed.observed.members {
        let Seen::Node(node) = &member.seen else { continue };
        if pod.shard != shard || pod.ordinal >= keep || node.slots().is_empty() {
            continue;
        }
        let who = Who { pod: *pod, id: node.id };
        let mut redis = nodes.at(world.address(who)?, who.id).await?;
        let table = redis.table().await?;
        if table.is_primary() && !table.mine().is_empty() {
            return Ok(());
        }
    }
    Err(refused(format!("no member of shard {shard} that stays owns its slots")))
}

/// Nobody who leaves owns a slot; who was not seen as a node does not run.
async fn may_leave(world: World<'_>, nodes: &Nodes, leaving: &[Leaver], with_keys: bool) -> Result<(), Error> {
    for leaver in leaving {
        let Some(id) = leaver.id else {
            let seen = world.probed.observed.members.get(&leaver.pod).map(|member| &member.seen);
            match seen {
                None | Some(Seen::Absent | Seen::Stopped | Seen::Held { .. } | Seen::Starting) => continue,
                Some(Seen::Unknown { .. } | Seen::Node(_)) => {
                    return Err(refused(format!("what {} owns is not known", leaver.pod)));
                }
            }
        };
        let who = Who { pod: leaver.pod, id };
        if world.address(who).is_err() {
            // Named by the last status only: it may leave if its process is dead.
            let seen = world.probed.observed.members.get(&leaver.pod).map(|member| &member.seen);
            match seen {
                None | Some(Seen::Absent | Seen::Stopped | Seen::Held { .. }) => continue,
                Some(Seen::Unknown { .. } | Seen::Starting | Seen::Node(_)) => {
                    return Err(refused(format!("what {who} owns is not known")));
                }
            }
        }
        let mut redis = owns_nothing(world, nodes, who).await?;
        // A replica's keys are its primary's; a primary's would be lost.
        if with_keys && redis.table().await?.is_primary() {
            let held = count_keys(&mut redis, &plan::SlotSet::all()).await?;
            let keys: u64 = held.values().sum();
            if keys > 0 {
                return Err(refused(format!("{who} still holds {keys} keys")));
            }
        }
    }
    Ok(())
}

pub(super) async fn retire_members(
    world: World<'_>,
    nodes: &Nodes,
    shard: u16,
    keep: u16,
    leaving: &[Leaver],
) -> Result<Done, Error> {
    led_by_one_who_stays(world, nodes, shard, keep).await?;
    may_leave(world, nodes, leaving, true).await?;
    let Some(set) = live_set(world, shard).await? else {
        return Err(refused(format!("shard {shard} has no StatefulSet")));
    };
    let Some(spec) = &set.spec else { return Err(refused(format!("shard {shard} has no specification"))) };
    if spec.replicas.is_some_and(|size| size <= i32::from(keep)) {
        return Ok(Done::default());
    }
    world.kubernetes.patch("shrinking", &set, json!({"spec": {"replicas": keep}})).await?;
    Ok(Done::default())
}

pub(super) async fn retire_shard(
    world: World<'_>,
    nodes: &Nodes,
    shard: u16,
    leaving: &[Leaver],
) -> Result<Done, Error> {
    may_leave(world, nodes, leaving, true).await?;
    let name = names::shard(&world.resolved.key.name, shard);
    if let Some(budget) = world.gathered.budgets.get(&name) {
        world.kubernetes.delete::<PodDisruptionBudget>(budget).await?;
    }
    let Some(set) = live_set(world, shard).await? else { return Ok(Done::default()) };
    world.kubernetes.delete(&set).await?;
    Ok(Done::default())
}

/// The StatefulSet of a shard as the API server has it, if it is of this very cluster.
async fn live_set(world: World<'_>, shard: u16) -> Result<Option<StatefulSet>, Error> {
    let key = &world.resolved.key;
    let name = names::shard(&key.name, shard);
    let Some(set) = world.kubernetes.live::<StatefulSet>(&key.namespace, &name).await? else { return Ok(None) };
    let owner = crate::apply::owner_uid(&set);
    if owner != Some(world.resolved.uid.as_str()) {
        return Err(refused(format!("the StatefulSet {name} belongs to another RedisCluster")));
    }
    Ok(Some(set))
}
