//! What a new shard was sent of its first slot.

use super::settle;
use crate::support::Run;
use plan::model::{Process, Server};
use plan::{Desired, Hold, Open, Pod};

/// A slot of shard 0 that has keys.
const SLOT: u16 = 1_000;
const GIVER: Pod = Pod::new(0, 0);
const RECEIVER: Pod = Pod::new(3, 0);
const COPY: Pod = Pod::new(3, 1);

fn server(run: &mut Run, pod: Pod) -> &mut Server {
    run.world.homes.get_mut(&pod).unwrap().server.as_mut().unwrap()
}

/// Shard 3 owns nothing yet, and all keys of its first slot have come to both of its members.
fn half_moved(volumes: bool) -> Run {
    let mut desired = Desired::cluster(3, 1);
    (desired.restart_keeps_data, desired.adopt_lost_slots) = (volumes, !volumes);
    let mut run = Run::created(desired, volumes);
    run.desired.shards = 4;
    run.desired.hold = Some(Hold::Paused);
    run.settle(60).unwrap_or_else(|reason| panic!("{reason}"));
    let ids = [GIVER, RECEIVER].map(|pod| run.world.up(pod).unwrap().id);
    assert_eq!(run.world.up(COPY).unwrap().follows(), Some(ids[1]));
    server(&mut run, GIVER).open.insert(SLOT, Open::Migrating(ids[1]));
    server(&mut run, RECEIVER).open.insert(SLOT, Open::Importing(ids[0]));
    let keys = server(&mut run, GIVER).data.remove(&SLOT).unwrap();
    server(&mut run, Pod::new(0, 1)).data.remove(&SLOT);
    for pod in [RECEIVER, COPY] {
        server(&mut run, pod).data.insert(SLOT, keys.clone());
    }
    run
}

/// Before, the mark was cleared, the copy was to follow the blank member, and all that had moved was lost.
#[test]
fn what_has_moved_is_kept_where_its_receiver_comes_back_blank() {
    for (volumes, is_hidden) in [(true, false), (true, true), (false, false)] {
        let mut run = half_moved(volumes);
        if volumes {
            run.wipe(RECEIVER);
        } else {
            run.crash(RECEIVER, true);
        }
        assert!(run.world.excused.is_empty(), "its copy has all of it");
        if is_hidden {
            // Nobody sees the copy for a while, and that proves nothing.
            run.world.homes.get_mut(&COPY).unwrap().hidden = true;
            for _ in 0..20 {
                run.round(usize::MAX, false).unwrap_or_else(|reason| panic!("{reason}"));
                run.tick(1);
            }
            assert_eq!(run.world.homes[&RECEIVER].process, Process::Up);
            run.rejoin_all();
        }
        settle(&mut run);
        assert!(run.world.up(COPY).unwrap().slots().contains(SLOT), "{}", run.world.describe());
        run.desired.hold = None;
        assert!(settle(&mut run).is_satisfied());
    }
}
