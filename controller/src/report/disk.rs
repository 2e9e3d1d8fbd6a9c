//! Members that cannot write to their disk: what becomes of writes, and what a person can do.

use super::{Failing, Verdict};
use crate::probe::Unkept;

/// Clients are refused, however well all else is.
pub(super) fn refuses_writes(verdict: &Verdict) -> bool {
    verdict.failing_disks.iter().any(|failing| failing.is_primary)
}

/// Primaries and replicas whose disks fail, in one sentence each.
pub(super) fn failing(verdict: &Verdict) -> Option<String> {
    let told: Vec<String> = [true, false].into_iter().filter_map(|primaries| sentence(verdict, primaries)).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn sentence(verdict: &Verdict, primaries: bool) -> Option<String> {
    let failing: Vec<&Failing> = verdict.failing_disks.iter().filter(|one| one.is_primary == primaries).collect();
    let Failing { pod, is_primary: _, what } = failing.first()?;
    let count = failing.len();
    let whose = if primaries {
        format!("{count} primaries refuse writes (MISCONF)")
    } else {
        format!("{count} replicas cannot keep what they are sent and, from version 7.0 on, end at the next write")
    };
    let why = match what {
        Unkept::Log => {
            "which cannot write its append-only file. Its log says why; where the volume is full, make spec.storage.size larger"
        }
        Unkept::Snapshot => {
            "whose last snapshot failed. Its log says why: where the volume is full, make spec.storage.size larger; where a fork found no \
             memory, resources.limits.memory"
        }
    };
    Some(format!("{whose}; the first is {pod}, {why}"))
}
