//! The agent as a process, with real redis-server and real TLS, on addresses of 127.84.2.0/24 and up.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "pods/backup.rs"]
mod backup;
#[path = "pods/crash.rs"]
mod crash;
#[path = "pods/double.rs"]
mod double;
#[path = "pods/full.rs"]
mod full;
#[path = "pods/handover.rs"]
mod handover;
#[path = "pods/harness.rs"]
mod harness;
#[path = "pods/hold.rs"]
mod hold;
#[path = "pods/led.rs"]
mod led;
#[path = "pods/link.rs"]
mod link;
#[path = "pods/orphaned.rs"]
mod orphaned;
#[path = "pods/parameters.rs"]
mod parameters;
#[path = "pods/persistence.rs"]
mod persistence;
#[path = "pods/receiver.rs"]
mod receiver;
#[path = "pods/serve.rs"]
mod serve;
#[path = "pods/snapshots.rs"]
mod snapshots;
#[path = "pods/stand.rs"]
mod stand;
#[path = "pods/stop.rs"]
mod stop;
