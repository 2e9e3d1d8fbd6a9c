//! The start guard: gathers facts and asks [`crate::start`] until redis-server may be started. I/O around that decision.

use std::{collections::BTreeSet, fs, io::ErrorKind, net::SocketAddr, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::{Instant, sleep};
use types::{agent::AgentPhase, cluster::Mode};

use crate::{
    admission,
    alive::{self, Alive},
    disk::{self, AOF_DIR, NODES_FILE, RDB_FILE, Survey},
    handover,
    identity::{self, Identity, Verdict},
    lag::{self, Lag},
    last_save,
    marker::{self, Owner},
    origin,
    peers::{Answers, hear},
    shared::Shared,
    start::{
        self, Asked, Double, Facts, Owed, Start, Takeover,
        double::{self, Elsewhere},
    },
    wait::Wait,
};

/// Pause between two looks while something is expected to change at once.
const SOON: Duration = Duration::from_millis(100);
/// For how long one look and the pause before it count as waiting: two rounds of questions take two seconds if all of few are silent, and longer if many
/// are. While the machine stood still nobody was heard, so no single look is [`start::PEERS_LIMIT`].
const LOOK: Duration = Duration::from_millis(2500);
/// Pause between two looks while held.
const LATER: Duration = Duration::from_millis(1000);

/// How redis-server is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// What lies on disk now.
    pub survey: Survey,
    /// Replicas may connect as soon as it runs.
    pub lets_replicas_in: bool,
}

/// Waits until redis-server may be started, and makes room for it.
///
/// # Errors
/// When the data directory cannot be read or written.
pub async fn admit(shared: &Arc<Shared>) -> Result<Admission, disk::Error> {
    let now = Instant::now();
    let mut since = Since { first: now, began: now, waited: Duration::ZERO, looked: now };
    let mut asked: Option<(resp::NodeId, Instant)> = None;
    let (mut last, mut seen, mut wait) = (None, Seen::default(), Wait::begun());
    loop {
        let (facts, elsewhere) = gather(shared, since, asked.as_ref(), seen).await?;
        // Peers are waited for once it may be dead: a link may look up for longer than they are.
        since.waited = if elsewhere.may_feed() { Duration::ZERO } else { facts.waited };
        since.looked = Instant::now();
        seen = Seen::of(&facts, elsewhere.clone());
        let dir = &shared.options.data_dir;
        // Not under a process that may be writing there; and what is decided is decided by what counts afterwards.
        if facts.double.is_none() && facts.unheard.is_none() && facts.foreign.is_none() && last_save::is_noted(dir) {
            settle(shared).await;
            continue;
        }
        if facts.double.is_some() {
            // Only when that process ends the member is dead. What was heard until then is of before. Who was fed until it
            // was heard for the last time may have had everything.
            if let Some(alive) = elsewhere.alive() {
                since.began = since.began.max(alive);
            }
            (since.waited, asked) = (Duration::ZERO, None);
            seen = Seen { elsewhere, ..Seen::default() };
        }
        let decision = decide(shared, &facts);
        // Reasons count milliseconds: only a decision of another kind is news.
        let is_news = last.replace(std::mem::discriminant(&decision)) != Some(std::mem::discriminant(&decision));
        if is_news {
            tracing::debug!(?decision, "start");
        }
        let pause = match decision {
            Start::AsIs { why } => {
                wait.over(why);
                return admission(shared);
            }
            Start::Over { lost } => {
                wait.over(&lost);
                shared.tell_loss(lost);
                return admission(shared);
            }
            Start::Follow { .. } => return admission(shared),
            Start::Blank { quarantine } => return blank(shared, quarantine),
            Start::AskFailover { replica, address, how } => {
                shared.enter(AgentPhase::Starting, None);
                seen.took_over.extend((how == Takeover::ByItself).then(|| replica.clone()));
                hand_on(shared, &facts.verdict, (&replica, address), how).await;
                asked = Some((replica, Instant::now()));
                SOON
            }
            Start::Wait { reason } => {
                shared.enter(AgentPhase::Starting, None);
                wait.tell(shared, &reason);
                SOON
            }
            Start::Listen { reason } => {
                listen(shared, &reason, is_news);
                SOON
            }
            Start::Hold { reason } => {
                wait = Wait::begun();
                shared.enter(AgentPhase::Held, Some(reason));
                LATER
            }
        };
        let mut released = shared.released.subscribe();
        tokio::select! {
            () = sleep(pause) => {}
            _ = released.changed() => {}
        }
    }
}

