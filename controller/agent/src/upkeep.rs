//! What is looked after while redis-server runs: files that changed are applied without a restart, and the right to be
//! promoted follows the state of the copy. I/O around pure choices.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use resp::{ClusterInfo, Command, ErrorReply, Info, Reply};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep},
};
use types::cluster::Mode;
use types::engine::Engine;

use crate::{
    admission,
    alive::{self, Former, Keeper, Service},
    calls::Calls,
    config::{Inputs, Passwords},
    disk, engine, follow,
    lag::{self, Lag, Lies},
    parameters, persistence,
    promotion::{Look, Promotion, Word},
    ran, render,
    render::{Directive, Replicas},
    replication::{self, Seen},
    shared::Shared,
    users,
    withdrawal::{self, Withdrawal},
};

/// How often files and roles are looked at.
const EVERY: Duration = Duration::from_millis(1000);
/// How soon after the primary is lost: what came from it last is to be in the own Redis by then.
const SOON: Duration = Duration::from_millis(50);

/// What could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration cannot be rendered.
    #[error(transparent)]
    Render(#[from] render::Error),
    /// A file cannot be written.
    #[error("write the configuration: {0}")]
    Write(certs::Error),
    /// Redis does not take the users.
    #[error("change passwords: {0}")]
    Users(#[from] resp::Error),
    /// Redis does not answer, or not now.
    #[error("set {0}: Redis does not answer")]
    Unanswered(String),
}

/// What became of a `CONFIG SET`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is set.
    Yes,
    /// Redis does not take it while it runs, in its words.
    Refused(String),
    /// It is not known, or may succeed a little later.
    Unanswered,
}

/// Writes redis.conf and users.acl, 0600, into the run directory. Returns the path of redis.conf.
///
/// `survey` decides from which file Redis loads: a configuration that switched the append-only file on or off while the
/// member was down must not hide the data set; [`persistence`] brings the wanted state about.
///
/// # Errors
/// When the configuration cannot be rendered or written.
pub fn write_files(
    shared: &Shared,
    inputs: &Inputs,
    survey: Option<&disk::Survey>,
) -> Result<std::path::PathBuf, Error> {
    let options = &shared.options;
    let mut directives = render::directives(options, inputs)?;
    if let Some(survey) = survey {
        let load_from =
            if survey.aof || (!survey.rdb && inputs.config.append_only.keeps_every_write()) { "yes" } else { "no" };
        for directive in directives.iter_mut().filter(|directive| directive.name == "appendonly") {
            directive.words = vec![load_from.to_owned()];
        }
    }
    let replicas = Replicas { are_let_in: shared.lets_replicas_in(), lets_old_in: shared.lets_old_in() };
    let users = render::acl(&inputs.passwords, &shared.own, replicas);
    certs::write_private(&options.run_dir.join("users.acl"), users.as_bytes()).map_err(Error::Write)?;
    let path = options.run_dir.join("redis.conf");
    certs::write_private(&path, render::text(&directives).as_bytes()).map_err(Error::Write)?;
    Ok(path)
}

/// Runs until dropped.
pub async fn run(shared: Arc<Shared>) {
    let (shard, seen) = watch::channel(Seen::default());
    let (told, words) = watch::channel(None);
    let lost = Notify::new();
    tokio::join!(
        admission::admit_replicas(&shared),
        look_after(&shared, &shard, words, &lost),
        follow::ask(&shared, seen.clone(), told, &lost),
        replication::follow(&shared, seen)
    );
}

