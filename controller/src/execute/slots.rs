//! Steps that concern who owns which slot.

use std::collections::BTreeMap;
use std::time::Duration;

use plan::{NodeId, Observed, Open, Pod, Role, Seen, SlotSet, Who};
use resp::Command;
use types::engine::Engine;

use super::nodes::{Node, Table, count_keys};
use super::{Done, Error, Nodes, World, migrate, refused};
use crate::probe::{Container, Place};
use crate::redis;

pub(super) async fn add(world: World<'_>, nodes: &Nodes, node: Who, slots: &SlotSet) -> Result<Done, Error> {
    let (mut redis, table) = primary(world, nodes, node).await?;
    let missing = slots.difference(&table.mine());
    let taken = missing.difference(&table.unowned());
    if !taken.is_empty() {
        return Err(refused(format!("in the table of {node} these slots have an owner: {taken}")));
    }
    add_unowned(world, &mut redis, &missing).await
}

/// A primary, by its own word, and its table.
async fn primary(world: World<'_>, nodes: &Nodes, node: Who) -> Result<(Node, Table), Error> {
    let mut redis = nodes.at(world.address(node)?, node.id).await?;
    let table = redis.table().await?;
    if table.is_primary() { Ok((redis, table)) } else { Err(refused(format!("{node} is not a primary"))) }
}

async fn add_unowned(world: World<'_>, redis: &mut Node, slots: &SlotSet) -> Result<Done, Error> {
    if slots.is_empty() {
        return Ok(Done::default());
    }
    world.leading()?;
    redis::all(redis.connection()?, &[add_slots(slots)]).await?;
    Ok(Done::default())
}

/// Refused where the node's own table names an owner of any of them.
pub(super) fn add_slots(slots: &SlotSet) -> Command {
    let bounds = slots.ranges().flat_map(|(first, last)| [first.to_string(), last.to_string()]);
    Command::new("CLUSTER").arg("ADDSLOTSRANGE").args(bounds)
}

pub(super) async fn adopt(
    world: World<'_>,
    nodes: &Nodes,
    node: Who,
    owner: Option<NodeId>,
    slots: &SlotSet,
) -> Result<Done, Error> {
    let (mut redis, table) = primary(world, nodes, node).await?;
    let allowed: Vec<NodeId> = owner.into_iter().collect();
    let others = slots.intersection(&table.owned_by_others_than(&allowed));
    if !others.is_empty() {
        return Err(refused(format!("in the table of {node} somebody else owns these slots: {others}")));
    }
    let missing = slots.difference(&table.mine());
    nobody_else_has(world, nodes, node, &missing).await?;
    let unowned = missing.intersection(&table.unowned());
    let named = missing.difference(&unowned);
    if let Some(owner) = owner.filter(|_| !named.is_empty()) {
        // IMPORTING first: only then does Redis raise the node's epoch, so that its claim wins.
        let set = |slot: u16, what: &str, id: NodeId| {
            Command::new("CLUSTER").args(["SETSLOT", &slot.to_string(), what, &id.to_string()])
        };
        let mut alone = redis::Abreast::default();
        let importing: Vec<Command> = named.iter().map(|slot| set(slot, "IMPORTING", owner)).collect();
        let taking: Vec<Command> = named.iter().map(|slot| set(slot, "NODE", node.id)).collect();
        world.finally()?;
        redis::set_slots(redis.connection()?, &mut alone, &importing).await?;
        world.finally()?;
        redis::set_slots(redis.connection()?, &mut alone, &taking).await?;
    }
    add_unowned(world, &mut redis, &unowned).await
}

/// Somebody may have been given them since the look, by another controller for example, and may take writes while this node has not heard of it. So
/// everybody who was seen is asked, at the same time.
pub(super) async fn nobody_else_has(world: World<'_>, nodes: &Nodes, node: Who, slots: &SlotSet) -> Result<(), Error> {
    if slots.is_empty() {
        return Ok(());
    }
    let members = world.probed.observed.members.iter();
    let others = members.filter_map(|(pod, member)| Some(Who { pod: *pod, id: member.node()?.id }));
    let asked = others.filter(|other| other.id != node.id).map(|other| async move {
        let mut redis = nodes.at(world.address(other)?, other.id).await?;
        let theirs = redis.table().await?.mine().intersection(slots);
        if theirs.is_empty() {
            return Ok(());
        }
        Err(refused(format!("{other} owns slots by now that {node} was to be given: {theirs}")))
    });
    futures::future::try_join_all(asked).await?;
    Ok(())
}

