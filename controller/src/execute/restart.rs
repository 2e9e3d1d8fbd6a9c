//! Steps that concern pods: letting a held one start, restarting one, taking members away. Before each of them the
//! live object is read from the API server, not from a cache, and what is deleted is named by its uid.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod as KubePod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use plan::{Leaver, NodeId, ReleaseHow, RestartAs, Seen, Who};
use resp::{Link, Role};
use serde_json::json;
use types::agent::{AgentPhase, AgentReport, Release};
use types::names;

use super::nodes::{Node, count_keys};
use super::{Done, Error, Nodes, World, copy, refused};
use crate::probe::{Container, container_of};

pub(super) async fn release(world: World<'_>, pod: plan::Pod, how: ReleaseHow) -> Result<Done, Error> {
    let live = same_pod(world, pod).await?.ok_or_else(|| refused(format!("{pod} has no pod")))?;
    let Container::Running { address } = container_of(&live) else {
        return Err(refused(format!("{pod} does not run")));
    };
    let report = world.agents.report(address.ip(), &world.whose()).await?;
    let seen = world.probed.observed.members.get(&pod).map(|member| &member.seen);
    is_held_as_seen(&report, live.metadata.name.as_deref().unwrap_or_default(), seen).map_err(refused)?;
    let how = match how {
        ReleaseHow::AsIs => types::agent::ReleaseHow::AsIs,
        ReleaseHow::Blank => types::agent::ReleaseHow::Blank,
    };
    world.finally()?;
    world.agents.release(address.ip(), &world.whose(), Release { how }).await?;
    Ok(Done::default())
}

/// Who is let go is who was looked at: in that pod, held, with that identity on its disk, and no data where none was seen.
fn is_held_as_seen(report: &AgentReport, name: &str, seen: Option<&Seen>) -> Result<(), String> {
    if report.pod != name {
        return Err(format!("the agent of {} answers for {name}", report.pod));
    }
    if report.phase != AgentPhase::Held {
        return Err(format!("{name} is not held any more"));
    }
    if report.takes_no_release {
        return Err(format!("{name} takes no release now: {}", report.held_because.as_deref().unwrap_or_default()));
    }
    let Some(Seen::Held { holds_data, id, reason: _ }) = seen else { return Err(format!("{name} was not held")) };
    let found = report.node_id.as_deref().and_then(NodeId::parse);
    if found != *id {
        let told = |id: Option<NodeId>| id.map_or_else(|| "no identity".to_owned(), |id| id.short().to_string());
        return Err(format!("the disk of {name} holds {} by now, not {}", told(found), told(*id)));
    }
    if report.holds_data != *holds_data {
        let what = if report.holds_data { "holds data by now" } else { "holds no data any more" };
        return Err(format!("the disk of {name} {what}"));
    }
    Ok(())
}

/// The pod at a place as the API server has it, if it is the one that was looked at; `None`: there was none and there is none.
pub(super) async fn same_pod(world: World<'_>, pod: plan::Pod) -> Result<Option<KubePod>, Error> {
    let key = &world.resolved.key;
    let place = world.places.get(&pod);
    let name = names::pod(&key.name, pod.shard, pod.ordinal);
    let live: Option<KubePod> = world.kubernetes.live(&key.namespace, &name).await?;
    if live.as_ref().and_then(|live| live.metadata.uid.as_ref()) != place.and_then(|place| place.uid.as_ref()) {
        return Err(refused(format!("the pod {name} is another than the one that was looked at")));
    }
    Ok(live)
}

pub(super) async fn restart(world: World<'_>, nodes: &Nodes, pod: plan::Pod, expect: RestartAs) -> Result<Done, Error> {
    let live = same_pod(world, pod).await?.ok_or_else(|| refused(format!("{pod} has no pod")))?;
    let name = live.metadata.name.clone().unwrap_or_default();
    if live.metadata.deletion_timestamp.is_some() {
        return Err(refused(format!("the pod {name} is being deleted already")));
    }
    match expect {
        RestartAs::Replica(id) => is_spare(world, nodes, Who { pod, id }).await?,
        RestartAs::Empty(id) => holds_nothing(world, nodes, Who { pod, id }).await?,
        RestartAs::OnlyCopy(id) => still_there(world, nodes, Who { pod, id }).await?,
        RestartAs::NotRunning => redis_is_down(world, &container_of(&live), &name).await?,
    }
    world.finally()?;
    world.kubernetes.delete(&live).await?;
    Ok(Done { note: Some(format!("restarting pod {name}")), ..Done::default() })
}

