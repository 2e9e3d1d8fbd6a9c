//! Which nodes are known to have ended: the agents of the pods in which they ran say so.
//!
//! Who does not answer is asked for it anyway. Where somebody else runs at the place by now, its agent is asked while a primary is gone whose end is not
//! known: where it is not elected, as most primaries are gone or some refuse their votes, a replica may be promoted without votes, and only if it has
//! ended.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::StreamExt;
use plan::{Node, NodeId, Observed, Pod, Role};
use types::agent::{AgentPhase, AgentReport};
use types::cluster::Mode;

use super::{AT_ONCE, Probed, Question, millis};

/// For how long they had ended when the look began: who answers later says more.
pub(super) fn as_of(report: &mut AgentReport, since_begun: Duration) {
    let later = millis(since_begun);
    report.ended.iter_mut().for_each(|end| end.millis = end.millis.saturating_sub(later));
}

/// Takes in what this report tells. Of a node that ran in two pods the later end counts.
pub(super) fn tell(observed: &mut Observed, report: &AgentReport) {
    for end in &report.ended {
        let Some(id) = NodeId::parse(&end.node_id) else { continue };
        let least = observed.ended.entry(id).or_insert(end.millis);
        *least = end.millis.min(*least);
    }
}

/// Its node ran there and has ended, and it is not started before there are votes, or a better copy has had its time.
pub(super) fn waits(report: &AgentReport) -> bool {
    let has_ended = report.node_id.as_ref().is_some_and(|id| report.ended.iter().any(|end| end.node_id == *id));
    report.phase == AgentPhase::Starting && report.waits_for.is_some() && has_ended
}

/// Asks the agents of members that answer, where it matters.
pub(super) async fn look(question: Question<'_>, probed: &mut Probed, begun: Instant) {
    if question.mode == Mode::Cluster {
        ask(question, whom(&probed.observed), probed, begun).await;
    }
    // Where it ran it has ended, and it may have been started on its files at another place.
    let running: BTreeSet<NodeId> = super::nodes(&probed.observed).map(|node| node.id).collect();
    probed.observed.ended.retain(|id, _| !running.contains(id));
}

async fn ask(question: Question<'_>, whom: BTreeSet<Pod>, probed: &mut Probed, begun: Instant) {
    let alive = probed.facts.iter().filter(|(pod, _)| whom.contains(pod)).map(|(pod, facts)| (*pod, facts.address));
    let ask = |(pod, address): (Pod, SocketAddr)| async move {
        let mut report = question.report(pod, address).await?;
        as_of(&mut report, begun.elapsed());
        Some(report)
    };
    let asked: Vec<_> = alive.map(ask).collect();
    let reports: Vec<_> = futures::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
    reports.iter().flatten().for_each(|report| tell(&mut probed.observed, report));
}

/// Whose agents are asked: where half of the owners of slots, or more, do not answer, and the end of one of them is not known, all; where fewer do not,
/// those of shards of which nobody owns slots, or somebody follows one of these.
fn whom(observed: &Observed) -> BTreeSet<Pod> {
    let alive: BTreeSet<NodeId> = super::nodes(observed).map(|node| node.id).collect();
    let tables = super::nodes(observed).flat_map(|node| &node.peers);
    let silent: BTreeSet<NodeId> =
        tables.filter(|(id, peer)| !peer.slots().is_empty() && !alive.contains(id)).map(|(id, _)| *id).collect();
    if silent.iter().all(|id| observed.ended.contains_key(id)) {
        return BTreeSet::new();
    }
    let of = |is: &dyn Fn(&Node) -> bool| -> Vec<u16> {
        let members = observed.members.iter().filter(|(_, member)| member.node().is_some_and(is));
        members.map(|(pod, _)| pod.shard).collect()
    };
    let owners = of(&|node| !node.slots().is_empty());
    let followers = of(&|node| matches!(node.role, Role::Replica { of, .. } if silent.contains(&of)));
    let is_asked =
        |pod: &Pod| silent.len() >= owners.len() || !owners.contains(&pod.shard) || followers.contains(&pod.shard);
    observed.members.keys().copied().filter(is_asked).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use plan::Seen;
    use types::agent::EndReport;

    use super::*;
    use crate::testing::{healthy, id};

    fn starting() -> AgentReport {
        let all = serde_json::json!({"pod": "orders-0-0", "phase": "Starting", "holdsData": true, "starts": 0});
        serde_json::from_value(all).unwrap()
    }

    /// Before, where one was gone and somebody refused to elect its replica, nobody was asked whether it had ended, and the shard was down for good.
    #[test]
    fn agents_are_asked_for_ends_where_a_primary_is_gone_and_all_where_half_are() {
        let mut probed = healthy(4, 2);
        let of_shard = |shard: u16| (0..2).map(move |index| Pod::new(shard, index));
        let mut lose = |shard: u16| {
            probed.observed.members.get_mut(&Pod::new(shard, 0)).unwrap().seen = Seen::Stopped;
            whom(&probed.observed)
        };
        let all: BTreeSet<Pod> = (0..4).flat_map(of_shard).collect();
        assert_eq!([lose(0), lose(1)], [of_shard(0).collect(), all.clone()]);
        assert_eq!(lose(2), all);
        probed.observed.ended.extend([(id(0, 0), 1), (id(1, 0), 1)]);
        assert_eq!(whom(&probed.observed), all);
        probed.observed.ended.insert(id(2, 0), 1);
        assert_eq!(whom(&probed.observed), BTreeSet::new());
    }

    #[test]
    fn who_is_asked_later_in_a_look_tells_what_was_so_at_its_beginning() {
        let mut report = starting();
        let end = |id: NodeId, millis| EndReport { node_id: id.to_string(), millis };
        report.ended = vec![end(id(0, 0), 5_000), end(id(1, 0), 100), EndReport { node_id: "?".to_owned(), millis: 1 }];
        as_of(&mut report, Duration::from_millis(300));
        let mut observed = Observed::default();
        observed.ended.insert(id(0, 0), 20);
        tell(&mut observed, &report);
        assert_eq!(observed.ended, [(id(0, 0), 20), (id(1, 0), 0)].into());
    }

    #[test]
    fn only_an_agent_that_tells_of_the_end_and_of_its_wait_is_one_that_waits() {
        let mut report = starting();
        report.node_id = Some(id(0, 0).to_string());
        report.waits_for = Some("votes".to_owned());
        assert!(!waits(&report), "it may run elsewhere");
        report.ended = vec![EndReport { node_id: id(0, 0).to_string(), millis: 1 }];
        assert!(waits(&report));
        let others = [
            AgentReport { phase: AgentPhase::Held, ..report.clone() },
            AgentReport { waits_for: None, ..report.clone() },
            AgentReport { node_id: Some(id(1, 0).to_string()), ..report.clone() },
        ];
        assert_eq!(others.map(|report| waits(&report)), [false; 3]);
    }
}
