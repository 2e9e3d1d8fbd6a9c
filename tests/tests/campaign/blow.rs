//! Blows: who is hit, how, when, and what ends it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use resp::{Connection, Credentials, Options};
use rustix::process::Signal;
use tests::{
    fixture::Fixture,
    oracle,
    standalone::{Process, Standalone},
};
use types::names;

use super::{
    Chance,
    excuse::{Hit, How},
};

/// Who of a shard is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Primary,
    Replica,
    All,
}

/// What is done to whom.
#[derive(Clone, Copy, Debug)]
pub(super) enum Blow {
    KillServer(u16, Member),
    KillAgent(u16, Member),
    HoldServer(u16, Member, Duration),
    HoldAgent(u16, Member, Duration),
    /// The replication of a shard breaks, and cannot be made anew for a while.
    BreakLink(u16, Duration),
    /// The volume of one member is emptied under it while its fellow is whole.
    Wipe(u16, Member),
    KillKun(Duration),
}

/// A blow, and how long after the operation was asked for.
pub(super) struct Moment {
    pub(super) after: Duration,
    pub(super) blow: Blow,
}

impl Moment {
    /// One or two blows, in the order of their moments. A member whose fellow is hit in the same round is not wiped.
    pub(super) fn some(chance: &mut Chance, shards: u16) -> Vec<Self> {
        let mut moments = vec![Self::one(chance, shards)];
        if chance.one_in(2) {
            let second = Self::one(chance, shards);
            let wiped = |moment: &Self| matches!(moment.blow, Blow::Wipe(..));
            let same = moments
                .iter()
                .any(|first| (wiped(first) || wiped(&second)) && (first.blow.shard() == second.blow.shard()));
            if !same {
                moments.push(second);
            }
        }
        moments.sort_by_key(|moment| moment.after);
        moments
    }

    fn one(chance: &mut Chance, shards: u16) -> Self {
        // Soon, while it is carried out, or as late as a long operation takes.
        let latest = [300, 3000, 10_000].get(usize::try_from(chance.below(3)).unwrap_or_default()).copied();
        let after = chance.time(0, latest.unwrap_or(300));
        let shard = u16::try_from(chance.below(u64::from(shards))).unwrap_or_default();
        let member = if chance.one_in(3) { Member::Replica } else { Member::Primary };
        let blow = match chance.below(11) {
            0 | 1 => Blow::KillServer(shard, member),
            2 | 3 => Blow::KillServer(shard, Member::All),
            4 => Blow::KillAgent(shard, if chance.one_in(2) { Member::All } else { member }),
            5 | 6 => Blow::HoldServer(shard, member, chance.time(200, 7000)),
            7 => Blow::HoldAgent(shard, member, chance.time(200, 7000)),
            8 => Blow::BreakLink(shard, chance.time(500, 8000)),
            9 => Blow::Wipe(shard, member),
            _ => Blow::KillKun(chance.time(0, 5000)),
        };
        Self { after, blow }
    }
}

impl Blow {
    fn shard(self) -> Option<u16> {
        match self {
            Self::KillServer(shard, _)
            | Self::KillAgent(shard, _)
            | Self::HoldServer(shard, ..)
            | Self::HoldAgent(shard, ..)
            | Self::BreakLink(shard, _)
            | Self::Wipe(shard, _) => Some(shard),
            Self::KillKun(_) => None,
        }
    }
}

/// How long servers are waited for whose agents were killed: without kun they serve on until the next agents take them down.
const LEFT_BEHIND: Duration = Duration::from_secs(2);

/// What ends a blow.
enum End {
    Wake(Process),
    MendLink { replica: SocketAddr, password: String },
    StartKun,
}

/// Who felt a blow, and how.
struct Felt<'a> {
    shard: u16,
    member: Member,
    found: &'a [Found],
    how: How,
}