/// The container is down, or its agent has not started Redis.
async fn redis_is_down(world: World<'_>, container: &Container, pod: &str) -> Result<(), Error> {
    match container {
        Container::None | Container::Stopped => Ok(()),
        Container::Unreported => Err(refused(format!("whether the pod {pod} runs is not known"))),
        Container::Running { address } => {
            let report = world.agents.report(address.ip(), &world.whose()).await?;
            match report.phase {
                AgentPhase::Held | AgentPhase::Starting if report.pod == pod => Ok(()),
                AgentPhase::Held | AgentPhase::Starting => {
                    Err(refused(format!("the agent of {} answers for the pod {pod}", report.pod)))
                }
                AgentPhase::Running | AgentPhase::Stopping => Err(refused(format!("the Redis of pod {pod} runs"))),
            }
        }
    }
}

/// Gives the member itself, for further questions.
async fn owns_nothing(world: World<'_>, nodes: &Nodes, who: Who) -> Result<Node, Error> {
    let mut redis = nodes.at(world.address(who)?, who.id).await?;
    let mine = redis.table().await?.mine();
    if mine.is_empty() { Ok(redis) } else { Err(refused(format!("{who} owns {} slots", mine.len()))) }
}

/// What it holds is also at its primary: that one may have died since it was looked at, or the member may have taken its place.
async fn is_spare(world: World<'_>, nodes: &Nodes, who: Who) -> Result<(), Error> {
    let mut redis = owns_nothing(world, nodes, who).await?;
    match redis.connection()?.role().await? {
        Role::Primary { .. } => match redis.send(&["DBSIZE"]).await?.integer() {
            Some(0) => Ok(()),
            keys => Err(refused(format!("{who} is a primary and holds {} keys", keys.unwrap_or(-1)))),
        },
        Role::Replica { link: Link::Connected, .. } => {
            let of = redis.table().await?.follows();
            let of = of.ok_or_else(|| refused(format!("whom {who} follows is not known")))?;
            copy::is_beside_its_primary(world, nodes, who, of).await
        }
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

/// Nobody else has what it holds: it is there, and finds that again.
async fn still_there(world: World<'_>, nodes: &Nodes, who: Who) -> Result<(), Error> {
    let address = world.address(who)?;
    match world.resolved.mode {
        types::cluster::Mode::Cluster => {
            let mut redis = nodes.at(address, who.id).await?;
            copy::keeps_alone(world, redis.connection()?, who).await
        }
        // Its identity is its pod's uid, which has just been compared.
        types::cluster::Mode::Standalone => {
            let mut redis = world.access.open(address).await?;
            copy::keeps_alone(world, &mut redis, who).await
        }
    }
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
            return copy::keeps(world, &mut redis, who).await;
        }
    }
    Err(refused(format!("no member of shard {shard} that stays owns its slots")))
}

/// Who stays of a shard whose members leave.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stays {
    /// One who owns its slots.
    Owner,
    /// Nobody.
    Nobody,
}

/// Nobody who leaves owns a slot, or holds keys that nobody else has; who was not seen as a node does not run. All of them are in the pods
/// that were looked at.
async fn may_leave(world: World<'_>, nodes: &Nodes, leaving: &[Leaver], stays: Stays) -> Result<(), Error> {
    for leaver in leaving {
        let live = same_pod(world, leaver.pod).await?;
        let Some(id) = leaver.id else {
            is_down(world, leaver.pod, live.as_ref()).await?;
            continue;
        };
        let who = Who { pod: leaver.pod, id };
        if world.address(who).is_err() {
            // Named by the last status only: it may leave if its process is dead.
            is_down(world, leaver.pod, live.as_ref()).await?;
            continue;
        }
        let mut redis = owns_nothing(world, nodes, who).await?;
        // A replica's keys are its primary's, where that one is here, or those of the shard's owner; others would be lost.
        let follows = redis.table().await?.follows();
        let is_kept = stays == Stays::Nobody && world.resolved.restart_keeps_data();
        let is_copy = follows.is_some_and(|primary| !is_kept || copy::seen_at(world, primary).is_ok());
        if !is_copy {
            let held = count_keys(&mut redis, &plan::SlotSet::all()).await?;
            let keys: u64 = held.values().sum();
            if keys > 0 {
                return Err(refused(format!("{who} still holds {keys} keys")));
            }
        }
    }
    Ok(())
}

/// No Redis ran there when it was looked at, and none does now.
async fn is_down(world: World<'_>, pod: plan::Pod, live: Option<&KubePod>) -> Result<(), Error> {
    match world.probed.observed.members.get(&pod).map(|member| &member.seen) {
        None | Some(Seen::Absent | Seen::Stopped | Seen::Held { .. }) => {}
        Some(Seen::Unknown { .. } | Seen::Starting | Seen::Node(_)) => {
            return Err(refused(format!("what {pod} owns is not known")));
        }
    }
    let Some(live) = live else { return Ok(()) };
    redis_is_down(world, &container_of(live), live.metadata.name.as_deref().unwrap_or_default()).await
}

/// The first member that a StatefulSet of this size would end and nobody has judged.
fn unjudged(size: Option<i32>, keep: u16, leaving: &[Leaver]) -> Option<u16> {
    let size = size.and_then(|size| u16::try_from(size).ok()).unwrap_or(1);
    (keep..size).find(|ordinal| leaving.iter().all(|leaver| leaver.pod.ordinal != *ordinal))
}

