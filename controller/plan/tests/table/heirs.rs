//! A primary is gone, another one serves its slots, and a replica of the gone one is still there.

use super::{at, id, layout, peer, pod, told};
use plan::{
    Desired, FailoverHow, FailoverRequest, Health, Limits, Member, NodeId, Observed, Operation, Peer, PeerRole, Role,
    Seen, SlotSet,
};

/// Its copy is ordered over who serves the slots only by somebody who names it, and accepts what that costs.
#[test]
fn a_copy_that_a_person_names_is_promoted_over_who_serves_its_slots() {
    let ask = |candidate, accept_data_loss| {
        let (observed, _) = left_with_a_copy(false);
        let (from, how) = (id(pod("0-1")), FailoverHow::Force);
        let failover = Some(FailoverRequest { shard: 0, from, candidate, how, accept_data_loss });
        let told = told(&Desired { failover, ..Desired::cluster(3, 2) }, &observed);
        told.into_iter().filter(|line| line.starts_with("promote")).collect::<Vec<_>>()
    };
    assert_eq!(ask(Some(2), true), ["promote 0-2 in place of the dead primary 09090909"]);
    for other in [(Some(2), false), (Some(0), true), (None, true)] {
        assert!(ask(other.0, other.1).is_empty(), "{other:?}");
    }
}

/// What it went on with has been moved away since, and what the copy still claims is nobody's: nothing speaks against the copy.
#[test]
fn who_has_left_a_copy_behind_counts_by_the_slots_that_it_still_serves() {
    let (mut observed, gone) = left_with_a_copy(true);
    let told_of = |observed: &Observed| {
        let told = told(&Desired::cluster(3, 2), observed);
        told.into_iter().filter(|line| line.starts_with("promote")).collect::<Vec<_>>()
    };
    assert!(told_of(&observed).is_empty());
    at(&mut observed, "0-1").role = Role::Primary { slots: SlotSet::parse("0-99").unwrap() };
    for place in ["0-0", "0-2", "1-0", "1-1", "1-2", "2-0", "2-1", "2-2"] {
        let peers = &mut at(&mut observed, place).peers;
        if let Some(line) = peers.get_mut(&gone) {
            line.role = PeerRole::Primary { slots: SlotSet::parse("100-5460").unwrap() };
        }
        if let Some(line) = peers.get_mut(&id(pod("0-1"))) {
            line.role = PeerRole::Primary { slots: SlotSet::parse("0-99").unwrap() };
        }
    }
    assert_eq!(told_of(&observed), ["promote 0-2 in place of the dead primary 09090909"]);
}

/// The place of the former primary waits for a node, so it may return; but its heir went on from what this replica of it holds.
#[test]
fn a_replica_that_was_left_behind_follows_the_heir_although_its_primary_may_return() {
    let told_of = |left_behind: bool| {
        let (mut observed, gone) = left_with_a_copy(left_behind);
        let member = observed.members.get_mut(&pod("0-0")).unwrap();
        (member.seen, member.last_id) = (Seen::Starting, Some(gone));
        // Of the others each has heard of the heir.
        for place in ["1-0", "1-1", "1-2", "2-0", "2-1", "2-2"] {
            let peers = &mut at(&mut observed, place).peers;
            peers.get_mut(&gone).unwrap().role = PeerRole::Primary { slots: SlotSet::EMPTY };
            let slots = SlotSet::parse("0-5460").unwrap();
            peers.get_mut(&id(pod("0-1"))).unwrap().role = PeerRole::Primary { slots };
        }
        told(&Desired::cluster(3, 2), &observed)
    };
    let raise = "raise the epoch of 0-1 above 11, so that its claim counts".to_owned();
    assert!(told_of(true).contains(&raise), "{:?}", told_of(true));
    assert!(!told_of(false).contains(&raise), "{:?}", told_of(false));
}

