//! Steps that concern who belongs to the cluster and in which role.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use plan::{FailoverHow, Member, NodeId, Observed, Open, Pod, Seen, SlotSet, Who};
use resp::{Command, Info, Role};

use super::nodes::{Node, Table, slots_of};
use super::{Done, Error, Nodes, World, copy, refused, restart, slots};
use crate::probe::{Container, Probed, former_stream, is_misled, offset, peer};
use crate::redis;

/// How long the effect of a failover is watched for. Measured: 3-5 ms when all is well; a manual failover gives up
/// by itself after 5 s.
const FAILOVER_WATCH: Duration = Duration::from_millis(2500);
/// The same where slots are half moved: until Redis gives up (`CLUSTER_MF_TIMEOUT`, and a moment for who stands still), as whoever is elected later
/// would tell clients that keys do not exist which have moved.
const ORDER_LIVES: Duration = Duration::from_millis(6_000);
/// How long a primary that is held for dead is given to prove otherwise: a live one on the same network answers in milliseconds.
const SILENCE: Duration = Duration::from_millis(200);
/// A primary that lives sends its replica something every second, be it a newline while it saves (`replicationCron`): one that has not for longer than that, as
/// Redis tells it in whole seconds, stands still or is cut off.
const SENDS_NOTHING_SECONDS: i64 = 3;
/// How often the role is asked meanwhile.
const FAILOVER_LOOK: Duration = Duration::from_millis(2);

pub(super) async fn node_timeout(world: World<'_>, nodes: &Nodes, node: Who, millis: u64) -> Result<Done, Error> {
    let mut redis = nodes.at(world.address(node)?, node.id).await?;
    world.leading()?;
    redis.send(&["CONFIG", "SET", "cluster-node-timeout", &millis.to_string()]).await?;
    Ok(Done::default())
}

pub(super) async fn epoch(world: World<'_>, nodes: &Nodes, node: Who, epoch: u64) -> Result<Done, Error> {
    let mut redis = nodes.at(world.address(node)?, node.id).await?;
    let view = redis.connection()?.cluster_info().await?;
    if view.my_epoch == epoch {
        return Ok(Done::default());
    }
    if view.my_epoch != 0 || view.known_nodes != 1 {
        let (mine, known) = (view.my_epoch, view.known_nodes);
        return Err(refused(format!("{node} has epoch {mine} and knows {known} nodes; only a new node is given one")));
    }
    world.leading()?;
    redis.send(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch.to_string()]).await?;
    Ok(Done::default())
}

pub(super) async fn raise_epoch(
    world: World<'_>,
    nodes: &Nodes,
    node: Who,
    above: u64,
    through: Option<Who>,
) -> Result<Done, Error> {
    let mut redis = nodes.at(world.address(node)?, node.id).await?;
    let table = redis.table().await?;
    if !table.is_primary() || table.mine().is_empty() {
        return Err(refused(format!("{node} is no primary that owns slots")));
    }
    if redis.connection()?.cluster_info().await?.my_epoch > above {
        return Ok(Done::default());
    }
    world.finally()?;
    let is_still = redis.send(&["CLUSTER", "BUMPEPOCH"]).await?.text().is_some_and(|reply| reply.starts_with("STILL"));
    match through {
        Some(through) if is_still => raise_first(world, nodes, through).await,
        Some(_) | None => Ok(Done::default()),
    }
}

/// Whoever takes a new epoch before another one does is still in the role in which it was chosen for that.
async fn raise_first(world: World<'_>, nodes: &Nodes, through: Who) -> Result<Done, Error> {
    let seen = crate::probe::nodes(&world.probed.observed).find(|node| node.id == through.id);
    let mut redis = nodes.at(world.address(through)?, through.id).await?;
    let is_primary = redis.table().await?.is_primary();
    if seen.is_none_or(|node| node.is_primary() != is_primary) {
        return Err(refused(format!("{through} has another role than it had")));
    }
    world.finally()?;
    redis.send(&["CLUSTER", "BUMPEPOCH"]).await?;
    Ok(Done::default())
}

