//! What engines said of parameters that they do not use. Their agents know; they are asked now and then, for as long as it shows that
//! something is not in use, and what they said counts in between.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::StreamExt;
use plan::{Pod, Unused};
use types::agent::AgentReport;
use types::config::Class;

use super::{AT_ONCE, Facts, Probed, Question};
use crate::execute::COMPRESSION;

/// How often one agent is asked; a cluster is looked at many times a second while something is under way.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// Agents asked in one look: one round, so that a thousand silent ones delay it by no more than one.
const IN_A_LOOK: usize = AT_ONCE;

/// What was said of parameters that are not in use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// The engine's words, or why it could not be asked.
    pub words: String,
    /// What they amount to.
    pub finding: Finding,
}

/// What the words amount to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Finding {
    /// The engine refuses the parameters, which are not in use, and will at its next start.
    Refused,
    /// The running server does not take one of them; its next start may. Or an agent of an earlier release, which does not tell these cases
    /// apart, said so.
    NotSet,
    /// The engine could not be asked yet.
    Undecided,
    /// All are in use, and the engine makes something else of these.
    Altered(BTreeSet<String>),
}

/// What an agent's report says of parameters that are not in use.
pub(super) fn refusal(report: &AgentReport) -> Option<Refusal> {
    let finding = match report.settled {
        Some(true) => Finding::Refused,
        Some(false) => Finding::Undecided,
        None => Finding::NotSet,
    };
    let refused = report.refused.clone().map(|words| Refusal { words, finding });
    let not_set = || report.not_set.first_key_value().map(|(name, words)| format!("{name}: {words}"));
    let altered = || {
        let words = report.altered.values().next()?.clone();
        Some(Refusal { words, finding: Finding::Altered(report.altered.keys().cloned().collect()) })
    };
    refused.or_else(|| not_set().map(|words| Refusal { words, finding: Finding::NotSet })).or_else(altered)
}

/// What was said, by member.
#[derive(Debug, Default)]
pub(super) struct Words(BTreeMap<Pod, Said>);

#[derive(Debug)]
struct Said {
    /// Where: the next pod of that name has said nothing yet.
    at: SocketAddr,
    asked: Instant,
    /// `None`: the agent has not answered yet; nothing is wrong with what has not come yet.
    words: Option<Option<Refusal>>,
}

impl Words {
    /// Whom to ask now, of those who show other parameters than they were given: who was never asked first, then who was so long ago.
    fn due(&mut self, differing: &BTreeMap<Pod, SocketAddr>, now: Instant) -> Vec<(Pod, SocketAddr)> {
        self.0.retain(|pod, said| differing.get(pod) == Some(&said.at));
        let last = |pod: &Pod| self.0.get(pod).map(|said| said.asked);
        let is_due = |pod: &Pod| last(pod).is_none_or(|asked| now.saturating_duration_since(asked) >= ASK_EVERY);
        let mut due: Vec<_> = differing.iter().map(|(pod, at)| (*pod, *at)).filter(|(pod, _)| is_due(pod)).collect();
        due.sort_by_key(|(pod, _)| (last(pod), *pod));
        due.truncate(IN_A_LOOK);
        due
    }

    /// `None`: the agent did not answer, so what it said before counts.
    fn said(&mut self, pod: Pod, at: SocketAddr, answer: Option<Option<Refusal>>, now: Instant) {
        let before = self.0.remove(&pod).and_then(|said| said.words);
        self.0.insert(pod, Said { at, asked: now, words: answer.or(before) });
    }

    fn of(&self, pod: Pod) -> Option<&Option<Refusal>> {
        self.0.get(&pod)?.words.as_ref()
    }

    fn refused(&self) -> impl Iterator<Item = (Pod, Refusal)> {
        self.0.iter().filter_map(|(pod, said)| Some((*pod, said.words.clone()??)))
    }
}

/// Why a member does not use the parameters, as far as it says something of a restart; `words`: its agent's, if that has answered. Pure.
fn unused(facts: &Facts, words: Option<&Option<Refusal>>, other_image: bool) -> Option<Unused> {
    // What steps change for their time they put back.
    let differs = |name: &&String| *name != COMPRESSION;
    let is_live = |name: &String| types::config::parameter(name).is_some_and(|one| one.class == Class::Live);
    facts.unlike.keys().find(differs)?;
    let still = |name: &&String| differs(name) && is_live(name);
    match words.map(|words| words.as_ref().map(|refusal| &refusal.finding)) {
        None | Some(Some(Finding::NotSet)) => Some(Unused::Pending),
        // The first to be restarted tells.
        Some(Some(Finding::Undecided)) => None,
        Some(Some(Finding::Refused)) => (!other_image).then_some(Unused::Refused),
        // It is in use; the others may be on their way.
        Some(Some(Finding::Altered(names))) => {
            facts.unlike.keys().filter(still).any(|name| !names.contains(name)).then_some(Unused::Pending)
        }
        // What only a start changes will never come by waiting.
        Some(None) => facts.unlike.keys().any(|name| still(&name)).then_some(Unused::Pending),
    }
}

