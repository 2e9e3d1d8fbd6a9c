//! What this process remembers of each cluster. Losing it costs nothing but time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use plan::{NodeId, Pod, SlotSet, Step};

use super::rest::Rest;
use crate::apply::Repairs;
use crate::execute::migrate::Bucket;
use crate::probe::Memory;
use crate::queue::Key;

/// What is remembered of one cluster.
#[derive(Debug)]
pub(super) struct Local {
    /// Between looks.
    pub(super) memory: Memory,
    /// The rate limit of its moves.
    pub(super) bucket: Arc<Mutex<Bucket>>,
    /// When its status was last written by this process.
    pub(super) status_written: Option<Instant>,
    /// What was put right lately.
    pub(super) repairs: Repairs,
    /// What was last told to be wrong.
    pub(super) troubles: Vec<String>,
    /// Kinds of refusals that were told last.
    pub(super) refused: Vec<std::mem::Discriminant<plan::Refused>>,
    /// Losses of writes that were told, by whose start and when.
    pub(super) lost: BTreeSet<(Pod, Timestamp)>,
    /// When the Secret that a user brings was last looked at, its name, and what it lacked.
    pub(super) secret: Option<(Instant, String, Option<super::secret::Lack>)>,
    /// When something last moved forward.
    pub(super) progress_at: Instant,
    /// The last steps, to tell progress from repetition.
    pub(super) steps: Vec<Step>,
    /// Whose the slots were at the last look, for the same.
    pub(super) slots: BTreeMap<NodeId, SlotSet>,
    /// The last look, if it found nothing to do.
    pub(super) rest: Option<Rest>,
}

impl Default for Local {
    fn default() -> Self {
        Self {
            memory: Memory::default(),
            bucket: Arc::default(),
            status_written: None,
            repairs: Repairs::default(),
            troubles: Vec::new(),
            refused: Vec::new(),
            lost: BTreeSet::new(),
            secret: None,
            progress_at: Instant::now(),
            steps: Vec::new(),
            slots: BTreeMap::new(),
            rest: None,
        }
    }
}

impl Local {
    /// How long ago the status was written; for ever, if this process has not.
    pub(super) fn since_status(&self) -> Duration {
        self.status_written.map_or(Duration::MAX, |at| at.elapsed())
    }
}

/// What is remembered of all clusters. Bounded by their number; a deleted one is forgotten.
#[derive(Debug, Default)]
pub struct Locals {
    all: Mutex<BTreeMap<Key, Arc<tokio::sync::Mutex<Local>>>>,
}

impl Locals {
    /// What is remembered of one cluster.
    pub(super) fn of(&self, key: &Key) -> Arc<tokio::sync::Mutex<Local>> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(key.clone()).or_default())
    }

    /// The same, if there is anything.
    pub(super) fn known(&self, key: &Key) -> Option<Arc<tokio::sync::Mutex<Local>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).get(key).map(Arc::clone)
    }

    /// The cluster is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}