/// Most may not have heard of it, and its disk may have the newest: until it is back nothing of it is given away, and its place does not leave.
#[test]
fn slots_wait_for_a_silent_claimant_that_may_bring_back_what_it_has() {
    let told_of = |seen: Seen| {
        let (mut observed, gone) = most_know_the_heir();
        let held = observed.members.get_mut(&pod("2-2")).unwrap();
        (held.seen, held.last_id) = (seen, Some(gone));
        told(&Desired::cluster(2, 2), &observed)
    };
    let held = |holds_data| Seen::Held { holds_data, id: Some(NodeId::from_bytes([9; 20])), reason: String::new() };
    let waits = "waits: member 2-2 may come back with a later claim to 5461 slots that others serve: until it is back, or nothing of it is \
                 left, no slot moves, and nobody leaves or is restarted";
    let waits = waits.to_owned();
    assert!(told_of(held(true)).contains(&waits), "{:?}", told_of(held(true)));
    assert!(!told_of(held(true)).iter().any(|line| line.starts_with("move")), "{:?}", told_of(held(true)));
    assert!(told_of(held(false)).iter().any(|line| line.starts_with("move")), "{:?}", told_of(held(false)));
}

/// What its disk has may be less, and what the copy, which was started without it, has is not known: a person who knows better has said so.
#[test]
fn an_order_goes_on_with_a_copy_that_was_started_while_its_primary_is_held() {
    let mut observed = layout("0-0 x:P0-5460 0-1 r0-0 1-0 P5461-10922 1-1 r1-0 2-0 P10923-16383 2-1 r2-0");
    let (place, from) = (pod("0-0"), id(pod("0-0")));
    let reason = "its volume is an older copy".to_owned();
    observed.members.get_mut(&place).unwrap().seen = Seen::Held { holds_data: true, id: Some(from), reason };
    observed.unsettled.insert(place);
    if let Role::Replica { synced, link_up, .. } = &mut at(&mut observed, "0-1").role {
        (*synced, *link_up) = (false, false);
    }
    let ask = |candidate, how, accept_data_loss| {
        let failover = Some(FailoverRequest { shard: 0, from, candidate, how, accept_data_loss });
        let told = told(&Desired { failover, ..Desired::cluster(3, 1) }, &observed);
        told.into_iter().filter(|line| line.starts_with("promote")).collect::<Vec<_>>()
    };
    for candidate in [None, Some(1)] {
        let promoted = ["promote 0-1 in place of the dead primary 00000000"];
        assert_eq!(ask(candidate, FailoverHow::Force, true), promoted);
    }
    for other in
        [(None, FailoverHow::Force, false), (Some(0), FailoverHow::Force, true), (None, FailoverHow::Coordinated, true)]
    {
        assert!(ask(other.0, other.1, other.2).is_empty(), "{other:?}");
    }
}

/// Nothing is written while a member runs, and the last one that holds its shard's keys saves them at its stop. Before, the copy that was left behind was
/// promoted as long as there was no pod in the primary's place, and the next one followed it with what lay there.
#[test]
fn what_may_have_been_saved_at_a_stop_is_waited_for_while_there_is_no_pod() {
    let told_of = |found: &str, has_volumes| {
        let mut observed =
            layout(&format!("0-0 {found}:P0-5460 0-1 r0-0 1-0 P5461-10922 1-1 r1-0 2-0 P10923-16383 2-1 r2-0"));
        if let Role::Replica { link_up, gap, .. } = &mut at(&mut observed, "0-1").role {
            (*link_up, gap.missed_millis) = (false, 600_000);
        }
        let keeps_nothing = Desired { restart_keeps_data: false, adopt_lost_slots: true, ..Desired::cluster(3, 1) };
        let told = told(&Desired { has_volumes, ..keeps_nothing }, &observed);
        let told = told.into_iter().filter(|line| !line.starts_with("waits"));
        told.map(|line| line.split(':').take(2).collect::<Vec<_>>().join(":")).collect::<Vec<_>>()
    };
    let refused = ["refuses: replica 0-1 of shard 0 is not promoted"];
    for found in ["-", "x", "s", "?"] {
        assert_eq!(told_of(found, true), refused, "{found}");
    }
    let promoted = ["promote 0-1 in place of the dead primary 00000000"];
    assert_eq!(told_of("H", true), promoted, "its agent has said that there is nothing");
    assert_eq!(told_of("-", false), promoted, "it went with its pod");
}