/// What is to go from one to the other, with nobody else to be told or asked.
fn between<'a>(world: World<'_>, from: Who, to: Who, slots: &'a SlotSet) -> Result<migrate::Move<'a>, Error> {
    Ok(migrate::Move {
        from: migrate::End { id: from.id, address: world.address(from)? },
        to: migrate::End { id: to.id, address: world.address(to)? },
        slots,
        others: &[],
        unproven: &[],
        joining: None,
        engine: world.resolved.engine,
        node_timeout: node_timeout(&world.probed.observed, world.resolved.node_timeout),
        moving: world.resolved.migration,
    })
}

/// Whether anybody is to have a copy of what this primary gets, and who of its shard is to go. Pure.
fn beside(observed: &Observed, primary: Pod, members: u16) -> (bool, Vec<NodeId>) {
    let others = || observed.members.iter().filter(|(pod, _)| pod.shard == primary.shard && **pod != primary);
    let is_wanted = |pod: &Pod| pod.ordinal < members;
    let leaves = others().filter(|(pod, member)| !is_wanted(pod) || member.terminating);
    let id = |member: &plan::Member| member.node().map(|node| node.id).or(member.last_id);
    let is_seen = others().any(|(pod, _)| is_wanted(pod) && observed.may_join(*pod));
    (is_seen, leaves.filter_map(|(_, member)| id(member)).collect())
}

pub(super) async fn mark(world: World<'_>, from: Who, to: Who, slots: &SlotSet) -> Result<Done, Error> {
    migrate::mark(between(world, from, to, slots)?, world.access, world.guard()).await?;
    Ok(Done::default())
}

/// What has been handed over by now is not its own any more, and is left alone.
pub(super) async fn mark_owner(
    world: World<'_>,
    nodes: &Nodes,
    owner: Who,
    to: NodeId,
    slots: &SlotSet,
) -> Result<Done, Error> {
    let (mut redis, table) = primary(world, nodes, owner).await?;
    let mark = |slot: u16| Command::new("CLUSTER").args(["SETSLOT", &slot.to_string(), "MIGRATING", &to.to_string()]);
    let marks: Vec<Command> = slots.intersection(&table.mine()).iter().map(mark).collect();
    world.leading()?;
    redis::set_slots(redis.connection()?, &mut redis::Abreast::default(), &marks).await?;
    Ok(Done::default())
}

pub(super) async fn move_slots(world: World<'_>, from: Who, to: Who, slots: &SlotSet) -> Result<Done, Error> {
    let order = between(world, from, to, slots)?;
    let untold = claimers(world.resolved.engine, &world.probed.observed, slots);
    let others = world.other_primaries(&[&[from.id, to.id], &untold[..]].concat());
    super::settings::quicken(world, order.from).await?;
    let unproven = unproven(&world.probed.observed, from, slots);
    let (is_seen, leaving) = beside(&world.probed.observed, to.pod, world.resolved.members);
    let joining = (!world.resolved.keeps_each_write()).then_some(migrate::Joining { is_seen, leaving: &leaving });
    let order = migrate::Move { others: &others, unproven: &unproven, joining, ..order };
    let moved = match migrate::migrate(order, world.access, world.guard(), world.bucket).await {
        Err(migrate::Error::Library { library, why }) => {
            return Err(refused(gets_no_slots(from, to, &library, &why, &world.probed.observed)));
        }
        moved => moved?,
    };
    if let Some(big) = moved.refused.first() {
        return Err(refused(format!(
            "slot {} stays on {from}: it holds a key of {} bytes, more than spec.migration.maxKeyBytes ({})",
            big.slot, big.bytes, big.most
        )));
    }
    let former = moved.former.map(|id| waits_for_former(from, to, id, &world.probed.observed));
    let behind = moved.held.as_ref().map(|behind| waits_for(from, to, place_of(behind, world.places), behind));
    let alone = moved.alone.map(|alone| waits_for_a_replica(from, to, alone));
    let held = former.or(alone).or(behind);
    let is_alone = moved.alone == Some(migrate::Alone::Still);
    Ok(Done { held, is_alone, ..done(from, to, &moved) })
}

