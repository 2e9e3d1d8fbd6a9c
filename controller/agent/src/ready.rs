//! Whether this member may be called ready. Pure.
//!
//! Ready is a promise to whoever restarts the next member: link up, no copy under way, loading done, identity right. A Redis
//! that answers PING promises none of that (reliability.md rules 2 and 5).

use resp::{Info, Node};
use types::cluster::Mode;

/// The first reason why not, as a sentence; `None`: ready.
#[must_use]
pub fn unready(mode: Mode, info: &Info, table: &[Node]) -> Option<String> {
    loading(info).or_else(|| replication(info)).or_else(|| match mode {
        Mode::Standalone => None,
        Mode::Cluster => identity(info, table),
    })
}

fn loading(info: &Info) -> Option<String> {
    match info.flag("loading") {
        None => Some("Redis does not say whether it is loading".to_owned()),
        Some(true) => {
            let percent = info.fraction("loading_loaded_perc").unwrap_or_default();
            Some(format!("loading the data set, {percent:.0} % done"))
        }
        Some(false) => None,
    }
}

fn replication(info: &Info) -> Option<String> {
    if info.get("role") != Some("slave") {
        return None;
    }
    if info.flag("master_sync_in_progress") == Some(true) {
        let left = info.number("master_sync_left_bytes").unwrap_or_default().max(0);
        return Some(format!("receiving a full copy from its primary, {left} bytes left"));
    }
    if info.get("master_link_status") != Some("up") {
        let down = info.number("master_link_down_since_seconds").unwrap_or_default().max(0);
        return Some(format!("the link to its primary has been down for {down} s"));
    }
    None
}

fn identity(info: &Info, table: &[Node]) -> Option<String> {
    let Some(me) = table.iter().find(|node| node.flags.myself) else {
        return Some("its cluster table has no line about itself".to_owned());
    };
    let as_replica = info.get("role") == Some("slave");
    if as_replica != me.flags.replica {
        return Some("its replication role and its cluster role differ just now".to_owned());
    }
    let Some(primary) = &me.primary else {
        return me.slots.is_empty().then(|| "it owns no slots and replicates nobody".to_owned());
    };
    match table.iter().find(|node| node.id == *primary) {
        None => Some(format!("its primary {primary} is not in its cluster table")),
        Some(node) if node.slots.is_empty() => Some(format!("its primary {primary} owns no slots")),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    const PRIMARY: &str = "loading:0\nrole:master\n";
    const REPLICA: &str = "loading:0\nrole:slave\nmaster_link_status:up\nmaster_sync_in_progress:0\n";

    fn table(me: &str, other: &str) -> Vec<Node> {
        resp::nodes::parse(&format!(
            "{:040x} 127.84.0.1:6379@16379 myself,{me}\n{:040x} 127.84.0.2:6379@16379 {other}\n",
            1, 2
        ))
        .unwrap()
    }

    fn verdict(info: &str, table: &[Node]) -> Option<String> {
        unready(Mode::Cluster, &Info::parse(info), table)
    }

    #[test]
    fn an_owner_of_slots_and_its_synced_replica_are_ready() {
        let owner = table("master - 0 0 1 connected 0-5", "master - 0 0 2 connected 6-9");
        assert_eq!(verdict(PRIMARY, &owner), None);
        let replica = table(&format!("slave {:040x} 0 0 1 connected", 2), "master - 0 0 2 connected 6-9");
        assert_eq!(verdict(REPLICA, &replica), None);
        assert_eq!(unready(Mode::Standalone, &Info::parse(PRIMARY), &[]), None);
    }

    #[test]
    fn each_way_not_to_be_ready_has_its_sentence() {
        let owner = table("master - 0 0 1 connected 0-5", "master - 0 0 2 connected 6-9");
        let blank = table("master - 0 0 1 connected", "master - 0 0 2 connected 6-9");
        let replica = table(&format!("slave {:040x} 0 0 1 connected", 2), "master - 0 0 2 connected 6-9");
        let orphan = table(&format!("slave {:040x} 0 0 1 connected", 2), "master - 0 0 2 connected");
        let cases = [
            ("", &owner, "Redis does not say whether it is loading"),
            ("loading:1\nloading_loaded_perc:41.7\n", &owner, "loading the data set, 42 % done"),
            (PRIMARY, &blank, "it owns no slots and replicates nobody"),
            (PRIMARY, &replica, "its replication role and its cluster role differ just now"),
            (
                &REPLICA.replace(":up", ":down\nmaster_link_down_since_seconds:3"),
                &replica,
                "the link to its primary has been down for 3 s",
            ),
            (
                &REPLICA.replace("progress:0", "progress:1\nmaster_sync_left_bytes:7"),
                &replica,
                "receiving a full copy from its primary, 7 bytes left",
            ),
            (REPLICA, &orphan, "its primary 0000000000000000000000000000000000000002 owns no slots"),
        ];
        for (info, table, sentence) in cases {
            assert_eq!(verdict(info, table).as_deref(), Some(sentence));
        }
    }
}
