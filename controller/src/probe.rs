//! Asks every member what it is: Redis itself first, its agent where Redis does not answer.
//!
//! All at once, each with a deadline of a second or, where it is slow, of a few, never more than `AT_ONCE`. Whoever answers is asked for its
//! identity on the same connection. What could not be seen is Unknown, never absent: absence and death are only what
//! Kubernetes proves. Decides nothing.

pub mod agent;
mod compare;
mod count;
mod elsewhere;
mod ended;
mod half;
mod left_behind;
mod losses;
mod node;
mod place;
mod stream;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::StreamExt;
use jiff::Timestamp;
use plan::{Address, Introduced, Member, NodeId, Observed, Open, Pod, Role, Seen, SlotSet};
use resp::{ErrorKind, ErrorReply};
use types::agent::{AgentPhase, LossReport};
use types::cluster::Mode;

pub use node::{Facts, Unkept};
pub(crate) use node::{disk, former_stream, is_misled, offset, peer};
pub use place::{Container, Marks, Place, container_of, marks, places, stuck, unwritten};
pub use words::{Finding, Refusal};

use crate::redis::{self, Access};
use crate::report::seconds;

/// Members asked at the same time: bounds sockets and memory; a thousand members take 16 rounds.
const AT_ONCE: usize = 64;
/// For how long an introduction counts: several times the longest time until it is repeated.
const INTRODUCED_LATELY: Duration = Duration::from_secs(60);
/// For how long a promotion that was refused lets others go first.
const REFUSED_LATELY: Duration = Duration::from_secs(30);
/// For how long a node that was a member is taken for one whom the others have not missed yet: several times the node timeout.
const FORMER_LATELY: Duration = Duration::from_secs(60);
/// So long a container or a pod may take to be there again; one on a node that is lost is given up then.
const HOPE: Duration = Duration::from_secs(60);
/// For how long a primary that does not answer any more is nothing for a person: less than until the status has to say what there is to decide.
const ANSWERED_LATELY: Duration = Duration::from_secs(3);
/// For how long other phases go on where a first slot waits for a replica: what keeps that one out may be what they mend.
const FIRST_SLOT_RESTS: Duration = Duration::from_secs(10);
/// How long one member may take to answer, at first and at most. One whose agent says that its server runs is given more time at the next
/// look: a machine that is slow must not make everybody unknown. Everybody else waits for it, hence the bound; and who is silent altogether
/// is given no more.
const PATIENCE: (Duration, Duration) = (redis::DEADLINE, Duration::from_secs(4));
/// Why a member does not start whose agent waits for another's lock.
const VOLUME_IN_USE: &str = "its volume is still used by another pod";
/// How long an agent may take.
const AGENT_DEADLINE: Duration = Duration::from_secs(1);

/// What one process remembers of a cluster between looks. Losing it costs nothing but time: waits begin anew, and keys are counted
/// anew.
#[derive(Debug, Default)]
pub struct Memory {
    /// Members that could not be seen or stop, and since when.
    unknown: BTreeMap<Pod, (Instant, Timestamp)>,
    /// Since when servers have not answered that run, as their agents say.
    silent: BTreeMap<Pod, Timestamp>,
    /// When each member answered last, or its agent, which waited for nobody; at first, when it was first asked.
    hope: BTreeMap<Pod, Instant>,
    /// When a node answered there last.
    served: BTreeMap<Pod, Instant>,
    /// Shards whose first slot was held, as none of its replicas came into sync, and when.
    first_slots_held: BTreeMap<u16, Instant>,
    /// Failovers asked for, and when.
    failovers: BTreeMap<u16, Instant>,
    /// Failovers that were refused before anybody was asked, and when.
    refused: BTreeMap<u16, Instant>,
    /// Elections by shard, and when they were seen; also when a shard was first looked at, if its past is not known.
    elections: BTreeMap<u16, Instant>,
    /// Whether a node was a primary when it was last seen, and its configuration epoch then.
    claims: BTreeMap<NodeId, (bool, u64)>,
    /// The configuration epoch with which each node was first seen in its role.
    first_epochs: BTreeMap<NodeId, u64>,
    /// Epochs have been raised by steps of ours since the last look: a new epoch is no sign of an election.
    raised: bool,
    /// Who was seen at a place, and when last.
    members: BTreeMap<NodeId, Instant>,
    /// How far replication was when each node was last seen: tells what a replica lacks whose primary has died.
    streams: stream::Streams,
    /// Marks of half-moved slots as each primary showed them last: where both ends of a move are gone, nobody else knows of them.
    marks: half::Marks,
    /// Who answered last at each place: fresher than the status, and kept while nobody answers.
    answered: BTreeMap<Pod, NodeId>,
    /// Introductions that were made: where the two were, when, and how many times.
    introduced: BTreeMap<(Pod, Pod), ([Address; 2], Instant, u32)>,
    /// Processes that may have a member's identity outside of every place.
    elsewhere: elsewhere::Suspects,
    /// Members that are given more time to answer than others.
    patience: BTreeMap<Pod, Duration>,
    /// Keys of others that have been counted.
    counts: count::Counts,
    /// Keys of former primaries that have been compared.
    compared: compare::Known,
    /// What engines said of parameters that they do not use.
    words: words::Words,
    /// What members lost at their starts.
    losses: losses::Losses,
}