/// Why a member that owns no slot gets none, and what helps. Pure.
fn gets_no_slots(from: Who, to: Who, library: &str, why: &migrate::Unlike, observed: &Observed) -> String {
    let why = match why {
        migrate::Unlike::Refused(text) => format!(
            "it cannot load the function library {library} of {from} ({text}); once nothing at {to} is in its way any more (FUNCTION DELETE), it is \
             loaded and the slots move"
        ),
        migrate::Unlike::Changed => format!(
            "its code of the function library {library} is not that of {from}, and may be newer, as libraries were changed there since its server has \
             started; load what shall count at every primary, {to} too (FUNCTION LOAD REPLACE), and the slots move"
        ),
        migrate::Unlike::Owners(other) => {
            let member =
                observed.members.iter().find(|(_, member)| member.node().is_some_and(|node| node.id == *other));
            let other = member.map_or_else(|| format!("node {}", other.short()), |(pod, _)| pod.to_string());
            format!(
                "{from} and {other} have unlike code of the function library {library}; load the same at every primary (FUNCTION LOAD REPLACE), and \
                 the slots move"
            )
        }
    };
    format!("{to} gets no slots: {why}")
}

/// Who would take a slot from its next owner if it were told of that one. To Valkey an IMPORTING mark is a claim
/// (`clusterUpdateSlotsConfigWith`): as soon as the giver does not claim the slot any more, it goes to whoever imports it, with a new epoch. The
/// mark ends with the new owner's own word, but only where that one is news; Redis never hears of whom a slot is that it imports, but by us. Pure.
fn claimers(engine: Engine, observed: &Observed, slots: &SlotSet) -> Vec<NodeId> {
    let imports = |(slot, mark): (&u16, &Open)| slots.contains(*slot) && matches!(mark, Open::Importing(_));
    match engine {
        Engine::Redis => Vec::new(),
        Engine::Valkey => {
            let importing = crate::probe::nodes(observed).filter(|node| node.open.iter().any(imports));
            importing.map(|node| node.id).collect()
        }
    }
}

/// After how long somebody is given up: what is in use may differ from what is wanted, by hand or until it is put right. The shortest counts here, for
/// a move must not make an end look dead to anybody. Pure.
fn node_timeout(observed: &Observed, wanted: Duration) -> Duration {
    let used = crate::probe::nodes(observed).map(|node| node.node_timeout_millis).filter(|millis| *millis > 0);
    used.map(Duration::from_millis).fold(wanted, Duration::min)
}

/// Who else of the giver's shard may still do what it was once told: it has owned slots for all that is known, is not known to have ended, and is
/// silent or owns some of these. Pure.
fn unproven(observed: &Observed, from: Who, slots: &SlotSet) -> Vec<NodeId> {
    let others = observed.members.iter().filter(|(pod, _)| pod.shard == from.pod.shard && **pod != from.pod);
    let others = others.filter_map(|(_, member)| match &member.seen {
        Seen::Absent | Seen::Stopped | Seen::Held { .. } => None,
        // Its agent answers, and its server may stand still.
        Seen::Starting | Seen::Unknown { .. } => member.last_id,
        Seen::Node(node) => (!node.slots().intersection(slots).is_empty()).then_some(node.id),
    });
    others.filter(|id| *id != from.id && !observed.has_owned_nothing(*id)).collect()
}

/// Which former owner holds a move.
fn waits_for_former(from: Who, to: Who, id: NodeId, observed: &Observed) -> String {
    match observed.members.iter().find(|(_, member)| member.last_id == Some(id)) {
        Some((pod, _)) => plan::Waiting::Former { pod: *pod, from: from.pod, to: to.pod }.to_string(),
        None => format!(
            "slots wait on their way from {from} to {to}: node {}, which may have owned them before, does not answer, and may still send older copies of \
             their keys when it wakes up",
            id.short()
        ),
    }
}

/// Why the first slot of a shard waits.
fn waits_for_a_replica(from: Who, to: Who, alone: migrate::Alone) -> String {
    match alone {
        migrate::Alone::NoMore => {
            format!("slots go from {from} to {to} in a moment: its first replica has just come into sync")
        }
        migrate::Alone::Still => format!(
            "slots wait on their way from {from} to {to}: what moves would be in the memory of {to} alone, which keeps not every write on disk, and none \
             of its replicas is in sync yet; they are waited for as long as they are there: kubectl delete pod of a replica that does not come into sync helps"
        ),
    }
}

