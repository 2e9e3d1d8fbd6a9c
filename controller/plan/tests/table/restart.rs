//! Who is restarted, and when.

use super::{THREE, at, id, layout, pod, row, told};
use plan::{Approval, Desired, Disk, Observed, Unwritten, Waiting};

#[test]
fn a_restart_waits_until_everybody_is_in_sync() {
    let text = THREE.replacen("P0-5460", "P0-5460!", 1).replacen("r2-0", "r2-0~", 1);
    row(&Desired::cluster(3, 1), &text, &["waits: replica 2-1 is not in sync: its link to the primary is down"]);
    let text = THREE.replacen("P0-5460", "P0-5460!", 1);
    row(&Desired::cluster(3, 1), &text, &["hand the primary role over from 00000000 to 0-1"]);
    let mut supervised = Desired::cluster(3, 1);
    supervised.approval = Approval::Supervised { approved: [1].into() };
    let wait = "waits: the hand-over of primary 0-0 of shard 0 waits for approval (redis.kun.io/approve)";
    row(&supervised, &text, &[wait]);
}

/// Before, it waited for ever, also for the very change that would have mended the disk.
#[test]
fn beside_a_primary_whose_disk_fails_the_role_moves_before_anybody_restarts() {
    let [wanted, mut supervised] = [(); 2].map(|()| Desired::cluster(3, 1));
    supervised.approval = Approval::Supervised { approved: [1].into() };
    let looks = |wanted: &Desired, primary: Disk, replica: Disk| {
        // All of the first shard are outdated.
        let mut observed = layout(&THREE.replacen("P0-5460", "P0-5460!", 1).replacen("r0-0", "r0-0!", 1));
        (at(&mut observed, "0-0").disk, at(&mut observed, "0-1").disk) = (primary, replica);
        told(wanted, &observed)
    };
    let [write, rewrite] = [Unwritten::Write, Unwritten::Rewrite].map(Disk::Fails);
    assert_eq!(looks(&wanted, Disk::Current, Disk::Current), ["restart 0-1"]);
    assert_eq!(looks(&wanted, write, Disk::Current), ["hand the primary role over from 00000000 to 0-1"]);
    // That is tried again, and may do well.
    let again = "waits: member 0-0 is writing its append-only file anew, which failed the last time (aof_last_bgrewrite_status:err); until that is over \
                 a restart may load an older data set. Its log says why: where the volume is full, make spec.storage.size larger; where a fork \
                 found no memory, delete its pod, as a stop saves without one";
    assert_eq!(looks(&wanted, rewrite, Disk::Current), [again]);
    let approval = "waits: the hand-over of primary 0-0 of shard 0 waits for approval (redis.kun.io/approve)";
    assert_eq!(looks(&supervised, write, Disk::Current), [approval]);
    // Nobody else has what it cannot write where it would survive.
    let words = "waits: member 0-0 cannot write its append-only file (aof_last_write_status:err), so a restart would load an older data set. Its log says \
                 why; where the volume is full, make spec.storage.size larger. It goes on once the file takes writes, or a replica in sync whose own \
                 file does has the role";
    for replica in [write, Disk::Rewriting] {
        assert_eq!(looks(&wanted, write, replica), [words]);
    }
    // That is over by itself.
    let writes = "waits: member 0-0 is writing its append-only file anew, or could not switch it on; until that is over a restart would load an older \
                  data set";
    assert_eq!(looks(&wanted, Disk::Rewriting, Disk::Current), [writes]);
    // It was restarted already, and would fail as a replica as well.
    let mut restarted = layout(&THREE.replacen("r0-0", "r0-0!", 1));
    at(&mut restarted, "0-0").disk = write;
    assert_eq!(told(&wanted, &restarted), [words]);
    // Of two the one that needs no restart itself.
    let three = "0-0 P0-16383! 0-1 r0-0! 0-2 r0-0";
    let mut two = layout(three);
    at(&mut two, "0-0").disk = write;
    assert_eq!(told(&Desired::cluster(1, 2), &two), ["hand the primary role over from 00000000 to 0-2"]);
    // The member is restarted beside the one that has the role now.
    let mut over = layout(&THREE.replacen("P0-5460 0-1 r0-0", "r0-1! 0-1 P0-5460!", 1));
    at(&mut over, "0-0").disk = write;
    assert_eq!(told(&wanted, &over), ["restart 0-0"]);
}

/// Three shards whose members 0-1 and 2-1 are outdated, out of sync, and hold nothing.
fn left_behind() -> Observed {
    let mut observed = layout(&THREE.replacen("r0-0", "r0-0~!", 1).replacen("r2-0", "r2-0~!", 1));
    for place in ["0-1", "2-1"] {
        at(&mut observed, place).keys = 0;
    }
    observed
}