impl Memory {
    /// A failover of this shard has been asked for.
    pub fn failover_asked(&mut self, shard: u16) {
        self.refused.remove(&shard);
        self.failovers.insert(shard, Instant::now());
        self.elections.insert(shard, Instant::now());
    }

    /// A failover of this shard was not asked for, after all.
    pub fn failover_refused(&mut self, shard: u16) {
        self.refused.insert(shard, Instant::now());
    }

    /// The first slot of this shard waited in vain for one of its replicas.
    pub fn first_slot_held(&mut self, shard: u16) {
        self.first_slots_held.insert(shard, Instant::now());
    }

    fn first_slots_that_rest(&mut self, now: Instant) -> BTreeSet<u16> {
        self.first_slots_held.retain(|_, at| now.saturating_duration_since(*at) < FIRST_SLOT_RESTS);
        self.first_slots_held.keys().copied().collect()
    }

    /// The failover that was asked for has been seen, or is not wanted any more.
    pub fn failover_over(&mut self, shard: u16) {
        self.refused.remove(&shard);
        self.failovers.remove(&shard);
        self.elections.insert(shard, Instant::now());
    }

    /// Two members have been told of each other, or were to be.
    pub fn introduced(&mut self, pair: (Pod, Pod), at: [Address; 2]) {
        let before = self.introduced.get(&pair).filter(|(was, _, _)| *was == at).map_or(0, |(_, _, times)| *times);
        self.introduced.insert(pair, (at, Instant::now(), before.saturating_add(1)));
    }

    /// The introductions that count: one that was long ago says nothing of the next.
    fn introductions(&mut self, now: Instant) -> BTreeMap<(Pod, Pod), Introduced> {
        self.introduced.retain(|_, (_, when, _)| now.saturating_duration_since(*when) < INTRODUCED_LATELY);
        let told = |(at, when, times): &([Address; 2], Instant, u32)| Introduced {
            at: at.clone(),
            since_millis: millis(now.saturating_duration_since(*when)),
            times: *times,
        };
        self.introduced.iter().map(|(pair, made)| (*pair, told(made))).collect()
    }

    /// A move of these slots was begun, and may have marked them.
    pub fn moved(&mut self, from: NodeId, to: NodeId, slots: &SlotSet) {
        self.marks.moved(from, to, slots);
    }

    /// A step gave a node a new epoch.
    pub fn epoch_raised(&mut self) {
        self.raised = true;
    }

    /// Who was a member until a short while ago, and is none now.
    fn former(&mut self, observed: &Observed, now: Instant) -> BTreeSet<NodeId> {
        let present: BTreeSet<NodeId> = nodes(observed).map(|node| node.id).collect();
        self.members.extend(present.iter().map(|id| (*id, now)));
        self.members.retain(|_, seen| now.saturating_duration_since(*seen) < FORMER_LATELY);
        self.members.keys().filter(|id| !present.contains(id)).copied().collect()
    }

