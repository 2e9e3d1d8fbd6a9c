//! Whether what exists in Kubernetes belongs to the RedisCluster that the API server shows, or whether our store was lost, or
//! put back from an older copy, and shows another one or none. Pure.
//!
//! A store that forgot something must never cost anybody data: only where this says [`Standing::Ours`] may anything be
//! applied, executed or deleted. `kun ctl recover` brings back what is missing.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use types::record::Record;
use types::{RedisCluster, names};

use crate::apply::owner_uid;
use crate::build::stateful_set::RECORD_SHARD;
use crate::queue::Key;

/// How the RedisCluster of a name stands to the StatefulSets that carry it. What is not ours comes with the StatefulSet that
/// says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing speaks against acting: what is there was made for this object, or nothing is there.
    Ours,
    /// There are StatefulSets, and no object.
    Absent {
        /// The StatefulSet.
        set: String,
        /// For whom it was made.
        uid: String,
    },
    /// The StatefulSets were made for another object of the same name.
    Another {
        /// The StatefulSet.
        set: String,
        /// For whom it was made.
        uid: String,
    },
    /// The object is the right one as it was before: more has been applied for it than it knows of.
    Behind {
        /// The StatefulSet.
        set: String,
        /// Its own generation.
        generation: i64,
        /// The generation that was applied last.
        recorded: i64,
    },
}

/// StatefulSets by name.
pub type Sets = BTreeMap<String, Arc<StatefulSet>>;

/// Judges. `sets` are those that carry the cluster's name; such as were made for nobody are nobody's children.
#[must_use]
pub fn standing(owner: Option<&RedisCluster>, sets: &Sets) -> Standing {
    let mut children = sets.iter().filter_map(|(name, set)| Some((name, owner_uid(&**set)?)));
    let Some(owner) = owner else {
        return children
            .next()
            .map_or(Standing::Ours, |(set, uid)| Standing::Absent { set: set.clone(), uid: uid.to_owned() });
    };
    let own = owner.metadata.uid.as_deref();
    if let Some((set, uid)) = children.find(|(_, uid)| Some(*uid) != own) {
        return Standing::Another { set: set.clone(), uid: uid.to_owned() };
    }
    let name = owner.metadata.name.as_deref().unwrap_or_default();
    let generation = owner.metadata.generation.unwrap_or(0);
    match recorded(name, sets).map(|record| record.metadata.generation) {
        Some(recorded) if recorded > generation => {
            Standing::Behind { set: names::shard(name, RECORD_SHARD), generation, recorded }
        }
        // Without a record nothing is known to be newer.
        Some(_) | None => Standing::Ours,
    }
}

/// What the StatefulSets of a cluster say about their owner, if this version can read it, and it is theirs.
#[must_use]
pub fn recorded(cluster: &str, sets: &Sets) -> Option<Record> {
    let set = sets.get(&names::shard(cluster, RECORD_SHARD))?;
    let text = set.metadata.annotations.as_ref()?.get(names::ANNOTATION_OWNER)?;
    Record::parse(text).ok().filter(|record| owner_uid(&**set) == Some(record.metadata.uid.as_str()))
}

impl Standing {
    /// The StatefulSet that says so; none where nothing does.
    #[must_use]
    pub fn witness(&self) -> Option<&str> {
        match self {
            Self::Ours => None,
            Self::Absent { set, .. } | Self::Another { set, .. } | Self::Behind { set, .. } => Some(set),
        }
    }

