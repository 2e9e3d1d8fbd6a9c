//! A second process with a member's identity, outside of every place: its pod was deleted by force on a machine that had lost Kubernetes, and
//! it runs on beside its successor.
//!
//! It shows in what others say: the member is at an address where no pod is, and not only until gossip has caught up with a move. Who runs
//! there its agent says, whose certificate proves the cluster. Redis is not asked: an address that may be anybody's by now gets no password.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::StreamExt;
use plan::{Node, NodeId, Pod};
use types::agent::{AgentPhase, AgentReport};

use super::{Container, Probed, Question};

/// A move is known to everybody before this, as a rule: whoever has moved says so itself.
const SETTLED: Duration = Duration::from_secs(2);
/// How often an address is asked at which nobody was found.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// How long it may take: it delays the look.
const PATIENCE: Duration = Duration::from_millis(300);
/// Addresses asked in one look.
const AT_ONCE: usize = 4;
/// What nobody shows or proves any more is forgotten after this.
const FORGET: Duration = Duration::from_secs(10);

/// Addresses at which somebody is said to be who is a member elsewhere.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    known: BTreeMap<(NodeId, SocketAddr), Suspect>,
}

/// Who is said to be where.
type Shown = BTreeSet<(NodeId, SocketAddr)>;

#[derive(Clone, Copy, Debug)]
struct Suspect {
    since: Instant,
    shown: Instant,
    asked: Option<Instant>,
    /// An agent of this cluster has answered that it runs this node there.
    proven: bool,
}

/// Fills in what is found.
pub(super) async fn look(question: Question<'_>, probed: &mut Probed, suspects: &mut Suspects) {
    let now = Instant::now();
    let (own, told) = shown(question, probed);
    suspects.note(&own, &told, now);
    let due = suspects.due(now);
    let ask = |(id, address): (NodeId, SocketAddr)| async move {
        let report = question.agents.report(address.ip(), question.whose);
        (id, address, tokio::time::timeout(PATIENCE, report).await.ok().and_then(Result::ok))
    };
    let asked: Vec<_> = due.into_iter().map(ask).collect();
    let answers: Vec<_> = futures::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
    for (id, address, report) in answers {
        let name = place_of(probed, id).and_then(|pod| question.places.get(&pod)).map(|place| place.name.as_str());
        suspects.answered((id, address), report.map(|report| is_twin(&report, id, name)), now);
    }
    let found: Vec<(Pod, SocketAddr)> =
        suspects.proven().filter_map(|(id, address)| Some((place_of(probed, id)?, address))).collect();
    probed.observed.elsewhere.extend(found.into_iter().map(|(pod, address)| (pod, address.to_string())));
}

/// Runs this node: by its files, or, where it began blank, by the name of its pod.
fn is_twin(report: &AgentReport, id: NodeId, pod: Option<&str>) -> bool {
    let found = report.node_id.as_deref().map(NodeId::parse);
    let is_named = found.map_or(pod == Some(report.pod.as_str()), |found| found == Some(id));
    report.phase == AgentPhase::Running && is_named
}

fn live(probed: &Probed) -> impl Iterator<Item = (Pod, &Node)> {
    probed.observed.members.iter().filter_map(|(pod, member)| Some((*pod, member.node()?)))
}

fn place_of(probed: &Probed, id: NodeId) -> Option<Pod> {
    live(probed).find(|(_, node)| node.id == id).map(|(pod, _)| pod)
}

/// Live members that their own line, and that others have at an address where no pod is.
fn shown(question: Question<'_>, probed: &Probed) -> (Shown, Shown) {
    let places: BTreeSet<SocketAddr> = question
        .places
        .values()
        .filter_map(|place| match &place.container {
            Container::Running { address } => Some(*address),
            Container::None | Container::Stopped | Container::Unreported => None,
        })
        .collect();
    let alive: BTreeSet<NodeId> = live(probed).map(|(_, node)| node.id).collect();
    let own = live(probed).filter_map(|(pod, node)| Some((node.id, probed.facts.get(&pod)?.own_line?)));
    let told = live(probed)
        .flat_map(|(_, node)| &node.peers)
        .filter(|(id, peer)| alive.contains(id) && !peer.handshake && !peer.noaddr)
        .filter_map(|(id, peer)| Some((*id, peer.address.parse().ok()?)));
    let is_outside = |(_, address): &(NodeId, SocketAddr)| !places.contains(address);
    (own.filter(is_outside).collect(), told.filter(is_outside).collect())
}

impl Suspects {
    /// A member's own line is a reason to ask. It is no sign that somebody is still found there: it may have the address of the one that
    /// spoke last for ever, while others have long since learned where the member is.
    fn note(&mut self, own: &Shown, told: &Shown, now: Instant) {
        for suspect in own.union(told) {
            let fresh = Suspect { since: now, shown: now, asked: None, proven: false };
            let known = self.known.entry(*suspect).or_insert(fresh);
            if !known.proven || told.contains(suspect) {
                known.shown = now;
            }
        }
        self.known.retain(|_, suspect| now.saturating_duration_since(suspect.shown) < FORGET);
    }