async fn look_after(
    shared: &Arc<Shared>,
    shard: &watch::Sender<Seen>,
    words: watch::Receiver<Option<Word>>,
    lost: &Notify,
) {
    let mut settled = persistence::after_loading(shared).await;
    let dir = &shared.options.data_dir;
    let former = alive::read(dir).and_then(|alive| alive.former()).map(Former::noted);
    let mut candidacy = Candidacy {
        promotion: Promotion::default(),
        words,
        withdrawal: Withdrawal::default(),
        former,
        volume: Calls::default(),
    };
    let (mut keeper, mut snapshots) = (Keeper::default(), Calls::default());
    let (mut lag, mut marker) = (Lag::read(dir).unwrap_or_default(), lag::Keeper::default());
    loop {
        settled &= apply_changes(shared).await;
        parameters::keep(shared).await;
        // Switching the file on forks, and fails where that fails; before it is switched off a snapshot is written.
        let inputs = shared.inputs();
        settled = if settled {
            persistence::keep_nothing(shared, &inputs, &mut snapshots).await
        } else {
            persistence::settle(shared, &inputs, &mut snapshots).await
        };
        if inputs.config.mode == Mode::Cluster {
            let service = candidacy.follow(shared, shard, &mut lag).await;
            marker.note(dir.clone(), lag.clone());
            if let Some(service) = service {
                keeper.note(shared, service, candidacy.former.as_ref());
            }
        }
        next_look(lost).await;
    }
}

/// Once the primary counts as failed nobody gets the right to take over, so whether the copy has everything is found out before.
async fn next_look(lost: &Notify) {
    tokio::select! {
        () = sleep(EVERY) => {}
        () = lost.notified() => sleep(SOON).await,
    }
}

/// Whether this member may be elected, from look to look.
struct Candidacy {
    promotion: Promotion,
    /// What its primary told last.
    words: watch::Receiver<Option<Word>>,
    withdrawal: Withdrawal,
    /// In whose place it was elected, or would be.
    former: Option<Former>,
    volume: Calls<Lies>,
}

impl Candidacy {
    /// Looks once, tells Redis if something has changed, and gives what the data set is in service as; `None`: Redis does not answer.
    async fn follow(
        &mut self,
        shared: &Arc<Shared>,
        shard: &watch::Sender<Seen>,
        lag: &mut Lag,
    ) -> Option<Option<Service>> {
        let begun = Instant::now();
        // Of a word that comes during the look the copy may have been short.
        if self.words.has_changed().unwrap_or(false)
            && let Some(word) = self.words.borrow_and_update().clone()
        {
            self.promotion.hear(word);
        }
        let seen = look(shared, shard, begun, (lag, &mut self.volume), &mut self.former).await;
        let Some((look, service)) = seen else {
            // How long it stands still, nobody knows before it goes on, and then it may be elected.
            if self.promotion.is_allowed() {
                self.withdraw(shared);
            }
            return None;
        };
        let node_timeout = Duration::from_millis(shared.inputs().config.node_timeout_millis);
        let forbidden = self.promotion.decide(&look, node_timeout);
        shared.note_standing(self.promotion.standing().cloned());
        match forbidden {
            Some(forbidden) => self.tell(shared, forbidden).await,
            None if self.promotion.is_allowed() && !self.withdrawal.keep(&shared.local).await => self.withdraw(shared),
            None => {}
        }
        let is_current = self.promotion.is_current();
        Some(service.filter(|service| is_current || matches!(service, Service::Primary { .. })))
    }

    async fn tell(&mut self, shared: &Arc<Shared>, forbidden: bool) {
        let why = self.promotion.standing().and_then(|standing| standing.held_back);
        if !forbidden {
            if self.withdrawal.is_under_way() {
                return;
            }
            self.withdrawal.prepare(&shared.local).await;
        }
        tracing::info!(forbidden, ?why, "the right to stand for election");
        match set(shared, withdrawal::PARAMETER, if forbidden { "yes" } else { "no" }).await {
            Taken::Yes => self.promotion.applied(forbidden),
            Taken::Refused(_) => {}
            Taken::Unanswered => self.withdraw(shared),
        }
    }

    fn withdraw(&mut self, shared: &Arc<Shared>) {
        tracing::info!("redis-server does not answer: it is left the order not to stand for election");
        self.withdrawal.give(shared);
        self.promotion.unanswered();
    }
}