/// Before, a script of more than five seconds made the status ask for an order by which its primary's last writes would have been lost.
#[test]
fn a_primary_that_runs_a_script_is_waited_for_and_no_order_is_asked_for() {
    for found in ["s", "?"] {
        let mut observed =
            layout(&format!("0-0 {found}:P0-5460 0-1 r0-0 1-0 P5461-10922 1-1 r1-0 2-0 P10923-16383 2-1 r2-0"));
        if let Role::Replica { link_up, gap, .. } = &mut at(&mut observed, "0-1").role {
            (*link_up, gap.missed_millis) = (false, 5_000);
        }
        let refuses = |observed: &Observed| {
            told(&Desired::cluster(3, 1), observed)
                .iter()
                .any(|line| line.starts_with("refuses: replica 0-1 of shard 0"))
        };
        assert!(refuses(&observed), "{found}");
        // Most are back before anybody could do anything.
        observed.answered_lately = [pod("0-0")].into();
        assert!(!refuses(&observed), "{found}");
        observed.answered_lately.clear();
        observed.busy = [pod("0-0")].into();
        assert!(!refuses(&observed), "{found}");
        let waits = "waits: member 0-0 runs a script, and its server answers nothing else: its 5461 slots are served again once that has ended. To end \
                     one that has written nothing, send SCRIPT KILL or FUNCTION KILL there; one that has written ends with its pod, and what neither a \
                     file on its volume nor a replica has is lost then";
        let told = told(&Desired::cluster(3, 1), &observed);
        assert!(told.contains(&waits.to_owned()), "{told:?}");
    }
}

/// Before, the one whose age was known was promoted, however old, and the other, which may have had all of that and more, copied it.
#[test]
fn an_old_copy_is_not_promoted_beside_one_of_which_nobody_knows_its_age() {
    let mut observed =
        layout("0-0 x:P0-5460 0-1 r0-0 0-2 r0-0 1-0 P5461-10922 1-1 r1-0 1-2 r1-0 2-0 P10923-16383 2-1 r2-0 2-2 r2-0");
    let (place, from) = (pod("0-0"), id(pod("0-0")));
    let reason = "its data set is gone".to_owned();
    observed.members.get_mut(&place).unwrap().seen = Seen::Held { holds_data: false, id: Some(from), reason };
    for (copy, is_begun) in [("0-1", false), ("0-2", true)] {
        if let Role::Replica { synced, link_up, gap, .. } = &mut at(&mut observed, copy).role {
            (*synced, *link_up) = (!is_begun, false);
            (gap.missed_millis, gap.behind_millis) = if is_begun { (u64::MAX, u64::MAX) } else { (600_000, 600_000) };
        }
    }
    let ask = |observed: &Observed, candidate, accept_data_loss| {
        let failover = Some(FailoverRequest { shard: 0, from, candidate, how: FailoverHow::Force, accept_data_loss });
        let plan = plan::plan(&Desired { failover, ..Desired::cluster(3, 2) }, observed, &Limits::default());
        (plan.steps.iter().map(ToString::to_string).collect::<Vec<_>>(), plan.operation)
    };
    let told = |observed: &Observed| {
        let told = super::told(&Desired::cluster(3, 2), observed).into_iter();
        told.filter(|line| !line.starts_with("waits")).collect::<Vec<_>>()
    };
    let refused = "refuses: no copy of 5461 slots is left that is known to be complete: node 00000000, which had them, is gone for good, and of \
                   its replicas (0-1, 0-2) none is known to have had everything until then. The slots come back with its volume, under the name \
                   of its claim. To go on with what such a replica holds, and lose what it lacks, create a failover of shard 0 that names it as \
                   candidate, with mode Force and acceptDataLoss";
    assert_eq!(told(&observed), [refused]);
    let promoted = |name: &str| vec![format!("promote {name} in place of the dead primary 00000000")];
    assert_eq!(ask(&observed, Some(1), true), (promoted("0-1"), Some(Operation::Running)));
    assert_eq!(ask(&observed, Some(2), true), (promoted("0-2"), Some(Operation::Running)));
    assert_eq!(ask(&observed, None, true), (vec![], Some(Operation::Refused)));
    // Their streams tell.
    observed.further.insert(pod("0-1"), pod("0-2"));
    assert_eq!(told(&observed), promoted("0-2"));
    observed.further = [(pod("0-2"), pod("0-1"))].into();
    assert_eq!(told(&observed), promoted("0-1"));
    // What it loads is not known before it has: Valkey answers meanwhile.
    observed.further.clear();
    at(&mut observed, "0-2").loading = true;
    assert!(told(&observed).is_empty());
}

