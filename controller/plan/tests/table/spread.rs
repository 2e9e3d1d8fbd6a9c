//! Primaries at different sites.

use super::{THREE, at, id, layout, pod, row, told};
use plan::{Approval, Desired, FailoverHow, FailoverRequest, Limits, Observed, PeerRole, Role, Seen, SlotSet};

/// Three shards whose members run at these sites, in order of their places.
fn at_sites(sites: [&str; 6]) -> String {
    let words: Vec<&str> = THREE.split_whitespace().collect();
    let members = words.chunks(2).zip(sites);
    members.map(|(pair, site)| format!("{} {}@{site}", pair[0], pair[1])).collect::<Vec<_>>().join(" ")
}

#[test]
fn no_site_keeps_half_of_the_primaries_where_a_replica_elsewhere_can_take_one() {
    let wanted = Desired::cluster(3, 1);
    let first = ["hand the primary role over from 00000000 to 0-1"];
    row(&wanted, &at_sites(["a", "b", "a", "b", "a", "b"]), &first);
    row(&wanted, &at_sites(["a", "b", "a", "c", "b", "a"]), &["hand the primary role over from 01000000 to 1-1"]);
    row(&wanted, &at_sites(["a", "b", "b", "c", "c", "a"]), &[]);
    // Two of three at one site, and no way to make it fewer than two anywhere.
    row(&wanted, &at_sites(["a", "b", "a", "b", "b", "a"]), &[]);
    // Half of them are too many as well: without them there is no majority.
    let four = "0-0 P0-4095@a 0-1 r0-0@c 1-0 P4096-8191@a 1-1 r1-0@b 2-0 P8192-12287@b 2-1 r2-0@a 3-0 P12288-16383@b 3-1 r3-0@c";
    row(&Desired::cluster(4, 1), four, &first);
}

#[test]
fn the_first_primaries_stand_at_different_sites_where_that_is_possible() {
    let assigned = |text: &str| {
        let mut observed = layout(text);
        for member in observed.members.values_mut() {
            if let Seen::Node(node) = &mut member.seen {
                (node.keys, node.epoch) = (0, 0);
                node.peers.clear();
            }
        }
        let plan = plan::plan(&Desired::cluster(3, 1), &observed, &Limits::default());
        let steps: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
        let places: Vec<&str> = ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1"].to_vec();
        let has_slots = |place: &&str| steps.iter().any(|step| step.contains(&format!("slots to {place}:")));
        places.into_iter().filter(has_slots).collect::<Vec<_>>()
    };
    assert_eq!(assigned("0-0 P@a 0-1 P@b 1-0 P@b 1-1 P@c 2-0 P@c 2-1 P@a"), ["0-0", "1-0", "2-0"]);
    assert_eq!(assigned("0-0 P@a 0-1 P@b 1-0 P@a 1-1 P@c 2-0 P@c 2-1 P@b"), ["0-0", "1-1", "2-1"]);
    // What the first could take is not known before the last has had its turn.
    assert_eq!(assigned("0-0 P@b 0-1 P@c 1-0 P@a 1-1 P@c 2-0 P@b 2-1 P@a"), ["0-1", "1-0", "2-0"]);
    assert_eq!(assigned("0-0 P@a 0-1 P@a 1-0 P@a 1-1 P@a 2-0 P@a 2-1 P@a"), ["0-0", "1-0", "2-0"]);
    assert_eq!(assigned("0-0 P 0-1 P 1-0 P 1-1 P 2-0 P 2-1 P"), ["0-0", "1-0", "2-0"]);
}

#[test]
fn no_role_goes_to_a_replica_that_most_primaries_take_for_something_else() {
    // As while a cluster is being formed: they would refuse it their votes, and its primary would hold its clients' writes in vain.
    let text = at_sites(["a", "b", "a", "b", "a", "b"]);
    let heirs = ["0-1", "1-1", "2-1"];
    let takes_for_a_primary = |observed: &mut Observed, voter: &str| {
        let peers = &mut at(observed, voter).peers;
        for heir in heirs {
            if let Some(peer) = peers.get_mut(&id(pod(heir))) {
                peer.role = PeerRole::Primary { slots: SlotSet::EMPTY };
            }
        }
    };
    let hands_over =
        |observed: &Observed| told(&Desired::cluster(3, 1), observed).iter().any(|line| line.contains("hand"));
    let mut observed = layout(&text);
    takes_for_a_primary(&mut observed, "2-0");
    assert!(hands_over(&observed), "two of three are enough");
    takes_for_a_primary(&mut observed, "1-0");
    takes_for_a_primary(&mut observed, "0-0");
    assert!(!hands_over(&observed));
}

#[test]
fn nobody_waits_for_a_replica_elsewhere_that_is_far_behind() {
    let mut observed = layout(&at_sites(["a", "b", "a", "b", "a", "a"]));
    let behind = |observed: &mut Observed, place: &str| {
        let Role::Replica { lag_bytes, .. } = &mut at(observed, place).role else { panic!("{place} is no replica") };
        *lag_bytes = 1 << 30;
    };
    behind(&mut observed, "0-1");
    let steps = |observed: &Observed| plan::plan(&Desired::cluster(3, 1), observed, &Limits::default());
    let other = steps(&observed).steps.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(other, ["hand the primary role over from 01000000 to 1-1"]);
    behind(&mut observed, "1-1");
    assert!(steps(&observed).is_satisfied());
}