/// One member as it is at the moment of a blow.
struct Found {
    pod: String,
    address: SocketAddr,
    is_primary: bool,
    in_sync: bool,
    slots: BTreeSet<u16>,
}

/// The blows of a round.
pub(super) struct Blows {
    operator: Credentials,
    /// As kun last told them: it may be dead when they are needed.
    addresses: BTreeMap<String, SocketAddr>,
    ends: Vec<(Instant, usize, End)>,
    hits: Vec<Hit>,
    told: Vec<(Instant, String)>,
}

impl Blows {
    pub(super) async fn on(fixture: &Fixture) -> Result<Self> {
        let operator = oracle::credentials(&fixture.kubectl, "default", "orders", names::USER_OPERATOR).await?;
        let addresses = fixture.addresses().await?;
        Ok(Self { operator, addresses, ends: Vec::new(), hits: Vec::new(), told: Vec::new() })
    }

    /// What was done, in words; who felt it.
    pub(super) fn told(self, begin: Instant) -> (Vec<Hit>, String) {
        let words = self.told.iter().map(|(at, what)| format!("+{:.2} s {what}", (*at - begin).as_secs_f64()));
        (self.hits, words.collect::<Vec<_>>().join(", "))
    }

    /// Until `moment`: what ends before it is ended in its time.
    pub(super) async fn end_until(&mut self, fixture: &mut Fixture, moment: Instant) -> Result<()> {
        self.ends.sort_by_key(|(at, ..)| *at);
        while self.ends.first().is_some_and(|(at, ..)| *at <= moment) {
            let (at, hit, end) = self.ends.remove(0);
            tokio::time::sleep_until(at.into()).await;
            self.end(fixture, hit, end).await?;
        }
        tokio::time::sleep_until(moment.into()).await;
        Ok(())
    }

    pub(super) async fn end_all(&mut self, fixture: &mut Fixture) -> Result<()> {
        let last = self.ends.iter().map(|(at, ..)| *at).max();
        self.end_until(fixture, last.unwrap_or_else(Instant::now)).await
    }

    async fn end(&mut self, fixture: &mut Fixture, hit: usize, end: End) -> Result<()> {
        let ends = Instant::now();
        match end {
            // It may have been killed meanwhile, by somebody who waited for it.
            End::Wake(process) => {
                if process.runs() {
                    process.signal(Signal::CONT)?;
                }
            }
            // A member that was started again has the right password.
            End::MendLink { replica, password } => {
                if let Ok(mut replica) = self.operator(replica).await {
                    replica.config_set("masterauth", &password).await.ok();
                }
            }
            End::StartKun => fixture.kun.resume().await?,
        }
        if let Some(hit) = self.hits.get_mut(hit) {
            (hit.ends, hit.until) = (ends, Instant::now());
        }
        Ok(())
    }

    /// One blow. One that meets nobody, because who was to be hit is away already, is told and counts as none.
    pub(super) async fn strike(&mut self, fixture: &mut Fixture, blow: Blow) -> Result<()> {
        let at = Instant::now();
        if fixture.kun.pid().is_some()
            && let Ok(addresses) = fixture.addresses().await
        {
            self.addresses = addresses;
        }
        let what = match self.carry_out(fixture, blow).await {
            Ok(who) => format!("{blow:?} {who}"),
            Err(why) => format!("{blow:?} met nobody ({why:#})"),
        };
        self.told.push((at, what));
        Ok(())
    }

