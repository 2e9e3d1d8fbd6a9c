#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use types::cluster::SavePoint;

use resp::info::ReplicaLine;

use super::{
    attempt::{last_marks, marks, on_disk},
    *,
};

fn tried(id: &NodeId, end: Attempt) -> Tried {
    Tried { id: id.clone(), end, ordered: None, over: Instant::now(), marks: None }
}

fn line(last: u8, state: &str, offset: i64, lag: i64) -> ReplicaLine {
    ReplicaLine { host: format!("127.84.0.{last}"), port: 6379, state: state.into(), offset, lag }
}

fn table() -> Vec<Node> {
    resp::nodes::parse(&format!(
        "{:040x} 127.84.0.1:6379@16379 myself,master - 0 0 3 connected 0-5460\n\
         {:040x} 127.84.0.2:6379@16379 slave {:040x} 0 1 3 connected\n\
         {:040x} 127.84.0.3:6379@16379 slave {:040x} 0 1 3 connected\n\
         {:040x} 127.84.0.4:6379@16379 slave,fail {:040x} 0 1 3 connected\n",
        1, 2, 1, 3, 1, 4, 1
    ))
    .unwrap()
}

fn order(attached: &[ReplicaLine]) -> Vec<String> {
    heirs::heirs(&table(), attached).ready.into_iter().map(|heir| heir.address.ip().to_string()).collect()
}

#[test]
fn what_follows_the_last_order_is_over_before_redis_must_be_stopped() {
    let began = Instant::now();
    let of = |seconds: u64, saving: Option<u64>| {
        let saving = saving.map(Duration::from_secs);
        let limits = Limits::new(began, began + Duration::from_secs(seconds), saving, true);
        [limits.waits - began, limits.copies - began, limits.orders - began].map(|limit| limit.as_secs_f64())
    };
    // With a grace period of 30 s Redis must be stopped after 23.
    let logged = [of(23, None), of(60, None), of(3600, None), of(5, None)];
    assert_eq!(logged, [[6.0, 6.0, 13.0], [15.0, 15.0, 50.0], [600.0, 600.0, 3590.0], [0.0, 0.0, 0.0]]);
    // A pod of 1 GiB has 94 s, and saves 64 s at worst.
    let saved = [of(23, Some(0)), of(87, Some(2)), of(87, Some(64)), of(3593, Some(9000))];
    assert_eq!(saved, [[6.0, 6.0, 7.25], [21.75, 10.0, 55.25], [13.0, 10.0, 13.0], [7.0, 7.0, 7.0]]);
}

#[test]
fn who_gets_a_copy_or_has_just_lost_its_link_is_worth_waiting_for() {
    let others = |table: &[Node], attached: &[ReplicaLine]| heirs::heirs(table, attached).others;
    let (all, copying) = (table(), line(2, "send_bulk", 0, 0));
    assert_eq!(others(&all, std::slice::from_ref(&copying)), Others::Attached);
    assert_eq!(others(&all, &[line(3, "online", 10, 5)]), Others::Attached);
    assert_eq!(others(&all, &[line(9, "wait_bgsave", 0, 0), line(4, "send_bulk", 0, 0)]), Others::Linked);
    let without = |what: &str| -> Vec<Node> {
        let gone = all.iter().cloned().map(|mut node| {
            match what {
                "link" => node.connected = false,
                "answer" => node.flags.suspected = true,
                _ => node.primary = None,
            }
            node
        });
        gone.collect()
    };
    assert_eq!(["link", "answer", "primary"].map(|what| others(&without(what), &[])), [Others::Gone; 3]);
    let began = Instant::now();
    let limits = Limits::new(began, began + Duration::from_secs(60), None, true);
    let until = [Others::Gone, Others::Linked, Others::Attached]
        .map(|others| (worth_waiting(others, began, limits) - began).as_secs());
    assert_eq!(until, [0, 3, 15]);
}

