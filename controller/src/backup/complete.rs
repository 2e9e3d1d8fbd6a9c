//! How a backup ends once everything is stored. Pure.

use plan::SlotSet;
use types::backup::{BackupPhase, RedisBackupStatus};
use types::cluster::Mode;

use super::{Round, fail};

/// Everything is stored; does it hold everything exactly once?
pub(super) fn complete(mut status: RedisBackupStatus, round: Round<'_>) -> RedisBackupStatus {
    if round.resolved.mode == Mode::Cluster {
        let mut all = SlotSet::EMPTY;
        let mut count = 0_u32;
        for artifact in &status.shards {
            let Some(slots) = SlotSet::parse(&artifact.slots) else {
                let why = format!("artifact of shard {} says it holds the slots {:?}", artifact.index, artifact.slots);
                return fail(status, "Inconsistent", why, round.now);
            };
            count = count.saturating_add(u32::from(slots.len()));
            all = all.union(&slots);
        }
        if all != SlotSet::all() || count != u32::from(plan::SLOTS) {
            let why = format!("the artifacts hold {} of {} slots, {count} with repetitions", all.len(), plan::SLOTS);
            return fail(status, "Inconsistent", why, round.now);
        }
    }
    let cuts = || status.shards.iter().map(|artifact| artifact.cut_time.as_millisecond());
    status.cut_spread_millis = cuts().max().zip(cuts().min()).map(|(last, first)| last.saturating_sub(first));
    let blind: Vec<&str> = status.shards.iter().filter(|one| !one.walked).map(|one| one.file.as_str()).collect();
    let (blind, first) = (blind.len(), blind.first().map(|file| (*file).to_owned()));
    status.verified = blind == 0;
    status.phase = BackupPhase::Completed;
    status.completion_time = Some(round.now);
    let bytes: i64 = status.shards.iter().map(|artifact| artifact.bytes).sum();
    let keys: i64 = status.shards.iter().map(|artifact| artifact.keys).sum();
    let mut text = format!("{} artifacts with {keys} keys ({bytes} bytes) were read back", status.shards.len());
    if let Some(file) = first {
        let unread = format!("; {blind} of them, {file} the first, hold something that could not be read key by key");
        text.push_str(&unread);
    }
    let reason = if status.verified { "Verified" } else { "StoredOnly" };
    status.conditions = crate::report::ended(true, reason, &text, round.now);
    status
}