/// Others are heard. What was waited for before is not what it waits for now.
fn listen(shared: &Shared, reason: &str, is_news: bool) {
    if is_news {
        tracing::info!(reason, "redis-server is not started yet");
    }
    shared.enter(AgentPhase::Starting, None);
    shared.tell_wait(None);
}

/// Who is to follow has a record that says so, or is held.
fn decide(shared: &Arc<Shared>, facts: &Facts) -> Start {
    match start::decide_start(facts) {
        Start::Follow { heir } => match let_follow(shared, facts, &heir) {
            None => Start::Follow { heir },
            Some(reason) => Start::Hold { reason },
        },
        other => other,
    }
}

/// Has its own record be that of a replica. Where that cannot be, Redis finds out by itself, if it owned slots; else why it is held: it would be a
/// primary beside its heir for ever.
fn let_follow(shared: &Arc<Shared>, facts: &Facts, heir: &resp::NodeId) -> Option<String> {
    // Its own word, by which it is known to have taken over.
    let line = facts.peers.get(heir).and_then(start::Peer::myself);
    let why = match follow(shared, heir, line.map_or(0, |line| line.config_epoch)) {
        Ok(true) => None,
        Ok(false) => Some("it does not name it".to_owned()),
        Err(error) => Some(error.to_string()),
    };
    match why {
        Some(why) if start::has_an_heir_it_never_hears_of(facts) => Some(format!(
            "replica {heir} has taken over, and nodes.conf here cannot be made that of its replica: {why}; what lies here is set aside, and it begins \
             anew as its replica, as soon as the controller says so"
        )),
        why => {
            tracing::info!(%heir, "a replica has taken over; redis-server starts as its replica");
            if let Some(why) = why {
                tracing::warn!(why, "its own record still calls it a primary");
            }
            None
        }
    }
}

async fn hand_on(shared: &Shared, verdict: &Verdict, (replica, address): (&resp::NodeId, SocketAddr), how: Takeover) {
    tracing::info!(%replica, %address, ?how, "asking a replica to take over: this process is dead");
    match shared.asker().force_failover(replica, address, how).await {
        Ok(mut heir) => handover::mark(&mut heir, replica, &mut marks(verdict, how)).await,
        Err(error) => tracing::warn!(%replica, %error, "the replica did not accept"),
    }
}

/// What a replica is told that leads from the order on: it knows nothing of slots that were on their way to a member without any. Pure.
fn marks(verdict: &Verdict, how: Takeover) -> Vec<resp::Command> {
    match (how, verdict) {
        (Takeover::ByItself, Verdict::Intact(me)) if me.was_given_its_first() => {
            handover::imports(&me.importing).collect()
        }
        (Takeover::ByItself | Takeover::Elected, Verdict::Intact(_) | Verdict::Blank | Verdict::Damaged { .. }) => {
            Vec::new()
        }
    }
}

/// Since when the start has been waited for, and how much of that counts.
#[derive(Clone, Copy)]
struct Since {
    first: Instant,
    /// Since when the member is dead for all that is known.
    began: Instant,
    /// So much counts as waiting.
    waited: Duration,
    /// When the last look ended.
    looked: Instant,
}

/// What outlasts the looks in which its witness is silent.
#[derive(Default)]
struct Seen {
    owed: Owed,
    ahead: BTreeSet<resp::NodeId>,
    took_over: BTreeSet<resp::NodeId>,
    followers: BTreeSet<resp::NodeId>,
    given_up: bool,
    elsewhere: Elsewhere,
}

