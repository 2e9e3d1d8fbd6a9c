//! Replicas are let in only by a member that has what they may copy.
//!
//! Redis' replicas follow an address. A process that comes up blank where a primary was, because its volume was emptied or exchanged,
//! would be found by them within a second, and they would copy the emptiness. So the user of replication is switched off until the
//! member owns slots or follows somebody: until then its clients are sent elsewhere as well, and the replicas keep what they have.

use std::{sync::Arc, time::Duration};

use resp::{Command, Node};
use tokio::time::sleep;
use types::{cluster::Mode, names::USER_REPLICA};

use crate::{identity::Verdict, shared::Shared};

/// How often a member that lets nobody in looks whether it may. What is waited for is the controller's next step.
const LOOK: Duration = Duration::from_millis(50);

/// Whether replicas are let in from the start: the member starts with what it was.
#[must_use]
pub fn from_the_start(mode: Mode, verdict: &Verdict) -> bool {
    match (mode, verdict) {
        (Mode::Standalone, _) => true,
        (Mode::Cluster, Verdict::Intact(me)) => me.owned_slots() || me.is_replica(),
        (Mode::Cluster, Verdict::Blank | Verdict::Damaged { .. }) => false,
    }
}

/// Whether it has become somebody to copy from. Who imports a slot was chosen by the controller, and may have to have replicas before it
/// takes the first key (`min-replicas-to-write`).
fn is_somebody(table: &[Node]) -> bool {
    let chosen = |node: &Node| !node.slots.is_empty() || !node.importing.is_empty() || node.primary.is_some();
    table.iter().any(|node| node.flags.myself && chosen(node))
}

/// Switches the user of replication on once the member is somebody; returns when it is on.
pub async fn admit_replicas(shared: &Arc<Shared>) {
    while !shared.lets_replicas_in() {
        if may_admit(shared).await && switch_on(shared).await {
            shared.let_replicas_in();
            tracing::info!("replicas are let in: this member owns slots, or follows one that does");
        } else {
            sleep(LOOK).await;
        }
    }
}

async fn may_admit(shared: &Arc<Shared>) -> bool {
    let replies = shared.local.ask(&[Command::new("CLUSTER").arg("NODES")]).await;
    let table = replies.ok().and_then(|replies| resp::nodes::parse(replies.first()?.text()?).ok());
    table.is_some_and(|table| is_somebody(&table))
}

async fn switch_on(shared: &Arc<Shared>) -> bool {
    let Ok(mut connection) = shared.open_for_users().await else { return false };
    connection.call(&["ACL", "SETUSER", USER_REPLICA, "on"]).await.is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    fn table(myself: &str) -> Vec<Node> {
        let other = format!("{:040x} 10.0.0.2:6379@16379 master - 0 0 1 connected 0-100", 2);
        resp::nodes::parse(&format!("{:040x} 10.0.0.1:6379@16379 {myself}\n{other}\n", 1)).unwrap()
    }

    #[test]
    fn whoever_owns_slots_or_follows_somebody_may_be_copied_from() {
        let of = format!("{:040x}", 2);
        assert!(!is_somebody(&table("myself,master - 0 0 0 connected")));
        assert!(is_somebody(&table("myself,master - 0 0 0 connected 200-300")));
        assert!(is_somebody(&table(&format!("myself,master - 0 0 0 connected [7-<-{of}]"))));
        assert!(!is_somebody(&table(&format!("myself,master - 0 0 0 connected [7->-{of}]"))));
        assert!(is_somebody(&table(&format!("myself,slave {of} 0 0 0 connected"))));
    }

    #[test]
    fn a_blank_member_of_a_cluster_lets_nobody_in_from_the_start() {
        let damaged = Verdict::Damaged { why: String::new() };
        let found = [(Mode::Cluster, &Verdict::Blank), (Mode::Cluster, &damaged), (Mode::Standalone, &Verdict::Blank)];
        assert_eq!(found.map(|(mode, verdict)| from_the_start(mode, verdict)), [false, false, true]);
    }
}