/// Before, it ran for five minutes, and kept the order that helps waiting for so long.
#[test]
fn an_order_that_accepts_too_little_for_an_older_copy_is_refused_at_once() {
    let mut observed = layout("0-0 x:P0-5460 0-1 r0-0 1-0 P5461-10922 1-1 r1-0 2-0 P10923-16383 2-1 r2-0");
    let (place, from) = (pod("0-0"), id(pod("0-0")));
    if let Role::Replica { synced, link_up, .. } = &mut at(&mut observed, "0-1").role {
        (*synced, *link_up) = (false, false);
    }
    let mut answer = |seen: Seen, how| {
        observed.members.get_mut(&place).unwrap().seen = seen;
        let failover = Some(FailoverRequest { shard: 0, from, candidate: None, how, accept_data_loss: false });
        plan::plan(&Desired { failover, ..Desired::cluster(3, 1) }, &observed, &Limits::default()).operation
    };
    let held = || Seen::Held { holds_data: true, id: Some(from), reason: "its volume is an older copy".to_owned() };
    assert_eq!(answer(held(), FailoverHow::Force), Some(Operation::Refused));
    assert_eq!(answer(held(), FailoverHow::Coordinated), Some(Operation::Running));
    assert_eq!(answer(Seen::Starting, FailoverHow::Force), Some(Operation::Running));
}

/// A blank member answered at the address of the lost primary before the others called there: their lines of it have that one's epoch, the copy's has
/// not. Before, it was told to ask for votes again and again.
#[test]
fn a_copy_that_most_would_refuse_their_votes_needs_none_on_an_order() {
    let mut observed = layout("0-0 - 0-1 r9-9 1-0 P5461-10922 1-1 r1-0 2-0 P10923-16383 2-1 r2-0");
    let gone = NodeId::from_bytes([9; 20]);
    let slots = SlotSet::parse("0-5460").unwrap();
    for place in ["0-1", "1-0", "1-1", "2-0", "2-1"] {
        let epoch = if place == "0-1" { 1 } else { 6 };
        let role = PeerRole::Primary { slots: slots.clone() };
        let line = Peer { noaddr: true, epoch, health: Health::Failed, ..peer(pod("9-9"), role, false) };
        let node = at(&mut observed, place);
        node.current_epoch = 9;
        node.peers.insert(gone, line);
    }
    if let Role::Replica { of, synced, link_up, .. } = &mut at(&mut observed, "0-1").role {
        (*of, *synced, *link_up) = (gone, false, false);
    }
    let told_of = |observed: &Observed, accept_data_loss| {
        let (how, candidate) = (FailoverHow::Force, Some(1));
        let failover = Some(FailoverRequest { shard: 0, from: gone, candidate, how, accept_data_loss });
        let told = told(&Desired { failover, ..Desired::cluster(3, 1) }, observed);
        told.into_iter().filter(|line| line.starts_with("promote")).collect::<Vec<_>>()
    };
    let promoted = "promote 0-1 in place of the dead primary 09090909";
    let alone = format!("{promoted} without votes, as nobody could be elected there");
    assert_eq!(told_of(&observed, true), [alone]);
    assert!(told_of(&observed, false).is_empty());
    for place in ["1-0", "2-0"] {
        at(&mut observed, place).peers.get_mut(&gone).unwrap().epoch = 1;
    }
    assert_eq!(told_of(&observed, true), [promoted]);
}

/// The same with a copy that has everything. Before, votes were asked for again and again, and what helps was not said.
#[test]
fn a_whole_copy_that_most_refuse_their_votes_takes_over_once_the_end_is_known() {
    let mut observed =
        layout("0-0 x:P0-5460 0-1 r0-0 0-2 r0-0 1-0 P5461-10922 1-1 r1-0 1-2 r1-0 2-0 P10923-16383 2-1 r2-0 2-2 r2-0");
    let lost = id(pod("0-0"));
    observed.members.get_mut(&pod("0-0")).unwrap().stuck = true;
    for place in ["1-0", "2-0"] {
        at(&mut observed, place).peers.get_mut(&lost).unwrap().epoch = 6;
    }
    for node in observed.members.values_mut() {
        if let Seen::Node(node) = &mut node.seen {
            node.current_epoch = 9;
        }
    }
    let told_of = |observed: &Observed| {
        let told = told(&Desired::cluster(3, 2), observed);
        told.into_iter().filter(|line| !line.starts_with("waits")).collect::<Vec<_>>()
    };
    let text = told_of(&observed).join("\n");
    let why = "refuses: 2 of 3 primaries answer, and 2 of these would refuse replica 0-1 their votes, as they have heard of a later claim of its \
               primary than it has, so it is not elected in place of 00000000, the primary of shard 0; and without votes it is not promoted";
    assert!(text.starts_with(why), "{text}");
    observed.ended.insert(lost, 4_000);
    let promoted = |name: &str| format!("promote {name} in place of the dead primary 00000000");
    assert_eq!(told_of(&observed), [format!("{} without votes, as nobody could be elected there", promoted("0-1"))]);
    // Whom most would elect comes first, unless it has less.
    at(&mut observed, "0-2").peers.get_mut(&lost).unwrap().epoch = 6;
    assert_eq!(told_of(&observed), [promoted("0-2")]);
    observed.further.insert(pod("0-2"), pod("0-1"));
    assert_eq!(told_of(&observed), [promoted("0-1")], "the other one may be elected meanwhile");
}