/// Which member a primary means by an address.
fn place_of(behind: &migrate::Behind, places: &BTreeMap<Pod, Place>) -> Option<Pod> {
    let is_it = |place: &Place| match &place.container {
        Container::Running { address } => address.ip().to_string() == behind.host && address.port() == behind.port,
        Container::None | Container::Stopped | Container::Unreported => false,
    };
    places.iter().find(|(_, place)| is_it(place)).map(|(pod, _)| *pod)
}

/// Who holds a move, and what it lacks.
fn waits_for(from: Who, to: Who, pod: Option<Pod>, behind: &migrate::Behind) -> String {
    let there = || format!("the replica at {}:{}", behind.host, behind.port);
    let who = pod.map_or_else(there, |pod| format!("replica {pod}"));
    let what = match behind.bytes {
        Some(bytes) => format!("has not acknowledged the last {bytes} bytes of its primary"),
        None => "has acknowledged nothing of its primary yet".to_owned(),
    };
    format!("slots wait on their way from {from} to {to}, so that no copy misses what has moved: {who} {what}")
}

fn done(from: Who, to: Who, moved: &migrate::Moved) -> Done {
    let (slots, keys, bytes) = (moved.slots.len(), moved.keys, moved.bytes);
    let mut note = format!("moved {slots} slots with {keys} keys ({bytes} bytes) from {from} to {to}");
    if moved.replaced > 0 {
        let more =
            format!("; {} batches found copies at {to} that {from} had kept; {from}'s were taken", moved.replaced);
        note.push_str(&more);
    }
    Done { note: Some(note), keys, bytes, slots: u64::from(slots), held: None, is_alone: false }
}

/// The members of a shard. No mark ever sent clients from one of them to another: what a former primary holds of a slot that its heir owns is hidden
/// by no mark. Pure.
fn of_shard(observed: &Observed, shard: u16) -> Vec<NodeId> {
    let members = observed.members.iter().filter(|(pod, _)| pod.shard == shard);
    members.filter_map(|(_, member)| Some(member.node()?.id)).collect()
}

/// Clears marks that no longer mean anything. A mark hides keys from clients only as long as it stands, so it is
/// cleared only where the slot's keys are all in one place.
pub(super) async fn stabilise(world: World<'_>, nodes: &Nodes, node: Who, slots: &SlotSet) -> Result<Done, Error> {
    let mut redis = nodes.at(world.address(node)?, node.id).await?;
    let table = redis.table().await?;
    let (mine, given) = (table.mine(), table.migrating());
    let foreign = slots.difference(&mine);
    let held = count_keys(&mut redis, &foreign).await?;
    if let Some((slot, keys)) = held.first_key_value() {
        return Err(refused(format!("{node} does not own slot {slot} and holds {keys} keys of it")));
    }
    // The others are told at the same time, and each of them asks this one.
    drop(redis);
    let owned = slots.intersection(&mine);
    if !owned.is_empty() {
        for other in world.other_primaries(&of_shard(&world.probed.observed, node.pod.shard)) {
            let mut other_redis = nodes.at(other.address, other.id).await?;
            if let Some((slot, keys)) = count_keys(&mut other_redis, &owned).await?.first_key_value() {
                let other = other.id.short();
                return Err(refused(format!("{node} owns slot {slot}, but {other} holds {keys} keys of it")));
            }
        }
        for (who, sent) in left_of_receivers(&world.probed.observed, &owned, &given) {
            let mut copy = nodes.at(world.address(who)?, who.id).await?;
            if let Some((slot, keys)) = count_keys(&mut copy, &sent).await?.first_key_value() {
                return Err(refused(format!(
                    "{node} owns slot {slot}, but {who} holds {keys} keys of it, and whom it follows is gone"
                )));
            }
        }
    }
    let mut redis = nodes.at(world.address(node)?, node.id).await?;
    let stable = |slot: u16| Command::new("CLUSTER").args(["SETSLOT", &slot.to_string(), "STABLE"]);
    let commands: Vec<Command> = slots.iter().map(stable).collect();
    world.leading()?;
    redis::set_slots(redis.connection()?, &mut redis::Abreast::default(), &commands).await?;
    Ok(Done::default())
}