/// The own Redis, as far as its right to be promoted depends on it, and as what its data set is in service; `None`: it does not answer.
async fn look(
    shared: &Arc<Shared>,
    shard: &watch::Sender<Seen>,
    begun: Instant,
    (lag, volume): (&mut Lag, &mut Calls<Lies>),
    former: &mut Option<Former>,
) -> Option<(Look, Option<Service>)> {
    let cluster = |what: &str| Command::new("CLUSTER").arg(what);
    let commands =
        [Command::new("INFO").args(["server", "replication", "persistence"]), cluster("NODES"), cluster("INFO")];
    let counted = lies(shared, volume).await.manifest;
    let replies = shared.local.ask(&commands).await.ok()?;
    let [info, table, view] = replies.as_slice() else { return None };
    let info = Info::parse(info.text()?);
    // Also of one that loads its copy, which does not give its table meanwhile.
    lag.see(counted, lies(shared, volume).await, &info, shared.local.logs_writes());
    tell_lag(shared, lag);
    let table = resp::nodes::parse(table.text()?).ok()?;
    if let Some(seen) = Seen::of(&table, &info) {
        shard.send_if_modified(|before| std::mem::replace(before, seen.clone()) != seen);
    }
    *former = Former::after(former.take(), &table, &info);
    let service = alive::service(&info, &table, shared.local.logs_writes(), lag.lags());
    let me = table.iter().find(|node| node.flags.myself)?;
    ran::note(shared, &me.id);
    let of = me.primary.clone();
    let primary = table.into_iter().find(|node| Some(&node.id) == of.as_ref());
    let state_ok = ClusterInfo::parse(view.text()?).ok()?.ok;
    Some((Look { at: begun.into_std(), done: Instant::now().into_std(), info, primary, state_ok }, service))
}

async fn lies(shared: &Arc<Shared>, volume: &mut Calls<Lies>) -> Lies {
    let dir = shared.options.data_dir.clone();
    volume.ask(move || Lies::read(&dir)).await.unwrap_or_default()
}

/// Tells others whether what lies on the volume is what is in memory.
fn tell_lag(shared: &Arc<Shared>, lag: &Lag) {
    let lags = Some(lag.lags());
    shared.report.send_if_modified(|report| std::mem::replace(&mut report.lags, lags) != lags);
}

/// Reads the files again and applies what changed; `false`: persistence is not yet as it should be.
pub(crate) async fn apply_changes(shared: &Arc<Shared>) -> bool {
    let old = shared.inputs();
    let new = match Inputs::read(&shared.options) {
        Ok(new) => parameters::usable(shared, new),
        Err(error) => {
            // Mounted files are replaced one after the other; the next look sees them all.
            tracing::warn!(%error, "changed inputs cannot be used yet");
            return true;
        }
    };
    let begun = shared.begun();
    if new == *old && begun.is_empty() {
        return true;
    }
    let before: Vec<&Inputs> = [&*old].into_iter().chain(&begun).collect();
    shared.begin(&new);
    match apply(shared, &before, &new).await {
        Ok(settled) => {
            shared.inputs.send_replace(Arc::new(new));
            shared.end_begun();
            settled
        }
        Err(error) => {
            tracing::warn!(%error, "changed inputs are not in use yet");
            true
        }
    }
}

/// `before` is what is in use, and what was begun to be and may be in part. What breaks off anywhere is begun anew in the next look: until the end
/// the agent is let in by the password that it has.
async fn apply(shared: &Arc<Shared>, before: &[&Inputs], new: &Inputs) -> Result<bool, Error> {
    let after = render::directives(&shared.options, new)?;
    let (mut set_anew, engine) = (BTreeMap::new(), engine::of_program(&shared.options.redis_server));
    for inputs in before {
        let changed = changed(&render::directives(&shared.options, inputs)?, &after, engine);
        set_anew.extend(changed.into_iter().map(|directive| (directive.name.clone(), directive)));
    }
    write_files(shared, new, None)?;
    let passwords: Vec<&Passwords> = before.iter().map(|inputs| &inputs.passwords).collect();
    users::prepare(shared, &passwords, &new.passwords).await?;
    let mut persists_otherwise = false;
    for directive in set_anew.into_values() {
        persists_otherwise |= matches!(directive.name.as_str(), "appendonly" | "save");
        let is_set = directive.name == "appendonly"
            || set(shared, &directive.name, &directive.value()).await != Taken::Unanswered;
        if !is_set {
            return Err(Error::Unanswered(directive.name));
        }
    }
    let settled = !persists_otherwise || persistence::settle(shared, new, &mut Calls::default()).await;
    users::change(shared, &passwords, &new.passwords).await?;
    Ok(settled)
}

