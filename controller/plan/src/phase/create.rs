//! The first topology in one batch: short timeouts, epochs, slots, introductions. Replicas follow once the members know each other.

use crate::observed::Pod;
use crate::phase::{Flow, count, heal};
use crate::plan::{Plan, Waiting};
use crate::scene::Scene;
use crate::slots::{SLOTS, SlotSet};
use crate::step::Step;

pub(crate) fn create(scene: &Scene<'_>, plan: &mut Plan) -> Flow {
    if !scene.is_blank() {
        return Flow::On;
    }
    // A member that is not seen may own everything: nothing is created before all of them are.
    let is_live = |pod: &Pod| scene.live.iter().any(|live| live.pod == *pod);
    let places = scene.places();
    if let Some(first) = places.keys().find(|pod| !is_live(pod)) {
        let have = count(scene.live.len());
        plan.waiting.push(Waiting::Members { have, want: count(places.len()), first: *first });
        return Flow::Stop;
    }
    let leads = scene.leads();
    if leads.len() < usize::from(scene.desired.shards) || !scene.strangers.is_empty() {
        return Flow::On;
    }
    let millis = scene.limits.bootstrap_node_timeout_millis;
    let slow = scene.live.iter().filter(|live| live.node.node_timeout_millis != millis);
    plan.steps.extend(slow.map(|live| Step::NodeTimeout { node: live.who(), millis }));
    plan.steps.extend(heal::epochs(scene));
    plan.steps.extend(leads.iter().map(|lead| {
        let slots = ideal(lead.pod.shard, scene.desired.shards);
        Step::AddSlots { node: lead.who(), slots }
    }));
    plan.steps.extend(heal::introductions(scene));
    Flow::Stop
}

/// The contiguous range a shard has when nothing else speaks.
pub(crate) fn ideal(shard: u16, shards: u16) -> SlotSet {
    let bound = |index: u16| u32::from(index) * u32::from(SLOTS) / u32::from(shards.max(1));
    let (first, end) = (bound(shard), bound(shard.saturating_add(1)));
    match (u16::try_from(first), u16::try_from(end.saturating_sub(1))) {
        (Ok(first), Ok(last)) if end > u32::from(first) => SlotSet::range(first, last),
        (Ok(_), Ok(_)) | (Err(_), _) | (_, Err(_)) => SlotSet::EMPTY,
    }
}