    /// A word for programs: the reason in events and conditions, the label in metrics.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Ours => "Ours",
            Self::Absent { .. } => "OwnerAbsent",
            Self::Another { .. } => "OwnedByAnother",
            Self::Behind { .. } => "OwnerBehind",
        }
    }

    /// A sentence for people, with what to do.
    #[must_use]
    pub fn sentence(&self, key: &Key) -> String {
        let Key { namespace, name } = key;
        let recover = format!("kun ctl recover --namespace {namespace} {name}");
        match self {
            Self::Ours => format!("what exists of {key} belongs to it"),
            Self::Absent { set, uid } => format!(
                "StatefulSet {set} belongs to the RedisCluster {name} with the uid {uid}, which does not exist: nothing of it is \
                 touched. If our store was lost or restored, bring the RedisCluster back: {recover}"
            ),
            Self::Another { set, uid } => format!(
                "StatefulSet {set} belongs to another RedisCluster of this name, with the uid {uid}: nothing of it is touched. To \
                 have that one back, delete this one and run: {recover}. To begin anew instead, delete its StatefulSets"
            ),
            Self::Behind { set, generation, recorded } => format!(
                "StatefulSet {set} was made from generation {recorded} of this RedisCluster, which is at generation {generation}, as \
                 if our store had been restored from an older copy: nothing is touched. Bring the newer specification back: {recover}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn owner(uid: &str, generation: i64) -> RedisCluster {
        let metadata = json!({"name": "orders", "namespace": "shop", "uid": uid, "generation": generation});
        serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap()
    }

    /// A StatefulSet with the annotations given.
    fn set(uid: Option<&str>, record: Option<String>) -> Arc<StatefulSet> {
        let mut annotations = BTreeMap::new();
        annotations.extend(uid.map(|uid| (names::ANNOTATION_OWNER_UID.to_owned(), uid.to_owned())));
        annotations.extend(record.map(|record| (names::ANNOTATION_OWNER.to_owned(), record)));
        let mut set = StatefulSet::default();
        set.metadata.annotations = Some(annotations);
        Arc::new(set)
    }

    fn record(uid: &str, generation: i64) -> String {
        serde_json::to_string(&Record::of(&owner(uid, generation)).unwrap()).unwrap()
    }

    /// Two shards made for u1 at generation 5.
    fn sets() -> Sets {
        let first = set(Some("u1"), Some(record("u1", 5)));
        [("orders-0".to_owned(), first), ("orders-1".to_owned(), set(Some("u1"), None))].into()
    }

    #[test]
    fn what_was_made_for_this_object_at_this_generation_or_before_is_ours() {
        for generation in [5, 6, 100] {
            assert_eq!(standing(Some(&owner("u1", generation)), &sets()), Standing::Ours);
        }
    }

    #[test]
    fn where_there_is_nothing_there_is_nothing_to_be_mistaken_about() {
        assert_eq!(standing(None, &Sets::new()), Standing::Ours);
        assert_eq!(standing(Some(&owner("u1", 1)), &Sets::new()), Standing::Ours);
    }

    #[test]
    fn children_without_an_object_are_an_absent_owners_not_free_for_anybody() {
        let absent = Standing::Absent { set: "orders-0".to_owned(), uid: "u1".to_owned() };
        assert_eq!(standing(None, &sets()), absent);
        let mut only_second = sets();
        only_second.remove("orders-0");
        assert_eq!(standing(None, &only_second), Standing::Absent { set: "orders-1".to_owned(), uid: "u1".to_owned() });
    }

    #[test]
    fn an_object_of_the_same_name_takes_over_no_child_of_another_uid_not_even_one_beside_its_own() {
        let another = |set: &str| Standing::Another { set: set.to_owned(), uid: "u1".to_owned() };
        assert_eq!(standing(Some(&owner("u2", 9)), &sets()), another("orders-0"));
        let mut mixed = sets();
        mixed.insert("orders-0".to_owned(), set(Some("u2"), Some(record("u2", 1))));
        assert_eq!(standing(Some(&owner("u2", 9)), &mixed), another("orders-1"));
        let nameless = RedisCluster::default();
        assert_eq!(standing(Some(&nameless), &sets()), another("orders-0"), "no uid is no proof");
    }

    #[test]
    fn an_object_that_is_older_than_what_was_applied_for_it_is_behind() {
        let behind = |generation| Standing::Behind { set: "orders-0".to_owned(), generation, recorded: 5 };
        assert_eq!(standing(Some(&owner("u1", 4)), &sets()), behind(4));
        assert_eq!(standing(Some(&owner("u1", 0)), &sets()), behind(0));
    }

    #[test]
    fn a_record_that_is_missing_or_illegible_or_of_somebody_else_says_nothing() {
        let other_shard = [("orders-1".to_owned(), set(Some("u1"), Some(record("u1", 9))))];
        for record in [None, Some("{}".to_owned()), Some(record("u2", 9))] {
            let sets = [("orders-0".to_owned(), set(Some("u1"), record))].into();
            assert_eq!(standing(Some(&owner("u1", 1)), &sets), Standing::Ours);
            assert_eq!(recorded("orders", &sets), None);
        }
        assert_eq!(standing(Some(&owner("u1", 1)), &other_shard.into()), Standing::Ours);
    }

    #[test]
    fn a_set_that_was_made_for_nobody_is_nobodys_child() {
        let sets = [("orders-0".to_owned(), set(None, None))].into();
        assert_eq!(standing(None, &sets), Standing::Ours);
        assert_eq!(standing(Some(&owner("u2", 1)), &sets), Standing::Ours);
    }

    #[test]
    fn what_is_not_ours_says_what_to_do() {
        let key = Key { namespace: "shop".to_owned(), name: "orders".to_owned() };
        for (owner, reason) in
            [(None, "OwnerAbsent"), (Some(owner("u2", 9)), "OwnedByAnother"), (Some(owner("u1", 4)), "OwnerBehind")]
        {
            let standing = standing(owner.as_ref(), &sets());
            assert_eq!((standing.reason(), standing.witness()), (reason, Some("orders-0")));
            let sentence = standing.sentence(&key);
            assert!(sentence.contains("kun ctl recover --namespace shop orders"), "{sentence}");
            assert!(sentence.contains("touched"), "{sentence}");
        }
    }
}
