//! Compaction: somebody must tell etcd to forget, and only one of many processes should.
//!
//! As in Kubernetes there is no lease and no leader. A key counts the intervals: its version is the time, its value the
//! revision compacted. Each process raises it once per interval, on condition that nobody else has since it last looked;
//! who succeeds compacts what was current an interval ago, the others learn the new version. A kube-apiserver on the same
//! etcd uses the same key, so it and we take turns.

use std::time::Duration;

use bytes::Bytes;

use super::message::{
    CompactionRequest, CompactionResponse, Operation, Property, RangeRequest, Relation, TxnRequest, TxnResponse,
};
use super::request::{condition, put};
use super::wire::{COMPACT, Effect, Failure, SMALL, TXN, WRITE, Wire};
use crate::failpoint::{Point, reach};

/// The key that counts. It lies outside every prefix.
pub(super) const KEY: &[u8] = b"compact_rev_key";

/// What a process knows of the count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    /// The key's version.
    version: i64,
    /// etcd's revision then; 0 = never looked.
    revision: i64,
}

/// Compacts once per interval, for ever. A failure is tried again an interval later.
pub(super) async fn run(wire: Wire, every: Duration) {
    let mut seen = Seen::default();
    loop {
        tokio::time::sleep(every).await;
        match turn(&wire, seen).await {
            Ok(now) => seen = now,
            Err(failure) => tracing::warn!(reason = failure.message, "compacting etcd failed"),
        }
    }
}

/// One interval.
async fn turn(wire: &Wire, seen: Seen) -> Result<Seen, Failure> {
    let answer: TxnResponse = wire.call(TXN, claim(seen), Effect::Write, WRITE).await?;
    let (now, compact) = decide(seen, &answer);
    if let Some(revision) = compact {
        reach(Point::InCompaction);
        // Compacting what is compacted already is refused and harmless: somebody did it by hand.
        let asked = wire.call::<_, CompactionResponse>(COMPACT, CompactionRequest { revision }, Effect::Read, SMALL);
        match asked.await {
            Ok(CompactionResponse {}) => tracing::debug!(revision, "etcd was compacted"),
            Err(failure) => tracing::warn!(revision, reason = failure.message, "compacting etcd failed"),
        }
    }
    Ok(now)
}

/// Claims the interval after `seen`, or reads who has it.
fn claim(seen: Seen) -> TxnRequest {
    let key = Bytes::from_static(KEY);
    let operation = put(&key, &Bytes::from(seen.revision.to_string()));
    let compare = vec![condition(&key, Relation::Equal, Property::Version, seen.version)];
    let read = Operation::Range(RangeRequest { key, ..RangeRequest::default() });
    TxnRequest { compare, success: vec![operation.into()], failure: vec![read.into()] }
}

/// What is known after a claim, and what is to be compacted.
fn decide(seen: Seen, answer: &TxnResponse) -> (Seen, Option<i64>) {
    let revision = answer.header.as_ref().map_or(seen.revision, |header| header.revision);
    if answer.succeeded {
        let compact = Some(seen.revision).filter(|revision| *revision > 0);
        return (Seen { version: seen.version + 1, revision }, compact);
    }
    let found = answer.responses.iter().filter_map(|response| response.range.as_ref()).flat_map(|range| &range.kvs);
    // Deleted by hand, it begins again.
    let version = found.map(|kv| kv.version).next().unwrap_or(0);
    (Seen { version, revision }, None)
}

#[cfg(test)]
mod tests {
    use super::super::message::{KeyValue, RangeResponse, ResponseHeader, ResponseOp};
    use super::*;

    fn answer(revision: i64, other: Option<i64>) -> TxnResponse {
        let kvs = other.map(|version| KeyValue { version, ..KeyValue::default() }).into_iter().collect();
        let range = Some(RangeResponse { kvs, ..RangeResponse::default() });
        let header = Some(ResponseHeader { revision });
        TxnResponse { header, succeeded: other.is_none(), responses: vec![ResponseOp { range }] }
    }

    #[test]
    fn who_looks_for_the_first_time_compacts_nothing() {
        let first = decide(Seen::default(), &answer(50, None));
        assert_eq!(first, (Seen { version: 1, revision: 50 }, None));
        let behind = decide(Seen::default(), &answer(50, Some(7)));
        assert_eq!(behind, (Seen { version: 7, revision: 50 }, None));
    }

    #[test]
    fn who_wins_compacts_what_was_current_an_interval_ago() {
        let seen = Seen { version: 7, revision: 50 };
        assert_eq!(decide(seen, &answer(90, None)), (Seen { version: 8, revision: 90 }, Some(50)));
    }

    #[test]
    fn who_loses_only_learns() {
        let seen = Seen { version: 7, revision: 50 };
        assert_eq!(decide(seen, &answer(90, Some(8))), (Seen { version: 8, revision: 90 }, None));
    }
}
