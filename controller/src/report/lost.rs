//! Writes that members lost at their starts: told while a person may not have read it yet, and what may be done.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};
use plan::Pod;
use types::names;

use super::Seeing;
use crate::resolve::Resolved;

/// For how long it is told: whoever looks once a day reads it.
const TOLD: SignedDuration = SignedDuration::from_hours(24);
/// What a person may do.
const NEXT: &str = "What clients or a backup have of that can be written again";
/// The same, where files do not have every write.
const NEXT_TIME: &str =
    "; with storage and spec.persistence.appendOnly EverySec or Always a start loads every write that its file has";

/// A loss, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Whose, and when: another one is another loss.
    pub start: (Pod, Timestamp),
    /// What it came to, and what to do.
    pub sentence: String,
}

/// The losses of the last day, the latest first.
#[must_use]
pub fn lost(seeing: Seeing<'_>) -> Vec<Lost> {
    let cluster = seeing.cluster.metadata.name.as_deref().unwrap_or_default();
    let recent = seeing.probed.lost.iter().filter(|(_, lost)| seeing.now.duration_since(lost.at) < TOLD);
    let is_kept = seeing.resolved.is_some_and(Resolved::keeps_each_write);
    let next_time = if is_kept { "" } else { NEXT_TIME };
    let told = recent.map(|(pod, lost)| {
        let name = names::pod(cluster, pod.shard, pod.ordinal);
        let sentence = format!("at {} member {name} {}. {NEXT}{next_time}", lost.at, lost.what);
        Lost { start: (*pod, lost.at), sentence }
    });
    let mut all: Vec<Lost> = told.collect();
    all.sort_by_key(|lost| (Reverse(lost.start.1), lost.start.0));
    all
}

/// All of them in one sentence.
pub(super) fn writes_lost(seeing: Seeing<'_>) -> Option<String> {
    let all = lost(seeing);
    let latest = &all.first()?.sentence;
    Some(match all.len() {
        1 => format!("writes were lost, or may have been: {latest}"),
        many => format!("writes were lost, or may have been, at the starts of {many} members; the latest: {latest}"),
    })
}