/// One that does not answer us may vote, and who refuses are too few: an election may go on while a promotion without votes is ordered.
#[test]
fn nobody_takes_over_without_votes_where_those_who_do_not_answer_may_elect() {
    let mut observed =
        layout("0-0 x:P0-3276 0-1 r0-0 1-0 P3277-6553 2-0 P6554-9830 3-0 P9831-13107 4-0 ?:P13108-16383");
    let lost = id(pod("0-0"));
    observed.members.get_mut(&pod("0-0")).unwrap().stuck = true;
    observed.members.get_mut(&pod("4-0")).unwrap().seen = Seen::Unknown { since_millis: 60_000 };
    observed.ended.insert(lost, 4_000);
    let refuse = |observed: &mut Observed, places: &[&str]| {
        for place in places {
            at(observed, place).peers.get_mut(&lost).unwrap().epoch = 6;
        }
        for node in observed.members.values_mut() {
            if let Seen::Node(node) = &mut node.seen {
                node.current_epoch = 9;
            }
        }
        let told = told(&Desired::cluster(5, 1), observed);
        told.into_iter().filter(|line| line.starts_with("promote")).collect::<Vec<_>>()
    };
    let promoted = "promote 0-1 in place of the dead primary 00000000";
    assert_eq!(refuse(&mut observed, &["1-0"]), [promoted]);
    let alone = format!("{promoted} without votes, as nobody could be elected there");
    assert_eq!(refuse(&mut observed, &["1-0", "2-0"]), [alone]);
}

/// It has not heard yet of a slot that moved away. Before, it was said to be elected.
#[test]
fn a_copy_that_would_claim_too_much_is_told_with_who_owns_the_rest() {
    let mut observed = layout("0-0 x:P0-5460 0-1 r0-0 1-0 P5461-10922 1-1 r1-0 2-0 P10923-16383 2-1 r2-0");
    let slots = SlotSet::parse("0-5470").unwrap();
    at(&mut observed, "0-1").peers.get_mut(&id(pod("0-0"))).unwrap().role = PeerRole::Primary { slots };
    let told = told(&Desired::cluster(3, 1), &observed);
    let start = "waits: member 0-0 has not started yet";
    assert_eq!(told, [start, "waits: members 0-1 and 1-0 both claim 10 slots; the newer claim wins"]);
}

/// The address of a gone primary is another shard's by now, and with it the epoch that one table tells of it. A replica that was away follows it
/// still; its heir serves, and has all that was taken in since.
#[test]
fn a_copy_of_a_gone_primary_is_not_promoted_over_its_heir() {
    for away in ["2-2 r2-0", "2-2 x:r2-0"] {
        let mut observed = layout(&format!(
            "0-0 r0-1 0-1 P0-5460 0-2 r0-1 1-0 P5461-10922 1-1 r1-0 1-2 r1-0 2-0 P10923-16383 2-1 r2-0 {away}"
        ));
        let (heir, gone, line) = borrowed_epoch(&mut observed);
        for place in ["0-0", "0-1", "1-0", "1-1", "1-2", "2-0", "2-1"] {
            let line = Peer { role: PeerRole::Primary { slots: SlotSet::EMPTY }, ..line.clone() };
            at(&mut observed, place).peers.insert(gone, line);
        }
        let back = at(&mut observed, "0-2");
        back.peers.insert(gone, line);
        back.peers.get_mut(&heir).unwrap().role = PeerRole::Primary { slots: SlotSet::EMPTY };
        if let Role::Replica { of, link_up, .. } = &mut back.role {
            (*of, *link_up) = (gone, false);
        }
        let told = told(&Desired::cluster(3, 2), &observed);
        assert!(told.contains(&"raise the epoch of 0-1 above 11, so that its claim counts".to_owned()), "{told:?}");
        assert!(!told.iter().any(|line| line.starts_with("promote")), "{told:?}");
    }
}