    /// Nodes that were replaced by others are dropped once there are many; one that is only away for a while is kept.
    fn forget_strangers(&mut self, observed: &Observed) {
        const SPARE: usize = 64;
        if self.claims.len() > observed.members.len().saturating_add(SPARE) {
            let seen: BTreeSet<NodeId> = nodes(observed).map(|node| node.id).collect();
            self.claims.retain(|id, _| seen.contains(id));
            self.first_epochs.retain(|id, _| seen.contains(id));
        }
    }

    /// Compares a node's claim with its last one. A primary that was a replica has been elected; so has one whose epoch is
    /// another, even if it was the primary before: it lost the role and won it back between two looks. What a node did
    /// before it was first seen is not known, unless it owns nothing.
    fn note_claim(&mut self, pod: Pod, node: &plan::Node, now: Instant) {
        let claim = (node.is_primary(), node.epoch);
        let elected = match self.claims.insert(node.id, claim) {
            None => !node.is_primary() || !node.slots().is_empty(),
            Some((false, _)) => node.is_primary(),
            Some((true, epoch)) => node.is_primary() && epoch != node.epoch && !self.raised,
        };
        if elected {
            self.elections.insert(pod.shard, now);
            self.first_epochs.insert(node.id, node.epoch);
        }
    }

    /// Who answered at a place. Where two places have one address only one of them can be meant, and when the other one's pod is seen
    /// elsewhere, it must not look like a second process of that node.
    fn note_answer(&mut self, pod: Pod, node: &plan::Node, shared: &BTreeSet<Address>) {
        if !shared.contains(&node.address) {
            self.answered.insert(pod, node.id);
        }
    }

    /// Who was seen last at a place. The status may be of before that, so it counts less where somebody may still run who does not answer. Beside an
    /// agent that does a server may stand still.
    fn last_id(&self, pod: Pod, seen: &Seen, in_status: Option<NodeId>) -> Option<NodeId> {
        match seen {
            Seen::Unknown { .. } | Seen::Starting => self.answered.get(&pod).copied().or(in_status),
            Seen::Absent | Seen::Stopped | Seen::Held { .. } | Seen::Node(_) => in_status,
        }
    }

    /// For how many milliseconds a member has not been seen, and since when.
    fn unknown(&mut self, pod: Pod, now: Instant) -> (u64, Timestamp) {
        let (since, at) = *self.unknown.entry(pod).or_insert_with(|| (now, seconds(Timestamp::now())));
        (millis(now.saturating_duration_since(since)), at)
    }

    /// Who runs and does not answer, and since when; one that has answered meanwhile, or was seen to start, begins anew.
    fn note_silence(&mut self, answers: &BTreeMap<Pod, Answer>) -> BTreeMap<Pod, Timestamp> {
        let is_silent = |answer: &Answer| match answer {
            Answer::Agent(report, words) => report.phase == AgentPhase::Running && !loads(words.as_deref()),
            Answer::Dead(_) | Answer::Redis(_) | Answer::TooLong(_) | Answer::Nobody => false,
        };
        let silent = answers.iter().filter(|(_, answer)| is_silent(answer));
        let since = |pod| self.silent.get(pod).copied().unwrap_or_else(|| seconds(Timestamp::now()));
        self.silent = silent.map(|(pod, _)| (*pod, since(pod))).collect();
        self.silent.clone()
    }

    /// Whether there is hope now that a node answers there soon, or does; and whether there was any lately.
    fn note_hope(&mut self, pod: Pod, is_now: bool, now: Instant) -> bool {
        let last = self.hope.entry(pod).or_insert(now);
        if is_now {
            *last = now;
        }
        now.saturating_duration_since(*last) < HOPE
    }

    /// Whether a node answered there a moment ago, and none does now.
    fn note_served(&mut self, pod: Pod, is_now: bool, now: Instant) -> bool {
        if is_now {
            self.served.insert(pod, now);
        }
        let last = self.served.get(&pod);
        !is_now && last.is_some_and(|last| now.saturating_duration_since(*last) < ANSWERED_LATELY)
    }

