//! At rest nothing is worked out twice. A look that found everything as it should be is remembered by what it was based on; as
//! long as Kubernetes holds the same and the members say the same, the next looks only ask the members.
//!
//! What depends on time or on figures alone is found by the next whole look: a record that outlives its time by then ends the rest;
//! a certificate that is due, or a replica that is near enough by now to take a role that stands on a crowded node, waits for it.
//! Losing what is remembered costs one whole look.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use plan::{Pod, Role, Seen};
use types::RedisBackup;
use types::backup::BackupPhase;
use types::cluster::Mode;
use types::names;

use super::{Context, Round};
use crate::apply::Applied;
use crate::gather::Gathered;
use crate::operate;
use crate::probe::{Memory, Place, Probed, Question, probe};
use crate::queue::Key;
use crate::redis::Access;
use crate::report::is_much;
use crate::resolve::Resolved;

/// Longest time from one whole look to the next.
const WHOLE_EVERY: Duration = Duration::from_secs(60);

/// What a whole look works with, as one number: what Kubernetes holds of the cluster, and whom its agents are to believe. 64 bits
/// tell one state from the next; nobody chooses them against us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Basis(u64);

impl Basis {
    pub(super) fn of(context: &Context, key: &Key) -> Self {
        let mut hasher = DefaultHasher::new();
        context.kubernetes.caches.versions(key, &mut hasher);
        context.issuer.authorities().hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// A look that found nothing to do.
#[derive(Debug)]
pub(super) struct Rest {
    basis: Basis,
    mode: Mode,
    logs: bool,
    parameters: BTreeMap<String, String>,
    whose: String,
    places: BTreeMap<Pod, Place>,
    access: Access,
    said: Said,
    until: Instant,
}

impl Rest {
    /// What a round leaves behind if it did nothing and nothing is under way.
    pub(super) fn after(round: &Round, gathered: &Gathered, access: Access, now: Timestamp) -> Option<Self> {
        let Round {
            basis,
            cluster: _,
            resolved,
            applied,
            unwritten,
            places,
            probed,
            planned: _,
            plan,
            executed,
            temporary,
            secret_lack: _,
            troubles,
            // Said of the same Kubernetes objects as the basis.
            left_behind: _,
            rest: _,
        } = round;
        let did_nothing = *applied == Applied::default()
            && unwritten.is_empty()
            && executed.done.is_empty()
            && executed.failed.is_empty();
        let is_well = plan.is_satisfied() && temporary.is_empty() && troubles.is_empty();
        let is_idle = gathered.current_operation().is_none()
            && gathered.workers.is_empty()
            && gathered.backups.iter().all(|backup| has_ended(backup));
        let Resolved { key, mode, agent, .. } = &**resolved.as_ref()?;
        (did_nothing && is_well && is_idle).then(|| Self {
            basis: *basis,
            mode: *mode,
            logs: agent.append_only.keeps_every_write(),
            parameters: agent.parameters.clone(),
            whose: names::agent_user(&key.namespace, &key.name),
            places: places.clone(),
            access,
            said: Said::of(probed.clone()),
            until: Instant::now() + until_expiry(gathered, now).min(WHOLE_EVERY),
        })
    }

    /// Whether it was based on this.
    pub(super) fn is_of(&self, basis: Basis) -> bool {
        self.basis == basis
    }

    /// Whether nothing has changed since: asks the members if Kubernetes has no news.
    pub(super) async fn lasts(&self, context: &Context, basis: Basis, memory: &mut Memory) -> bool {
        if !self.is_of(basis) || Instant::now() >= self.until {
            return false;
        }
        let Self { mode, logs, parameters, whose, places, access, .. } = self;
        let question =
            Question { mode: *mode, logs: *logs, parameters, places, access, agents: &context.agents, whose };
        self.said.is_still(&Said::of(probe(question, memory).await))
    }
}

fn has_ended(backup: &RedisBackup) -> bool {
    let phase = backup.status.as_ref().map(|status| status.phase).unwrap_or_default();
    let is_over = match phase {
        BackupPhase::Completed | BackupPhase::Failed => true,
        BackupPhase::Pending | BackupPhase::Running => false,
    };
    is_over && backup.metadata.deletion_timestamp.is_none()
}

/// How long until the first of the ended records has outlived its time.
fn until_expiry(gathered: &Gathered, now: Timestamp) -> Duration {
    let operations = gathered.operations.iter().map(|operation| {
        let completion = operation.status.as_ref().and_then(|status| status.completion_time);
        operate::expiry(completion, operation.spec.ttl_after_finished.as_deref(), true)
    });
    let backups = gathered.backups.iter().map(|backup| {
        let completion = backup.status.as_ref().and_then(|status| status.completion_time);
        operate::expiry(completion, backup.spec.ttl_after_finished.as_deref(), false)
    });
    let first = operations.chain(backups).flatten().min();
    first.map_or(Duration::MAX, |at| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO))
}

/// What the members said: everything but the figures that change while clients work as one number, and of these the ones that the
/// status shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    gist: u64,
    keys: u64,
    bytes: u64,
}