/// Who follows a receiver of such slots that is not seen, and what that one was being sent: nobody else may have it. Pure.
fn left_of_receivers(observed: &Observed, owned: &SlotSet, given: &[(u16, NodeId)]) -> Vec<(Who, SlotSet)> {
    let is_seen = |id: NodeId| crate::probe::nodes(observed).any(|node| node.id == id);
    let sent = |to: NodeId| -> SlotSet {
        given.iter().filter(|(slot, id)| *id == to && owned.contains(*slot)).map(|(slot, _)| *slot).collect()
    };
    let members = observed.members.iter().filter_map(|(pod, member)| Some((*pod, member.node()?)));
    let left = members.filter_map(|(pod, node)| match &node.role {
        Role::Replica { of, .. } if !is_seen(*of) => Some((Who { pod, id: node.id }, sent(*of))),
        Role::Replica { .. } | Role::Primary { .. } => None,
    });
    left.filter(|(_, sent)| !sent.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::{healthy, id, node};
    use plan::Member;

    #[test]
    fn replicas_of_a_receiver_that_is_gone_are_asked_for_what_it_was_sent() {
        let mut probed = healthy(2, 2);
        let given = [(7, id(1, 9)), (8, id(1, 0)), (9_000, id(1, 9))];
        let left = |probed: &crate::probe::Probed| left_of_receivers(&probed.observed, &SlotSet::range(0, 99), &given);
        assert_eq!(left(&probed), []);
        node(&mut probed, 1, 1).role = crate::testing::out_of_sync(id(1, 9));
        assert_eq!(left(&probed), [(Who { pod: Pod::new(1, 1), id: id(1, 1) }, SlotSet::range(7, 7))]);
    }

    #[test]
    fn who_is_to_have_a_copy_is_waited_for_and_nobody_else_is() {
        let (blank, other) = (Role::Primary { slots: SlotSet::EMPTY }, crate::testing::out_of_sync(id(1, 9)));
        let beside_as = |members: u16, change: &dyn Fn(&mut Member)| {
            let mut probed = healthy(2, 2);
            change(probed.observed.members.get_mut(&Pod::new(1, 1)).unwrap());
            beside(&probed.observed, Pod::new(1, 0), members)
        };
        let joins_as = |change: &dyn Fn(&mut Member)| beside_as(2, change).0;
        let role = |role: &Role, keys| {
            joins_as(&|member| {
                if let Seen::Node(node) = &mut member.seen {
                    (node.role, node.keys) = (role.clone(), keys);
                }
            })
        };
        assert_eq!([joins_as(&|_| {}), role(&blank, 0), role(&blank, 1), role(&other, 0)], [true, true, false, true]);
        let stands_still = |member: &mut Member| member.seen = Seen::Starting;
        let is_stuck = |member: &mut Member| (member.seen, member.stuck) = (Seen::Starting, true);
        let waits = |member: &mut Member| (member.seen, member.waits) = (Seen::Starting, true);
        let unseen = |member: &mut Member| member.seen = Seen::Unknown { since_millis: 0 };
        assert_eq!(
            [joins_as(&stands_still), joins_as(&is_stuck), joins_as(&waits), joins_as(&unseen)],
            [true, false, false, false]
        );
        // The next pod of its name is waited for; what this one has does not count.
        assert_eq!(beside_as(2, &|member| member.terminating = true), (true, vec![id(1, 1)]));
        assert_eq!(beside_as(1, &|_| {}), (false, vec![id(1, 1)]));
    }

    #[test]
    fn a_valkey_that_imports_a_slot_is_not_told_of_its_next_owner() {
        let mut probed = healthy(3, 2);
        node(&mut probed, 1, 1).open.insert(9, Open::Importing(id(0, 0)));
        node(&mut probed, 0, 0).open.insert(9, Open::Migrating(id(2, 0)));
        let untold = |engine, slot| claimers(engine, &probed.observed, &SlotSet::range(slot, slot));
        assert_eq!(untold(Engine::Valkey, 9), [id(1, 1)]);
        assert_eq!(untold(Engine::Valkey, 8), []);
        assert_eq!(untold(Engine::Redis, 9), []);
    }

    /// Before, what a former primary of the same shard had kept was a reason, which the planner never counts.
    #[test]
    fn the_members_of_its_own_shard_keep_no_owner_from_clearing_a_mark() {
        let mut probed = healthy(3, 2);
        assert_eq!(of_shard(&probed.observed, 1), [id(1, 0), id(1, 1)]);
        probed.observed.members.get_mut(&Pod::new(1, 0)).unwrap().seen = Seen::Starting;
        assert_eq!(of_shard(&probed.observed, 1), [id(1, 1)]);
    }

    #[test]
    fn a_move_blocks_nobody_for_longer_than_the_shortest_node_timeout_in_use_allows() {
        let mut probed = healthy(3, 2);
        let after = |probed: &crate::probe::Probed, wanted| {
            node_timeout(&probed.observed, Duration::from_millis(wanted)).as_millis()
        };
        assert_eq!((after(&probed, 5_000), after(&probed, 60_000), after(&probed, 1_000)), (5_000, 5_000, 1_000));
        node(&mut probed, 2, 1).node_timeout_millis = 1_500;
        // Not known.
        node(&mut probed, 2, 0).node_timeout_millis = 0;
        assert_eq!(after(&probed, 5_000), 1_500);
    }

    #[test]
    fn who_is_silent_in_the_givers_shard_may_still_do_what_it_was_told() {
        let mut probed = healthy(2, 5);
        let from = Who { pod: Pod::new(0, 1), id: id(0, 1) };
        let seen = [
            (0, Seen::Unknown { since_millis: 0 }),
            (2, Seen::Starting),
            (3, Seen::Stopped),
            (4, Seen::Held { holds_data: true, id: Some(id(0, 4)), reason: String::new() }),
        ];
        for (ordinal, seen) in seen {
            let member = probed.observed.members.get_mut(&Pod::new(0, ordinal)).unwrap();
            member.last_id = Some(id(0, ordinal));
            member.seen = seen;
        }
        let unproven = |probed: &crate::probe::Probed| unproven(&probed.observed, from, &SlotSet::range(0, 9));
        assert_eq!(unproven(&probed), [id(0, 0), id(0, 2)]);
        let mut all = healthy(2, 2);
        assert_eq!(unproven(&all), [id(0, 0)], "it owns the slots, too");
        let none = plan::Role::Primary { slots: SlotSet::EMPTY };
        node(&mut all, 0, 0).role = none;
        assert_eq!(unproven(&all), []);
        let member = probed.observed.members.get_mut(&Pod::new(1, 0)).unwrap();
        member.seen = Seen::Unknown { since_millis: 0 };
        member.last_id = Some(id(1, 0));
        assert_eq!(unproven(&probed), [id(0, 0), id(0, 2)], "another shard's");
        for (shard, ordinal) in [(0, 1), (1, 1), (1, 2), (1, 3), (1, 4)] {
            node(&mut probed, shard, ordinal).peers.get_mut(&id(0, 2)).unwrap().epoch = 0;
        }
        assert_eq!(unproven(&probed), [id(0, 0)], "nobody has heard of a claim of the other one");
        node(&mut probed, 1, 1).open.insert(9, Open::Importing(id(0, 2)));
        assert_eq!(unproven(&probed), [id(0, 0), id(0, 2)], "it has given a slot");
    }

    #[test]
    fn who_holds_a_move_is_told_by_its_place_and_by_what_it_lacks() {
        let [from, to] = [0, 1].map(|shard| Who { pod: Pod::new(shard, 0), id: id(shard, 0) });
        let told = |pod, bytes| {
            let primary = "10.0.1.0:6379".parse().unwrap();
            waits_for(from, to, pod, &migrate::Behind { primary, host: "10.0.1.1".to_owned(), port: 6379, bytes })
        };
        let waits = "slots wait on their way from 0-0 to 1-0, so that no copy misses what has moved: ";
        assert_eq!(
            told(Some(Pod::new(1, 1)), Some(70)),
            format!("{waits}replica 1-1 has not acknowledged the last 70 bytes of its primary")
        );
        assert_eq!(
            told(None, None),
            format!("{waits}the replica at 10.0.1.1:6379 has acknowledged nothing of its primary yet")
        );
    }
}