impl Seen {
    fn of(facts: &Facts, elsewhere: Elsewhere) -> Self {
        Self {
            owed: facts.owed.clone(),
            ahead: facts.ahead.clone(),
            took_over: facts.took_over.clone(),
            followers: facts.followers.clone(),
            given_up: facts.given_up,
            elsewhere,
        }
    }
}

async fn gather(
    shared: &Arc<Shared>,
    since: Since,
    asked: Option<&(resp::NodeId, Instant)>,
    mut seen: Seen,
) -> Result<(Facts, Elsewhere), disk::Error> {
    let inputs = shared.inputs();
    let survey = disk::survey(&shared.options.data_dir)?;
    let verdict = identity::judge(survey.nodes.as_deref());
    // Of a leader what lags is none of what it had.
    let is_leader = matches!(&verdict, Verdict::Intact(me) if me.led());
    let lags = is_leader && Lag::read(&shared.options.data_dir)?.lags();
    let holds_data = survey.holds_data() && !lags;
    let foreign = foreign(shared)?;
    let alive = alive::read(&shared.options.data_dir);
    shared.set_alive(alive.clone().filter(|_| foreign.is_none()));
    // Those who count most are asked first, and say for how long they have had no link: how long all of them are asked is no part of that.
    let began = since.began.elapsed();
    let (answers, double, unheard) = match &verdict {
        // Another member's node runs where that one is, as it should.
        Verdict::Intact(me) if foreign.is_none() && inputs.config.mode == Mode::Cluster => {
            ask(shared, me, since.first, (&mut seen.elsewhere, &seen.followers)).await
        }
        Verdict::Intact(_) | Verdict::Blank | Verdict::Damaged { .. } => (Answers::default(), None, None),
    };
    let is_voter_late = match &verdict {
        Verdict::Intact(me) if !me.led() => {
            hear::is_any_open(start::late_voters(me, &answers.peers, &answers.unsaid)).await
        }
        Verdict::Intact(_) | Verdict::Blank | Verdict::Damaged { .. } => false,
    };
    if let Some(beat) = answers.copies.values().max() {
        shared.outgrow(*beat);
    }
    let mut facts = Facts {
        mode: inputs.config.mode,
        holds_data,
        lags,
        foreign,
        double,
        unheard,
        written: survey.written,
        beat: alive.as_ref().map(|alive| alive.beat),
        copies: answers.copies,
        owed: seen.owed,
        ahead: seen.ahead,
        took_over: seen.took_over,
        followers: seen.followers,
        former: alive.as_ref().and_then(Alive::former),
        recorded_former: recorded_former(&verdict, alive.as_ref()),
        has_led_unnoted: matches!(&verdict, Verdict::Intact(me) if start::has_led_unnoted(me, alive.as_ref())),
        given_up: seen.given_up,
        has_log: survey.aof && !lags && last_save::is_log_whole(&shared.options.data_dir),
        snapshot: (holds_data && survey.rdb && !survey.aof).then(|| origin::read(&shared.options.data_dir)).flatten(),
        stream: alive.and_then(|alive| alive.stream),
        served_since: alive::is_later(&shared.options.data_dir, survey.written),
        keeps_each_write: inputs.config.append_only.keeps_every_write(),
        verdict,
        peers: answers.peers,
        is_voter_late,
        node_timeout: shared.local.node_timeout(),
        waited: since.waited + since.looked.elapsed().min(LOOK),
        began,
        asked: asked.map(|(replica, at)| Asked { replica: replica.clone(), ago: at.elapsed() }),
        // It was said of this look: a word that is not followed is none for a later one, in which somebody may be silent. It is said again.
        released: shared.released.send_replace(None),
    };
    start::count_unnoted_lead(&mut facts);
    facts.followers = start::followers(&facts);
    remember(&mut facts);
    facts.ahead = start::ahead(&facts);
    facts.given_up = start::is_given_up(&facts);
    publish(shared, &facts);
    Ok((facts, seen.elsewhere))
}