    async fn carry_out(&mut self, fixture: &mut Fixture, blow: Blow) -> Result<String> {
        let kun = &fixture.kun;
        match blow {
            Blow::KillServer(shard, member) => {
                let found = self.members(shard, member).await?;
                let processes = servers(kun, &found)?;
                self.kill(shard, member, &found, (&processes, &[])).await?;
                Ok(pods(&found))
            }
            Blow::KillAgent(shard, member) => {
                let found = self.members(shard, member).await?;
                let (processes, servers) = (agents(kun, &found)?, servers(kun, &found).unwrap_or_default());
                self.kill(shard, member, &found, (&processes, &servers)).await?;
                Ok(pods(&found))
            }
            Blow::HoldServer(shard, member, time) => {
                let found = self.members(shard, member).await?;
                let processes = servers(kun, &found)?;
                self.hold(shard, member, &found, processes, How::Held, time)?;
                Ok(pods(&found))
            }
            Blow::HoldAgent(shard, member, time) => {
                let found = self.members(shard, member).await?;
                let processes = agents(kun, &found)?;
                self.hold(shard, member, &found, processes, How::Beside, time)?;
                Ok(pods(&found))
            }
            Blow::Wipe(shard, member) => self.wipe(kun, shard, member).await,
            Blow::BreakLink(shard, time) => self.break_link(kun, shard, time).await,
            Blow::KillKun(time) => {
                anyhow::ensure!(kun.pid().is_some(), "it is dead");
                let from = Instant::now();
                fixture.kun.kill().await?;
                self.hit(
                    from,
                    Felt { shard: 0, member: Member::Replica, found: &[], how: How::Beside },
                    Some((time, End::StartKun)),
                );
                Ok("kun".to_owned())
            }
        }
    }

    /// Notes a blow that has been dealt since `from`.
    fn hit(&mut self, from: Instant, felt: Felt<'_>, end: Option<(Duration, End)>) {
        self.hit_at(from, Instant::now(), felt, end);
    }

    fn hit_at(&mut self, from: Instant, at: Instant, felt: Felt<'_>, end: Option<(Duration, End)>) {
        let Felt { shard, member, found, how } = felt;
        let slots = found.iter().flat_map(|member| member.slots.iter().copied()).collect();
        if let Some((time, end)) = end {
            self.ends.push((at + time, self.hits.len(), end));
        }
        self.hits.push(Hit { shard, member, from, at, ends: at, until: at, slots, how });
    }