pub(super) async fn meet(world: World<'_>, nodes: &Nodes, node: Who, peer: Who, address: &str) -> Result<Done, Error> {
    let at: SocketAddr = address.parse().map_err(|_| refused(format!("{address:?} is no address")))?;
    // The identity at that very address is checked before anybody is sent there, or two clusters could be joined.
    drop(nodes.at(at, peer.id).await?);
    let mut redis = nodes.at(world.address(node)?, node.id).await?;
    world.leading()?;
    redis.send(&["CLUSTER", "MEET", &at.ip().to_string(), &at.port().to_string()]).await?;
    Ok(Done::default())
}

pub(super) async fn replicate(world: World<'_>, nodes: &Nodes, node: Who, primary: Who) -> Result<Done, Error> {
    let mut redis = nodes.at(world.address(node)?, node.id).await?;
    let table = redis.table().await?;
    let follows = table.follows();
    if follows == Some(primary.id) {
        return send_on(world, redis, &table, node, primary).await;
    }
    if !table.mine().is_empty() {
        return Err(refused(format!("{node} owns {} slots", table.mine().len())));
    }
    if !table.of(primary.id).is_some_and(|line| line.flags.primary) {
        return Err(refused(format!("{node} does not know {primary} as a primary")));
    }
    if table.is_primary() {
        let keys = redis.send(&["DBSIZE"]).await?.integer();
        if keys != Some(0) {
            let keys = keys.unwrap_or(-1);
            return Err(refused(format!("{node} is a primary and holds {keys} keys, which replicating would discard")));
        }
    } else if follows != copy::followed(world, node) {
        let whom = follows.map_or_else(|| "nobody".to_owned(), |id| id.short().to_string());
        return Err(refused(format!("{node} follows {whom} by now, and may have the only copy of that")));
    } else if let Some(Ok(left)) = follows.map(|id| copy::seen_at(world, id)) {
        // It was there when this was planned. If it has ended since, this may be the only copy of what it had.
        nodes.at(world.address(left)?, left.id).await?.table().await?;
    }
    let mut lead = nodes.at(world.address(primary)?, primary.id).await?;
    let theirs = lead.table().await?;
    if !theirs.is_primary() {
        return Err(refused(format!("{primary} is no primary any more")));
    }
    let is_left = follows.is_some_and(|id| copy::seen_at(world, id).is_err());
    if is_left && theirs.mine().is_empty() && theirs.open().is_empty() {
        takes_nothing_away(&mut redis, &mut lead, (node, primary)).await?;
    }
    drop(lead);
    world.finally()?;
    redis.send(&["CLUSTER", "REPLICATE", &primary.id.to_string()]).await?;
    Ok(Done::default())
}

/// Whom a replica followed is gone, and its next primary owns nothing: where that one holds nothing either, the replica may be the only one who
/// holds what it does.
async fn takes_nothing_away(replica: &mut Node, lead: &mut Node, (node, primary): (Who, Who)) -> Result<(), Error> {
    let keys = replica.send(&["DBSIZE"]).await?.integer();
    if keys != Some(0) && lead.send(&["DBSIZE"]).await?.integer() == Some(0) {
        let keys = keys.unwrap_or(-1);
        return Err(refused(format!(
            "{node} holds {keys} keys, which may be nowhere else: whom it follows is gone, and {primary} holds nothing"
        )));
    }
    Ok(())
}

/// A replica that connects to where its primary was is told again whom it follows, and with that where to connect.
async fn send_on(world: World<'_>, mut redis: Node, table: &Table, node: Who, primary: Who) -> Result<Done, Error> {
    let info = redis.connection()?.info(&["replication"]).await?;
    if info.get("master_link_status") == Some("up") || !is_misled(&info, table.of(primary.id)) {
        return Ok(Done::default());
    }
    world.finally()?;
    redis.send(&["CLUSTER", "REPLICATE", &primary.id.to_string()]).await?;
    let was = info.get("master_host").unwrap_or_default();
    Ok(Done { note: Some(format!("{node} connected to {was}, where {primary} is no more")), ..Done::default() })
}

