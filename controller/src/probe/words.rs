//! What engines said of parameters that they do not use. Their agents know; they are asked now and then, for as long as it shows that
//! something is not in use, and what they said counts in between.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::StreamExt;
use plan::Pod;

use super::{AGENT_DEADLINE, AT_ONCE, Probed, Question, refusal};

/// How often one agent is asked; a cluster is looked at many times a second while something is under way.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// Agents asked in one look: one round, so that a thousand silent ones delay it by no more than one.
const IN_A_LOOK: usize = AT_ONCE;

/// What was said, by member.
#[derive(Debug, Default)]
pub(super) struct Words(BTreeMap<Pod, Said>);

#[derive(Debug)]
struct Said {
    /// Where: the next pod of that name has said nothing yet.
    at: SocketAddr,
    asked: Instant,
    words: Option<String>,
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
    fn said(&mut self, pod: Pod, at: SocketAddr, answer: Option<Option<String>>, now: Instant) {
        let before = self.0.remove(&pod).and_then(|said| said.words);
        self.0.insert(pod, Said { at, asked: now, words: answer.unwrap_or(before) });
    }

    fn refused(&self) -> impl Iterator<Item = (Pod, String)> {
        self.0.iter().filter_map(|(pod, said)| Some((*pod, said.words.clone()?)))
    }
}

/// Asks the agents of those who show other parameters than they were given.
pub(super) async fn ask(question: Question<'_>, probed: &mut Probed, words: &mut Words) {
    let differing = probed.facts.iter().filter(|(_, facts)| !facts.unlike.is_empty());
    let differing = differing.map(|(pod, facts)| (*pod, facts.address)).collect();
    let due = words.due(&differing, Instant::now());
    let ask = |(pod, address): (Pod, SocketAddr)| async move {
        let report = question.agents.report(address.ip(), question.whose);
        (pod, address, tokio::time::timeout(AGENT_DEADLINE, report).await.ok().and_then(Result::ok))
    };
    let asked: Vec<_> = due.into_iter().map(ask).collect();
    let answers: Vec<_> = futures::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
    for (pod, address, report) in answers {
        let own = question.places.get(&pod).map(|place| place.name.as_str());
        let report = report.filter(|report| Some(report.pod.as_str()) == own);
        words.said(pod, address, report.map(|report| refusal(&report)), Instant::now());
    }
    probed.refused.extend(words.refused());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 6379))
    }

    #[test]
    fn an_agent_is_asked_again_after_a_pause_and_what_it_said_counts_until_then() {
        let (mut words, begun) = (Words::default(), Instant::now());
        let (pod, refused) = (Pod::new(0, 0), |words: &Words| words.refused().collect::<Vec<_>>());
        let differing = BTreeMap::from([(pod, at(1))]);
        assert_eq!(words.due(&differing, begun), [(pod, at(1))]);
        words.said(pod, at(1), Some(Some("no".to_owned())), begun);
        assert_eq!(words.due(&differing, begun + ASK_EVERY / 2), []);
        assert_eq!(refused(&words), [(pod, "no".to_owned())]);
        assert_eq!(words.due(&differing, begun + ASK_EVERY), [(pod, at(1))]);
        words.said(pod, at(1), None, begun + ASK_EVERY);
        assert_eq!(refused(&words), [(pod, "no".to_owned())]);
        words.said(pod, at(1), Some(None), begun + ASK_EVERY);
        assert_eq!(refused(&words), []);
        // The next pod of that name, and one that shows what it was given.
        words.said(pod, at(1), Some(Some("no".to_owned())), begun);
        assert_eq!(words.due(&BTreeMap::from([(pod, at(2))]), begun), [(pod, at(2))]);
        assert_eq!(refused(&words), []);
        words.said(pod, at(2), Some(Some("no".to_owned())), begun);
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