    /// One that was gone already is noted with those that were not. Servers end a moment after their agents, and take writes until then.
    async fn kill(
        &mut self,
        shard: u16,
        member: Member,
        found: &[Found],
        (processes, servers): (&[Process], &[Process]),
    ) -> Result<()> {
        let from = Instant::now();
        let killed = processes.iter().try_for_each(Process::kill);
        let at = Instant::now();
        while servers.iter().any(Process::runs) && from.elapsed() < LEFT_BEHIND {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // One that serves on is taken down by the next agent, and loses nothing by that.
        let at = if servers.iter().any(Process::runs) { at } else { Instant::now() };
        self.hit_at(from, at, Felt { shard, member, found, how: How::Killed }, None);
        killed
    }

    fn hold(
        &mut self,
        shard: u16,
        member: Member,
        found: &[Found],
        processes: Vec<Process>,
        how: How,
        time: Duration,
    ) -> Result<()> {
        for process in processes {
            let from = Instant::now();
            process.signal(Signal::STOP)?;
            self.hit(from, Felt { shard, member, found, how }, Some((time, End::Wake(process))));
        }
        Ok(())
    }

    /// Stopped, emptied and killed, so that it is back, blank, within a moment.
    async fn wipe(&mut self, kun: &Standalone, shard: u16, member: Member) -> Result<String> {
        let all = self.members(shard, Member::All).await?;
        anyhow::ensure!(all.iter().filter(|found| found.is_primary).count() == 1, "there is not one primary");
        anyhow::ensure!(all.iter().all(|found| found.in_sync), "its fellow is not whole");
        let found = self.members(shard, member).await?;
        let processes = servers(kun, &found)?;
        let from = Instant::now();
        let emptied = processes.iter().try_for_each(empty);
        self.hit(from, Felt { shard, member, found: &found, how: How::Wiped }, None);
        emptied?;
        Ok(pods(&found))
    }

    /// The replica cannot log in any more, and its primary gives it up.
    async fn break_link(&mut self, kun: &Standalone, shard: u16, time: Duration) -> Result<String> {
        let primary = self.members(shard, Member::Primary).await?;
        let replica = self.members(shard, Member::Replica).await?;
        let (first, second) = primary.first().zip(replica.first()).context("a pair")?;
        let mut at_primary = self.operator(first.address).await?;
        let mut at_replica = self.operator(second.address).await?;
        let password = at_replica.config_get(&["masterauth"]).await?.remove("masterauth").context("masterauth")?;
        let process = kun.redis_server(second.address)?;
        let from = Instant::now();
        at_replica.config_set("masterauth", "wrong").await?;
        let end = End::MendLink { replica: second.address, password };
        let felt = Felt { shard, member: Member::Replica, found: &replica, how: How::Beside };
        self.hit(from, felt, Some((time, end)));
        at_primary.config_set("repl-timeout", "1").await?;
        process.signal(Signal::STOP)?;
        let given_up = async {
            while at_primary.info(&["replication"]).await?.number("connected_slaves") != Some(0) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(hung::answer(), given_up).await.ok();
        if process.runs() {
            process.signal(Signal::CONT)?;
        }
        at_primary.config_set("repl-timeout", "60").await.ok();
        Ok(pods(&replica))
    }

    async fn operator(&self, address: SocketAddr) -> Result<Connection> {
        let mut options = Options::new(address).credentials(self.operator.clone()).deadline(ASKED);
        options.connect_timeout = ASKED;
        Ok(Connection::open(&options).await?)
    }

    /// Members of a shard by what they say of themselves, now. Who does not answer is nobody's primary.
    async fn members(&self, shard: u16, which: Member) -> Result<Vec<Found>> {
        let of_shard = format!("{}-", names::shard("orders", shard));
        let mut found = Vec::new();
        for (pod, address) in self.addresses.iter().filter(|(pod, _)| pod.starts_with(&of_shard)) {
            match (self.look(pod, *address).await, which) {
                (Ok(member), Member::All) => found.push(member),
                (Ok(member), Member::Primary) if member.is_primary => found.push(member),
                (Ok(member), Member::Replica) if !member.is_primary => found.push(member),
                (Ok(_) | Err(_), _) => {}
            }
        }
        anyhow::ensure!(!found.is_empty(), "no such member answers");
        Ok(found)
    }

    async fn look(&self, pod: &str, address: SocketAddr) -> Result<Found> {
        let mut connection = self.operator(address).await?;
        let info = connection.info(&["replication"]).await?;
        let table = connection.cluster_nodes().await?;
        let own = table.iter().find(|node| node.flags.myself).context("no line of its own")?;
        let is_primary = info.get("role") == Some("master");
        let up = info.get("master_link_status") == Some("up") && info.get("master_sync_in_progress") == Some("0");
        let leader = own.primary.as_ref().and_then(|id| table.iter().find(|node| node.id == *id));
        let slots = leader.unwrap_or(own).slots.iter().flat_map(|range| range.first..=range.last).collect();
        Ok(Found { pod: pod.to_owned(), address, is_primary, in_sync: is_primary || up, slots })
    }
}

/// So long a member may take to say who it is: one that is held does not say.
const ASKED: Duration = Duration::from_millis(500);

/// Takes a server's files away under it, and ends it.
fn empty(process: &Process) -> Result<()> {
    let folder = fs::read_link(format!("/proc/{}/cwd", process.pid))?;
    process.signal(Signal::STOP)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
    }
    process.kill()
}

fn servers(kun: &Standalone, found: &[Found]) -> Result<Vec<Process>> {
    found.iter().map(|member| kun.redis_server(member.address)).collect()
}

fn agents(kun: &Standalone, found: &[Found]) -> Result<Vec<Process>> {
    found.iter().map(|member| kun.agent(&member.pod)).collect()
}

fn pods(found: &[Found]) -> String {
    found.iter().map(|member| member.pod.as_str()).collect::<Vec<_>>().join(" and ")
}