    /// Whether a node answers there, or may soon.
    fn note_signs(&mut self, observed: &mut Observed, pod: Pod, (serves, is_hope): (bool, bool), now: Instant) {
        let was_hope = self.note_hope(pod, is_hope, now);
        observed.hopeful.extend((was_hope && !serves).then_some(pod));
        observed.answered_lately.extend(self.note_served(pod, serves, now).then_some(pod));
    }

    /// Of places that are no more nothing is known.
    fn keep_places(&mut self, places: &BTreeMap<Pod, Place>) {
        self.hope.retain(|pod, _| places.contains_key(pod));
        self.served.retain(|pod, _| places.contains_key(pod));
        self.unknown.retain(|pod, _| places.contains_key(pod));
        self.answered.retain(|pod, _| places.contains_key(pod));
    }

    /// All slots are searched for keys of other owners anew.
    pub fn count_anew(&mut self) {
        self.counts.anew();
    }
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct Probed {
    /// When the look began: nothing in it is older, and whoever asks how old it is means its oldest answer. `None`: nobody was asked.
    pub begun: Option<Instant>,
    /// For the planner.
    pub observed: Observed,
    /// What else the nodes said, for the report and for backups.
    pub facts: BTreeMap<Pod, Facts>,
    /// Members that do not start on the image they have, and why.
    pub unusable: BTreeMap<Pod, String>,
    /// Members that have not been seen, and since when, as far as this process knows.
    pub unseen: BTreeMap<Pod, Timestamp>,
    /// Members whose servers run, as their agents say, and do not answer, and since when.
    pub silent: BTreeMap<Pod, Timestamp>,
    /// Members that wait for their volumes, which other pods still use, and for how many minutes.
    pub volume_in_use: BTreeMap<Pod, u64>,
    /// Members that Kubernetes cannot start, or whose agents wait for something first, and why.
    pub stuck: BTreeMap<Pod, String>,
    /// Members whose answers say nothing of them, with the words: they refuse, as while they load, or say more than is read.
    pub unread: BTreeMap<Pod, String>,
    /// Members that do not use the parameters they were given, and why.
    pub refused: BTreeMap<Pod, Refusal>,
    /// What members lost at their starts, as far as this process knows.
    pub lost: BTreeMap<Pod, LossReport>,
    /// Members whose containers end again and again, and their servers' last words.
    pub crashing: BTreeMap<Pod, String>,
    /// Members that answer us, but whose kubelets do not call their pods ready: no Service leads to them.
    pub unready: BTreeSet<Pod>,
}

/// Who is asked, and how.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// Cluster or Standalone.
    pub mode: Mode,
    /// Every write is to be kept in an append-only file.
    pub logs: bool,
    /// The user's parameters.
    pub parameters: &'a BTreeMap<String, String>,
    /// Where everybody should be.
    pub places: &'a BTreeMap<Pod, Place>,
    /// How Redis is reached.
    pub access: &'a Access,
    /// How agents are reached.
    pub agents: &'a agent::Agents,
    /// The name on their certificates.
    pub whose: &'a str,
}

impl Question<'_> {
    /// What the agent of a member says, if it answers in time and is the one of that pod.
    async fn report(self, pod: Pod, address: SocketAddr) -> Option<types::agent::AgentReport> {
        let own = &self.places.get(&pod)?.name;
        let report = self.agents.report(address.ip(), self.whose);
        let report = tokio::time::timeout(AGENT_DEADLINE, report).await.ok()?.ok()?;
        (report.pod == *own).then_some(report)
    }
}

