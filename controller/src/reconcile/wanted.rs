//! What the planner is asked for: the specification, what a restart would lose, and what a person has asked for. Pure.

use types::cluster::{Mode, Spread};

use crate::gather::Gathered;
use crate::resolve::{Approval, Resolved};
use crate::{backup, operate};

/// What the planner is asked for.
pub(super) fn wanted(resolved: &Resolved, gathered: &Gathered) -> plan::Desired {
    let restart_keeps_data = resolved.restart_keeps_data();
    plan::Desired {
        mode: match resolved.mode {
            Mode::Cluster => plan::Mode::Cluster,
            Mode::Standalone => plan::Mode::Standalone,
        },
        shards: resolved.shards,
        replicas: resolved.members.saturating_sub(1),
        node_timeout_millis: resolved.agent.node_timeout_millis,
        restart_keeps_data,
        // Who keeps nothing on purpose cannot be asked to restore it.
        adopt_lost_slots: !restart_keeps_data,
        migration_paused: resolved.migration.paused || backup::holds_slots(&gathered.backups),
        approval: match &resolved.approval {
            Approval::All => plan::Approval::Automatic,
            Approval::Shards(approved) => plan::Approval::Supervised { approved: approved.clone() },
        },
        failover: gathered.current_operation().and_then(|operation| operate::request(operation)),
        spread: match resolved.placement.spread {
            Spread::Required | Spread::Preferred => true,
            Spread::Off => false,
        },
        placed_by_hand: gathered.operations.iter().filter_map(|operation| operate::placed(operation)).collect(),
    }
}
