//! Settings that are changed for the time of a step and put back afterwards, also after a crash.
//!
//! What is changed is recorded in `status.temporaryConfig` before it is changed, and putting back is level-triggered:
//! whatever differs at rest is set, no matter who changed it or when.

use std::collections::BTreeMap;

use plan::{Plan, Step};

use super::{Error, World, migrate};
use crate::probe::{Probed, nodes};
use crate::resolve::Resolved;

/// Compression of values in MIGRATE (and in snapshots): off on the source while slots move, for it halves the rate.
pub const COMPRESSION: &str = "rdbcompression";
/// The node timeout: short while an empty cluster is made, because members rejoin only after it.
pub const NODE_TIMEOUT: &str = "cluster-node-timeout";

/// What the user wants of compression.
fn wanted_compression(resolved: &Resolved) -> bool {
    resolved.agent.parameters.get(COMPRESSION).is_none_or(|value| value != "no")
}

/// What differs from what is intended now, or is about to: parameter → intended value. Pure.
#[must_use]
pub fn temporary(resolved: &Resolved, probed: &Probed, plan: &Plan) -> BTreeMap<String, String> {
    let mut temporary = BTreeMap::new();
    let intended = resolved.agent.node_timeout_millis;
    let differs = nodes(&probed.observed).any(|n| n.node_timeout_millis != 0 && n.node_timeout_millis != intended);
    let will = plan.steps.iter().any(|step| matches!(step, Step::NodeTimeout { millis, .. } if *millis != intended));
    if differs || will {
        temporary.insert(NODE_TIMEOUT.to_owned(), intended.to_string());
    }
    let compress = wanted_compression(resolved);
    let differs = probed.facts.values().any(|facts| facts.compresses != compress);
    let will = compress && moves(plan);
    if differs || will {
        temporary.insert(COMPRESSION.to_owned(), if compress { "yes" } else { "no" }.to_owned());
    }
    temporary
}

/// Whether slots are about to move.
fn moves(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| matches!(step, Step::Move { .. }))
}

/// Before a move: the source does not compress.
pub(super) async fn quicken(world: World<'_>, source: migrate::End) -> Result<(), Error> {
    let compresses = world.probed.facts.values().any(|facts| facts.address == source.address && facts.compresses);
    if compresses {
        let mut redis = world.access.open_node(source.address, source.id).await?;
        world.leading()?;
        redis.config_set(COMPRESSION, "no").await?;
    }
    Ok(())
}

/// When no slot is about to move: every node compresses as the user wants. Nothing is sent where it does.
///
/// # Errors
/// When a node that differs cannot be told.
pub async fn settle(plan: &Plan, world: World<'_>) -> Result<(), Error> {
    if moves(plan) || plan.slots_left > 0 {
        return Ok(());
    }
    let compress = wanted_compression(world.resolved);
    for (pod, facts) in world.probed.facts.iter().filter(|(_, facts)| facts.compresses != compress) {
        let Some(plan::Seen::Node(node)) = world.probed.observed.members.get(pod).map(|member| &member.seen) else {
            continue;
        };
        let mut redis = match world.resolved.mode {
            types::cluster::Mode::Cluster => world.access.open_node(facts.address, node.id).await?,
            types::cluster::Mode::Standalone => world.access.open(facts.address).await?,
        };
        world.leading()?;
        redis.config_set(COMPRESSION, if compress { "yes" } else { "no" }).await?;
    }
    Ok(())
}
