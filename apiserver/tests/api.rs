//! Requests in process: every verb and every error of the API, over the store in memory. One file per room.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

#[path = "api/support.rs"]
mod support;

#[path = "../store/tests/robust/clock.rs"]
mod clock;
#[path = "../store/tests/etcd/server.rs"]
mod etcd;

#[path = "../store/tests/robust/history/history.rs"]
mod histories;
#[path = "../merge/tests/fuzz/mutate.rs"]
mod mutate;
#[path = "../store/tests/robust/tally.rs"]
mod tally;

#[path = "api/action.rs"]
mod action;
#[path = "api/admission.rs"]
mod admission;
#[path = "api/apply.rs"]
mod apply;
#[path = "api/create.rs"]
mod create;
#[path = "api/delegate.rs"]
mod delegate;
#[path = "api/delete.rs"]
mod delete;
#[path = "api/discovery.rs"]
mod discovery;
#[path = "api/failing.rs"]
mod failing;
#[path = "api/fuzz.rs"]
mod fuzz;
#[path = "api/history.rs"]
mod history;
#[path = "api/host.rs"]
mod host;
#[path = "api/list.rs"]
mod list;
#[path = "api/negotiate.rs"]
mod negotiate;
#[path = "api/openapi.rs"]
mod openapi;
#[path = "api/patch.rs"]
mod patch;
#[path = "api/policy.rs"]
mod policy;
#[path = "api/policy_change.rs"]
mod policy_change;
#[path = "api/quota.rs"]
mod quota;
#[path = "api/recover.rs"]
mod recover;
#[path = "api/replicas.rs"]
mod replicas;
#[path = "api/restore.rs"]
mod restore;
#[path = "api/route.rs"]
mod route;
#[path = "api/scale.rs"]
mod scale;
#[path = "api/stale.rs"]
mod stale;
#[path = "api/update.rs"]
mod update;
#[path = "api/version.rs"]
mod version;
#[path = "api/watch.rs"]
mod watch;
