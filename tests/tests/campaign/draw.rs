//! What chance draws for a campaign, apart from doing it, and the seeds of `make test`.

use std::time::Duration;

use super::{Chance, blow::Moment, excuse::Keeps, operation::Operation};

/// Shards of a cluster at the beginning.
pub(super) const SHARDS: u16 = 3;

/// The campaigns of `make test`: seeds, and the rounds of each. Seeds are chosen so that all of them together draw whatever there is to
/// draw, within little time; `make soak` runs more campaigns, of more rounds.
const SLICE: [(Keeps, u64, u64); 5] = [
    (Keeps::Always, 797, 2),
    (Keeps::NoVolume, 2371, 1),
    (Keeps::EverySec, 718, 2),
    (Keeps::Snapshots, 275, 1),
    (Keeps::Off, 2461, 2),
];

/// Seeds and rounds of the everyday campaigns of a mode.
pub(super) fn slice(keeps: Keeps) -> Vec<(u64, u64)> {
    SLICE.iter().filter(|(of, ..)| *of == keeps).map(|(_, seed, rounds)| (*seed, *rounds)).collect()
}

/// How a cluster is made.
pub(super) struct Creation {
    pub(super) moments: Vec<Moment>,
    /// Whether a first sign of it is waited for.
    pub(super) awaits: bool,
}

impl Creation {
    pub(super) fn next(chance: &mut Chance) -> Self {
        Self { moments: Moment::some(chance, SHARDS), awaits: chance.one_in(2) }
    }
}

/// What is done in a round. Drawn in this order: another one is another campaign for each seed.
pub(super) struct Draw {
    pub(super) operation: Operation,
    pub(super) moments: Vec<Moment>,
    /// Before the operation.
    pub(super) calm: Duration,
    /// Whether a first sign of it is waited for.
    pub(super) awaits: bool,
    /// Below 1000: whatever else the operation is to know.
    pub(super) number: u64,
}

impl Draw {
    pub(super) fn next(chance: &mut Chance, shards: u16) -> Self {
        Self {
            operation: Operation::any(chance),
            moments: Moment::some(chance, shards),
            calm: chance.time(0, 500),
            awaits: chance.one_in(2),
            number: chance.below(1000),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::campaign::blow::Blow;

    fn blow(blow: Blow) -> String {
        match blow {
            Blow::KillServer(_, member) => format!("KillServer {member:?}"),
            Blow::KillAgent(_, member) => format!("KillAgent {member:?}"),
            Blow::HoldServer(_, member, _) => format!("HoldServer {member:?}"),
            Blow::HoldAgent(..) => "HoldAgent".to_owned(),
            Blow::BreakLink(..) => "BreakLink".to_owned(),
            Blow::Wipe(_, member) => format!("Wipe {member:?}"),
            Blow::KillKun(_) => "KillKun".to_owned(),
        }
    }

    /// Operations with their blows; the first one makes the cluster.
    fn drawn(seed: u64, rounds: u64) -> Vec<(String, Vec<String>)> {
        let blows = |moments: Vec<Moment>| moments.into_iter().map(|moment| blow(moment.blow)).collect();
        let mut chance = Chance::of(seed);
        let mut drawn = vec![("Create".to_owned(), blows(Creation::next(&mut chance).moments))];
        let mut shards = SHARDS;
        for _ in 0..rounds {
            let draw = Draw::next(&mut chance, shards);
            shards = draw.operation.shards_after(shards);
            drawn.push((format!("{:?}", draw.operation), blows(draw.moments)));
        }
        drawn
    }

    #[test]
    fn the_campaigns_of_make_test_draw_these_blows_in_these_modes() {
        let told = |(keeps, seed, rounds): (Keeps, u64, u64)| {
            let rounds: Vec<_> =
                drawn(seed, rounds).into_iter().map(|(what, blows)| format!("{what}: {}", blows.join(", "))).collect();
            format!("{}: {}", keeps.word(), rounds.join("; "))
        };
        let expected = [
            "Always: Create: HoldServer Replica, KillServer All; Drain: KillAgent Primary, KillServer Primary; \
             Upgrade: Wipe Replica",
            "NoVolume: Create: KillKun; Config: HoldServer Primary, KillServer Replica",
            "EverySec: Create: HoldServer Replica; Scale: BreakLink, Wipe Primary; Failover: KillServer All",
            "Snapshots: Create: KillServer All; Restart: HoldServer Primary, HoldAgent",
            "Off: Create: KillServer All; Backup: KillAgent Replica; Template: BreakLink, KillAgent All",
        ];
        assert_eq!(SLICE.map(told), expected);
    }

    #[test]
    fn the_campaigns_of_make_test_draw_all_that_there_is_to_draw() {
        let all = |campaigns: &mut dyn Iterator<Item = (u64, u64)>| {
            let rounds: Vec<_> = campaigns.flat_map(|(seed, rounds)| drawn(seed, rounds)).collect();
            let operations: BTreeSet<String> = rounds.iter().map(|(operation, _)| operation.clone()).collect();
            let blows: BTreeSet<String> = rounds.into_iter().flat_map(|(_, blows)| blows).collect();
            (operations, blows)
        };
        let mut expected = all(&mut (1..1000_u64).map(|seed| (seed, 3_u64)));
        // Blows on a cluster that is left alone are those on one that is made.
        expected.0.remove("Nothing");
        assert_eq!(all(&mut SLICE.into_iter().map(|(_, seed, rounds)| (seed, rounds))), expected);
    }
}
