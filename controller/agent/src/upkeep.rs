//! What is looked after while redis-server runs: files that changed are applied without a restart, and the right to be
//! promoted follows the state of the copy. I/O around pure choices.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use resp::{Command, Info, Reply};
use tokio::time::sleep;
use types::cluster::{AppendOnly, Mode};
use types::engine::Engine;

use crate::{
    config::{Inputs, Options},
    disk::{self, AOF_DIR},
    engine, handover, render,
    render::Directive,
    shared::Shared,
};

/// How often files and roles are looked at.
const EVERY: Duration = Duration::from_millis(1000);
/// How often loading is looked at.
const WHILE_LOADING: Duration = Duration::from_millis(50);

/// What could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration cannot be rendered.
    #[error(transparent)]
    Render(#[from] render::Error),
    /// A file cannot be written.
    #[error("write the configuration: {0}")]
    Write(certs::Error),
}

/// Writes redis.conf and users.acl, 0600, into the run directory. Returns the path of redis.conf.
///
/// `survey` decides from which file Redis loads: a configuration that switched the append-only file on or off while the
/// member was down must not hide the data set; [`after_loading`] brings the wanted state about.
///
/// # Errors
/// When the configuration cannot be rendered or written.
pub fn write_files(
    options: &Options,
    inputs: &Inputs,
    survey: Option<&disk::Survey>,
) -> Result<std::path::PathBuf, Error> {
    let mut directives = render::directives(options, inputs)?;
    if let Some(survey) = survey {
        let load_from = if survey.aof || (!survey.rdb && keeps_every_write(inputs)) { "yes" } else { "no" };
        for directive in directives.iter_mut().filter(|directive| directive.name == "appendonly") {
            directive.words = vec![load_from.to_owned()];
        }
    }
    certs::write_private(&options.run_dir.join("users.acl"), render::acl(&inputs.passwords).as_bytes())
        .map_err(Error::Write)?;
    let path = options.run_dir.join("redis.conf");
    certs::write_private(&path, render::text(&directives).as_bytes()).map_err(Error::Write)?;
    Ok(path)
}

fn keeps_every_write(inputs: &Inputs) -> bool {
    match inputs.config.append_only {
        AppendOnly::EverySec | AppendOnly::Always => true,
        AppendOnly::Off => false,
    }
}

/// Waits until Redis has loaded its data set and then brings persistence into the wanted state.
pub async fn after_loading(shared: &Arc<Shared>) {
    while !loaded(shared).await {
        sleep(WHILE_LOADING).await;
    }
    let inputs = shared.inputs();
    settle_append_only(shared, &inputs).await;
    if !keeps_every_write(&inputs)
        && inputs.config.snapshots.is_empty()
        && let Err(error) = disk::forget_snapshot(&shared.options.data_dir)
    {
        tracing::warn!(%error, "the loaded snapshot, which would grow stale, could not be removed");
    }
}

async fn loaded(shared: &Arc<Shared>) -> bool {
    let info = handover::info(&shared.local, &["persistence"]).await;
    info.is_ok_and(|info| info.flag("loading") == Some(false))
}

async fn settle_append_only(shared: &Arc<Shared>, inputs: &Inputs) {
    let wanted = keeps_every_write(inputs);
    set(shared, &Directive { name: "appendonly".into(), words: vec![if wanted { "yes" } else { "no" }.into()] }).await;
    // Files of a log that is no longer written would be taken for the data set at the next start.
    if !wanted {
        match disk::quarantine(&shared.options.data_dir, Timestamp::now(), &[AOF_DIR]) {
            Ok(None) => {}
            Ok(Some(to)) => {
                tracing::info!(to = %to.display(), "append-only files are no longer written and were put aside")
            }
            Err(error) => tracing::warn!(%error, "append-only files that are no longer written could not be put aside"),
        }
    }
}

/// Runs until dropped.
pub async fn run(shared: Arc<Shared>) {
    after_loading(&shared).await;
    let mut promotion = Promotion::default();
    loop {
        apply_changes(&shared).await;
        if shared.inputs().config.mode == Mode::Cluster
            && let Ok(info) = handover::info(&shared.local, &["replication"]).await
            && let Some(forbidden) = promotion.decide(&info)
        {
            let value = if forbidden { "yes" } else { "no" };
            let directive = Directive { name: "cluster-replica-no-failover".into(), words: vec![value.into()] };
            if set(&shared, &directive).await {
                promotion.applied(forbidden);
            }
        }
        sleep(EVERY).await;
    }
}

