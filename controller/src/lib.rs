//! The controller: makes every RedisCluster what its specification says, and tells the truth about it.
//!
//! One reconcile is a pipeline, and each step is a module with one public function of that name:
//! gather ▸ resolve ▸ build ▸ apply ▸ probe ▸ plan ▸ execute ▸ report. It sees the API only as a client, and is,
//! besides the agents, the only part of KUN that talks to Redis.

pub mod api;
pub mod apply;
pub mod backup;
pub mod build;
pub mod cache;
pub mod credentials;
pub mod delete;
pub mod events;
pub mod execute;
pub mod follow;
pub mod gather;
pub mod lease;
pub mod metrics;
pub mod operate;
pub mod probe;
pub mod queue;
pub mod reconcile;
pub mod redis;
pub mod report;
pub mod resolve;
pub mod roles;
pub mod run;
pub mod standing;
#[cfg(test)]
mod testing;

pub use metrics::Metrics;
pub use run::{Options, run};

/// An error with its causes, in one line. Each error says only its own part; this is the one place that joins them.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        // Some libraries repeat their cause in their own text.
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = cause.source();
    }
    text
}