    /// Whom to ask now: first who was found to be there, to notice the end of it.
    fn due(&self, now: Instant) -> Vec<(NodeId, SocketAddr)> {
        let since = |at: Instant| now.saturating_duration_since(at);
        let is_due = |suspect: &Suspect| {
            suspect.proven
                || since(suspect.since) >= SETTLED && suspect.asked.is_none_or(|asked| since(asked) >= ASK_EVERY)
        };
        let mut due: Vec<_> = self.known.iter().filter(|(_, suspect)| is_due(suspect)).collect();
        due.sort_by_key(|(who, suspect)| (!suspect.proven, suspect.asked, **who));
        due.into_iter().take(AT_ONCE).map(|(who, _)| *who).collect()
    }

    /// `None`: no agent of this cluster answered, which proves nothing: whoever was found there stays found while other members show it.
    fn answered(&mut self, who: (NodeId, SocketAddr), is_twin: Option<bool>, now: Instant) {
        if let Some(suspect) = self.known.get_mut(&who) {
            suspect.asked = Some(now);
            suspect.proven = is_twin.unwrap_or(suspect.proven);
            // What answers is as good as shown, whoever spoke last.
            if suspect.proven && is_twin.is_some() {
                suspect.shown = now;
            }
        }
    }

    fn proven(&self) -> impl Iterator<Item = (NodeId, SocketAddr)> {
        self.known.iter().filter(|(_, suspect)| suspect.proven).map(|(who, _)| *who)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    fn id(byte: u8) -> NodeId {
        NodeId::from_bytes([byte; 20])
    }

    fn at(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 6379))
    }

    #[test]
    fn only_a_running_agent_that_names_the_node_or_began_blank_in_its_pod_is_a_twin() {
        let report = |pod: &str, phase, node: Option<NodeId>| AgentReport {
            pod: pod.to_owned(),
            phase,
            held_because: None,
            node_id: node.map(|id| id.to_string()),
            holds_data: true,
            starts: 1,
            copy: None,
            serves: None,
            refused: None,
            settled: None,
            following: None,
            lags: None,
            altered: BTreeMap::new(),
            not_set: [].into(),
            runs_at: None,
            takes_no_release: false,
            waits_for: None,
            volume_in_use_millis: None,
            ended: Vec::new(),
            lost: None,
        };
        let table = [
            (report("orders-0-0", AgentPhase::Running, Some(id(1))), true),
            (report("orders-1-0", AgentPhase::Running, Some(id(1))), true),
            (report("orders-0-0", AgentPhase::Running, None), true),
            (report("orders-1-0", AgentPhase::Running, None), false),
            (report("orders-0-0", AgentPhase::Running, Some(id(2))), false),
            (report("orders-0-0", AgentPhase::Held, Some(id(1))), false),
            (report("orders-0-0", AgentPhase::Stopping, Some(id(1))), false),
        ];
        for (report, expected) in table {
            assert_eq!(is_twin(&report, id(1), Some("orders-0-0")), expected, "{report:?}");
        }
    }

    #[test]
    fn an_address_is_asked_once_gossip_should_have_settled_and_stays_found_until_it_is_not() {
        let (mut suspects, begun) = (Suspects::default(), Instant::now());
        let after = |millis| begun + Duration::from_millis(millis);
        let who = (id(1), at(9));
        let (none, shown) = (BTreeSet::new(), BTreeSet::from([who]));
        suspects.note(&none, &shown, after(0));
        assert_eq!(suspects.due(after(1_999)), []);
        assert_eq!(suspects.due(after(2_000)), [who]);
        suspects.answered(who, None, after(2_000));
        assert_eq!((suspects.due(after(6_999)), suspects.due(after(7_000))), (vec![], vec![who]));
        suspects.answered(who, Some(true), after(7_000));
        assert_eq!(suspects.proven().collect::<Vec<_>>(), [who]);
        // Others have it at its own address for a moment, and the agent says nothing: neither is the end of it.
        suspects.note(&none, &none, after(8_000));
        suspects.answered(who, None, after(8_000));
        assert_eq!((suspects.due(after(8_000)), suspects.proven().count()), (vec![who], 1));
        suspects.answered(who, Some(false), after(9_000));
        assert_eq!(suspects.proven().count(), 0);
        suspects.answered(who, Some(true), after(9_500));
        suspects.note(&none, &none, after(19_500));
        assert_eq!(suspects.proven().count(), 0, "nobody shows or proves it any more");
    }

    #[test]
    fn a_members_own_line_starts_a_suspicion_and_keeps_no_proven_one() {
        let (mut suspects, begun) = (Suspects::default(), Instant::now());
        let after = |millis| begun + Duration::from_millis(millis);
        let who = (id(1), at(9));
        let (none, own) = (BTreeSet::new(), BTreeSet::from([who]));
        for millis in (0..=20_000).step_by(5_000) {
            suspects.note(&own, &none, after(millis));
            assert_eq!(suspects.known.len(), 1, "it is suspected for as long as it says so");
        }
        assert_eq!(suspects.due(after(20_000)), [who]);
        suspects.answered(who, Some(true), after(20_000));
        // Its machine is switched off.
        suspects.note(&own, &none, after(25_000));
        suspects.answered(who, None, after(25_000));
        assert_eq!(suspects.proven().count(), 1);
        suspects.note(&own, &none, after(30_000));
        assert_eq!(suspects.proven().count(), 0);
        // Others show it: that holds.
        suspects.note(&own, &none, after(31_000));
        suspects.answered(who, Some(true), after(33_000));
        for millis in (35_000..=60_000).step_by(5_000) {
            suspects.note(&none, &own, after(millis));
            assert_eq!(suspects.proven().count(), 1);
        }
    }
}