pub(super) async fn retire_members(
    world: World<'_>,
    nodes: &Nodes,
    shard: u16,
    keep: u16,
    leaving: &[Leaver],
) -> Result<Done, Error> {
    led_by_one_who_stays(world, nodes, shard, keep).await?;
    may_leave(world, nodes, leaving, Stays::Owner).await?;
    let Some(set) = live_set(world, shard).await? else {
        return Err(refused(format!("shard {shard} has no StatefulSet")));
    };
    let Some(spec) = &set.spec else { return Err(refused(format!("shard {shard} has no specification"))) };
    if spec.replicas.is_some_and(|size| size <= i32::from(keep)) {
        return Ok(Done::default());
    }
    if let Some(ordinal) = unjudged(spec.replicas, keep, leaving) {
        return Err(refused(format!("shard {shard} has a member {ordinal} by now that was not looked at")));
    }
    world.finally()?;
    world.kubernetes.patch("shrinking", &set, json!({"spec": {"replicas": keep}})).await?;
    Ok(Done::default())
}

pub(super) async fn retire_shard(
    world: World<'_>,
    nodes: &Nodes,
    shard: u16,
    leaving: &[Leaver],
) -> Result<Done, Error> {
    may_leave(world, nodes, leaving, Stays::Nobody).await?;
    let name = names::shard(&world.resolved.key.name, shard);
    let set = live_set(world, shard).await?;
    let size = set.as_ref().map(|set| set.spec.as_ref().and_then(|spec| spec.replicas));
    if let Some(ordinal) = size.and_then(|size| unjudged(size, 0, leaving)) {
        return Err(refused(format!("shard {shard} has a member {ordinal} by now that was not looked at")));
    }
    world.finally()?;
    if let Some(budget) = world.gathered.budgets.get(&name) {
        world.kubernetes.delete::<PodDisruptionBudget>(budget).await?;
    }
    let Some(set) = set else { return Ok(Done::default()) };
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn id(byte: u8) -> NodeId {
        NodeId::from_bytes([byte; 20])
    }

    fn report(pod: &str, phase: &str, node: Option<NodeId>, holds_data: bool) -> AgentReport {
        let node = node.map(|id| id.to_string());
        let all = json!({"pod": pod, "phase": phase, "heldBecause": "why", "nodeId": node, "holdsData": holds_data, "starts": 1});
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn a_held_member_is_let_go_only_as_the_one_that_was_looked_at() {
        let seen = Seen::Held { holds_data: true, id: Some(id(1)), reason: "why".to_owned() };
        let judge = |report: &AgentReport| is_held_as_seen(report, "orders-0-0", Some(&seen)).err();
        assert_eq!(judge(&report("orders-0-0", "Held", Some(id(1)), true)), None);
        let unsettled = AgentReport { takes_no_release: true, ..report("orders-0-0", "Held", Some(id(1)), true) };
        let table = [
            (unsettled, "orders-0-0 takes no release now: why"),
            (report("orders-0-1", "Held", Some(id(1)), true), "the agent of orders-0-1 answers for orders-0-0"),
            (report("orders-0-0", "Running", Some(id(1)), true), "orders-0-0 is not held any more"),
            (
                report("orders-0-0", "Held", Some(id(2)), true),
                "the disk of orders-0-0 holds 02020202 by now, not 01010101",
            ),
            (report("orders-0-0", "Held", None, true), "the disk of orders-0-0 holds no identity by now, not 01010101"),
            (report("orders-0-0", "Held", Some(id(1)), false), "the disk of orders-0-0 holds no data any more"),
        ];
        for (report, why) in table {
            assert_eq!(judge(&report).as_deref(), Some(why));
        }
        let blank = Seen::Held { holds_data: false, id: None, reason: "why".to_owned() };
        let found = report("orders-0-0", "Held", None, true);
        assert_eq!(
            is_held_as_seen(&found, "orders-0-0", Some(&blank)).unwrap_err(),
            "the disk of orders-0-0 holds data by now"
        );
        assert_eq!(is_held_as_seen(&found, "orders-0-0", None).unwrap_err(), "orders-0-0 was not held");
    }

    #[test]
    fn a_member_that_nobody_judged_keeps_its_set_from_shrinking() {
        let leaver = |ordinal| Leaver { pod: plan::Pod::new(0, ordinal), id: None };
        let leaving = [leaver(1), leaver(2)];
        assert_eq!(unjudged(Some(3), 1, &leaving), None);
        assert_eq!(unjudged(Some(4), 1, &leaving), Some(3), "somebody has made the set larger");
        assert_eq!(unjudged(Some(3), 0, &leaving), Some(0));
        assert_eq!(unjudged(None, 1, &[]), None);
    }
}