/// Most of them have called the gone one's address: how many believe what tells nothing, but its copy's replication stream does.
#[test]
fn a_copy_that_was_left_behind_is_not_promoted_whatever_tables_say() {
    let told_of = |left_behind: bool, is_told_of_its_epoch: bool| {
        let (mut observed, _) = left_with_a_copy(left_behind);
        at(&mut observed, "1-0").epoch = if is_told_of_its_epoch { 11 } else { 12 };
        let told = told(&Desired::cluster(3, 2), &observed);
        told.into_iter().filter(|line| !line.starts_with("waits")).collect::<Vec<_>>()
    };
    let raised = ["raise the epoch of 0-1 above 11, so that its claim counts"];
    assert_eq!(told_of(true, true), raised);
    // Nor where nobody has that epoch any more: no place is the gone one's.
    assert_eq!(told_of(true, false), raised);
    // Nothing shows it of an heir that was started anew, and which of the two is the later one is for a person to say.
    let refused = "refuses: replica 0-2 is not promoted: 0-1 serves the slots of its primary 09090909, which does not answer; as another node has its address, \
                   nothing tells which of them has the later claim. To go on with what 0-1 holds, delete the pod and the claim of 0-2. To go on \
                   with what 0-2 holds, and lose what 0-1 has taken since, create a failover of shard 0 that names 0-2 as candidate, with mode \
                   Force and acceptDataLoss";
    assert_eq!(told_of(false, true), [refused]);
}

/// Before, it was told to delete what may have been the later one, and nothing was raised after that.
#[test]
fn what_helps_beside_a_copy_and_a_claimant_is_told_and_helps() {
    let (mut observed, gone) = left_with_a_copy(false);
    away(&mut observed, Seen::Stopped, Some(gone));
    let told_of = |observed: &Observed| {
        let told = told(&Desired::cluster(3, 2), observed);
        told.into_iter().filter(|line| !line.starts_with("waits")).collect::<Vec<_>>()
    };
    let says = told_of(&observed).join("\n");
    let how = "Once that primary is back (0-0), its own word counts. To go on with what 0-1 holds, delete the pods and the claims of 0-2 and of 0-0. ";
    assert!(says.contains(how), "{says}");
    let nameless = left_with_a_copy(false).0;
    let told = told(&Desired::cluster(4, 2), &nameless).join("\n");
    let first = "First see who runs at 3-0, 3-1, 3-2, where nobody has been seen: it may be that primary. To go on with what 0-1 holds, delete the pod and \
                 the claim of 0-2. ";
    assert!(told.contains(first), "{told}");
    // The two come back as others, with nothing.
    for place in ["0-0", "0-2"] {
        let blank = layout(&format!("{place} P")).members.remove(&pod(place)).unwrap();
        observed.members.insert(pod(place), blank);
        let node = at(&mut observed, place);
        node.id = NodeId::from_bytes([u8::try_from(pod(place).ordinal).unwrap() + 100; 20]);
        observed.members.get_mut(&pod(place)).unwrap().last_id = None;
    }
    let says = told_of(&observed);
    assert!(says.contains(&"raise the epoch of 0-1 above 11, so that its claim counts".to_owned()), "{says:?}");
}

/// Before, a place that was only wanted, or that the primary had left, was taken for one from which it may come back, and then nobody was asked.
#[test]
fn a_copy_is_not_promoted_over_who_serves_whatever_places_there_are() {
    let told_of = |shards| {
        let told = told(&Desired::cluster(shards, 2), &left_with_a_copy(false).0);
        let told = told.into_iter().filter(|line| line.starts_with("promote") || line.starts_with("refuses"));
        told.map(|line| line.split(':').take(2).collect::<Vec<_>>().join(":")).collect::<Vec<_>>()
    };
    let refused = ["refuses: replica 0-2 is not promoted"];
    assert_eq!(told_of(3), refused);
    assert_eq!(told_of(4), refused, "a shard is wanted that is not there yet");
    for (seen, is_its_place) in [(Seen::Stopped, true), (Seen::Starting, true), (Seen::Stopped, false)] {
        let (mut observed, gone) = left_with_a_copy(false);
        away(&mut observed, seen.clone(), Some(gone).filter(|_| is_its_place));
        let told = told(&Desired::cluster(3, 2), &observed);
        assert!(!told.iter().any(|line| line.starts_with("promote")), "{seen:?}: {told:?}");
    }
}