#[test]
fn a_role_that_moves_anyway_goes_where_the_fewest_primaries_are() {
    let text = "0-0 P0-5460!@a 0-1 r0-0@b 0-2 r0-0@c 1-0 P5461-10922@b 1-1 r1-0@a 1-2 r1-0@c 2-0 P10923-16383@d 2-1 r2-0@a 2-2 r2-0@b";
    let mut wanted = Desired::cluster(3, 2);
    row(&wanted, text, &["hand the primary role over from 00000000 to 0-2"]);
    row(&wanted, &text.replace("@c", "@b"), &["hand the primary role over from 00000000 to 0-1"]);
    wanted.spread = false;
    row(&wanted, text, &["hand the primary role over from 00000000 to 0-1"]);
}

#[test]
fn at_one_site_or_at_sites_that_are_not_known_roles_stay_where_they_are() {
    let wanted = Desired::cluster(3, 1);
    row(&wanted, &at_sites(["a"; 6]), &[]);
    row(&wanted, &at_sites(["a", "b", "", "b", "a", "b"]), &[]);
    row(&wanted, &at_sites(["a", "", "a", "", "a", ""]), &[]);
    row(&Desired::cluster(1, 1), "0-0 P0-16383@a 0-1 r0-0@b", &[]);
    row(&Desired { spread: false, ..wanted }, &at_sites(["a", "b", "a", "b", "a", "b"]), &[]);
}

#[test]
fn what_a_person_asked_for_outweighs_the_spread_of_primaries() {
    let text = at_sites(["a", "b", "a", "b", "a", "b"]);
    let placed =
        |shards: &[u16]| Desired { placed_by_hand: shards.iter().copied().collect(), ..Desired::cluster(3, 1) };
    row(&placed(&[0]), &text, &["hand the primary role over from 01000000 to 1-1"]);
    row(&placed(&[0, 1, 2]), &text, &[]);
    // While a failover is asked for nothing else moves, also when it is done and its record does not say so yet.
    let mut asked = Desired::cluster(3, 1);
    let from = id(pod("2-1"));
    asked.failover = Some(FailoverRequest {
        shard: 2,
        from,
        candidate: None,
        how: FailoverHow::Coordinated,
        accept_data_loss: false,
    });
    row(&asked, &text, &[]);
}

#[test]
fn a_role_is_taken_from_the_shard_that_has_rested_longest_and_one_at_a_time() {
    let text = at_sites(["a", "b", "a", "b", "a", "b"]);
    let mut observed = layout(&text);
    observed.elections = [(0, 30_000), (1, 90_000), (2, 60_000)].into();
    assert_eq!(told(&Desired::cluster(3, 1), &observed), ["hand the primary role over from 01000000 to 1-1"]);
    observed.elections = [(0, 1_000), (1, 2_000), (2, 3_000)].into();
    let rest = "waits: the primary role of shard 2 moved, or may have moved, 3.0 s ago; it may move again 21 s after that, when Redis counts votes anew";
    assert_eq!(told(&Desired::cluster(3, 1), &observed), [rest]);
    observed.elections.clear();
    observed.failovers_asked.insert(2, 400);
    let asked = "waits: the failover of shard 2 was asked for 400 ms ago and is not seen yet";
    assert_eq!(told(&Desired::cluster(3, 1), &observed), [asked]);
}

#[test]
fn primaries_are_spread_after_a_roll_and_before_members_return_that_may_be_away_for_long() {
    let wanted = Desired::cluster(3, 1);
    let outdated = at_sites(["a", "b", "a", "b", "a", "b"]).replacen("r2-0", "r2-0!", 1);
    row(&wanted, &outdated, &["restart 2-1"]);
    // An outdated replica would have to give the role back.
    let mut supervised = Desired::cluster(3, 1);
    supervised.approval = Approval::Supervised { approved: [].into() };
    let first = at_sites(["a", "b", "a", "b", "b", "a"]).replacen("P0-5460", "P0-5460!", 1);
    let wait = "waits: the hand-over of primary 0-0 of shard 0 waits for approval (redis.kun.io/approve)";
    row(&supervised, &first, &[wait]);
    let five = "0-0 P0-3276@a 0-1 r0-0@b 1-0 P3277-6553@a 1-1 r1-0@b 2-0 P6554-9829@a 2-1 x:r2-0@b 3-0 P9830-13106@b 3-1 r3-0@a 4-0 P13107-16383@c 4-1 r4-0@a";
    let handed = "hand the primary role over from 00000000 to 0-1";
    let told_of = |text: &str| told(&Desired::cluster(5, 1), &layout(text));
    assert!(!told_of(five).contains(&handed.to_owned()), "2-1 is on its way up");
    assert!(!told_of(&five.replace("x:r2-0@b", "-:r2-0*")).contains(&handed.to_owned()), "2-1 is made anew");
    assert!(told_of(&five.replace("x:r2-0@b", "x:r2-0*")).contains(&handed.to_owned()), "there is no site for 2-1");
    assert!(told_of(&five.replace("x:r2-0@b", "?:r2-0@b")).contains(&handed.to_owned()), "2-1 is not seen");
}