#[test]
fn another_replica_is_asked_first_where_the_first_does_not_answer() {
    let ready = || heirs::heirs(&table(), &[line(2, "online", 10, 0), line(3, "online", 11, 0)]).ready;
    let first_after = |end: Attempt| {
        let tried = [tried(&ready()[0].id, end)];
        heirs::ranked(ready(), &tried)[0].address.ip().to_string()
    };
    assert_eq!(heirs::ranked(ready(), &[]), ready());
    let silent = Attempt::Silent { why: String::new() };
    let refused = Attempt::Refused { why: String::new() };
    let another = [silent, refused, Attempt::Lost, Attempt::Behind { why: "" }].map(first_after);
    assert_eq!(another, ["127.84.0.2"; 4]);
    assert_eq!(first_after(Attempt::Expired), "127.84.0.3", "it was slow");
}

#[test]
fn who_would_only_answer_the_same_again_is_asked_later() {
    let ready = || heirs::heirs(&table(), &[line(2, "online", 10, 0), line(3, "online", 11, 0)]).ready;
    let [first, second] = [ready()[0].clone(), ready()[1].clone()];
    let over = Instant::now();
    let turns = |ready: Vec<Heir>, end: Attempt, after: Duration, until: Duration| {
        let tried = [Tried { over, ..tried(&first.id, end) }];
        let turns = heirs::turns(ready, &tried, (over + after, over + until, over + LOOK), LOOK);
        (turns.now, turns.later)
    };
    let alone = || vec![first.clone()];
    assert_eq!(turns(ready(), Attempt::Lost, Duration::ZERO, Duration::ZERO), (vec![second], true));
    assert_eq!(turns(alone(), Attempt::Lost, Duration::ZERO, Duration::ZERO), (vec![], true));
    assert_eq!(turns(alone(), Attempt::Lost, PATIENCE_LOOK, Duration::ZERO), (alone(), false));
    assert_eq!(turns(alone(), Attempt::Lost, PATIENCE_LOOK, LOOK), (vec![], true), "another one may be ready soon");
    assert_eq!(turns(alone(), Attempt::Late, Duration::ZERO, LOOK), (alone(), false));
}

#[test]
fn who_was_ordered_is_ordered_again_only_where_it_can_be_elected() {
    let heir = heirs::heirs(&table(), &[line(2, "online", 10, 0)]).ready;
    let ordered = Instant::now();
    let turns = |after: u64, limit: u64, node_timeout: u64| {
        let over = ordered + Duration::from_millis(5200);
        let tried = [Tried { ordered: Some(ordered), over, ..tried(&heir[0].id, Attempt::Expired) }];
        let at = |seconds: u64| ordered + Duration::from_secs(seconds);
        let turns =
            heirs::turns(heir.clone(), &tried, (at(after), ordered, at(limit)), Duration::from_secs(node_timeout));
        (turns.now.len(), turns.later)
    };
    assert_eq!([turns(6, 60, 5), turns(19, 60, 5), turns(20, 60, 5)], [(0, true), (0, true), (1, false)]);
    assert_eq!([turns(6, 15, 5), turns(11, 15, 5)], [(1, false), (0, false)], "votes may come for ten seconds");
    assert_eq!([turns(6, 3, 1), turns(6, 7, 1)], [(0, false), (1, false)]);
}

#[test]
fn marks_that_an_attempt_has_left_are_those_of_the_last_look() {
    let left = |marks: [Option<Vec<Command>>; 2]| {
        let tried = marks.map(|marks| Tried { marks, ..tried(&table()[0].id, Attempt::Expired) });
        last_marks(&tried).len()
    };
    let one = || Some(vec![Command::new("CLUSTER")]);
    assert_eq!([left([one(), None]), left([one(), Some(vec![])]), left([None, one()])], [1, 0, 1]);
}