pub(super) async fn failover(
    world: World<'_>,
    nodes: &Nodes,
    replica: Who,
    primary: NodeId,
    (how, over, unheard): (FailoverHow, Option<NodeId>, &SlotSet),
) -> Result<Done, Error> {
    let mut redis = nodes.at(world.address(replica)?, replica.id).await?;
    let table = redis.table().await?;
    if table.follows() != Some(primary) {
        return Err(refused(format!("{replica} does not follow {}", primary.short())));
    }
    let info = redis.connection()?.info(&["replication", "persistence"]).await?;
    let link_up = info.get("master_link_status") == Some("up");
    // Redis connects to no primary whose address it does not know, and until then says that it is none's replica.
    let is_alone = info.get("role") == Some("master") && table.of(primary).is_some_and(|line| line.flags.no_address);
    let syncs = info.flag("master_sync_in_progress").unwrap_or(!is_alone);
    let is_meant = how != FailoverHow::Coordinated && has_what_it_had(world, replica, &info);
    if syncs && !is_meant || (how == FailoverHow::Coordinated && !link_up) {
        return Err(refused(format!("{replica} is not in sync with its primary")));
    }
    match how {
        FailoverHow::Coordinated => {
            copy::keeps(world, &mut redis, replica).await?;
            has_nothing_half_moved(world, nodes, primary).await?;
        }
        FailoverHow::Force | FailoverHow::Takeover if link_up => {
            return Err(refused(format!("{replica} has a link to its primary, which is not dead")));
        }
        FailoverHow::Force | FailoverHow::Takeover => {
            copy::is_as_seen(world.probed.facts.get(&replica.pod), &info)
                .map_err(|why| refused(format!("{replica} is not promoted: {why}")))?;
            stays_silent(world, replica, primary).await?;
            has_no_pod_yet(world, replica, primary).await?;
            let claimed = table.of(primary).map(slots_of).unwrap_or_default().union(unheard);
            is_led_by_nobody(world, nodes, (replica, primary), (how, over), (&info, &claimed)).await?;
            slots::nobody_else_has(world, nodes, replica, unheard).await?;
            would_take_over(&redis.table().await?, (replica, primary), unheard)?;
        }
    }
    world.finally()?;
    let late = |error: &dyn std::error::Error| Error::Late(format!("{replica} was asked to take over: {error}"));
    if let Err(error) = order(&mut redis, how, unheard).await {
        let is_sure = matches!(&error, Error::Node(redis::Error::Redis(node)) if node.surely_not_executed());
        return Err(if is_sure { error } else { late(&error) });
    }
    // OK means "scheduled": done is when the role has changed.
    let begun = Instant::now();
    let is_to_be_marked = how != FailoverHow::Coordinated && !receivers(world.probed, primary).is_empty();
    let watch = if is_to_be_marked { ORDER_LIVES } else { FAILOVER_WATCH };
    loop {
        // Before the clock: where the machine stood still, the role may have moved meanwhile.
        let is_late = begun.elapsed() >= watch;
        let role = redis.connection()?.role().await.map_err(|error| late(&error))?;
        let is_primary = matches!(role, Role::Primary { .. });
        if is_primary && (!is_alone || redis.table().await.map_err(|error| late(&error))?.is_primary()) {
            let millis = begun.elapsed().as_millis();
            if how != FailoverHow::Coordinated {
                mark(world, &mut redis, primary).await;
            }
            if let Err(error) = resp::bus::push(redis.connection()?).await {
                tracing::debug!(%replica, error = %crate::chain(&error), "the news of the failover takes its usual time");
            }
            let note = format!("{replica} became the primary of its shard within {millis} ms");
            return Ok(Done { note: Some(note), ..Done::default() });
        }
        if is_late {
            let limit = watch.as_millis();
            return Err(Error::Late(format!("{replica} was asked to take over and has not within {limit} ms")));
        }
        tokio::time::sleep(FAILOVER_LOOK).await;
    }
}

/// Asking others took its time, and it may have been given another primary meanwhile: it takes the slots of whom it follows. Pure.
fn would_take_over(table: &Table, (replica, primary): (Who, NodeId), unheard: &SlotSet) -> Result<(), Error> {
    if table.follows() != Some(primary) {
        return Err(refused(format!("{replica} does not follow {} any more", primary.short())));
    }
    let named = unheard.difference(&table.unowned());
    if named.is_empty() {
        return Ok(());
    }
    Err(refused(format!("in the table of {replica} these slots have an owner by now: {named}")))
}