/// Asks everybody. Never fails: who does not answer is Unknown.
pub async fn probe(question: Question<'_>, memory: &mut Memory) -> Probed {
    let begun = Instant::now();
    let given = |pod: &Pod| memory.patience.get(pod).copied().unwrap_or(PATIENCE.0);
    let asked: Vec<_> = question
        .places
        .iter()
        .map(|(pod, place)| (*pod, place, given(pod)))
        .map(|(pod, place, patience)| async move {
            let (asked, mut answer) = (Instant::now(), ask(question, place, patience).await);
            if let Answer::Agent(report, _) = &mut answer {
                ended::as_of(report, begun.elapsed());
            }
            (pod, (given_next(&answer, patience, asked.elapsed()), answer))
        })
        .collect();
    let asked: BTreeMap<Pod, (Duration, Answer)> =
        futures::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
    let slow = asked.iter().filter(|(_, (patience, _))| *patience > PATIENCE.0);
    memory.patience = slow.map(|(pod, (patience, _))| (*pod, *patience)).collect();
    let answers: BTreeMap<Pod, Answer> = asked.into_iter().map(|(pod, (_, answer))| (pod, answer)).collect();
    let mut probed = assemble(question, &answers, memory);
    elsewhere::look(question, &mut probed, &mut memory.elsewhere).await;
    ended::look(question, &mut probed, begun).await;
    count_foreign_keys(question, &mut probed, memory).await;
    if question.mode == Mode::Cluster {
        compare::look(question.access, &mut probed.observed, &mut memory.compared).await;
    }
    words::ask(question, &mut probed, &mut memory.words).await;
    losses::ask(question, &mut probed, &mut memory.losses).await;
    probed.begun = Some(begun);
    probed
}

/// What one member answered.
enum Answer {
    /// Kubernetes proves that no Redis runs there.
    Dead(Seen),
    /// Redis answered.
    Redis(Box<node::Raw>),
    /// Redis did not, or refused, in these words; its agent did.
    Agent(Box<types::agent::AgentReport>, Option<String>),
    /// Whoever did said more than is believed of a server.
    TooLong(String),
    /// Nobody did.
    Nobody,
}

/// It refuses until it has loaded, which comes by itself; whoever refuses otherwise needs a person.
fn loads(words: Option<&str>) -> bool {
    words.is_some_and(|words| ErrorReply::parse(words).kind == ErrorKind::Loading)
}

/// It lives, and refuses everything else until the script has ended (`-BUSY`).
fn runs_a_script(words: &str) -> bool {
    ErrorReply::parse(words).kind == ErrorKind::Busy
}

/// The words of whoever answered and said nothing of the member.
fn unread(answer: &Answer) -> Option<&str> {
    match answer {
        Answer::Agent(_, words) => words.as_deref(),
        Answer::TooLong(words) => Some(words),
        Answer::Dead(_) | Answer::Redis(_) | Answer::Nobody => None,
    }
}

/// How long a member is given next time: twice as long where its server runs and has not answered, half as long where it was quick.
fn given_next(answer: &Answer, patience: Duration, took: Duration) -> Duration {
    let next = match answer {
        Answer::Agent(report, _) if report.phase == AgentPhase::Running => patience.saturating_mul(2),
        Answer::Redis(_) if took < patience / 4 => patience / 2,
        Answer::Redis(_) => patience,
        Answer::Dead(_) | Answer::Agent(..) | Answer::TooLong(_) | Answer::Nobody => PATIENCE.0,
    };
    next.clamp(PATIENCE.0, PATIENCE.1)
}

async fn ask(question: Question<'_>, place: &Place, patience: Duration) -> Answer {
    let address = match &place.container {
        Container::None => return Answer::Dead(Seen::Absent),
        Container::Stopped => return Answer::Dead(Seen::Stopped),
        Container::Running { address } => *address,
        Container::Unreported => return Answer::Nobody,
    };
    let raw = node::ask(question, address, place, patience);
    let refusal = match tokio::time::timeout(patience, raw).await {
        Ok(Ok(raw)) => return Answer::Redis(Box::new(vouched(question, (address, place), raw).await)),
        Ok(Err(error)) if error.is_too_long() => return Answer::TooLong(crate::chain(&error)),
        Ok(Err(error)) => {
            tracing::debug!(%address, error = %crate::chain(&error), "Redis does not answer");
            error.refusal().map(|words| words.chars().take(place::WORDS_MOST).collect())
        }
        Err(_) => {
            tracing::debug!(%address, "Redis does not answer in time");
            None
        }
    };
    match tokio::time::timeout(AGENT_DEADLINE, question.agents.report(address.ip(), question.whose)).await {
        Ok(Ok(report)) if report.pod == place.name => Answer::Agent(Box::new(report), refusal),
        Ok(Ok(report)) => {
            tracing::debug!(%address, pod = %report.pod, expected = %place.name, "another pod's agent answers");
            Answer::Nobody
        }
        Ok(Err(error)) => {
            tracing::debug!(%address, error = %crate::chain(&error), "the agent does not answer");
            Answer::Nobody
        }
        Err(_) => Answer::Nobody,
    }
}

