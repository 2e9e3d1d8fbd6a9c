//! What members lost when they started with a copy that others were ahead of. Their agents know, and once a server runs nobody asks them: each
//! is asked once for each process of its server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::StreamExt;
use plan::Pod;
use types::agent::LossReport;

use super::{AT_ONCE, Probed, Question};

/// How often an agent is asked that does not answer.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// Agents asked in one look: one round, so that a thousand silent ones delay it by no more than one.
const IN_A_LOOK: usize = AT_ONCE;

/// One process of a member's server: where, and its run ID.
type Process = (SocketAddr, String);

/// What is known of that.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Who was asked last at each place, when, and whether it has answered.
    asked: BTreeMap<Pod, (Process, Instant, bool)>,
    /// What was told: it stays true when the process that told it is gone.
    told: BTreeMap<Pod, LossReport>,
}

impl Losses {
    /// Whom to ask now.
    fn due(&mut self, running: &BTreeMap<Pod, Process>, now: Instant) -> Vec<(Pod, Process)> {
        self.asked.retain(|pod, (process, ..)| running.get(pod) == Some(process));
        let is_due = |pod: &Pod| match self.asked.get(pod) {
            None => true,
            Some((_, at, has_answered)) => !has_answered && now.saturating_duration_since(*at) >= ASK_EVERY,
        };
        let due = running.iter().filter(|(pod, _)| is_due(pod)).take(IN_A_LOOK);
        due.map(|(pod, process)| (*pod, process.clone())).collect()
    }

    /// `None`: the agent did not answer.
    fn said(&mut self, pod: Pod, process: Process, answer: Option<Option<LossReport>>, now: Instant) {
        self.asked.insert(pod, (process, now, answer.is_some()));
        self.told.extend(answer.flatten().map(|lost| (pod, lost)));
    }
}

/// Asks the agents of servers that have not been asked about.
pub(super) async fn ask(question: Question<'_>, probed: &mut Probed, losses: &mut Losses) {
    let running = probed.facts.iter().map(|(pod, facts)| (*pod, (facts.address, facts.run_id.clone())));
    let due = losses.due(&running.collect(), Instant::now());
    let ask = |(pod, process): (Pod, Process)| async move {
        let report = question.report(pod, process.0).await;
        (pod, process, report)
    };
    let asked: Vec<_> = due.into_iter().map(ask).collect();
    let answers: Vec<_> = futures::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
    for (pod, process, report) in answers {
        losses.said(pod, process, report.map(|report| report.lost), Instant::now());
    }
    losses.told.retain(|pod, _| question.places.contains_key(pod));
    probed.lost.clone_from(&losses.told);
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn process(run: &str) -> Process {
        (SocketAddr::from(([10, 0, 0, 1], 6379)), run.to_owned())
    }

    #[test]
    fn an_agent_is_asked_once_for_each_process_what_its_start_has_cost() {
        let (mut losses, begun, pod) = (Losses::default(), Instant::now(), Pod::new(0, 0));
        let lost = LossReport { at: Timestamp::UNIX_EPOCH, what: "started with a snapshot".to_owned() };
        let [first, second] = ["a", "b"].map(|run| BTreeMap::from([(pod, process(run))]));
        assert_eq!(losses.due(&first, begun), [(pod, process("a"))]);
        losses.said(pod, process("a"), None, begun);
        assert_eq!(losses.due(&first, begun + ASK_EVERY / 2), [], "it is silent");
        assert_eq!(losses.due(&first, begun + ASK_EVERY), [(pod, process("a"))]);
        losses.said(pod, process("a"), Some(Some(lost.clone())), begun);
        assert_eq!(losses.due(&first, begun + ASK_EVERY), []);
        assert_eq!(losses.due(&second, begun), [(pod, process("b"))]);
        losses.said(pod, process("b"), Some(None), begun);
        assert_eq!((losses.due(&second, begun + ASK_EVERY), &losses.told), (vec![], &BTreeMap::from([(pod, lost)])));
    }

    #[test]
    fn of_many_servers_a_look_asks_about_some() {
        let (mut losses, now) = (Losses::default(), Instant::now());
        let running: BTreeMap<Pod, Process> = (0..100).map(|shard| (Pod::new(shard, 0), process("a"))).collect();
        let first = losses.due(&running, now);
        assert_eq!(first.len(), IN_A_LOOK);
        first.into_iter().for_each(|(pod, process)| losses.said(pod, process, Some(None), now));
        assert_eq!(losses.due(&running, now).len(), 100 - IN_A_LOOK);
    }
}