/// With TAKEOVER comes what the replica has not heard of: sent together the two are carried out one right after the other, and no failure of ours leaves
/// a primary without its slots.
async fn order(redis: &mut Node, how: FailoverHow, unheard: &SlotSet) -> Result<(), Error> {
    let order: &[&str] = match how {
        FailoverHow::Coordinated => &["CLUSTER", "FAILOVER"],
        FailoverHow::Force => &["CLUSTER", "FAILOVER", "FORCE"],
        FailoverHow::Takeover if !unheard.is_empty() => {
            let takeover = Command::new("CLUSTER").args(["FAILOVER", "TAKEOVER"]);
            redis::all(redis.connection()?, &[takeover, slots::add_slots(unheard)]).await?;
            return Ok(());
        }
        FailoverHow::Takeover => &["CLUSTER", "FAILOVER", "TAKEOVER"],
    };
    redis.send(order).await?;
    Ok(())
}

/// Until what it is sent has arrived, a replica has what it had before, and that is meant by who saw it so. A server that loads has thrown it away; and a
/// primary that sends lives.
fn has_what_it_had(world: World<'_>, replica: Who, info: &Info) -> bool {
    let was_so = world.probed.facts.get(&replica.pod).is_some_and(|facts| facts.syncing);
    let sends = info.number("master_sync_last_io_seconds_ago").is_none_or(|ago| ago < SENDS_NOTHING_SECONDS);
    was_so && info.flag("loading") == Some(false) && !sends
}

/// A replica knows nothing of its primary's marks (Redis 7 and 8 keep them in the primary's own table). Promoted, it would answer that what
/// has moved of a slot does not exist. So what is half moved is finished first, also where the look at the cluster is older than that.
async fn has_nothing_half_moved(world: World<'_>, nodes: &Nodes, primary: NodeId) -> Result<(), Error> {
    let who = copy::seen_at(world, primary)?;
    match nodes.at(world.address(who)?, primary).await?.table().await?.open().first() {
        None => Ok(()),
        Some(slot) => Err(refused(format!("slot {slot} of {who} is half moved: its role moves once that is finished"))),
    }
}

/// Others are in the middle of receiving slots from the primary that is dead: its heir sends clients there for what has arrived. What cannot be
/// marked here is marked when the slot is gone on with.
async fn mark(world: World<'_>, heir: &mut Node, primary: NodeId) {
    let receivers = receivers(world.probed, primary);
    if receivers.is_empty() {
        return;
    }
    // What has been handed over since it was marked is the receiver's own.
    let mine = heir.table().await.map(|table| table.mine());
    let is_mine = |slot: u16| mine.as_ref().map_or(true, |mine| mine.contains(slot));
    for (slot, to) in receivers.into_iter().filter(|(slot, _)| is_mine(*slot)) {
        let told = heir.send(&["CLUSTER", "SETSLOT", &slot.to_string(), "MIGRATING", &to.to_string()]).await;
        if let Err(error) = told {
            tracing::warn!(slot, error = %crate::chain(&error), "a half-moved slot could not be marked at the new primary");
        }
    }
}

/// Which slot is being received from that primary by whom. A member that was replaced as a primary keeps its marks with its keys, and is sent
/// nothing; but where nobody of its shard owns slots, it alone may have what has arrived. Pure.
fn receivers(probed: &Probed, primary: NodeId) -> BTreeMap<u16, NodeId> {
    let observed = &probed.observed;
    let owns_slots = |member: &Member| matches!(&member.seen, Seen::Node(node) if !node.slots().is_empty());
    let owners = observed.members.iter().filter(|(_, member)| owns_slots(member));
    let led: BTreeSet<u16> = owners.map(|(pod, _)| pod.shard).collect();
    let receiving =
        observed.members.iter().filter(|(pod, _)| !(led.contains(&pod.shard) && observed.is_replaced(**pod)));
    let open = receiving.filter_map(|(_, member)| member.node());
    let open = open.filter(|node| node.is_primary()).flat_map(|node| node.open.iter().map(|open| (node.id, open)));
    let open = open.filter(|(_, (_, mark))| **mark == Open::Importing(primary)).map(|(to, (slot, _))| (*slot, to));
    let mut found = silent_receivers(probed, primary);
    found.extend(open);
    found
}