/// Its pod has no node yet, and its volume holds nothing: what others say of a gone node does not come back from there, and nobody waits for that.
#[test]
fn a_place_where_nothing_has_ever_run_is_nobody_s_home() {
    let judge = |is_blank: bool| {
        let (mut observed, _) = most_know_the_heir();
        // Its claim is the newer one, but for one table.
        (at(&mut observed, "0-1").epoch, at(&mut observed, "0-1").current_epoch) = (12, 12);
        let pending = Member { last_id: None, ..layout("2-2 x:r2-0").members.remove(&pod("2-2")).unwrap() };
        observed.members.insert(pod("2-2"), pending);
        observed.blank.extend(Some(pod("2-2")).filter(|_| is_blank));
        for node in observed.members.values_mut().filter_map(|member| match &mut member.seen {
            Seen::Node(node) => Some(node),
            _ => None,
        }) {
            node.peers.remove(&id(pod("2-2")));
        }
        let told = told(&Desired::cluster(2, 2), &observed);
        told.into_iter().filter(|line| line.contains("may come back")).collect::<Vec<_>>()
    };
    assert_eq!(judge(true), [""; 0]);
    let waits = "waits: member 2-2 may come back with a later claim to 5461 slots that others serve: until it is back, or nothing of it is left, no \
                 slot moves, and nobody leaves or is restarted";
    assert_eq!(judge(false), [waits]);
}

/// Before, the older claim was raised at once, and the copy, which may have had everything, was made to copy that one.
#[test]
fn an_older_claim_is_not_raised_over_a_later_copy_but_on_an_order() {
    let mut observed = layout("0-0 P0-5460 0-1 r0-9~ 1-0 P5461-10922 1-1 r1-0 2-0 P10923-16383 2-1 r2-0");
    let (gone, former) = (id(pod("0-9")), id(pod("0-0")));
    let line = Peer {
        epoch: 9,
        noaddr: true,
        ..peer(pod("0-9"), PeerRole::Primary { slots: SlotSet::parse("0-5460").unwrap() }, false)
    };
    for place in ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1"] {
        let node = at(&mut observed, place);
        node.current_epoch = 9;
        node.peers.insert(gone, line.clone());
        if let Some(line) = node.peers.get_mut(&former) {
            line.role = PeerRole::Primary { slots: SlotSet::EMPTY };
        }
    }
    let told_of = |observed: &Observed, order: Option<(NodeId, Option<u16>)>| {
        let failover = order.map(|(from, candidate)| FailoverRequest {
            shard: 0,
            from,
            candidate,
            how: FailoverHow::Force,
            accept_data_loss: true,
        });
        let told = told(&Desired { failover, ..Desired::cluster(3, 1) }, observed);
        told.into_iter().filter(|line| !line.starts_with("waits")).collect::<Vec<_>>()
    };
    let refused = "refuses: no copy of 5461 slots is left that is known to be complete: node 00090000, which had them last, is gone for good, of its \
                   replicas (0-1) none is known to have had everything until then, and 0-0 had them before it. To go on with what 0-0 holds, delete \
                   the pods and the claims of those replicas. To go on with what such a replica holds, create a failover of shard 0 that names it as \
                   candidate, with mode Force and acceptDataLoss";
    assert_eq!(told_of(&observed, None), [refused]);
    let promoted = ["promote 0-1 in place of the dead primary 00090000"];
    assert_eq!(told_of(&observed, Some((former, Some(1)))), promoted);
    let mut partly = observed.clone();
    at(&mut partly, "0-0").role = Role::Primary { slots: SlotSet::parse("0-9").unwrap() };
    let says = told_of(&partly, None).join("\n");
    assert!(says.contains("and 0-0, which had 10 of them before it, serves those. "), "{says}");
    assert!(
        says.contains("and lose what it lacks and what 0-0 has taken in those, create a failover of shard 0"),
        "{says}"
    );
    assert!(!says.contains("delete"), "{says}");
    assert_eq!(told_of(&observed, Some((former, None))), [refused], "whom he means is not said");
    assert_eq!(
        told_of(&observed, Some((gone, Some(1)))),
        [refused],
        "who asked before 0-0 answered did not mean to go over it"
    );
    // It has all that the copy has, and more.
    observed.left_behind.insert(pod("0-1"), pod("0-0"));
    let raised = ["raise the epoch of 0-0 above 9, so that its claim counts"];
    assert_eq!(told_of(&observed, None), raised);
    observed.left_behind.clear();
    at(&mut observed, "0-1").keys = 0;
    assert_eq!(told_of(&observed, None), raised, "there is nothing in the copy");
}

