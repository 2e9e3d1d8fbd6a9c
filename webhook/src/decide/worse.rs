//! Only-if-worse for shape: a fault that the old object had identically is a warning, a new or changed one a refusal.

use types::field::Fault;

use super::{Objection, Verdict};

/// Refuses what is new among `faults` and warns of the rest. `before` is asked only when there is something to compare.
pub(super) fn shape(verdict: &mut Verdict, faults: Vec<Fault>, before: impl FnOnce() -> Vec<Fault>) {
    if faults.is_empty() {
        return;
    }
    let before = before();
    for fault in faults {
        if before.contains(&fault) {
            verdict.warn(format!("{fault} (as before)"));
        } else {
            verdict.refuse(Objection::Invalid, fault);
        }
    }
}