/// Those who do not answer, by what they, or that primary itself, showed last. A client that is sent to where nobody answers is told so; one that
/// is told that a key does not exist makes it anew, and what had arrived there is lost. Pure.
fn silent_receivers(probed: &Probed, primary: NodeId) -> BTreeMap<u16, NodeId> {
    let answering: BTreeSet<NodeId> = crate::probe::nodes(&probed.observed).map(|node| node.id).collect();
    let marks = probed
        .observed
        .silent_marks
        .iter()
        .flat_map(|(id, open)| open.iter().map(move |(slot, mark)| (*id, *slot, *mark)));
    let received = marks.filter_map(|(id, slot, mark)| match mark {
        Open::Importing(from) => (from == primary).then_some((slot, id)),
        // Of whom it was to be sent to, that one's own word counts where it gives one.
        Open::Migrating(to) => (id == primary && !answering.contains(&to)).then_some((slot, to)),
    });
    received.collect()
}

/// No place at which somebody else, or nobody, was seen answers with this identity by now.
async fn is_nowhere(world: World<'_>, id: NodeId) -> Result<(), Error> {
    let unseen = world.places.iter().filter(|(pod, _)| {
        !matches!(world.probed.observed.members.get(*pod).map(|member| &member.seen), Some(Seen::Node(_)))
    });
    // All at the same time: fifty that are silent one after the other would take longer than the look stays young.
    let asked = futures::future::join_all(unseen.map(|(pod, place)| async move {
        let Container::Running { address } = place.container else { return None };
        match hear(world, address, id).await? {
            Heard::Name => Some(format!("{pod} answers with the identity {} by now", id.short())),
            Heard::Refusal(text) => may_be_at(&world.probed.observed, *pod, id)
                .then(|| format!("{pod} may have the identity {}, and does not tell its name: {text}", id.short())),
        }
    }));
    asked.await.into_iter().flatten().next().map_or(Ok(()), |why| Err(refused(why)))
}

/// What is heard at a place of a node that is asked for its name.
enum Heard {
    /// That it is this node.
    Name,
    /// Redis' words, of a server that tells nobody its name: it loads its data set, say.
    Refusal(String),
}

async fn hear(world: World<'_>, address: SocketAddr, id: NodeId) -> Option<Heard> {
    match tokio::time::timeout(SILENCE, world.access.open_node(address, id)).await {
        Ok(Ok(_)) => Some(Heard::Name),
        Ok(Err(redis::Error::Redis(error))) => error.refusal().map(|reply| Heard::Refusal(reply.text.clone())),
        Ok(Err(redis::Error::Refused { text, .. })) => Some(Heard::Refusal(text)),
        Ok(Err(redis::Error::Identity { .. } | redis::Error::Answer { .. })) | Err(_) => None,
    }
}

/// Whether who does not tell its name at a place may be this node: it was there last, or nobody is known to have been. Pure.
fn may_be_at(observed: &Observed, pod: Pod, id: NodeId) -> bool {
    let Some(member) = observed.members.get(&pod) else { return true };
    let known = match &member.seen {
        Seen::Node(node) => Some(node.id),
        Seen::Held { id, .. } => id.or(member.last_id),
        Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Unknown { .. } => member.last_id,
    };
    known.is_none_or(|known| known == id)
}

/// Whether it is news that this node may be one who does not tell its name: of one that was about to start, or did, the plan knows. Pure.
fn may_have_begun_at(observed: &Observed, pod: Pod, id: NodeId) -> bool {
    let began = |member: &Member| member.seen == Seen::Starting && !member.waits;
    may_be_at(observed, pod, id) && !observed.members.get(&pod).is_some_and(began)
}

/// Nobody answers with the primary's identity at the shard's other places, and nobody who may be that primary has begun to start there since: what
/// it loads may be more than any copy has.
async fn stays_silent(world: World<'_>, replica: Who, primary: NodeId) -> Result<(), Error> {
    for (pod, place) in world.places.iter().filter(|(pod, _)| pod.shard == replica.pod.shard && **pod != replica.pod) {
        let Container::Running { address } = place.container else { continue };
        match hear(world, address, primary).await {
            Some(Heard::Name) => {
                return Err(refused(format!("the primary {} answers at {pod} again", primary.short())));
            }
            Some(Heard::Refusal(text)) if may_have_begun_at(&world.probed.observed, *pod, primary) => {
                return Err(refused(format!(
                    "the primary {} may have started at {pod} since: {text}",
                    primary.short()
                )));
            }
            Some(Heard::Refusal(_)) | None => {}
        }
    }
    Ok(())
}