impl Said {
    fn of(probed: Probed) -> Self {
        let members = probed.observed.members.iter();
        let primaries =
            members.filter_map(|(pod, member)| Some((pod, member.node().filter(|node| node.is_primary())?)));
        let (mut keys, mut bytes) = (0_u64, 0_u64);
        for (pod, node) in primaries {
            keys = keys.saturating_add(node.keys);
            bytes = bytes.saturating_add(probed.facts.get(pod).map_or(0, |facts| facts.used_memory));
        }
        let mut hasher = DefaultHasher::new();
        without_figures(probed).hash(&mut hasher);
        Self { gist: hasher.finish(), keys, bytes }
    }

    fn is_still(self, now: &Self) -> bool {
        self.gist == now.gist && !is_much(self.keys, now.keys, 0) && !is_much(self.bytes, now.bytes, 1 << 20)
    }
}

/// Whatever is not taken out here counts, also what is seen one day and not known of here.
fn without_figures(mut probed: Probed) -> Probed {
    probed.begun = None;
    probed.facts.values_mut().for_each(|facts| (facts.offset, facts.used_memory) = (0, 0));
    probed.observed.elections.values_mut().for_each(|since| *since = 0);
    probed.observed.failovers_asked.values_mut().for_each(|since| *since = 0);
    probed.observed.failovers_refused.clear();
    probed.observed.first_slot_held.clear();
    // Everybody knows everybody at rest.
    probed.observed.introduced.clear();
    for member in probed.observed.members.values_mut() {
        match &mut member.seen {
            Seen::Unknown { since_millis } => *since_millis = 0,
            Seen::Node(node) => {
                (node.keys, node.bytes) = (0, 0);
                node.room = node.room.map(|_| 0);
                match &mut node.role {
                    Role::Replica { offset, lag_bytes, .. } => (*offset, *lag_bytes) = (0, 0),
                    Role::Primary { .. } => {}
                }
            }
            Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Held { .. } => {}
        }
    }
    probed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::testing::{cluster, gathered, healthy, resolved};

    fn node(probed: &mut Probed, pod: Pod) -> &mut plan::Node {
        match &mut probed.observed.members.get_mut(&pod).unwrap().seen {
            Seen::Node(node) => node,
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn what_clients_do_ends_no_rest_until_it_is_much() {
        let (primary, replica) = (Pod::new(0, 0), Pod::new(0, 1));
        let mut now = healthy(3, 2);
        now.observed.elections.insert(0, 1);
        let before = Said::of(now.clone());
        now.facts.get_mut(&primary).unwrap().offset += 1000;
        if let Role::Replica { offset, lag_bytes, .. } = &mut node(&mut now, replica).role {
            (*offset, *lag_bytes) = (*offset + 900, 100);
        }
        node(&mut now, primary).keys += 1;
        now.facts.get_mut(&primary).unwrap().used_memory += 1 << 20;
        now.observed.elections.insert(0, 5001);
        assert!(before.is_still(&Said::of(now.clone())));
        node(&mut now, primary).keys += 10;
        assert!(!before.is_still(&Said::of(now.clone())), "30 keys have become 41");
    }

    #[test]
    fn whatever_else_a_member_says_ends_the_rest() {
        let before = Said::of(healthy(3, 2));
        let (primary, replica) = (Pod::new(0, 0), Pod::new(0, 1));
        let changes: [fn(&mut Probed, Pod, Pod); 7] = [
            |now, primary, _| node(now, primary).current_epoch += 1,
            |now, primary, _| node(now, primary).peers.values_mut().for_each(|peer| peer.connected = false),
            |now, primary, _| node(now, primary).state_ok = false,
            |now, _, replica| {
                if let Role::Replica { link_up, .. } = &mut node(now, replica).role {
                    *link_up = false;
                }
            },
            |now, _, replica| now.observed.members.get_mut(&replica).unwrap().seen = Seen::Unknown { since_millis: 0 },
            |now, primary, _| now.facts.get_mut(&primary).unwrap().max_memory += 1,
            |now, _, _| now.observed.elections.extend([(1, 0)]),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut now = healthy(3, 2);
            change(&mut now, primary, replica);
            assert!(!before.is_still(&Said::of(now.clone())), "change {number}");
        }
    }

    fn round() -> Round {
        let resolved = Some(Arc::new(resolved(&json!({}))));
        Round { basis: Basis(7), resolved, probed: healthy(3, 2), ..Round::default() }
    }

    fn backup(spec: &serde_json::Value, status: &serde_json::Value) -> RedisBackup {
        let metadata = json!({"name": "b", "namespace": "shop"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn only_a_round_that_did_nothing_while_nothing_runs_leaves_a_rest() {
        let access = || Access::new("secret");
        let alone = gathered(cluster(&json!({})));
        let rest = Rest::after(&round(), &alone, access(), Timestamp::UNIX_EPOCH).unwrap();
        assert!(rest.is_of(Basis(7)) && !rest.is_of(Basis(8)));
        assert!(!format!("{rest:?}").contains("secret"));

        let busy: [fn(&mut Round); 5] = [
            |round| round.applied.put_off.push("Service orders".to_owned()),
            |round| round.applied.changed.push("Service orders".to_owned()),
            |round| drop(round.temporary.insert("a".to_owned(), "b".to_owned())),
            |round| round.troubles.push("the disk is full".to_owned()),
            |round| round.resolved = None,
        ];
        for (number, change) in busy.into_iter().enumerate() {
            let mut round = round();
            change(&mut round);
            assert!(Rest::after(&round, &alone, access(), Timestamp::UNIX_EPOCH).is_none(), "change {number}");
        }

        let mut backed_up = alone;
        let spec = json!({"clusterName": "orders"});
        backed_up.backups = vec![Arc::new(backup(&spec, &json!({"phase": "Running"})))];
        assert!(Rest::after(&round(), &backed_up, access(), Timestamp::UNIX_EPOCH).is_none());
        backed_up.backups = vec![Arc::new(backup(&spec, &json!({"phase": "Completed"})))];
        assert!(Rest::after(&round(), &backed_up, access(), Timestamp::UNIX_EPOCH).is_some());
    }

    #[test]
    fn a_rest_ends_when_the_first_record_has_outlived_its_time() {
        let mut all = gathered(cluster(&json!({})));
        assert_eq!(until_expiry(&all, Timestamp::UNIX_EPOCH), Duration::MAX);
        let status = json!({"phase": "Completed", "completionTime": "1970-01-01T00:01:00Z"});
        let of = |ttl: &str| Arc::new(backup(&json!({"clusterName": "orders", "ttlAfterFinished": ttl}), &status));
        all.backups = vec![of("1h"), of("30s")];
        assert_eq!(until_expiry(&all, Timestamp::UNIX_EPOCH), Duration::from_secs(90));
        assert_eq!(until_expiry(&all, Timestamp::from_second(100).unwrap()), Duration::ZERO);
    }
}
