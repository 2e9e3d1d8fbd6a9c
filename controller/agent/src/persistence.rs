//! Brings persistence into the wanted state while Redis runs, so that what the next start loads is the one data set that is current.
//! I/O around a pure choice.
//!
//! The next start loads the append-only files if there are any, else the snapshot ([`crate::upkeep::write_files`]). So append-only files that
//! are no longer written must not stay, a snapshot that stands in for them must be there before they go, and where nothing is to be kept
//! no snapshot may stay that was taken when something was.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use resp::{Command, Info, Reply};
use tokio::time::{Instant, sleep};

use crate::{
    calls::Calls,
    config::Inputs,
    disk::{self, AOF_DIR},
    handover,
    lag::MANIFEST,
    shared::Shared,
    upkeep::{Taken, set},
};

/// How often loading is looked at.
const WHILE_LOADING: Duration = Duration::from_millis(50);
/// After this long a snapshot that did not come about is asked for again; Redis itself waits as long after one that failed.
const SAVE_AGAIN: Duration = Duration::from_secs(5);

/// A snapshot that was asked for before append-only files may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// How many Redis had begun before.
    saves: i64,
    /// When it was asked for.
    asked: Instant,
}

/// What comes before the append-only file may be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Nothing.
    Done,
    /// Ask for a snapshot.
    Save,
    /// It is being written.
    Wait,
}

/// Waits until Redis has loaded its data set and then brings persistence into the wanted state; whether it is.
pub async fn after_loading(shared: &Arc<Shared>) -> bool {
    while !loaded(shared).await {
        sleep(WHILE_LOADING).await;
    }
    settle(shared, &shared.inputs(), &mut Calls::default()).await
}

async fn loaded(shared: &Arc<Shared>) -> bool {
    let info = handover::info(&shared.local, &["persistence"]).await;
    info.is_ok_and(|info| info.flag("loading") == Some(false))
}

/// One step towards the wanted state; whether it is reached. Nothing in it waits for a disk: the looks at the own Redis do.
pub(crate) async fn settle(shared: &Arc<Shared>, inputs: &Inputs, snapshots: &mut Calls<bool>) -> bool {
    let config = &inputs.config;
    if config.append_only.keeps_every_write() {
        shared.await_snapshot(None);
        return put_former_log_aside(shared).await && set(shared, "appendonly", "yes").await == Taken::Yes;
    }
    if !config.snapshots.is_empty() && !is_saved(shared).await {
        return false;
    }
    if set(shared, "appendonly", "no").await != Taken::Yes {
        return false;
    }
    shared.await_snapshot(None);
    // Until both are gone this is done again each time.
    put_log_aside(shared) & keep_nothing(shared, inputs, snapshots).await
}

/// Until the first append-only file is written, a crash would load those of an earlier time, if any lay there yet, and not the snapshot, which has
/// more. Whether none does.
async fn put_former_log_aside(shared: &Shared) -> bool {
    let Ok(info) = handover::info(&shared.local, &["persistence"]).await else { return false };
    match info.flag("aof_enabled") {
        // While it loads what its primary has sent, Redis says of a file in use that it is not switched on.
        _ if info.flag("loading") != Some(false) => false,
        Some(false) if shared.options.data_dir.join(AOF_DIR).join(MANIFEST).exists() => put_log_aside(shared),
        Some(_) => true,
        None => false,
    }
}

/// Whether a snapshot has what the append-only file has that is still written; asks for one.
async fn is_saved(shared: &Arc<Shared>) -> bool {
    let Ok(info) = handover::info(&shared.local, &["persistence"]).await else { return false };
    match before_off(&info, shared.awaited_snapshot(), Instant::now()) {
        Before::Done => true,
        Before::Wait => false,
        Before::Save => {
            let saves = info.number("rdb_saves").unwrap_or_default();
            // Scheduled where the append-only file is being written anew.
            let asked = shared.local.ask(&[Command::new("BGSAVE").arg("SCHEDULE")]).await;
            if let Ok([Reply::Error(words)]) = asked.as_deref() {
                tracing::warn!(words, "the append-only file stays in use: no snapshot can be written");
            }
            shared.await_snapshot(Some(Awaited { saves, asked: Instant::now() }));
            false
        }
    }
}

/// Pure.
fn before_off(info: &Info, awaited: Option<Awaited>, now: Instant) -> Before {
    if info.flag("aof_enabled") == Some(false) {
        return Before::Done;
    }
    let is_running = info.flag("rdb_bgsave_in_progress") != Some(false);
    let is_written = |awaited: Awaited| {
        let is_ok = info.get("rdb_last_bgsave_status") == Some("ok");
        is_ok && info.number("rdb_saves").is_some_and(|begun| begun > awaited.saves)
    };
    match awaited {
        // One that runs already may lack what was written since it began: the next one counts.
        _ if is_running => Before::Wait,
        Some(awaited) if is_written(awaited) => Before::Done,
        Some(awaited) if now.saturating_duration_since(awaited.asked) < SAVE_AGAIN => Before::Wait,
        Some(_) | None => Before::Save,
    }
}