/// Where there was no pod that may be the primary's there is none by now: what the next one finds on its volume may be more than any copy has.
async fn has_no_pod_yet(world: World<'_>, replica: Who, primary: NodeId) -> Result<(), Error> {
    if world.resolved.storage.is_none() {
        return Ok(());
    }
    let is_meant = |pod: Pod| pod.shard == replica.pod.shard && may_be_at(&world.probed.observed, pod, primary);
    for (pod, _) in world.places.iter().filter(|(pod, place)| place.container == Container::None && is_meant(**pod)) {
        restart::same_pod(world, *pod).await?;
    }
    Ok(())
}

/// Who else of the shard followed the primary still does: its agent, or a person, may have made another one its heir meanwhile. Where voters are
/// asked, they refuse the second one, unless what they are told of the lost primary is newer than the heir's claim (its entry may have taken another
/// node's epoch); so there it is asked who has begun to lead since the look, or has gone on from what this copy holds, and serves slots that it
/// would claim. One that led before, and does not know that it was replaced, is nobody's heir; and over whom a person has ordered it, he has been told who serves.
async fn is_led_by_nobody(
    world: World<'_>,
    nodes: &Nodes,
    (replica, primary): (Who, NodeId),
    (how, over): (FailoverHow, Option<NodeId>),
    (copy_info, claimed): (&Info, &SlotSet),
) -> Result<(), Error> {
    let stream = copy_info.get("master_replid").unwrap_or_default();
    let offset = offset(copy_info).unwrap_or(u64::MAX);
    let members = world.probed.observed.members.iter();
    let fellows = members.filter(|(pod, _)| pod.shard == replica.pod.shard && **pod != replica.pod);
    for (pod, seen) in fellows.filter_map(|(pod, member)| Some((*pod, member.node()?))) {
        let who = Who { pod, id: seen.id };
        let mut redis = nodes.at(world.address(who)?, who.id).await?;
        let mine = redis.table().await?.mine();
        let slots = mine.len();
        if slots == 0 {
            continue;
        }
        let info = redis.connection()?.info(&["replication"]).await?;
        let has_gone_on = !mine.intersection(claimed).is_empty()
            && former_stream(&info).is_some_and(|former| former.holds_all_of(stream, offset));
        let is_in_the_way = how == FailoverHow::Takeover && over != Some(who.id);
        if is_in_the_way || seen.slots().is_empty() || has_gone_on {
            let primary = primary.short();
            return Err(refused(format!("{who} owns {slots} slots by now, and may be the heir of {primary}")));
        }
    }
    Ok(())
}