/// With what the agent knows of a replica that has lost its link, or that it does not let stand for election.
async fn vouched(question: Question<'_>, (address, place): (SocketAddr, &Place), mut raw: node::Raw) -> node::Raw {
    if raw.link_lost_millis().is_some() || raw.is_forbidden() {
        let report = question.agents.report(address.ip(), question.whose);
        let report = tokio::time::timeout(AGENT_DEADLINE, report).await.ok().and_then(Result::ok);
        let following = report.filter(|report| report.pod == place.name).and_then(|report| report.following);
        let following = following.filter(|one| NodeId::parse(&one.of).is_some_and(|of| raw.follows() == Some(of)));
        raw.vouched = following
            .map_or(node::Vouched::Not, |one| one.current_millis.map_or(node::Vouched::Never, node::Vouched::Millis));
    }
    raw
}

/// From answers to what the planner reads. Pure but for the clock inside `memory`.
fn assemble(question: Question<'_>, answers: &BTreeMap<Pod, Answer>, memory: &mut Memory) -> Probed {
    let now = Instant::now();
    let answered = answers.values().filter_map(|answer| match answer {
        Answer::Redis(raw) => Some(&**raw),
        Answer::Dead(_) | Answer::Agent(..) | Answer::TooLong(_) | Answer::Nobody => None,
    });
    memory.streams.note(answered, now);
    let shared = shared(question.places);
    let mut probed = Probed::default();
    for (pod, place) in question.places {
        let seen = match answers.get(pod) {
            Some(Answer::Dead(seen)) => seen.clone(),
            Some(Answer::Redis(raw)) => {
                probed.facts.insert(*pod, raw.facts.clone());
                probed.unready.extend((!place.ready).then_some(*pod));
                Seen::Node(Box::new(node::read(raw, &memory.streams, now)))
            }
            Some(Answer::Agent(report, _)) => {
                note_report(&mut probed, *pod, report);
                of_agent(report, || memory.unknown(*pod, now).0)
            }
            Some(Answer::TooLong(_) | Answer::Nobody) | None => {
                let (since_millis, at) = memory.unknown(*pod, now);
                probed.unseen.insert(*pod, at);
                Seen::Unknown { since_millis }
            }
        };
        if let Some(words) = answers.get(pod).and_then(unread) {
            probed.unread.insert(*pod, words.to_owned());
            probed.observed.busy.extend(runs_a_script(words).then_some(*pod));
        }
        if let Seen::Node(node) = &seen {
            memory.note_claim(*pod, node, now);
            memory.note_answer(*pod, node, &shared);
        }
        if !matches!(seen, Seen::Unknown { .. }) {
            memory.unknown.remove(pod);
        }
        // The next pod of that name may find another volume.
        if seen == Seen::Absent {
            memory.answered.remove(pod);
        }
        let is_down = matches!(seen, Seen::Absent | Seen::Stopped | Seen::Starting);
        probed.stuck.extend(place.stuck.clone().filter(|_| is_down).map(|why| (*pod, why)));
        let serves = matches!(seen, Seen::Node(_));
        probed.crashing.extend(place.crashes.clone().filter(|_| !serves).map(|why| (*pod, why)));
        let Place { outdated, terminating, last_id, .. } = *place;
        let last_id = memory.last_id(*pod, &seen, last_id);
        let waits = matches!(answers.get(pod), Some(Answer::Agent(report, _)) if ended::waits(report));
        let never = matches!(answers.get(pod), Some(Answer::Agent(report, _)) if is_hopeless(report));
        let stuck = never || is_down && probed.stuck.contains_key(pod) && !waits || probed.crashing.contains_key(pod);
        let is_there = matches!(answers.get(pod), Some(Answer::Agent(..))) && !matches!(seen, Seen::Held { .. });
        let is_hope = serves || is_there && !waits && !stuck;
        memory.note_signs(&mut probed.observed, *pod, (serves, is_hope), now);
        let member = Member { outdated, terminating, last_id, site: place.site.clone(), seen, waits, stuck };
        probed.observed.members.insert(*pod, member);
        probed.observed.older_volumes.extend(place.older_volume.then_some(*pod));
        probed.observed.blank.extend(place.blank.then_some(*pod));
    }
    probed.silent = memory.note_silence(answers);
    memory.keep_places(question.places);
    memory.forget_strangers(&probed.observed);
    memory.raised = false;
    recall(&mut probed.observed, memory, now);
    probed.observed.left_behind = left_behind::left_behind(&probed.observed, &probed.facts);
    probed.observed.further = left_behind::further(&probed.observed, &probed.facts);
    unlink_from_strangers(&mut probed, answers);
    probed
}

