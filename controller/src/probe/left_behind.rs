//! Who went on, as a primary, from what a replica still holds.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plan::{Node, NodeId, Observed, Pod, Role};

use super::Facts;

/// Replicas, and the primary of their shard that has left them behind: it has gone on from their stream, and has all of it that they have. Pure.
pub(super) fn left_behind(observed: &Observed, facts: &BTreeMap<Pod, Facts>) -> BTreeMap<Pod, Pod> {
    let all: Vec<(Pod, &Node, &Facts)> =
        observed.members.iter().filter_map(|(pod, member)| Some((*pod, member.node()?, facts.get(pod)?))).collect();
    let leads = |node: &Node| node.is_primary() && !node.slots().is_empty();
    let leaders = all.iter().filter(|(_, node, _)| leads(node));
    // Few have taken over since they were started.
    let heirs: Vec<_> = leaders.filter_map(|(pod, _, facts)| Some((*pod, facts.former.as_ref()?))).collect();
    let replicas = all.iter().filter(|(_, node, facts)| !node.is_primary() && tells_how_far(facts));
    // A primary that has the ID of a replica's stream as its own proves nothing: one that was promoted while it connected to nobody keeps the ID of its
    // primary for what it writes itself (`replicationUnsetMaster` does nothing then).
    let left = replicas.filter_map(|(pod, _, facts)| {
        let mut beside = heirs.iter().filter(|(heir, _)| heir.shard == pod.shard);
        let (heir, _) = beside.find(|(_, former)| former.holds_all_of(&facts.replication_id, facts.offset))?;
        Some((*pod, *heir))
    });
    left.collect()
}

fn tells_how_far(facts: &Facts) -> bool {
    facts.offset > 0 && !facts.replication_id.is_empty()
}