pub(super) async fn forget(world: World<'_>, nodes: &Nodes, id: NodeId, by: &[Who]) -> Result<Done, Error> {
    if crate::probe::nodes(&world.probed.observed).any(|node| node.id == id) {
        return Err(refused(format!("a pod answers with the identity {}", id.short())));
    }
    let mut tell = Vec::new();
    for who in by {
        let mut redis = nodes.at(world.address(*who)?, who.id).await?;
        let table = redis.table().await?;
        let Some(entry) = table.of(id) else { continue };
        let followed = table
            .others()
            .any(|node| node.primary.as_ref().and_then(|primary| NodeId::parse(primary.as_str())) == Some(id));
        let is_gone = peer(entry).is_some_and(|(_, peer)| peer.is_gone());
        if entry.slot_count() > 0 || !is_gone || followed {
            return Err(refused(format!("in the table of {who} the node {} is still of use", id.short())));
        }
        tell.push(redis);
    }
    is_nowhere(world, id).await?;
    world.finally()?;
    // At the same time: who is told late brings the entry back to those who were told first.
    let id = id.to_string();
    let told = futures::future::join_all(tell.iter_mut().map(|redis| {
        let id = id.as_str();
        async move { redis.send(&["CLUSTER", "FORGET", id]).await }
    }));
    told.await.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(Done::default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::{healthy, id, node};

    #[test]
    fn a_replaced_primary_that_kept_its_marks_receives_nothing() {
        let mut probed = healthy(3, 2);
        let dead = id(2, 0);
        // 0-0 receives slot 9; 1-1 was a primary and has kept what it received.
        node(&mut probed, 0, 0).open.insert(9, Open::Importing(dead));
        node(&mut probed, 0, 0).open.insert(10, Open::Importing(id(1, 0)));
        let former = node(&mut probed, 1, 1);
        former.role = plan::Role::Primary { slots: plan::SlotSet::EMPTY };
        former.open.insert(9, Open::Importing(dead));
        assert_eq!(receivers(&probed, dead), [(9, id(0, 0))].into());
        // Where nobody of its shard owns slots it is the one that gets its first, whichever epoch a blank member beside it has come to.
        node(&mut probed, 0, 0).open.clear();
        node(&mut probed, 1, 0).role = plan::Role::Primary { slots: plan::SlotSet::EMPTY };
        assert_eq!(receivers(&probed, dead), [(9, id(1, 1))].into());
        node(&mut probed, 1, 0).epoch += 1;
        assert_eq!(receivers(&probed, dead), [(9, id(1, 1))].into());
    }

    #[test]
    fn who_does_not_tell_its_name_may_be_who_was_there_last() {
        let (mut probed, place, primary) = (healthy(2, 3), Pod::new(0, 0), id(0, 0));
        let mut judge = |seen: Option<Seen>, last_id: Option<NodeId>, waits: bool| {
            let member = probed.observed.members.get_mut(&place).unwrap();
            (member.last_id, member.waits) = (last_id, waits);
            member.seen = seen.unwrap_or_else(|| member.seen.clone());
            [may_be_at(&probed.observed, place, primary), may_have_begun_at(&probed.observed, place, primary)]
        };
        assert_eq!(judge(None, Some(id(0, 1)), false), [true, true], "it answered itself");
        let held = |id| Some(Seen::Held { holds_data: true, id, reason: String::new() });
        let unknown = || Some(Seen::Unknown { since_millis: 0 });
        let table = [
            (held(Some(primary)), None, false, [true, true]),
            (held(Some(id(0, 1))), Some(primary), false, [false, false]),
            (held(None), None, false, [true, true]),
            (unknown(), Some(primary), false, [true, true]),
            (unknown(), Some(id(0, 2)), false, [false, false]),
            (unknown(), None, false, [true, true]),
            (Some(Seen::Stopped), Some(primary), false, [true, true]),
            (Some(Seen::Starting), Some(primary), false, [true, false]),
            // Its agent waited before it started anything.
            (Some(Seen::Starting), Some(primary), true, [true, true]),
        ];
        for (number, (seen, last, waits, expected)) in table.into_iter().enumerate() {
            assert_eq!(judge(seen, last, waits), expected, "row {number}");
        }
    }

    /// Before, nothing was marked: whoever had been sent to the receiver was told by the heir that the key does not exist.
    #[test]
    fn the_heir_of_a_giver_sends_clients_to_a_receiver_that_is_silent_as_well() {
        let (mut probed, dead) = (healthy(4, 2), id(2, 0));
        // 1-0 has not answered either, and has shown 9; the dead one has shown 10, that it gives to 1-0, and 11, to 0-0, which has it by now.
        probed.observed.members.get_mut(&Pod::new(1, 0)).unwrap().seen = Seen::Unknown { since_millis: 0 };
        let of_receiver = [(9, Open::Importing(dead)), (13, Open::Importing(id(3, 0)))];
        let of_giver =
            [(10, Open::Migrating(id(1, 0))), (11, Open::Migrating(id(0, 0))), (12, Open::Importing(id(1, 0)))];
        probed.observed.silent_marks =
            BTreeMap::from([(id(1, 0), BTreeMap::from(of_receiver)), (dead, BTreeMap::from(of_giver))]);
        assert_eq!(receivers(&probed, dead), [(9, id(1, 0)), (10, id(1, 0))].into());
        // Whose word is of now counts more.
        node(&mut probed, 0, 0).open.insert(10, Open::Importing(dead));
        assert_eq!(receivers(&probed, dead), [(9, id(1, 0)), (10, id(0, 0))].into());
    }
}
