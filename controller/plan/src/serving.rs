//! Who speaks for the cluster in service: what is planned, and what is copied, goes by nobody else's word.

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};

use crate::apart::Apart;
use crate::desired::Mode;
use crate::observed::{Observed, Pod};
use crate::plan::{Plan, Refused};
use crate::scene::{living, shares};
use crate::slots::SlotSet;
use crate::twins::Twins;

/// What was seen, without the word of those who are one node twice, or of another cluster.
pub struct Serving<'a> {
    /// These members count as not known: they may be alive, and hold what they hold.
    pub seen: Cow<'a, Observed>,
    twins: Twins,
    apart: Apart,
}

/// Sets aside who does not speak for the cluster in service.
#[must_use]
pub fn serving(mode: Mode, observed: &Observed) -> Serving<'_> {
    let twins = Twins::of(mode, observed);
    let seen = twins.set_aside(observed);
    let apart = Apart::of(mode, &seen);
    Serving { seen: apart.set_aside(seen), twins, apart }
}

impl Serving<'_> {
    /// What each member that answers owns once all claims are compared by epoch, as Redis does. Who owns nothing is not listed, and a slot whose newest
    /// claim is that of a node that does not answer is nobody's.
    #[must_use]
    pub fn owned(&self) -> BTreeMap<Pod, SlotSet> {
        shares(&self.seen, &living(&self.seen)).owned
    }

    /// Why nobody can tell whose word counts, if that is so. A copy that is held serves nobody.
    #[must_use]
    pub fn unclear(&self) -> Option<Refused> {
        let is_held = |refused: &&Refused| matches!(refused, Refused::Copied { .. });
        let twin = self.twins.told().iter().find(|refused| !is_held(refused));
        twin.cloned().or_else(|| self.apart.unsure().next())
    }

    /// Shards whose steps will be taken out, each of them.
    pub(crate) fn kept_out(&self) -> BTreeSet<u16> {
        self.twins.shards()
    }

    /// Tells of those who were set aside, and takes out what concerns them.
    pub(crate) fn keep_out(&self, plan: &mut Plan) {
        self.apart.keep_out(plan);
        self.twins.keep_out(plan);
    }
}
