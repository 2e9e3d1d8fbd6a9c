//! Points of the commit path, of backups and of compaction where a test ends the process as abruptly as SIGKILL would.
//!
//! The environment says at which point, and at which visit of it: `KUN_STORE_FAILPOINT=before-sync:17`. Only builds with
//! debug assertions look; in a release build a point is nothing at all.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names the point and the visit, parted by a colon.
const VARIABLE: &str = "KUN_STORE_FAILPOINT";

/// Where a process may be made to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// A batch is gathered, nothing is written.
    BeforeTransaction,
    /// Between two writes to the file.
    InWrite,
    /// All of a transaction is written, nothing is synced.
    BeforeSync,
    /// It is synced; the transaction does not know it yet.
    AfterSync,
    /// It is durable; neither watchers nor writers know it yet.
    BeforeNotice,
    /// Watchers know it, writers do not.
    BeforeAcknowledgement,
    /// All who waited were answered.
    AfterAcknowledgement,
    /// Between two objects of a backup.
    InBackup,
    /// Between two commits of a restore.
    InRestore,
    /// The interval of a compaction is claimed, nothing is compacted yet.
    InCompaction,
}

/// Every point by its name.
const NAMES: [(&str, Point); 10] = [
    ("before-transaction", Point::BeforeTransaction),
    ("in-write", Point::InWrite),
    ("before-sync", Point::BeforeSync),
    ("after-sync", Point::AfterSync),
    ("before-notice", Point::BeforeNotice),
    ("before-acknowledgement", Point::BeforeAcknowledgement),
    ("after-acknowledgement", Point::AfterAcknowledgement),
    ("in-backup", Point::InBackup),
    ("in-restore", Point::InRestore),
    ("in-compaction", Point::InCompaction),
];

/// A point where the process ends, and after how many visits.
#[derive(Debug)]
struct Armed {
    point: Point,
    at: u64,
    visits: AtomicU64,
}

static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

/// Ends the process here, if that was asked for.
pub(crate) fn reach(point: Point) {
    if !cfg!(debug_assertions) {
        return;
    }
    let armed = ARMED.get_or_init(|| std::env::var(VARIABLE).ok().and_then(|text| parse(&text)));
    if armed.as_ref().is_some_and(|armed| armed.is_due(point)) {
        // No destructor runs and no buffer is flushed, as with SIGKILL.
        std::process::abort();
    }
}

fn parse(text: &str) -> Option<Armed> {
    let (name, visit) = text.split_once(':')?;
    let (_, point) = NAMES.iter().find(|(known, _)| *known == name)?;
    Some(Armed { point: *point, at: visit.parse().ok()?, visits: AtomicU64::new(0) })
}

impl Armed {
    fn is_due(&self, point: Point) -> bool {
        self.point == point && self.visits.fetch_add(1, Ordering::Relaxed) + 1 == self.at
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

    use super::*;

    #[test]
    fn a_point_is_due_at_its_visit_only_and_at_no_other_point() {
        let armed = parse("before-sync:2").unwrap();
        let visits = [Point::BeforeSync, Point::AfterSync, Point::BeforeSync, Point::BeforeSync];
        assert_eq!(visits.map(|point| armed.is_due(point)), [false, false, true, false]);
    }

    #[test]
    fn what_names_no_point_arms_nothing() {
        for text in ["", "before-sync", "before-sync:", "before-sync:x", "nowhere:1", ":1"] {
            assert!(parse(text).is_none(), "{text}");
        }
        assert!(NAMES.iter().all(|(name, point)| parse(&format!("{name}:1")).unwrap().is_due(*point)));
    }
}
