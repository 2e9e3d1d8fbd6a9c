//! Who went on, as a primary, from what a replica still holds.

use std::collections::BTreeMap;

use plan::{Node, Observed, Pod};

use super::Facts;

/// Replicas, and the primary of their shard that has left them behind: the stream that they have was its own until it took over from who wrote it. Pure.
pub(super) fn left_behind(observed: &Observed, facts: &BTreeMap<Pod, Facts>) -> BTreeMap<Pod, Pod> {
    let all: Vec<(Pod, &Node, &Facts)> =
        observed.members.iter().filter_map(|(pod, member)| Some((*pod, member.node()?, facts.get(pod)?))).collect();
    let leaders = || all.iter().filter(|(_, node, facts)| has_gone_on(node, facts));
    let replicas = all.iter().filter(|(_, node, facts)| !node.is_primary() && !facts.replication_id.is_empty());
    let left = replicas.filter_map(|(pod, _, facts)| {
        let mut beside = leaders().filter(|(leader, _, _)| leader.shard == pod.shard);
        let (leader, _, _) = beside.find(|(_, _, of)| of.former_replication_id == facts.replication_id)?;
        Some((*pod, *leader))
    });
    left.collect()
}

fn has_gone_on(node: &Node, facts: &Facts) -> bool {
    node.is_primary() && !node.slots().is_empty() && !facts.former_replication_id.is_empty()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::probe::node::former_replication_id;
    use crate::testing::{healthy, id, node};

    #[test]
    fn a_replica_is_left_behind_by_who_led_on_from_what_it_holds() {
        let pods = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(shard, ordinal)| Pod::new(shard, ordinal));
        let judge = |former: [&str; 4], change: fn(&mut plan::Node)| {
            let mut probed = healthy(2, 2);
            for (pod, former) in pods.iter().zip(former) {
                probed.facts.get_mut(pod).unwrap().former_replication_id = former.to_owned();
            }
            change(node(&mut probed, 0, 0));
            left_behind(&probed.observed, &probed.facts)
        };
        let (first, none) = (|_: &mut plan::Node| {}, BTreeMap::new());
        let stream = "stream of shard 0";
        assert_eq!(judge([stream, "", "", ""], first), [(pods[1], pods[0])].into());
        assert_eq!(judge(["", "", "", ""], first), none, "nobody has taken over");
        assert_eq!(judge(["another", "", "", ""], first), none, "it took over from somebody else");
        assert_eq!(judge(["", "", stream, ""], first), none, "who took over is of another shard");
        assert_eq!(judge(["", stream, "", ""], first), none, "a replica has not gone on");
        let no_slots = |node: &mut plan::Node| node.role = plan::Role::Primary { slots: plan::SlotSet::EMPTY };
        assert_eq!(judge([stream, "", "", ""], no_slots), none, "whoever owns nothing has not gone on");
        let follows = |node: &mut plan::Node| node.role = crate::testing::in_sync(id(0, 1));
        assert_eq!(judge([stream, "", "", ""], follows), none, "nor has who follows somebody by now");
    }

    #[test]
    fn a_former_stream_is_told_by_a_primary_that_was_a_replica() {
        let told = |text: &str| former_replication_id(&resp::Info::parse(text)).map(str::to_owned);
        let zeros = "0".repeat(40);
        assert_eq!(told(&format!("role:master\r\nmaster_replid2:{zeros}\r\n")), None);
        assert_eq!(told("role:master\r\n"), None);
        assert_eq!(told("role:slave\r\nmaster_replid2:ab12\r\n"), None);
        assert_eq!(told("role:master\r\nmaster_replid2:ab12\r\n"), Some("ab12".to_owned()));
    }
}