/// Files of a log that is no longer written would be taken for the data set at the next start.
pub(crate) fn put_log_aside(shared: &Shared) -> bool {
    match disk::quarantine(&shared.options.data_dir, Timestamp::now(), &[AOF_DIR]) {
        Ok(None) => true,
        Ok(Some(to)) => {
            tracing::info!(to = %to.display(), "append-only files are no longer written and were put aside");
            true
        }
        Err(error) => {
            tracing::warn!(%error, "append-only files that are no longer written could not be put aside");
            false
        }
    }
}

/// Removes the snapshot where nothing is to be kept; `false`: one may lie there. What nothing is written over any more would come back at the
/// next start, however old it is by then. Done at every look: a child that saves gives its file the name when it is done, and nothing tells
/// whether one more is due (`BGSAVE SCHEDULE`).
pub(crate) async fn keep_nothing(shared: &Arc<Shared>, inputs: &Inputs, snapshots: &mut Calls<bool>) -> bool {
    if inputs.config.append_only.keeps_every_write() || !inputs.config.snapshots.is_empty() {
        return true;
    }
    let dir = shared.options.data_dir.clone();
    // Of a volume that does not answer the next look knows more.
    if snapshots.ask(move || disk::snapshot_stamp(&dir).is_some()).await != Some(true) {
        return true;
    }
    let ask = [Command::new("INFO").args(["persistence", "replication"]), Command::new("CONFIG").args(["GET", "save"])];
    let Ok(replies) = shared.local.ask(&ask).await else { return false };
    let [info, saves] = replies.as_slice() else { return false };
    let info = info.text().map(Info::parse).unwrap_or_default();
    let saves = saves.items().and_then(|pair| pair.get(1)).and_then(Reply::text);
    is_unused(&info, saves) && forget_snapshot(shared)
}

/// A replica that gets its copy loads it from that file, and then removes it itself; a server that keeps something yet, as not all of a change
/// has reached it, is about to use it. Pure.
fn is_unused(info: &Info, saves: Option<&str>) -> bool {
    let keeps_nothing = info.flag("aof_enabled") == Some(false) && saves == Some("");
    keeps_nothing && info.flag("loading") == Some(false) && info.flag("master_sync_in_progress") != Some(true)
}

fn forget_snapshot(shared: &Shared) -> bool {
    let forgotten = disk::forget_snapshot(&shared.options.data_dir);
    if let Err(error) = &forgotten {
        tracing::warn!(%error, "the snapshot, which would grow stale, could not be removed");
    }
    forgotten.is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn a_snapshot_that_is_about_to_be_loaded_is_left_alone() {
        let is_unused = |text: &str, saves| is_unused(&Info::parse(text), saves);
        let unused = [
            "aof_enabled:0\nloading:0\nrole:master\n",
            "aof_enabled:0\nloading:0\nmaster_sync_in_progress:0\n",
            "aof_enabled:0\nloading:0\nmaster_sync_in_progress:1\n",
            "aof_enabled:0\nloading:1\n",
            "",
        ]
        .map(|text| is_unused(text, Some("")));
        assert_eq!(unused, [true, true, false, false, false]);
        let nothing_kept = "aof_enabled:0\nloading:0\nrole:master\n";
        assert_eq!(
            [Some("3600 1"), None].map(|saves| is_unused(nothing_kept, saves)),
            [false, false],
            "it still saves"
        );
        assert!(!is_unused("aof_enabled:1\nloading:0\nrole:master\n", Some("")), "it still writes its log");
    }

    #[test]
    fn append_only_files_go_once_a_snapshot_begun_after_all_is_written() {
        let info = |on: u8, running: u8, saves: u8| {
            Info::parse(&format!(
                "aof_enabled:{on}\nrdb_bgsave_in_progress:{running}\nrdb_saves:{saves}\nrdb_last_bgsave_status:ok\n"
            ))
        };
        let failed = Info::parse("aof_enabled:1\nrdb_bgsave_in_progress:0\nrdb_saves:4\nrdb_last_bgsave_status:err\n");
        let (now, awaited) = (Instant::now(), |saves, asked| Some(Awaited { saves, asked }));
        let long_ago = now.checked_sub(SAVE_AGAIN).unwrap();
        let rows = [
            (info(0, 0, 0), None, Before::Done),
            (info(1, 0, 3), None, Before::Save),
            (info(1, 1, 3), None, Before::Wait),
            (info(1, 1, 3), awaited(3, long_ago), Before::Wait),
            (info(1, 0, 3), awaited(3, now), Before::Wait),
            (info(1, 0, 3), awaited(3, long_ago), Before::Save),
            (info(1, 0, 4), awaited(3, now), Before::Done),
            (failed.clone(), awaited(3, now), Before::Wait),
            (failed, awaited(3, long_ago), Before::Save),
            (Info::parse("loading:1\n"), None, Before::Wait),
        ];
        for (info, awaited, then) in rows {
            assert_eq!(before_off(&info, awaited, now), then, "{info:?}, {awaited:?}");
        }
    }
}
