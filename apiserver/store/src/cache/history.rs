//! The recent notices of one resource, from which a watch resumes and older snapshots are rebuilt. Pure: the caller
//! tells the time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::notice::Notice;
use crate::Revision;

/// How much of the past is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Notices younger than this are kept, as long as the two bounds below allow.
    pub age: Duration,
    /// So many notices are kept whatever their age, because an idle resource costs nothing to remember.
    pub at_least: usize,
    /// Never more notices than this.
    pub at_most: usize,
    /// Never more bytes than this, about.
    pub bytes: usize,
}

impl Default for Window {
    /// A client that missed a bookmark (one a minute) must be able to resume: 60 s and a margin of 15. The bounds hold
    /// 100 s of 1,000 writes per second of 1 KiB.
    fn default() -> Self {
        Window { age: Duration::from_secs(75), at_least: 1024, at_most: 100_000, bytes: 128 << 20 }
    }
}

/// The recent notices, in order of revision.
#[derive(Debug)]
pub(super) struct History {
    window: Window,
    notices: VecDeque<(Duration, Arc<Notice>)>,
    bytes: usize,
    /// Every notice after this revision is remembered.
    floor: Revision,
}

impl History {
    /// A history that begins after `floor`.
    pub(super) fn new(window: Window, floor: Revision) -> History {
        History { window, notices: VecDeque::new(), bytes: 0, floor }
    }

    /// The revision after which every notice is remembered.
    pub(super) fn floor(&self) -> Revision {
        self.floor
    }

    /// Remembers `notice`, and forgets what the window no longer asks for.
    pub(super) fn push(&mut self, notice: Arc<Notice>, now: Duration) {
        self.bytes += notice.size();
        self.notices.push_back((now, notice));
        while let Some((at, oldest)) = self.notices.front() {
            let Window { age, at_least, at_most, bytes } = self.window;
            let full = self.notices.len() > at_most || self.bytes > bytes;
            let old = self.notices.len() > at_least && now.saturating_sub(*at) > age;
            if !full && !old {
                break;
            }
            self.floor = oldest.revision();
            self.bytes -= oldest.size();
            self.notices.pop_front();
        }
    }

    /// The notices after `revision`, oldest first; none when some of them are forgotten.
    pub(super) fn after(
        &self,
        revision: Revision,
    ) -> Option<impl DoubleEndedIterator<Item = &Arc<Notice>> + ExactSizeIterator> {
        if revision < self.floor {
            return None;
        }
        let start = self.notices.partition_point(|(_, notice)| notice.revision() <= revision);
        Some(self.notices.range(start..).map(|(_, notice)| notice))
    }
}