#[test]
fn every_attempt_is_told_and_one_that_was_given_up_may_succeed() {
    let [first, second] = [1, 2].map(|at| table()[at].id.clone());
    let tried = [tried(&first, Attempt::Lost), tried(&second, Attempt::Expired)];
    assert_eq!(
        why(&tried, Others::Gone),
        format!(
            "replica {first}: it stopped answering before it took over; then replica {second}: it was asked to take over and did not \
             within 5200 ms"
        )
    );
    assert_eq!(why(&[], Others::Attached), "its replicas were not in sync in time");
    let mut after = table();
    assert_eq!(late_heir(&after, &tried), None);
    after[0].primary = Some(first.clone());
    assert_eq!(late_heir(&after, &tried), Some(Outcome::Done { to: first }));
    assert_eq!(late_heir(&after, &[]), None, "it was a replica before");
}

#[test]
fn the_furthest_replica_in_sync_comes_first_and_others_never() {
    assert_eq!(order(&[line(2, "online", 10, 0), line(3, "online", 11, 1)]), ["127.84.0.3", "127.84.0.2"]);
    assert_eq!(order(&[line(2, "wait_bgsave", 10, 0), line(3, "online", 11, 3)]), [""; 0]);
    assert_eq!(order(&[line(4, "online", 10, 0), line(9, "online", 10, 0)]), [""; 0]);
    let reader = ReplicaLine { port: 0, ..line(2, "online", 99, 0) };
    assert_eq!(order(&[reader]), [""; 0]);
}

#[test]
fn a_role_goes_only_where_a_restart_would_find_the_data() {
    let aof = |enabled: u8, running: u8, is_wanted: bool| {
        let info = Info::parse(&format!("aof_enabled:{enabled}\naof_rewrite_in_progress:{running}\n"));
        behind(&info, is_wanted).is_some()
    };
    let found = [aof(1, 0, true), aof(0, 0, false), aof(0, 0, true), aof(1, 1, true), aof(1, 1, false)];
    assert_eq!(found, [false, false, true, true, true]);
}

#[test]
fn a_log_that_is_first_written_leaves_something_to_save() {
    let finds = |enabled: u8, running: u8, scheduled: u8| {
        finds_all(&Info::parse(&format!(
            "aof_enabled:{enabled}\naof_rewrite_in_progress:{running}\naof_rewrite_scheduled:{scheduled}\n"
        )))
    };
    assert_eq!([finds(1, 0, 0), finds(1, 1, 0), finds(1, 0, 1), finds(0, 0, 0)], [true, false, false, false]);
}

/// Before, only ten seconds were, as where something can be saved, while most of the grace period was left for a replica to get its copy.
#[test]
fn who_can_save_nothing_waits_for_a_copy_as_long_as_it_may() {
    let began = Instant::now();
    let limits = |saving: Option<u64>, stays| {
        let limits = Limits::new(began, began + Duration::from_secs(60), saving.map(Duration::from_secs), stays);
        let parts = [limits.waits, limits.disks, limits.copies, limits.orders];
        (parts.map(|limit| (limit - began).as_secs()), limits.needs_disk)
    };
    // A container that ends alone finds what it has saved: the time for that stays. And a pod may have less time than it was made with.
    assert_eq!([limits(Some(5), false), limits(None, false)], [([15, 10, 35, 35], false), ([15, 10, 50, 50], false)]);
    assert_eq!([limits(Some(5), true), limits(None, true)], [([15, 15, 10, 35], true), ([15, 15, 15, 50], true)]);
}