/// What is remembered of before, in the planner's terms.
fn recall(observed: &mut Observed, memory: &mut Memory, now: Instant) {
    let ago = |(shard, at): (&u16, &Instant)| (*shard, millis(now.saturating_duration_since(*at)));
    observed.failovers_asked = memory.failovers.iter().map(ago).collect();
    memory.refused.retain(|_, at| now.saturating_duration_since(*at) < REFUSED_LATELY);
    observed.failovers_refused = memory.refused.iter().map(ago).collect();
    observed.first_slot_held = memory.first_slots_that_rest(now);
    observed.elections = memory.elections.iter().map(ago).collect();
    observed.first_epochs = memory.first_epochs.clone();
    observed.introduced = memory.introductions(now);
    observed.former = memory.former(observed, now);
    observed.silent_marks = memory.marks.note(observed);
}

/// What an agent says beside what its member is.
fn note_report(probed: &mut Probed, pod: Pod, report: &types::agent::AgentReport) {
    probed.refused.extend(words::refusal(report).map(|why| (pod, why)));
    probed.unusable.extend(unusable(report).map(|why| (pod, why.to_owned())));
    probed.stuck.extend(waits_for(report).map(|why| (pod, why.to_owned())));
    probed.observed.elsewhere.extend(runs_at(report).map(|there| (pod, there.to_owned())));
    probed.observed.unsettled.extend(takes_no_release(report).then_some(pod));
    ended::tell(&mut probed.observed, report);
    if let Some(millis) = report.volume_in_use_millis {
        // Its age in seconds would be news at every look.
        probed.volume_in_use.insert(pod, millis / 60_000);
        probed.stuck.insert(pod, VOLUME_IN_USE.to_owned());
    }
}

/// Addresses of more than one place: one of them was given away, and whose answer comes from there does not show.
fn shared(places: &BTreeMap<Pod, Place>) -> BTreeSet<Address> {
    let (mut seen, mut shared) = (BTreeSet::new(), BTreeSet::new());
    for place in places.values() {
        let address = match &place.container {
            Container::Running { address } => address.to_string(),
            Container::None | Container::Stopped | Container::Unreported => continue,
        };
        if !seen.insert(address.clone()) {
            shared.insert(address);
        }
    }
    shared
}

/// A replica follows an address. Where somebody else than its primary answers there, and lets it in, it copies that one. While it is not let
/// in, it holds what its primary gave it, perhaps as the only one: a primary that came back blank is such a somebody.
fn unlink_from_strangers(probed: &mut Probed, answers: &BTreeMap<Pod, Answer>) {
    let hosts: BTreeMap<std::net::IpAddr, NodeId> =
        probed.facts.iter().filter_map(|(pod, facts)| Some((facts.address.ip(), id_at(answers, *pod)?))).collect();
    for (pod, member) in &mut probed.observed.members {
        let (Some(Answer::Redis(raw)), Seen::Node(node)) = (answers.get(pod), &mut member.seen) else { continue };
        let found = raw.source().and_then(|host| hosts.get(&host));
        if let Role::Replica { of, synced, link_up, .. } = &mut node.role
            && *link_up
            && found.is_some_and(|found| *found != *of)
        {
            (*synced, *link_up) = (false, false);
        }
    }
}