/// Who has more. That others know a later epoch is told with their words: the record alone does not show why.
fn remember(facts: &mut Facts) {
    let before = facts.owed.epoch;
    facts.owed = start::remember(facts);
    if let (Some(_), Verdict::Intact(me)) = (facts.owed.epoch.filter(|_| facts.owed.epoch != before), &facts.verdict) {
        let line = |(id, peer): (&resp::NodeId, &start::Peer)| {
            let line = peer.table.iter().find(|node| node.id == me.id)?;
            Some((id.to_string(), line.config_epoch, line.flags, line.slots.clone()))
        };
        let told: Vec<_> = facts.peers.iter().filter_map(line).collect();
        tracing::warn!(epoch = me.config_epoch, role = ?me.role, slots = ?me.slots, ?told, "others know a later epoch of this member");
    }
}

fn recorded_former(verdict: &Verdict, alive: Option<&Alive>) -> Option<resp::NodeId> {
    match verdict {
        Verdict::Intact(me) => start::recorded_former(me, alive.map(|alive| alive.beat)),
        Verdict::Blank | Verdict::Damaged { .. } => None,
    }
}

/// Asks the others, and whoever is where this node is said to be: where it runs, and else where it may.
async fn ask(
    shared: &Arc<Shared>,
    me: &Identity,
    first: Instant,
    (elsewhere, followers): (&mut Elsewhere, &BTreeSet<resp::NodeId>),
) -> (Answers, Option<Double>, Option<SocketAddr>) {
    let (asker, here, pod) = (shared.asker(), shared.address(), shared.options.pod_name.as_str());
    // What is heard may be from the beginning of the look.
    let age = first.elapsed();
    let recorded = elsewhere.due(&double::recorded(me, here), Instant::now());
    let others = asker.gather(&me.peers, &me.id);
    let (answers, mut heard) = tokio::join!(others, asker.hear(&me.id, pod, recorded.clone()));
    let told = elsewhere.due(&double::told(me, &answers.peers, here), Instant::now());
    heard.extend(asker.hear(&me.id, pod, told.difference(&recorded).copied().collect()).await);
    let late = double::late(me, &answers.peers, followers, &answers.unsaid);
    elsewhere.note_replicas(hear::is_any_open(late).await);
    for (at, fed) in double::feeds(me, &answers.peers, (&*elsewhere, &heard), (here, age)) {
        heard.retain(|(asked, _)| *asked != at);
        heard.push((at, fed));
    }
    elsewhere.note(heard, Instant::now());
    (answers, elsewhere.runs_at().map(|there| Double { here, there }), elsewhere.unheard())
}

/// Tells what lies here, after what others say of it: the controller may release as it is what has a node ID.
fn publish(shared: &Arc<Shared>, facts: &Facts) {
    // Another member's identity is nothing that could be released here, and of what a replica has more of nobody but that replica may
    // say what the shard holds. Whoever was given up, or cannot be made a replica of its heir, has no identity to come back to: what it holds is set
    // aside.
    let follows = start::has_an_heir_it_never_hears_of(facts);
    let is_its_own = facts.foreign.is_none() && facts.owed.is_empty() && !facts.given_up && !follows;
    shared.report.send_modify(|report| {
        report.node_id = facts.verdict.node_id().filter(|_| is_its_own).map(ToString::to_string);
        // A snapshot that is to count has what files lack that do not count.
        report.holds_data = facts.holds_data || last_save::is_noted(&shared.options.data_dir);
        let runs_at = facts.double.map(|double| double.there.to_string());
        // Who reads this between two looks must not take it for one that is held for another reason: a replica would be given its place.
        if report.runs_at.is_some() && runs_at.is_none() {
            (report.phase, report.held_because) = (AgentPhase::Starting, None);
        }
        report.runs_at = runs_at;
    });
}

