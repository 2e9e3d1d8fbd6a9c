#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::Duration;

use super::*;
use crate::probe::node::{Vouched, raw};

const PRIMARY: &str = "0000000000000000000000000000000000000001";
const REPLICA: &str = "0000000000000000000000000000000000000002";
const OTHER: &str = "0000000000000000000000000000000000000003";
/// The nodes' own clock, milliseconds.
const NOW: i64 = 1_800_000_000_000;

fn id(text: &str) -> NodeId {
    NodeId::parse(text).unwrap()
}

/// What a node says that follows nobody, or the primary; the last pong it has from the primary is so many seconds old.
fn node(name: &str, offset: u64, link: Option<&str>, silent: Option<i64>) -> Raw {
    let pong = silent.map_or(0, |seconds| NOW - seconds * 1_000);
    let (role, of, fields) = match link {
        None => ("master", "-", format!("role:master\nmaster_repl_offset:{offset}\n")),
        Some(link) => ("slave", PRIMARY, format!("role:slave\nslave_repl_offset:{offset}\n{link}\n")),
    };
    let mut table = format!("{name} 10.0.0.1:6379@16379 myself,{role} {of} 0 0 1 connected\n");
    if name != PRIMARY {
        table += &format!("{PRIMARY} 10.0.0.2:6379@16379 master - 0 {pong} 1 connected 0-16383\n");
    }
    let info = format!("server_time_usec:{}\nmaster_replid:stream\n{fields}", NOW * 1_000);
    raw(id(name), &info, &table)
}

fn down(seconds: i64) -> Option<String> {
    Some(format!("master_link_status:down\nmaster_link_down_since_seconds:{seconds}"))
}

/// The gap of the replica in the last of these looks, each so many seconds after the one before.
fn gap(looks: &[(u64, &[Raw])]) -> (u64, u64) {
    let (mut streams, mut now) = (Streams::default(), Instant::now());
    let mut found = Gap::default();
    for (seconds, answers) in looks {
        now += Duration::from_secs(*seconds);
        streams.note(answers.iter(), now);
        let replica = answers.iter().find(|raw| raw.id == id(REPLICA)).unwrap();
        found = streams.gap(replica, id(PRIMARY), now);
    }
    (found.missed_millis, found.silent_millis)
}

#[test]
fn a_primary_that_died_with_the_link_did_nothing_without_it() {
    let up = [node(PRIMARY, 100, None, None), node(REPLICA, 100, Some("master_link_status:up"), Some(1))];
    assert_eq!(gap(&[(0, &up)]), (0, 0));
    let dead = [node(REPLICA, 100, down(30).as_deref(), Some(30)), node(OTHER, 5, None, Some(31))];
    // Nobody remembers anything: what the nodes tell is enough.
    assert_eq!(gap(&[(0, &dead)]), (0, 30_000));
    assert_eq!(gap(&[(0, &up), (30, &dead)]), (0, 30_000));
}

#[test]
fn a_primary_that_others_heard_of_later_lived_on_without_the_replica() {
    let dead = [node(REPLICA, 100, down(60).as_deref(), Some(60)), node(OTHER, 5, None, Some(10))];
    assert_eq!(gap(&[(0, &dead)]), (50_000, 10_000));
    // The controller itself has seen it later than anybody else.
    let alive = [node(PRIMARY, 900, None, None), node(REPLICA, 100, down(58).as_deref(), None)];
    let dead = [node(REPLICA, 100, down(60).as_deref(), None)];
    assert_eq!(gap(&[(0, &alive), (2, &dead)]), (58_000, 2_000));
}

#[test]
fn a_primary_that_wrote_nothing_leaves_nobody_behind() {
    let idle = [node(PRIMARY, 100, None, None), node(REPLICA, 100, down(58).as_deref(), Some(1))];
    let dead = [node(REPLICA, 100, down(60).as_deref(), Some(2))];
    assert_eq!(gap(&[(0, &idle), (2, &dead)]), (0, 2_000));
    let busy = [node(PRIMARY, 101, None, None), node(REPLICA, 100, down(58).as_deref(), Some(1))];
    assert_eq!(gap(&[(0, &busy), (2, &dead)]), (58_000, 2_000));
}

#[test]
fn a_dead_primary_is_ahead_by_what_it_said_last() {
    let (mut streams, now) = (Streams::default(), Instant::now());
    let alive = [node(PRIMARY, 900, None, None), node(REPLICA, 100, down(1).as_deref(), None)];
    streams.note(alive.iter(), now);
    let dead = [node(REPLICA, 150, down(3).as_deref(), None)];
    streams.note(dead.iter(), now + Duration::from_secs(2));
    assert_eq!(streams.lag(&dead[0], id(PRIMARY)), 750);
}