/// Follows whether this member's copy is worth promoting.
#[derive(Debug, Default)]
struct Promotion {
    /// What Redis was last told; it starts forbidden.
    allowed: bool,
    /// The primary whose copy is held whole.
    synced_with: Option<String>,
}

impl Promotion {
    /// Whether automatic promotion is to be forbidden from now on; `None`: no change. A replica may be promoted from its
    /// first whole copy on, also while its link is down later (that is when it matters); with another primary it begins
    /// anew. Explicit `CLUSTER FAILOVER` is not affected.
    fn decide(&mut self, info: &Info) -> Option<bool> {
        let allowed = match info.get("role") {
            Some("slave") => {
                let primary = info.get("master_host").map(str::to_owned);
                let whole =
                    info.get("master_link_status") == Some("up") && info.flag("master_sync_in_progress") == Some(false);
                if whole {
                    self.synced_with.clone_from(&primary);
                }
                self.synced_with.is_some() && self.synced_with == primary
            }
            // A primary cannot be promoted; when it becomes a replica it has to sync first.
            _ => {
                self.synced_with = None;
                false
            }
        };
        (allowed != self.allowed).then_some(!allowed)
    }

    fn applied(&mut self, forbidden: bool) {
        self.allowed = !forbidden;
    }
}

/// Reads the files again and applies what changed.
async fn apply_changes(shared: &Arc<Shared>) {
    let old = shared.inputs();
    let new = match Inputs::read(&shared.options) {
        Ok(new) if new == *old => return,
        Ok(new) => new,
        Err(error) => {
            // Mounted files are replaced one after the other; the next look sees them all.
            tracing::warn!(%error, "changed inputs cannot be used yet");
            return;
        }
    };
    if let Err(error) = apply(shared, &old, &new).await {
        tracing::warn!(%error, "changed inputs are refused");
        return;
    }
    shared.inputs.send_replace(Arc::new(new));
}

async fn apply(shared: &Arc<Shared>, old: &Inputs, new: &Inputs) -> Result<(), Error> {
    let before = render::directives(&shared.options, old)?;
    let after = render::directives(&shared.options, new)?;
    write_files(&shared.options, new, None)?;
    for directive in changed(&before, &after, engine::of_program(&shared.options.redis_server)) {
        if directive.name == "appendonly" {
            settle_append_only(shared, new).await;
        } else {
            set(shared, &directive).await;
        }
    }
    // Loading users closes every connection of the internal ones: replicas and the controller log in again and go on.
    if old.passwords != new.passwords {
        match shared.local.ask(&[Command::new("ACL").arg("LOAD")]).await.as_deref() {
            Ok([Reply::Status(_)]) => tracing::info!("passwords changed and are in use"),
            Ok([Reply::Error(why)]) => tracing::warn!(why, "Redis refused the new users"),
            Ok(_) => tracing::warn!("Redis answered ACL LOAD with something unexpected"),
            Err(error) => tracing::warn!(%error, "the new users could not be loaded"),
        }
    }
    Ok(())
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
async fn set(shared: &Arc<Shared>, directive: &Directive) -> bool {
    let command = Command::new("CONFIG").arg("SET").arg(&directive.name).arg(directive.value());
    match shared.local.ask(&[command]).await.as_deref() {
        Ok([Reply::Status(_)]) => {
            tracing::info!(parameter = directive.name, "set");
            true
        }
        Ok([Reply::Error(_)]) => {
            tracing::info!(parameter = directive.name, "takes effect at the next restart");
            false
        }
        Ok(_) => false,
        Err(error) => {
            tracing::warn!(parameter = directive.name, %error, "could not be set");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

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

    #[test]
    fn a_replica_may_be_promoted_from_its_first_whole_copy_of_its_present_primary() {
        let replica = |host: &str, link: &str, syncing: u8| {
            Info::parse(&format!(
                "role:slave\nmaster_host:{host}\nmaster_link_status:{link}\nmaster_sync_in_progress:{syncing}\n"
            ))
        };
        let mut promotion = Promotion::default();
        let mut tell = |info: Info| {
            let told = promotion.decide(&info);
            if let Some(forbidden) = told {
                promotion.applied(forbidden);
            }
            told
        };
        assert_eq!(tell(replica("a", "down", 1)), None);
        assert_eq!(tell(replica("a", "up", 0)), Some(false));
        assert_eq!(tell(replica("a", "down", 0)), None, "its primary died: now it matters");
        assert_eq!(tell(replica("b", "down", 1)), Some(true), "another primary, no copy yet");
        assert_eq!(tell(replica("b", "up", 0)), Some(false));
        assert_eq!(tell(Info::parse("role:master\n")), Some(true));
        assert_eq!(tell(replica("a", "down", 0)), None);
    }
}