/// Measured before, on a machine that stood still: the first attempt broke off, the second found no votes, and most of the grace period was left.
#[test]
fn an_attempt_that_silence_broke_off_is_none_of_the_two() {
    let id = crate::identity::tests::id(7);
    let tried = |ends: &[Attempt]| {
        let tried: Vec<Tried> = ends.iter().map(|end| tried(&id, end.clone())).collect();
        [true, false].map(|waits| is_tried_enough(&tried, waits))
    };
    let [deaf, silent] = [Attempt::Deaf { why: String::new() }, Attempt::Silent { why: String::new() }];
    let declined = Attempt::Declined { why: String::new() };
    assert_eq!(tried(&[deaf.clone(), deaf.clone(), Attempt::Expired]), [false; 2]);
    assert_eq!(tried(&[deaf.clone(), silent.clone(), Attempt::Expired]), [false, true]);
    assert_eq!(tried(&[Attempt::Expired, deaf, declined]), [true; 2]);
}

/// Before, it was not waited for at all where the disk here ends with the pod: a crash of the heir's container would have loaded the older file.
#[test]
fn an_heir_with_an_older_disk_is_ordered_only_where_the_own_one_ends() {
    let behind = || Err(Attempt::Behind { why: "its append-only file is being written anew" });
    let silent = || Err(Attempt::Silent { why: "closed".to_owned() });
    assert_eq!([true, false].map(|needs_disk| on_disk(behind(), needs_disk)), [behind(), Ok(())]);
    assert_eq!([true, false].map(|needs_disk| on_disk(silent(), needs_disk)), [silent(), silent()]);
    assert_eq!([true, false].map(|needs_disk| on_disk(Ok(()), needs_disk)), [Ok(()), Ok(())]);
}

#[test]
fn a_replica_whose_primary_does_not_last_may_hold_the_only_copy() {
    let primary = crate::identity::tests::id(7);
    let gone = || Err("its agent is silent".to_owned());
    let failed = |why: &str| Outcome::Failed { why: why.to_owned() };
    assert_eq!(confirmed(Outcome::NotNeeded, &primary, Ok(())), Outcome::NotNeeded);
    let told = format!("it is a replica of {primary}, but its agent is silent");
    assert_eq!(confirmed(Outcome::NotNeeded, &primary, gone()), failed(&told));
    let done = Outcome::Done { to: primary.clone() };
    assert_eq!(confirmed(done.clone(), &primary, Ok(())), done);
    let told = format!("replica {primary} took over, but its agent is silent");
    assert_eq!(confirmed(done, &primary, gone()), failed(&told));
    assert_eq!(confirmed(failed("why"), &primary, gone()), failed("why"));
}

#[test]
fn whoever_has_slots_or_gets_the_first_has_a_role_to_hand_over() {
    let outcome = |line: &str, link: &str| {
        let table = resp::nodes::parse(&format!("{:040x} 127.84.0.1:6379@16379 myself,{line}\n", 1)).unwrap();
        without_role(&table, &Info::parse(&format!("master_link_status:{link}\n")))
    };
    let (primary, replica) = ("master - 0 0 3 connected", format!("slave {:040x} 0 0 3 connected", 2));
    assert_eq!(outcome(&format!("{primary} 0-5"), "up"), None);
    assert_eq!(outcome(&format!("{primary} [7-<-{:040x}]", 2), "up"), None);
    assert_eq!(outcome(&replica, "up"), Some(Outcome::NotNeeded));
    assert!(matches!(outcome(&replica, "down"), Some(Outcome::Failed { .. })));
    assert!(matches!(outcome(primary, "up"), Some(Outcome::Failed { .. })));
}

#[test]
fn nobody_is_ordered_to_take_over_who_cannot_be_elected() {
    let may_be = |line: &str, says: &str| {
        let table = resp::nodes::parse(&format!("{:040x} 127.84.0.1:6379@16379 myself,{line}\n", 1)).unwrap();
        may_be_elected(&table, &Info::parse(says))
    };
    let first = format!("master - 0 0 3 connected [7-<-{:040x}]", 2);
    let [redis, valkey] = ["redis_version:8.2.1\n", "redis_version:7.2.4\nserver_name:valkey\n"];
    let versions = ["7.2.5", "8.0.1", "9.0.0"].map(|version| format!("{valkey}valkey_version:{version}\n"));
    assert!(may_be("master - 0 0 3 connected 0-5", redis));
    assert!(!may_be(&first, redis));
    assert_eq!(versions.map(|says| may_be(&first, &says)), [false, true, true]);
}