/// Asks the agents of those who show other parameters than they were given.
pub(super) async fn ask(question: Question<'_>, probed: &mut Probed, words: &mut Words) {
    let differing = probed.facts.iter().filter(|(_, facts)| !facts.unlike.is_empty());
    let differing = differing.map(|(pod, facts)| (*pod, facts.address)).collect();
    let due = words.due(&differing, Instant::now());
    let ask = |(pod, address): (Pod, SocketAddr)| async move {
        let report = question.report(pod, address).await;
        (pod, address, report)
    };
    let asked: Vec<_> = due.into_iter().map(ask).collect();
    let answers: Vec<_> = futures::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
    for (pod, address, report) in answers {
        words.said(pod, address, report.map(|report| refusal(&report)), Instant::now());
    }
    probed.refused.extend(words.refused());
    let standing = probed.facts.iter().filter_map(|(pod, facts)| {
        let other_image = question.places.get(pod).is_some_and(|place| place.other_image);
        Some((*pod, unused(facts, words.of(*pod), other_image)?))
    });
    probed.observed.unused = standing.collect();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    fn at(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 6379))
    }

    fn no() -> Refusal {
        Refusal { words: "no".to_owned(), finding: Finding::Refused }
    }

    #[test]
    fn a_refusal_counts_by_what_the_next_start_will_meet() {
        let mut facts = crate::testing::healthy(1, 1).facts.remove(&Pod::new(0, 0)).unwrap();
        let told = |facts: &Facts, finding: Option<Finding>, other_image: bool| {
            let words = finding.map(|finding| Refusal { words: "no".to_owned(), finding });
            unused(facts, Some(&words), other_image)
        };
        assert_eq!(unused(&facts, None, false), None);
        facts.unlike.insert(COMPRESSION.to_owned(), "no".to_owned());
        assert_eq!(unused(&facts, None, false), None, "a step puts it back");
        facts.unlike.insert("databases".to_owned(), "16".to_owned());
        assert_eq!(unused(&facts, None, false), Some(Unused::Pending), "its agent has not answered");
        assert_eq!(told(&facts, Some(Finding::Refused), false), Some(Unused::Refused));
        assert_eq!(told(&facts, Some(Finding::Refused), true), None, "another engine will be asked");
        assert_eq!(told(&facts, Some(Finding::NotSet), false), Some(Unused::Pending));
        assert_eq!(told(&facts, Some(Finding::Undecided), false), None);
        assert_eq!(told(&facts, None, false), None, "only a restart brings it");
        facts.unlike.insert("maxclients".to_owned(), "100".to_owned());
        assert_eq!(told(&facts, None, false), Some(Unused::Pending));
        let altered = || Some(Finding::Altered(BTreeSet::from(["maxclients".to_owned()])));
        assert_eq!(told(&facts, altered(), false), None, "it is in use, as far as the machine goes");
        facts.unlike.insert("timeout".to_owned(), "0".to_owned());
        assert_eq!(told(&facts, altered(), false), Some(Unused::Pending), "another one is on its way");
    }

    #[test]
    fn an_agent_is_asked_again_after_a_pause_and_what_it_said_counts_until_then() {
        let (mut words, begun) = (Words::default(), Instant::now());
        let (pod, refused) = (Pod::new(0, 0), |words: &Words| words.refused().collect::<Vec<_>>());
        let differing = BTreeMap::from([(pod, at(1))]);
        assert_eq!(words.due(&differing, begun), [(pod, at(1))]);
        words.said(pod, at(1), Some(Some(no())), begun);
        assert_eq!(words.due(&differing, begun + ASK_EVERY / 2), []);
        assert_eq!(refused(&words), [(pod, no())]);
        assert_eq!(words.due(&differing, begun + ASK_EVERY), [(pod, at(1))]);
        words.said(pod, at(1), None, begun + ASK_EVERY);
        assert_eq!(refused(&words), [(pod, no())]);
        words.said(pod, at(1), Some(None), begun + ASK_EVERY);
        assert_eq!(refused(&words), []);
        // The next pod of that name, and one that shows what it was given.
        words.said(pod, at(1), Some(Some(no())), begun);
        assert_eq!(words.due(&BTreeMap::from([(pod, at(2))]), begun), [(pod, at(2))]);
        assert_eq!(refused(&words), []);
        words.said(pod, at(2), Some(Some(no())), begun);
        assert_eq!((words.due(&BTreeMap::new(), begun), refused(&words)), (vec![], vec![]));
    }

    #[test]
    fn of_many_agents_a_look_asks_some_and_the_next_look_the_others() {
        let (mut words, now) = (Words::default(), Instant::now());
        let differing: BTreeMap<Pod, SocketAddr> = (0..100).map(|shard| (Pod::new(shard, 0), at(1))).collect();
        let first = words.due(&differing, now);
        assert_eq!((first.len(), first.first()), (64, Some(&(Pod::new(0, 0), at(1)))));
        first.into_iter().for_each(|(pod, at)| words.said(pod, at, None, now));
        let shards: Vec<u16> = words.due(&differing, now).into_iter().map(|(pod, _)| pod.shard).collect();
        assert_eq!(shards, (64..100).collect::<Vec<_>>());
        let shards = words.due(&differing, now + ASK_EVERY).into_iter().map(|(pod, _)| pod.shard);
        assert_eq!(shards.take(37).collect::<Vec<_>>(), (64..100).chain([0]).collect::<Vec<_>>());
    }
}
