//! A target without room for what is to come.

use super::settle;
use crate::support::Run;
use plan::{Desired, Pod, Waiting};

/// Scaled out to four shards, of which the last one takes so many keys and then refuses more.
fn scaled_out_to_a_shard_with_room_for(keys: u64) -> Run {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    run.write_everywhere();
    run.write_everywhere();
    run.desired.shards = 4;
    run.world.provide(&run.desired);
    run.world.homes.get_mut(&Pod::new(3, 0)).unwrap().limit = Some(keys);
    run
}

#[test]
fn a_half_moved_slot_whose_target_is_full_goes_back_with_its_shard() {
    let mut run = scaled_out_to_a_shard_with_room_for(4);
    assert!(!settle(&mut run).is_satisfied());
    let target = run.world.up(Pod::new(3, 0)).unwrap();
    assert_eq!((target.keys(), target.open.len()), (4, 1), "one slot with three keys, and a part of another");
    run.desired.shards = 3;
    assert!(settle(&mut run).is_satisfied());
}

#[test]
fn a_half_moved_slot_without_keys_left_needs_no_room_at_its_full_target() {
    let mut run = scaled_out_to_a_shard_with_room_for(4);
    let waits = settle(&mut run).waiting;
    assert!(waits.iter().any(|why| matches!(why, Waiting::Room { half_moved: true, .. })), "{waits:?}");
    let (slot, _) =
        run.world.up(Pod::new(3, 0)).unwrap().open.first_key_value().map(|(slot, mark)| (*slot, *mark)).unwrap();
    let owner = run.world.authority(slot).unwrap();
    // Clients delete, or let expire, what has not moved yet.
    let shard: Vec<Pod> = run.world.homes.keys().copied().filter(|pod| pod.shard == owner.shard).collect();
    for pod in shard {
        let server = run.world.homes.get_mut(&pod).unwrap().server.as_mut().unwrap();
        let gone = server.data.remove(&slot).unwrap();
        run.world.acked.retain(|(of, key)| *of != slot || !gone.contains(key));
    }
    settle(&mut run);
    let target = run.world.up(Pod::new(3, 0)).unwrap();
    assert!(target.open.is_empty() && target.slots().contains(slot) && target.keys() == 4, "{:?}", target.open);
}

#[test]
fn a_target_that_owns_nothing_else_is_not_said_to_give_anything_back() {
    // Its first slot has three keys.
    let mut run = scaled_out_to_a_shard_with_room_for(2);
    settle(&mut run);
    run.desired.shards = 3;
    let waits = settle(&mut run).waiting;
    let full: Vec<String> =
        waits.iter().filter(|why| matches!(why, Waiting::Room { .. })).map(ToString::to_string).collect();
    let told = "1 half-moved slots of 2-0 wait for room in 3-0: it is 0 KiB below its maxmemory, 256 KiB are needed; raise it \
                (spec.memory.maxBytes or spec.memory.maxPercent, which count at once), or delete keys of these slots";
    assert_eq!(full, [told]);
    run.world.homes.get_mut(&Pod::new(3, 0)).unwrap().limit = None;
    assert!(settle(&mut run).is_satisfied());
}

#[test]
fn what_does_not_fit_is_not_begun_and_a_restart_with_more_memory_goes_on() {
    let mut run = scaled_out_to_a_shard_with_room_for(0);
    let plan = settle(&mut run);
    assert_eq!(plan.steps, []);
    let full = Pod::new(3, 0);
    let room = |from, slots, half_moved| Waiting::Room {
        pod: full,
        from,
        slots,
        half_moved,
        gives: false,
        room: 0,
        needs: 256 << 10,
    };
    assert_eq!(plan.waiting, [room(Pod::new(2, 0), 1366, false)]);
    assert!(run.world.up(full).unwrap().open.is_empty());
    // It comes with a restart, which this does not stand in the way of.
    run.world.homes.values_mut().for_each(|home| home.outdated = true);
    settle(&mut run);
    assert!(run.world.homes.values().all(|home| !home.outdated));
    run.world.homes.get_mut(&full).unwrap().limit = None;
    assert!(settle(&mut run).is_satisfied());
}