#[test]
fn marks_of_half_moved_slots_are_set_again_as_they_are() {
    let me = format!("{:040x} 127.84.0.1:6379@16379 myself,master - 0 0 3 connected 0-5460", 1);
    let table = resp::nodes::parse(&format!("{me} [93->-{:040x}] [7000-<-{:040x}]\n", 2, 3)).unwrap();
    let set =
        |slot: &str, what: &str, id: u8| Command::new("CLUSTER").args(["SETSLOT", slot, what, &format!("{id:040x}")]);
    assert_eq!(marks(&table), [set("93", "MIGRATING", 2), set("7000", "IMPORTING", 3)]);
    assert_eq!(marks(&super::tests::table()), []);
}

#[test]
fn shutdown_saves_where_saving_was_asked_for_or_nobody_else_has_the_keys() {
    let mut config = crate::config::fixture::config();
    let failed = Outcome::Failed { why: String::new() };
    let done = Outcome::Done { to: table()[1].id.clone() };
    let logged = |config: &AgentConfig, outcome: &Outcome, keys, is_replica| {
        [Some(Log::Current), Some(Log::Rewriting), Some(Log::Failed), Some(Log::Off), None].map(|log| {
            let is_last = may_be_last(outcome, keys, is_replica, log);
            shutdown_mode(config, is_last, log) == "SAVE"
        })
    };
    for append_only in [AppendOnly::EverySec, AppendOnly::Always] {
        config.append_only = append_only;
        assert_eq!(logged(&config, &failed, Some(5), false), [false, false, true, true, true]);
        assert_eq!(logged(&config, &failed, None, true), [false, false, true, true, true]);
        // Its file may have what was deleted; but a replica without keys was only not sent any yet.
        assert_eq!(logged(&config, &failed, Some(0), false), [false, false, true, true, true]);
        assert_eq!(logged(&config, &failed, Some(0), true), [false, false, false, true, true]);
        // Others have what its file lacks.
        assert_eq!(logged(&config, &done, Some(5), false), [false, false, false, true, true]);
        assert_eq!(logged(&config, &Outcome::NotNeeded, Some(5), true), [false, false, false, true, true]);
    }
    config.append_only = AppendOnly::Off;
    assert_eq!(logged(&config, &failed, Some(5), false), [true; 5]);
    assert_eq!(logged(&config, &failed, None, false), [true; 5]);
    assert_eq!(logged(&config, &failed, Some(0), true), [false; 5]);
    assert_eq!(logged(&config, &done, Some(5), false), [false; 5]);
    assert_eq!(logged(&config, &Outcome::NotNeeded, Some(5), true), [false; 5]);
    config.snapshots = vec![SavePoint { seconds: 1, changes: 1 }];
    assert_eq!(logged(&config, &done, Some(5), false), [true; 5]);
}

/// Measured before: one that has failed was flushed once more, and redis-server ended without what it had acknowledged.
#[test]
fn a_log_that_could_not_be_written_leaves_something_to_save() {
    let says = |text: &str| Info::parse(&format!("aof_enabled:1\n{text}\n"));
    let failed = ["aof_last_write_status:err", "aof_rewrite_scheduled:1\naof_last_bgrewrite_status:err"].map(says);
    assert_eq!(failed.each_ref().map(finds_all), [false; 2]);
    // Before, it counted as a copy whose disk has everything.
    let why = "its append-only file could not be written, and a restart would load an older data set";
    assert_eq!(failed.map(|info| behind(&info, true)), [Some(why); 2]);
    assert_eq!(behind(&says("aof_last_write_status:ok\naof_last_bgrewrite_status:err"), true), None);
}