/// Has what counts be what is loaded. While that cannot be done nothing is started: it would be the older of two data sets.
async fn settle(shared: &Arc<Shared>) {
    let dir = &shared.options.data_dir;
    disk::remove_leftovers(dir);
    match last_save::settle(dir, shared.local.logs_writes(), false) {
        Ok(()) => {
            if shared.let_last_save_wait(false) {
                shared.enter(AgentPhase::Starting, None);
            }
        }
        Err(error) => {
            shared.let_last_save_wait(true);
            shared.enter(AgentPhase::Held, Some(unsettled(&error)));
            sleep(LATER).await;
        }
    }
}

/// Why a member is held whose last snapshot does not count yet, and what helps. Pure.
fn unsettled(error: &disk::Error) -> String {
    let (disk::Error::Read { source, .. } | disk::Error::Write { source, .. }) = error;
    let is_full = matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
    let (lacks, next) = if is_full {
        (", for which some KiB of room are missing", "make room on its volume, or make spec.storage.size larger: it")
    } else {
        ("", "it")
    };
    format!(
        "what redis-server saved last cannot be made what it loads{lacks}: {error}; {next} is tried again by itself"
    )
}

/// Makes the member's own record that of a replica. `false`: it does not name that primary.
fn follow(shared: &Arc<Shared>, heir: &resp::NodeId, epoch: u64) -> Result<bool, disk::Error> {
    let dir = &shared.options.data_dir;
    let file = disk::survey(dir)?.nodes.and_then(|bytes| String::from_utf8(bytes).ok());
    match file.and_then(|file| identity::following(&file, heir, epoch)) {
        Some(text) => disk::replace(dir, NODES_FILE, text.as_bytes()).map(|()| true),
        None => Ok(false),
    }
}

fn blank(shared: &Arc<Shared>, quarantine: bool) -> Result<Admission, disk::Error> {
    let dir = &shared.options.data_dir;
    fs::create_dir_all(dir).map_err(|source| disk::Error::Write { path: dir.clone(), source })?;
    if quarantine {
        let all = [NODES_FILE, RDB_FILE, AOF_DIR, alive::FILE, lag::FILE, last_save::FILE];
        let moved = disk::quarantine(dir, Timestamp::now(), &all)?;
        tracing::warn!(to = ?moved, "files were moved away and are kept; redis-server starts as a blank node");
    }
    shared.set_alive(None);
    admission(shared)
}

/// What lies there is this member's from now on.
fn admission(shared: &Arc<Shared>) -> Result<Admission, disk::Error> {
    let (dir, member) = (&shared.options.data_dir, shared.member());
    if marker::read(dir)? != Owner::Member(member.clone()) {
        marker::write(dir, &member)?;
    }
    // What is tidied away tells what counts.
    let survey = disk::survey(dir)?;
    lag::tidy(dir, survey.aof)?;
    disk::remove_leftovers(dir);
    let verdict = identity::judge(survey.nodes.as_deref());
    // What was moved away is none of what runs.
    shared.report.send_modify(|report| {
        report.node_id = verdict.node_id().map(ToString::to_string);
        report.holds_data = survey.holds_data();
        report.runs_at = None;
    });
    let lets_replicas_in = admission::from_the_start(shared.inputs().config.mode, &verdict);
    Ok(Admission { survey, lets_replicas_in })
}

/// Whose data lies there, if it is not this member's.
fn foreign(shared: &Arc<Shared>) -> Result<Option<String>, disk::Error> {
    let me = shared.member();
    Ok(match marker::read(&shared.options.data_dir)? {
        Owner::Nobody => None,
        Owner::Member(owner) if owner == me => None,
        Owner::Member(owner) => Some(format!("the volume holds the data of {owner}, and this is {me}")),
        Owner::Illegible => Some(format!("{} on the volume does not say whose data it holds", marker::FILE)),
    })
}

#[cfg(test)]
mod tests;