/// Redis tells since when it knows; its agent, until when it had everything.
#[test]
fn what_a_replica_lacks_counts_from_when_it_had_everything() {
    let placed = |place: &str, link: &str, vouched| {
        let info = format!(
            "server_time_usec:{}\nmaster_replid:stream\nrole:slave\nslave_repl_offset:100\nmaster_link_status:{link}",
            NOW * 1_000
        );
        let table = format!(
            "{REPLICA} 10.0.0.1:6379@16379 myself,slave,nofailover {PRIMARY} 0 0 1 connected\n\
             {PRIMARY} {place} - 0 {} 1 connected 0-16383\n",
            NOW - 9_000
        );
        let mut raw = raw(id(REPLICA), &info, &table);
        raw.vouched = vouched;
        raw
    };
    let linked = |status, vouched| placed("10.0.0.2:6379@16379 master", status, vouched);
    let held_back = |vouched| linked("down\nmaster_link_down_since_seconds:1", vouched);
    // Others have heard of the primary two seconds ago.
    let other = || node(OTHER, 5, None, Some(2));
    let unknown = (u64::MAX - 2_000, 2_000);
    assert_eq!(gap(&[(0, &[held_back(Vouched::Not), other()])]), unknown, "its agent does not answer");
    // Redis shows a link as up over which nothing comes.
    assert_eq!(gap(&[(0, &[linked("up", Vouched::Millis(30_000)), other()])]), (28_000, 2_000));
    assert_eq!(gap(&[(0, &[held_back(Vouched::Millis(0)), other()])]), (0, 2_000));
    assert_eq!(gap(&[(0, &[held_back(Vouched::Millis(9_500)), other()])]), (7_500, 2_000));
    assert_eq!(gap(&[(0, &[held_back(Vouched::Never), other()])]), unknown);
    let (now, blind, mut seen) = (Instant::now(), Streams::default(), Streams::default());
    seen.note([node(PRIMARY, 100, None, None)].iter(), now);
    let stands = |streams, vouched| match crate::probe::node::read(&held_back(vouched), streams, now).role {
        plan::Role::Replica { stands, .. } => stands,
        role @ plan::Role::Primary { .. } => panic!("{role:?}"),
    };
    let told = [Vouched::Not, Vouched::Never, Vouched::Millis(0)].map(|vouched| stands(&seen, vouched));
    assert_eq!(told, [plan::Stands::Never, plan::Stands::Never, plan::Stands::OnOrder]);
    assert_eq!(stands(&blind, Vouched::Millis(0)), plan::Stands::Never, "how far its primary was nobody has seen");
    let taken = placed(":0@0 master,fail,noaddr", "down\nmaster_link_down_since_seconds:1", Vouched::Millis(0));
    let taken = crate::probe::node::read(&taken, &blind, now).role;
    assert!(matches!(taken, plan::Role::Replica { stands: plan::Stands::OnOrder, .. }), "its agent would let it stand");
}

/// Before, the copy of a primary that ended a moment after its first replica had come was taken for one of another history, and no order reached it.
#[test]
fn a_primary_takes_another_replication_id_with_its_first_replica() {
    let at = |name: &str, stream: &str, rest: &str, of: &str| {
        let info = format!("master_replid:{stream}\n{rest}");
        let kind = if of == "-" { "master" } else { "slave" };
        raw(id(name), &info, &format!("{name} 10.0.0.1:6379@16379 myself,{kind} {of} 0 0 1 connected\n"))
    };
    let primary = |backlog: u8| at(PRIMARY, "before", &format!("role:master\nrepl_backlog_active:{backlog}\n"), "-");
    let replica = |stream: &str| {
        let lost = "role:slave\nmaster_link_status:down\nmaster_link_down_since_seconds:1\nmaster_sync_in_progress:0\n";
        at(REPLICA, stream, lost, PRIMARY)
    };
    let synced = |first: &[Raw], then: &str| {
        let (mut streams, now) = (Streams::default(), Instant::now());
        streams.note(first.iter(), now);
        let left = [replica(then)];
        streams.note(left.iter(), now + Duration::from_secs(1));
        match crate::probe::node::read(&left[0], &streams, now + Duration::from_secs(1)).role {
            plan::Role::Replica { synced, .. } => synced,
            role @ plan::Role::Primary { .. } => panic!("{role:?}"),
        }
    };
    assert!(synced(&[primary(0), replica("own")], "first"));
    assert!(!synced(&[primary(0), replica("first")], "first"), "it had that before, from whomever");
    assert!(!synced(&[primary(0)], "first"), "who knows since when");
    assert!(!synced(&[primary(1), replica("own")], "first"), "its primary had a stream");
    assert!(synced(&[primary(1), replica("own")], "before"));
}
