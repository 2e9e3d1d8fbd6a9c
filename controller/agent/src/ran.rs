//! Which nodes ran in this pod, and since when they have ended. The run directory lives as long as the pod does, through restarts of its container,
//! so what is noted there ran here, and what ran here and does not run now has ended. (It is in memory: after the machine was started anew
//! nothing is known.)
//!
//! Where most primaries are gone nobody can be elected, and a replica may be promoted without votes only if it had everything until its primary
//! ended. That a pod has been replaced is no proof of an end: where a machine is cut off, its pods can be deleted by force, and run on.

use std::{
    fs,
    io::Read as _,
    path::Path,
    time::{Duration, Instant},
};

use resp::NodeId;
use serde::{Deserialize, Serialize};
use types::agent::EndReport;

use crate::shared::Shared;

/// File in the run directory: what ran here, the latest last.
const FILE: &str = "nodes-run-here.json";
/// So many are kept: a member has a new identity only when its volume is a new one, or was emptied.
const MOST: usize = 16;
/// Largest file that is read: a node takes less than 100 bytes.
const MOST_BYTES: u64 = 4096;

/// One that ran here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ran {
    id: String,
    /// When it was seen to end, in milliseconds since the machine was started; absent: nobody saw it.
    ended: Option<u64>,
}

/// What is known of those that ran here.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Who was last known to run.
    runs: Option<NodeId>,
    /// Who has ended, and when at the latest.
    ended: Vec<(String, Instant)>,
}

impl Known {
    /// As it is told.
    pub(crate) fn told(&self) -> Vec<EndReport> {
        let millis = |at: &Instant| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.ended.iter().map(|(id, at)| EndReport { node_id: id.clone(), millis: millis(at) }).collect()
    }
}

/// No server runs in this pod: all that did have ended. Told until one of them runs again.
pub fn tell_ended(shared: &Shared) {
    let (now, booted) = (Instant::now(), since_boot());
    let ended = read(&shared.options.run_dir).into_iter().map(|ran| (ran.id, at_latest(ran.ended, now, booted)));
    shared.with_ran(|known| known.ended = ended.collect());
}

/// Of whom nobody saw it, only that it has happened. A clock that is behind is one of another start of the machine.
fn at_latest(ended: Option<u64>, now: Instant, booted: Option<u64>) -> Instant {
    let ago = ended.and_then(|ended| booted?.checked_sub(ended)).unwrap_or(0);
    now.checked_sub(Duration::from_millis(ago)).unwrap_or(now)
}

/// A server is about to be started: if it is one of these, it has not ended. Any other is noted once it answers: what lies here may be of a pod
/// of before.
pub fn may_run(shared: &Shared, id: Option<&NodeId>) {
    let Some(id) = id else { return };
    has_not_ended(shared, id);
    let dir = &shared.options.run_dir;
    if read(dir).iter().any(|ran| ran.id == id.as_str() && ran.ended.is_some()) {
        record(dir, Ran { id: id.to_string(), ended: None });
    }
}

fn has_not_ended(shared: &Shared, id: &NodeId) {
    shared.with_ran(|known| known.ended.retain(|(ended, _)| ended != id.as_str()));
}

/// This node answers here.
pub fn note(shared: &Shared, id: &NodeId) {
    let is_news = shared.with_ran(|known| known.runs.replace(id.clone()).as_ref() != Some(id));
    if is_news {
        has_not_ended(shared, id);
        record(&shared.options.run_dir, Ran { id: id.to_string(), ended: None });
    }
}

/// The server has just ended.
pub fn note_end(shared: &Shared) {
    if let Some(id) = shared.with_ran(|known| known.runs.take()) {
        record(&shared.options.run_dir, Ran { id: id.to_string(), ended: since_boot() });
    }
}

fn record(dir: &Path, ran: Ran) {
    let mut known = read(dir);
    known.retain(|other| other.id != ran.id);
    known.push(ran);
    if let Err(error) = write(dir, &known) {
        tracing::warn!(%error, "which nodes ran here is not noted: their end will not be told");
    }
}

/// `/proc/uptime`: seconds with two places (proc(5)). Where it counts from a container's start, ends of before that are of unknown age.
fn since_boot() -> Option<u64> {
    let text = fs::read_to_string("/proc/uptime").ok()?;
    let seconds = text.split_ascii_whitespace().next()?.parse::<f64>().ok()?;
    u64::try_from(Duration::try_from_secs_f64(seconds).ok()?.as_millis()).ok()
}

fn read(dir: &Path) -> Vec<Ran> {
    let mut text = Vec::new();
    let read = fs::File::open(dir.join(FILE)).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut text));
    let known: Vec<Ran> = read.ok().and_then(|_| serde_json::from_slice(&text).ok()).unwrap_or_default();
    known.into_iter().filter(|ran| NodeId::parse(&ran.id).is_ok()).collect()
}

/// What was there before stays until the new one is whole.
fn write(dir: &Path, known: &[Ran]) -> Result<(), crate::disk::Error> {
    let kept = known.get(known.len().saturating_sub(MOST)..).unwrap_or_default();
    let text = serde_json::to_vec(kept).unwrap_or_default();
    crate::disk::replace(dir, FILE, &text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;
    use crate::identity::tests::id;

    fn ran(number: u8, ended: Option<u64>) -> Ran {
        Ran { id: id(number).to_string(), ended }
    }

    #[test]
    fn the_latest_nodes_of_a_pod_are_kept_and_what_is_illegible_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()), []);
        for number in 0..20 {
            record(dir.path(), ran(number, None));
        }
        assert_eq!(read(dir.path()), (4..20).map(|number| ran(number, None)).collect::<Vec<_>>());
        record(dir.path(), ran(7, Some(5)));
        assert_eq!(read(dir.path()).last(), Some(&ran(7, Some(5))));
        assert_eq!(read(dir.path()).len(), MOST);
        for text in ["[{\"id\":\"half a li", "[{\"id\":\"no node\",\"ended\":1}]"] {
            fs::write(dir.path().join(FILE), text).unwrap();
            assert_eq!(read(dir.path()), []);
        }
    }

    #[test]
    fn an_end_that_nobody_saw_counts_from_now_on() {
        let now = Instant::now() + Duration::from_secs(3600);
        let ago = |millis| now.checked_sub(Duration::from_millis(millis)).unwrap();
        assert_eq!(at_latest(Some(9_000), now, Some(10_000)), ago(1_000));
        assert_eq!(at_latest(None, now, Some(10_000)), now);
        assert_eq!(at_latest(Some(10_001), now, Some(10_000)), now, "of before the machine was started");
        assert_eq!(at_latest(Some(9_000), now, None), now, "nobody knows");
    }
}
