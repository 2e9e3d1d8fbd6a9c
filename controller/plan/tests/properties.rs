//! Random histories: what is wanted changes, members fail, looks are stale, batches stop anywhere. After every step nothing is lost; when
//! the trouble ends, the cluster is what was asked for, or there is a reason.
//!
//! `KUN_SOAK` multiplies the number of histories and `KUN_PLAN_SEED` sets their seed (`make soak`); a failure prints the shortest history that fails.

use crate::support::history::{
    brutal, live_through, partings, peaceful, reboots, rolls, rough, setting, stale, unlinked, upgrades,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Histories per property; `KUN_SOAK` multiplies them.
const CASES: u32 = 300;

/// The same histories each time, unless `KUN_PLAN_SEED` names another seed or says `random`.
fn cases() -> ProptestConfig {
    let soak = std::env::var("KUN_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(1_u32);
    let rng_seed = match std::env::var("KUN_PLAN_SEED") {
        Ok(text) => text.parse().map_or(RngSeed::Random, RngSeed::Fixed),
        Err(_) => RngSeed::Fixed(20_261_121),
    };
    ProptestConfig {
        cases: CASES * soak.max(1),
        max_shrink_iters: 4_000,
        failure_persistence: None,
        rng_seed,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases())]

    /// Whatever is asked for, in whatever order, and wherever each batch ends: it is reached, and every write is still there.
    #[test]
    fn peaceful_changes_arrive_and_lose_nothing(setting in setting(), history in prop::collection::vec(peaceful(), 0..24)) {
        let (run, plan) = live_through(&setting, &history, plan::plan).map_err(TestCaseError::fail)?;
        let alone = !setting.persistent && run.desired.replicas == 0;
        prop_assert!(plan.is_satisfied() || alone, "{:?}", plan);
        prop_assert!(run.world.excused.is_empty());
        run.everything_reads_back().map_err(TestCaseError::fail)?;
    }

    /// Planning on an older look never breaks anything.
    #[test]
    fn stale_looks_lose_nothing(setting in setting(), history in prop::collection::vec(stale(), 0..24)) {
        let (run, _) = live_through(&setting, &history, plan::plan).map_err(TestCaseError::fail)?;
        prop_assert!(run.world.excused.is_empty());
        run.everything_reads_back().map_err(TestCaseError::fail)?;
    }

    /// Members die, are cut off, or are not seen.
    #[test]
    fn failures_cost_no_more_than_asynchronous_replication(setting in setting(), history in prop::collection::vec(rough(), 0..30)) {
        let (run, plan) = live_through(&setting, &history, plan::plan).map_err(TestCaseError::fail)?;
        if plan.is_satisfied() {
            run.everything_reads_back().map_err(TestCaseError::fail)?;
        }
    }

    /// Replication breaks, primaries go on without their replicas, and die: what their files hold comes back.
    #[test]
    fn primaries_that_went_on_alone_lose_nothing(setting in setting(), history in prop::collection::vec(unlinked(), 0..30)) {
        let (run, plan) = live_through(&setting, &history, plan::plan).map_err(TestCaseError::fail)?;
        if plan.is_satisfied() {
            run.everything_reads_back().map_err(TestCaseError::fail)?;
        }
    }

    /// Pods are deleted under the planner, which neither builds on them nor takes a second member away meanwhile.
    #[test]
    fn pods_that_are_being_deleted_cost_nothing_more(setting in setting(), history in prop::collection::vec(partings(), 0..30)) {
        let (run, plan) = live_through(&setting, &history, plan::plan).map_err(TestCaseError::fail)?;
        if plan.is_satisfied() {
            run.everything_reads_back().map_err(TestCaseError::fail)?;
        }
    }

    /// Engines refuse what a person wants of them, while members are restarted for another reason; once it is corrected all goes on by itself.
    #[test]
    fn rolls_stop_at_refused_parameters_and_go_on_once_they_are_corrected(setting in setting(), history in prop::collection::vec(rolls(), 0..30)) {
        let (run, plan) = live_through(&setting, &history, plan::plan).map_err(TestCaseError::fail)?;
        let is_blocked = plan.waiting.iter().any(|why| matches!(why, plan::Waiting::Parameters { .. }));
        prop_assert!(!is_blocked, "{:?}", plan);
        if plan.is_satisfied() {
            run.everything_reads_back().map_err(TestCaseError::fail)?;
        }
    }

    /// Versions change while members fail: replicas that are too old for their primaries do not stay without a copy.
    #[test]
    fn upgrades_leave_nobody_behind(setting in setting(), history in prop::collection::vec(upgrades(), 0..30)) {
        let (run, plan) = live_through(&setting, &history, plan::plan).map_err(TestCaseError::fail)?;
        if plan.is_satisfied() {
            prop_assert!(run.world.homes.values().all(|home| home.version == run.world.version));
            run.everything_reads_back().map_err(TestCaseError::fail)?;
        }
    }

    /// Addresses of members that ended are given to others, which answer those who call them.
    #[test]
    fn addresses_that_are_given_out_again_mislead_nobody(setting in setting(), history in prop::collection::vec(reboots(), 0..30)) {
        let (run, plan) = live_through(&setting, &history, plan::plan).map_err(TestCaseError::fail)?;
        if plan.is_satisfied() {
            run.everything_reads_back().map_err(TestCaseError::fail)?;
        }
    }

    /// Everything at once, and files are lost.
    #[test]
    fn catastrophes_end_in_rest_or_in_a_reason(setting in setting(), history in prop::collection::vec(brutal(), 0..30)) {
        let (run, plan) = live_through(&setting, &history, plan::plan).map_err(TestCaseError::fail)?;
        if plan.is_satisfied() {
            run.everything_reads_back().map_err(TestCaseError::fail)?;
        }
    }
}