/// Replicas, and the one of the same primary and stream that has come further than each of them.
/// What one loads is no copy yet. The offset of one that connects to no primary counts what it deletes itself. Pure.
pub(super) fn further(observed: &Observed, facts: &BTreeMap<Pod, Facts>) -> BTreeMap<Pod, Pod> {
    let all = observed.members.iter().filter_map(|(pod, member)| Some((*pod, member.node()?, facts.get(pod)?)));
    let settled = all.filter(|(_, node, facts)| !node.loading && facts.is_slave && tells_how_far(facts));
    let mut streams: BTreeMap<(NodeId, &str), Vec<(u64, Pod)>> = BTreeMap::new();
    for (pod, node, facts) in settled {
        if let Role::Replica { of, .. } = &node.role {
            streams.entry((*of, facts.replication_id.as_str())).or_default().push((facts.offset, pod));
        }
    }
    let mut found = BTreeMap::new();
    for copies in streams.values() {
        let Some((most, furthest)) = copies.iter().max_by_key(|(offset, pod)| (*offset, Reverse(*pod))) else {
            continue;
        };
        found.extend(copies.iter().filter(|(offset, _)| offset < most).map(|(_, pod)| (*pod, *furthest)));
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::probe::node::{FormerStream, former_stream};
    use crate::testing::{healthy, id, node};

    #[test]
    fn a_replica_is_left_behind_by_who_led_on_from_what_it_holds() {
        let pods = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(shard, ordinal)| Pod::new(shard, ordinal));
        // Each has come to 100.
        let until_of = |offset: u64, end: u64, former: [&str; 4], change: fn(&mut plan::Node)| {
            let mut probed = healthy(2, 2);
            probed.facts.values_mut().for_each(|facts| facts.offset = offset);
            for (pod, former) in pods.iter().zip(former).filter(|(_, former)| !former.is_empty()) {
                let former = FormerStream { id: former.to_owned(), end };
                probed.facts.get_mut(pod).unwrap().former = Some(former);
            }
            change(node(&mut probed, 0, 0));
            left_behind(&probed.observed, &probed.facts)
        };
        let until = |end, former, change| until_of(100, end, former, change);
        let judge = |former, change| until(101, former, change);
        let (first, none) = (|_: &mut plan::Node| {}, BTreeMap::new());
        let stream = "stream of shard 0";
        assert_eq!(judge([stream, "", "", ""], first), [(pods[1], pods[0])].into());
        assert_eq!(
            until(100, [stream, "", "", ""], first),
            none,
            "the replica has more than it, which has loaded a snapshot"
        );
        assert_eq!(judge(["", "", "", ""], first), none, "nobody has taken over");
        assert_eq!(until_of(0, 101, [stream, "", "", ""], first), none, "nobody knows how far the replica is");
        assert_eq!(judge(["another", "", "", ""], first), none, "it took over from somebody else");
        assert_eq!(judge(["", "", stream, ""], first), none, "who took over is of another shard");
        assert_eq!(judge(["", stream, "", ""], first), none, "a replica has not gone on");
        let mut probed = healthy(2, 2);
        node(&mut probed, 0, 1).role = crate::testing::in_sync(id(9, 9));
        let of = left_behind(&probed.observed, &probed.facts);
        assert_eq!(
            of, none,
            "what one writes that was promoted while it connected to nobody has the ID of its primary"
        );
        let no_slots = |node: &mut plan::Node| node.role = plan::Role::Primary { slots: plan::SlotSet::EMPTY };
        assert_eq!(judge([stream, "", "", ""], no_slots), none, "whoever owns nothing has not gone on");
        let follows = |node: &mut plan::Node| node.role = crate::testing::in_sync(id(0, 1));
        assert_eq!(judge([stream, "", "", ""], follows), none, "nor has who follows somebody by now");
    }

    #[test]
    fn of_copies_of_one_stream_the_one_with_the_later_offset_has_all_of_the_others() {
        let judge = |change: fn(&mut crate::probe::Probed)| {
            let mut probed = healthy(2, 3);
            probed.facts.get_mut(&Pod::new(0, 2)).unwrap().offset = 101;
            change(&mut probed);
            further(&probed.observed, &probed.facts)
        };
        assert_eq!(judge(|_| {}), [(Pod::new(0, 1), Pod::new(0, 2))].into());
        let none = BTreeMap::new();
        assert_eq!(judge(|probed| node(probed, 0, 2).loading = true), none, "it has not read it yet");
        assert_eq!(
            judge(|probed| probed.facts.get_mut(&Pod::new(0, 1)).unwrap().offset = 0),
            none,
            "nobody knows how far it is"
        );
        let counts_alone = |probed: &mut crate::probe::Probed| {
            probed.facts.get_mut(&Pod::new(0, 2)).unwrap().is_slave = false;
        };
        assert_eq!(judge(counts_alone), none, "it counts what it deletes itself");
        let other = |probed: &mut crate::probe::Probed| {
            "another".clone_into(&mut probed.facts.get_mut(&Pod::new(0, 2)).unwrap().replication_id);
        };
        assert_eq!(judge(other), none, "the numbers of another history say nothing");
        assert_eq!(
            judge(|probed| node(probed, 0, 2).role = crate::testing::in_sync(id(1, 0))),
            none,
            "nor of another shard"
        );
    }

    #[test]
    fn a_former_stream_is_told_by_a_primary_that_was_a_replica() {
        let told = |text: &str| former_stream(&resp::Info::parse(text));
        let zeros = "0".repeat(40);
        assert_eq!(told(&format!("role:master\r\nmaster_replid2:{zeros}\r\nsecond_repl_offset:-1\r\n")), None);
        assert_eq!(told("role:master\r\n"), None);
        assert_eq!(told("role:slave\r\nmaster_replid2:ab12\r\nsecond_repl_offset:7\r\n"), None);
        let former = FormerStream { id: "ab12".to_owned(), end: 7 };
        assert_eq!(told("role:master\r\nmaster_replid2:ab12\r\nsecond_repl_offset:7\r\n"), Some(former));
    }
}
