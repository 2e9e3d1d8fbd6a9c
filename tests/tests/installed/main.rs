//! KUN on a real Kubernetes of three nodes, installed by its chart: what clusters do to it and it to them, while a writer
//! records every acknowledgement.
//!
//! One cluster serves all scenarios, in the order in which they stand here; each leaves `orders` Ready. There is no harness
//! around them: `cargo test -p tests --test installed -- node_lost webhook` runs those whose names contain one of the words.
//! Times of minutes are seconds here; `make soak` takes them in full.

#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

mod account;
mod company;
mod nodes;
mod outage;
mod rights;
mod scenario;
mod store;
mod tenants;
mod upkeep;

use std::process::ExitCode;

use scenario::{Scenario, scenario};

/// All of them, in order.
const SCENARIOS: &[Scenario] = &[
    scenario!(upkeep::a_cluster_that_is_applied_becomes_ready),
    scenario!(account::at_rest_nothing_is_asked_but_about_leases),
    scenario!(upkeep::scaling_three_five_three),
    scenario!(upkeep::an_autoscaler_scales_shards),
    scenario!(upkeep::actions_are_carried_out),
    scenario!(upkeep::what_others_change_is_put_right_and_what_they_add_is_kept),
    scenario!(upkeep::what_is_called_as_ours_would_be_is_left_alone),
    scenario!(company::a_resource_quota_holds_against_parallel_creates),
    scenario!(company::foreground_background_and_orphan_deletion_are_the_garbage_collectors),
    scenario!(company::programs_of_others_follow_our_objects),
    scenario!(company::six_hundred_foreign_secrets_are_not_kept),
    scenario!(tenants::who_may_edit_clusters_reaches_nothing_else_by_them),
    scenario!(tenants::a_proxy_that_nobody_named_is_refused),
    scenario!(upkeep::draining_the_node_with_most_primaries_hands_them_over),
    scenario!(nodes::members_that_must_not_share_a_node_wait_for_another),
    scenario!(nodes::a_kubelet_and_a_containerd_that_are_killed_restart_no_pod),
    scenario!(nodes::primaries_are_spread_over_the_nodes),
    scenario!(nodes::a_node_that_is_lost_costs_no_availability_and_comes_back),
    scenario!(outage::kubernetes_away_while_a_primary_dies),
    scenario!(outage::our_api_away_hangs_nobody_longer_than_it_is_away),
    scenario!(outage::our_api_hung_is_ended_by_its_kubelet),
    scenario!(outage::webhooks_away_let_deletions_and_status_pass),
    scenario!(outage::all_pods_of_kun_deleted_at_once),
    scenario!(outage::all_pods_of_redis_deleted_at_once_come_back_with_other_addresses),
    scenario!(outage::two_controllers_at_once_do_no_harm),
    scenario!(company::a_namespace_with_twenty_clusters_goes),
    scenario!(store::a_store_that_was_wiped_costs_nothing_and_owners_come_back),
    scenario!(store::a_store_that_went_back_is_noticed_and_nothing_is_touched),
    scenario!(rights::a_missing_right_is_named_and_asked_for_ever_more_seldom),
    scenario!(rights::a_server_that_may_not_ask_says_so_and_lets_nobody_in),
    scenario!(account::authorities_are_exchanged_without_a_failed_request),
    scenario!(upkeep::an_upgrade_and_a_rollback_restart_no_redis_pod),
    scenario!(upkeep::taking_kun_away_and_back_restarts_no_redis_pod),
    scenario!(account::what_is_allowed_is_what_is_used),
];

#[tokio::main]
async fn main() -> ExitCode {
    scenario::run("installed", SCENARIOS).await
}