/// The heir, the gone primary at whose address 1-0 has answered, and what tables that have called there say of that primary.
fn borrowed_epoch(observed: &mut Observed) -> (NodeId, NodeId, Peer) {
    let slots = SlotSet::parse("0-5460").unwrap();
    let line = Peer { noaddr: true, epoch: 11, ..peer(pod("9-9"), PeerRole::Primary { slots }, false) };
    at(observed, "0-1").current_epoch = 11;
    at(observed, "1-0").epoch = 11;
    (id(pod("0-1")), NodeId::from_bytes([9; 20]), line)
}

/// Most tables name a gone primary for the slots that 0-1 serves, under an epoch that may be another one's, and 0-2 follows that one still.
fn left_with_a_copy(left_behind: bool) -> (Observed, NodeId) {
    let mut observed =
        layout("0-0 r0-1 0-1 P0-5460 0-2 r0-1 1-0 P5461-10922 1-1 r1-0 1-2 r1-0 2-0 P10923-16383 2-1 r2-0 2-2 r2-0");
    let (heir, gone, line) = borrowed_epoch(&mut observed);
    for place in ["0-2", "1-0", "1-1", "1-2", "2-0", "2-1", "2-2"] {
        let node = at(&mut observed, place);
        node.peers.insert(gone, line.clone());
        node.peers.get_mut(&heir).unwrap().role = PeerRole::Primary { slots: SlotSet::EMPTY };
    }
    if let Role::Replica { of, link_up, .. } = &mut at(&mut observed, "0-2").role {
        (*of, *link_up) = (gone, false);
    }
    if left_behind {
        observed.left_behind.insert(pod("0-2"), pod("0-1"));
    }
    (observed, gone)
}

/// The same once the copy follows the heir, and only 2-1 and 2-2 name the gone one still.
fn most_know_the_heir() -> (Observed, NodeId) {
    let (mut observed, gone) = left_with_a_copy(false);
    for place in ["0-2", "1-0", "1-1", "1-2", "2-0"] {
        let peers = &mut at(&mut observed, place).peers;
        peers.get_mut(&gone).unwrap().role = PeerRole::Primary { slots: SlotSet::EMPTY };
        let slots = SlotSet::parse("0-5460").unwrap();
        peers.get_mut(&id(pod("0-1"))).unwrap().role = PeerRole::Primary { slots };
    }
    if let Role::Replica { of, link_up, .. } = &mut at(&mut observed, "0-2").role {
        (*of, *link_up) = (id(pod("0-1")), true);
    }
    (observed, gone)
}

/// At 0-0 nobody answers, and so much is known of who was there.
fn away(observed: &mut Observed, seen: Seen, last_id: Option<NodeId>) {
    let member = Member { last_id, seen, ..layout("0-0 -").members.remove(&pod("0-0")).unwrap() };
    observed.members.insert(pod("0-0"), member);
}

/// Found by a random history: whoever had not heard of the handover called the giver their owner, and so every gift was refused, for ever.
#[test]
fn slots_handed_over_to_a_node_that_died_with_the_news_find_a_new_owner() {
    let mut observed = layout("0-0 P0-999 1-0 P1000-10922 2-0 P10923-13000 3-0 -:P13001-16383");
    let (giver, gone) = (id(pod("2-0")), id(pod("3-0")));
    observed.members.remove(&pod("3-0"));
    for unaware in ["0-0", "1-0"] {
        let peers = &mut at(&mut observed, unaware).peers;
        peers.get_mut(&giver).unwrap().role = PeerRole::Primary { slots: SlotSet::range(10_923, 16_383) };
        peers.get_mut(&gone).unwrap().role = PeerRole::Primary { slots: SlotSet::EMPTY };
    }
    let keeps_nothing =
        Desired { restart_keeps_data: false, adopt_lost_slots: true, has_volumes: false, ..Desired::cluster(3, 0) };
    let told = told(&keeps_nothing, &observed);
    assert_eq!(told, ["give 3383 slots to 0-0 that node 02000000 had: 13001-16383"]);
}