fn id_at(answers: &BTreeMap<Pod, Answer>, pod: Pod) -> Option<NodeId> {
    match answers.get(&pod)? {
        Answer::Redis(raw) => Some(raw.id),
        Answer::Dead(_) | Answer::Agent(..) | Answer::TooLong(_) | Answer::Nobody => None,
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Why the member does not start on the image it has.
fn unusable(report: &types::agent::AgentReport) -> Option<&str> {
    report.held_because.as_deref().filter(|_| is_hopeless(report) && report.refused.is_none())
}

/// Where the node runs already that is not started for that.
fn runs_at(report: &types::agent::AgentReport) -> Option<&str> {
    report.runs_at.as_deref().filter(|_| report.phase == AgentPhase::Held)
}

/// No word on this held member counts now.
fn takes_no_release(report: &types::agent::AgentReport) -> bool {
    report.takes_no_release && report.phase == AgentPhase::Held
}

/// What a start waits for that takes long.
fn waits_for(report: &types::agent::AgentReport) -> Option<&str> {
    report.waits_for.as_deref().filter(|_| report.phase == AgentPhase::Starting)
}

/// Nothing will be started before its pod, or what it is given, is another.
fn is_hopeless(report: &types::agent::AgentReport) -> bool {
    report.phase == AgentPhase::Starting && report.held_because.is_some()
}

/// What an agent says about a Redis that does not answer, for so many milliseconds.
fn of_agent(report: &types::agent::AgentReport, unknown_millis: impl FnOnce() -> u64) -> Seen {
    match report.phase {
        // No Redis runs there, and none will before the pod is another one.
        AgentPhase::Starting if is_hopeless(report) => Seen::Stopped,
        AgentPhase::Held => Seen::Held {
            holds_data: report.holds_data,
            id: report.node_id.as_deref().and_then(NodeId::parse),
            reason: report.held_because.clone().unwrap_or_else(|| "no reason given".to_owned()),
        },
        AgentPhase::Starting | AgentPhase::Running => Seen::Starting,
        // On its way down: what it still serves is not known, and its pod's end will be seen in Kubernetes. That may take its whole grace period,
        // and is no silence of a moment.
        AgentPhase::Stopping => Seen::Unknown { since_millis: unknown_millis() },
    }
}

/// Counts the keys that primaries hold in slots they do not own, as far as one look gets. A node without any key holds none of others,
/// and a replica holds its primary's.
async fn count_foreign_keys(question: Question<'_>, probed: &mut Probed, memory: &mut Memory) {
    if question.mode == Mode::Standalone {
        return;
    }
    for member in probed.observed.members.values_mut() {
        if let Seen::Node(node) = &mut member.seen
            && node.is_primary()
        {
            count::Counts::presume(node);
        }
    }
    let (marked, now) = (marked(&probed.observed), Instant::now());
    let holds = |node: &&plan::Node| node.is_primary() && node.keys > 0;
    let mut asked = Vec::new();
    for node in nodes(&probed.observed).filter(holds) {
        let Ok(address) = node.address.parse::<SocketAddr>() else { continue };
        let (count, slots) = memory.counts.begin(node, &marked, now);
        let (access, id) = (question.access, node.id);
        asked.push(async move { (id, count.go_on(access, address, id, slots).await) });
    }
    let counted: Vec<_> = futures::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
    let mut counted: BTreeMap<NodeId, count::Count> = counted.into_iter().collect();
    for member in probed.observed.members.values_mut() {
        if let Seen::Node(node) = &mut member.seen
            && let Some(count) = counted.remove(&node.id)
        {
            memory.counts.end(node, count);
        }
    }
    let seen: BTreeSet<NodeId> = nodes(&probed.observed).filter(holds).map(|node| node.id).collect();
    memory.counts.keep(|id| seen.contains(&id));
}

/// Every slot with a mark on any node.
fn marked(observed: &Observed) -> SlotSet {
    nodes(observed)
        .flat_map(|node| node.open.iter())
        .map(|(slot, mark)| match mark {
            Open::Migrating(_) | Open::Importing(_) => *slot,
        })
        .collect()
}

/// The nodes that answered.
pub fn nodes(observed: &Observed) -> impl Iterator<Item = &plan::Node> {
    observed.members.values().filter_map(Member::node)
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