#[test]
fn an_outdated_replica_that_holds_nothing_is_restarted_before_it_is_in_sync() {
    let wanted = Desired::cluster(3, 1);
    let waits =
        ["0-1", "2-1"].map(|pod| format!("waits: replica {pod} is not in sync: its link to the primary is down"));
    let one_at_a_time = ["restart 0-1", waits[0].as_str(), waits[1].as_str()];
    assert_eq!(told(&wanted, &left_behind()), one_at_a_time);
    let restart = |change: fn(&mut Observed)| {
        let mut observed = left_behind();
        change(&mut observed);
        told(&wanted, &observed).into_iter().find(|line| line.starts_with("restart"))
    };
    assert_eq!(restart(|_| {}).as_deref(), Some("restart 0-1"));
    // Another member is not in sync for another reason, or holds something: who knows whether anybody else has it.
    assert_eq!(restart(|seen| at(seen, "2-1").keys = 1), None);
    assert_eq!(restart(|seen| seen.members.get_mut(&pod("2-1")).unwrap().outdated = false), None);
    // It is just getting its copy, or its primary cannot give it any.
    assert_eq!(restart(|seen| at(seen, "0-1").loading = true), None);
    assert_eq!(restart(|seen| at(seen, "0-0").loading = true), None);
    assert_eq!(restart(|seen| at(seen, "0-0").state_ok = false), None);
    assert_eq!(restart(|seen| at(seen, "0-0").disk = Disk::Rewriting), None);
    assert_eq!(restart(|seen| seen.members.get_mut(&pod("0-0")).unwrap().terminating = true), None);
    // A primary that is outdated, too, may still be the newer one of the two.
    assert_eq!(
        restart(|seen| seen.members.get_mut(&pod("0-0")).unwrap().outdated = true).as_deref(),
        Some("restart 0-1")
    );
}

/// Before, each waited for the other: the role for the copy, the copy for the restart, and that for the role.
#[test]
fn who_is_to_take_over_from_one_that_leaves_is_restarted_where_it_gets_no_copy_else() {
    let mut observed = layout("0-0 r0-1~! 0-1 P0-16383");
    let waits = "waits: replica 0-0 is not in sync: its link to the primary is down";
    assert_eq!(told(&Desired::cluster(1, 0), &observed), [waits], "it holds something");
    at(&mut observed, "0-0").keys = 0;
    assert_eq!(told(&Desired::cluster(1, 0), &observed), ["restart 0-0", waits]);
}

#[test]
fn a_pod_stuck_on_an_old_template_is_freed() {
    let told = told(&Desired::cluster(3, 1), &layout(&THREE.replacen("r0-0", "x:r0-0!", 1)));
    assert_eq!(told[..2], ["restart 0-1", "waits: member 0-1 has not started yet"]);
}

/// Before, its pod's deletion came first, and what an API server that is slow or unwilling kept from being done was everything else.
#[test]
fn promotions_come_before_and_deletions_of_pods_after_all_else() {
    let mut observed =
        layout("0-0 x:P0-5460 0-1 x:r0-0! 0-2 r0-0 1-0 P5461-10922 1-1 Hd 1-2 r1-0 2-0 P10923-16383 2-1 r2-0 2-2 r2-0");
    // Two replicas do not know each other yet.
    at(&mut observed, "2-2").peers.remove(&id(pod("2-1")));
    let told = told(&Desired::cluster(3, 2), &observed);
    let [promote, release] =
        ["promote 0-2 in place of the dead primary 00000000", "let 1-1 start with its files as they are"];
    assert_eq!(told[..4], [promote, release, "introduce 2-2 at 2-2 to 2-1", "restart 0-1"]);
}

#[test]
fn a_pod_of_an_old_template_that_never_got_a_site_is_replaced_at_once_as_nothing_of_it_ever_ran() {
    let mut wanted = Desired::cluster(1, 1);
    wanted.restart_keeps_data = false;
    let start = "waits: member 0-0 has not started yet";
    let told = |text| told(&wanted, &layout(text));
    let stuck = told("0-0 x!* 0-1 x!*");
    assert_eq!(stuck[..4], ["restart 0-0", "restart 0-1", start, "waits: member 0-1 has not started yet"]);
    // What runs nowhere now may have run, and its files may be the last.
    assert_eq!(told("0-0 x!@a 0-1 x!@a")[0], start);
    // Of today's template there is nothing better to be had.
    assert_eq!(told("0-0 x* 0-1 x*")[0], start);
}