/// Directives to set, with the default of those that were taken out. Pure.
fn changed(before: &[Directive], after: &[Directive], engine: Engine) -> Vec<Directive> {
    let index = |all: &[Directive]| -> BTreeMap<String, Vec<String>> {
        all.iter().map(|directive| (directive.name.clone(), directive.words.clone())).collect()
    };
    let (old, new) = (index(before), index(after));
    let set =
        new.iter().filter(|(name, words)| old.get(*name) != Some(*words)).map(|(name, words)| (name, words.clone()));
    let reset = old.keys().filter(|name| !new.contains_key(*name)).filter_map(|name| {
        let default = types::config::parameter(name)?.default_of(engine);
        Some((name, default.split(' ').map(str::to_owned).collect()))
    });
    set.chain(reset).map(|(name, words)| Directive { name: name.clone(), words }).collect()
}

/// `CONFIG SET`; what cannot change at run time waits for the rolling restart that the controller does.
pub(crate) async fn set(shared: &Arc<Shared>, name: &str, value: &str) -> Taken {
    let command = Command::new("CONFIG").arg("SET").arg(name).arg(value);
    match shared.local.ask(&[command]).await.as_deref() {
        Ok([Reply::Status(_)]) => {
            tracing::info!(parameter = name, "set");
            Taken::Yes
        }
        Ok([Reply::Error(words)]) if ErrorReply::parse(words).is_transient() => Taken::Unanswered,
        Ok([Reply::Error(words)]) => {
            tracing::debug!(parameter = name, words, "not set while the server runs");
            Taken::Refused(words.strip_prefix("ERR ").unwrap_or(words).to_owned())
        }
        Ok(_) => Taken::Unanswered,
        Err(error) => {
            tracing::warn!(parameter = name, %error, "could not be set");
            Taken::Unanswered
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lost_primary_is_looked_into_at_once_and_all_else_once_a_second() {
        let (lost, begun) = (Notify::new(), Instant::now());
        next_look(&lost).await;
        assert_eq!(begun.elapsed(), EVERY);
        // It was lost during a look.
        lost.notify_one();
        next_look(&lost).await;
        assert_eq!(begun.elapsed(), EVERY + SOON);
        next_look(&lost).await;
        assert_eq!(begun.elapsed(), EVERY * 2 + SOON, "once");
    }

    fn directive(name: &str, value: &str) -> Directive {
        Directive { name: name.into(), words: vec![value.into()] }
    }

    #[test]
    fn only_what_changed_is_set_and_what_was_taken_out_returns_to_its_default() {
        let before = [directive("maxclients", "100"), directive("timeout", "5"), directive("masterauth", "a")];
        let after = [directive("maxclients", "200"), directive("masterauth", "a"), directive("hz", "20")];
        assert_eq!(
            changed(&before, &after, Engine::Redis),
            vec![directive("hz", "20"), directive("maxclients", "200"), directive("timeout", "0")]
        );
        let backlog = [directive("repl-backlog-size", "64mb")];
        assert_eq!(changed(&backlog, &[], Engine::Redis), vec![directive("repl-backlog-size", "1mb")]);
        assert_eq!(changed(&backlog, &[], Engine::Valkey), vec![directive("repl-backlog-size", "10mb")]);
    }
}