/// Before, a second member of the shard was restarted beside it, before it had shown what a server that starts with the parameters of now does.
#[test]
fn nobody_is_restarted_while_a_held_member_is_being_started() {
    let wanted = Desired::cluster(1, 2);
    assert_eq!(told(&wanted, &layout("0-0 P0-16383! 0-1 r0-0 0-2 r0-0!")), ["restart 0-2"]);
    for (held, release) in
        [("Hn", "let 0-1 start blank, its files set aside"), ("Hd", "let 0-1 start with its files as they are")]
    {
        let text = format!("0-0 P0-16383! 0-1 {held} 0-2 r0-0!");
        assert_eq!(told(&wanted, &layout(&text)), [release]);
    }
    // Two shards disturb each other no less: it may show what the next one will get.
    let text = THREE.replacen("r0-0", "r0-0!", 1).replacen("r2-0", "Hn", 1);
    assert_eq!(told(&Desired::cluster(3, 1), &layout(&text)), ["let 2-1 start blank, its files set aside"]);
}

#[test]
fn a_standalone_server_is_restarted_only_if_it_finds_its_data_again() {
    let mut wanted = Desired::cluster(1, 0);
    wanted.mode = plan::Mode::Standalone;
    row(&wanted, "0-0 P", &[]);
    row(&wanted, "0-0 P!", &["restart 0-0"]);
    wanted.restart_keeps_data = false;
    row(
        &wanted,
        "0-0 P!",
        &["refuses: restarting member 0-0 would lose 0 keys: it is its shard's only copy and nothing is kept on disk"],
    );
    row(&wanted, "0-0 Hn", &["let 0-0 start blank, its files set aside"]);
    row(&wanted, "0-0 Hd", &["let 0-0 start with its files as they are"]);
}

/// Before, our own restart ended the only copy while it was known that nothing of it could be saved.
#[test]
fn an_only_copy_is_not_restarted_while_its_disk_cannot_have_it() {
    let (alone, mut standalone) = (Desired::cluster(1, 0), Desired::cluster(1, 0));
    standalone.mode = plan::Mode::Standalone;
    let looks = |wanted: &Desired, text: &str, disk: Disk| {
        let mut observed = layout(text);
        at(&mut observed, "0-0").disk = disk;
        told(wanted, &observed)
    };
    let [write, rewrite, snapshot] = [Unwritten::Write, Unwritten::Rewrite, Unwritten::Snapshot].map(Disk::Fails);
    for (wanted, text) in [(&alone, "0-0 P0-16383!"), (&standalone, "0-0 P!")] {
        assert_eq!(looks(wanted, text, Disk::Current), ["restart 0-0"]);
        for (disk, fails) in
            [(Disk::Rewriting, None), (write, Some(Unwritten::Write)), (rewrite, Some(Unwritten::Rewrite))]
        {
            assert_eq!(looks(wanted, text, disk), [format!("waits: {}", Waiting::Disk { pod: pod("0-0"), fails })]);
        }
        let words = "waits: the last snapshot of member 0-0 failed (rdb_last_bgsave_status:err), and nobody else has what the one at its stop would \
                     have to save. Its log says why: where the volume is full, make spec.storage.size larger; where a fork found no memory, delete \
                     its pod, as a stop saves without one. It goes on once a snapshot succeeds";
        assert_eq!(looks(wanted, text, snapshot), [words]);
    }
    // Where nothing is kept on disk anyway, that is what is said.
    standalone.restart_keeps_data = false;
    assert!(looks(&standalone, "0-0 P!", snapshot)[0].starts_with("refuses: restarting member 0-0 would lose"));
    // What a replica has needs no snapshot.
    let mut observed = layout(&THREE.replacen("P0-5460", "P0-5460!", 1));
    (at(&mut observed, "0-0").disk, at(&mut observed, "0-1").disk) = (snapshot, snapshot);
    assert_eq!(told(&Desired::cluster(3, 1), &observed), ["hand the primary role over from 00000000 to 0-1"]);
}

#[test]
fn a_server_whose_parameters_are_refused_is_not_restarted() {
    let mut wanted = Desired::cluster(1, 0);
    wanted.mode = plan::Mode::Standalone;
    let mut observed = layout("0-0 P!");
    observed.unused.insert(pod("0-0"), plan::Unused::Refused);
    let refused = "waits: no member is restarted while member 0-0 does not use spec.config, which its engine refuses: correct spec.config, and \
                   the restart goes on by itself";
    assert_eq!(told(&wanted, &observed), [refused]);
    // With its restart it gets what it has not got yet.
    observed.unused.insert(pod("0-0"), plan::Unused::Pending);
    assert_eq!(told(&wanted, &observed), ["restart 0-0"]);
    // A member that has been restarted shows what the next one will get.
    let mut observed = layout(&THREE.replacen("r0-0", "r0-0!", 1));
    observed.unused.insert(pod("2-1"), plan::Unused::Pending);
    let pending = "waits: no other member is restarted before member 2-1 shows the parameters of spec.config";
    assert_eq!(told(&Desired::cluster(3, 1), &observed), [pending]);
    observed.unused.clear();
    assert_eq!(told(&Desired::cluster(3, 1), &observed), ["restart 0-1"]);
}
