//! Any history of writes, compared step by step with a model that is a map.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::{Subject, pod};
use crate::{Error, Event, Key, ListOptions, Range, Refusal, Revision, Stored, Write};

/// How many histories are tried. Each costs a fresh file and some dozens of fsyncs.
const HISTORIES: usize = 24;

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Create { key: u8, value: u8 },
    Update { key: u8, value: u8, stale: bool },
    Delete { key: u8, stale: bool },
    List { namespace: Option<u8>, limit: usize },
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..8_u8;
    let step = prop_oneof![
        3 => (key.clone(), any::<u8>()).prop_map(|(key, value)| Step::Create { key, value }),
        4 => (key.clone(), any::<u8>(), prop::bool::weighted(0.2))
            .prop_map(|(key, value, stale)| Step::Update { key, value, stale }),
        2 => (key, prop::bool::weighted(0.2)).prop_map(|(key, stale)| Step::Delete { key, stale }),
        1 => (prop::option::of(0..3_u8), 1..4_usize).prop_map(|(namespace, limit)| Step::List { namespace, limit }),
    ];
    prop::collection::vec(step, 1..40)
}

/// What the store should hold.
#[derive(Debug, Default, Clone)]
pub(crate) struct Model {
    pub(crate) objects: BTreeMap<Key, Stored>,
    pub(crate) revision: Revision,
}

impl Model {
    pub(crate) fn new() -> Model {
        Model { revision: Revision::FIRST, ..Model::default() }
    }

    fn key(n: u8) -> Key {
        pod(["a", "a-b", "b"][usize::from(n % 3)], &format!("p{n}"))
    }

    /// The write a step makes; none when it is not a write.
    pub(crate) fn write(&self, step: &Step) -> Option<Write> {
        let seen = |key: &Key, stale: bool| {
            let revision = self.objects.get(key).map_or(Revision(1), |stored| stored.revision);
            if stale { Revision(revision.0 - 1) } else { revision }
        };
        match step {
            Step::Create { key, value } => Some(Write::create(Model::key(*key), Bytes::from(vec![*value; 40]))),
            Step::Update { key, value, stale } => {
                let key = Model::key(*key);
                let expected = seen(&key, *stale);
                Some(Write::update(key, expected, Bytes::from(vec![*value; 50])))
            }
            Step::Delete { key, stale } => {
                let key = Model::key(*key);
                let expected = seen(&key, *stale);
                Some(Write::delete(key, expected))
            }
            Step::List { .. } => None,
        }
    }

    /// What the write must answer. Written on purpose in another way than the code it checks.
    pub(crate) fn apply(&mut self, write: &Write) -> Result<Revision, Refusal> {
        let here = self.objects.get(&write.key).cloned();
        let creates = matches!(write.action, crate::Action::Create { .. });
        let expected = match &write.action {
            crate::Action::Create { .. } => None,
            crate::Action::Update { expected, .. } | crate::Action::Delete { expected } => Some(*expected),
        };
        if expected != here.as_ref().map(|stored| stored.revision) {
            return Err(match here {
                None => Refusal::Absent,
                Some(current) if creates => Refusal::Exists { current },
                Some(current) => Refusal::Conflict { current },
            });
        }
        self.revision = self.revision.next();
        self.objects.remove(&write.key);
        if let Some(value) = write.value() {
            let stored = Stored { revision: self.revision, value: value.clone() };
            self.objects.insert(write.key.clone(), stored);
        }
        Ok(self.revision)
    }

    pub(crate) fn in_range(&self, range: &Range) -> Vec<(Key, Stored)> {
        self.objects.iter().filter(|(key, _)| range.contains(key)).map(|(k, s)| (k.clone(), s.clone())).collect()
    }
}

pub(crate) async fn random_histories_match_a_model(subject: Subject) {
    let mut runner = TestRunner::deterministic();
    let mut model = Model::new();
    for _ in 0..HISTORIES {
        let history = steps().new_tree(&mut runner).unwrap().current();
        let mut feed = subject.store.watch(model.revision).await.unwrap();
        let before = model.clone();
        for step in &history {
            run(&subject, &mut model, step).await;
        }
        assert_eq!(subject.revision().await, model.revision);
        let mut everything = subject.store.list(ListOptions::all(Range::All)).await.unwrap();
        everything.items.sort_by(|(a, _), (b, _)| a.cmp(b));
        assert_eq!(everything.items, model.in_range(&Range::All), "{history:?}");
        let mut replayed = before;
        while replayed.revision < model.revision {
            for event in feed.next().await.unwrap().events {
                replay(&mut replayed, event);
            }
        }
        assert_eq!(replayed.objects, model.objects, "{history:?}");
    }
}

async fn run(subject: &Subject, model: &mut Model, step: &Step) {
    if let Some(write) = model.write(step) {
        let key = write.key.clone();
        let expected = model.apply(&write).map_err(Error::Refused);
        let answered = subject.store.write(write).await.map(|written| written.revision);
        assert_eq!(answered, expected, "{step:?}");
        assert_eq!(subject.store.get(&key).await.unwrap().as_ref(), model.objects.get(&key), "{step:?}");
    }
    if let Step::List { namespace, limit } = step {
        let namespace = namespace.map(|n| ["a", "a-b", "b"][usize::from(n)]);
        let range = Range::of("pods", namespace);
        let mut options = ListOptions { limit: Some(*limit), ..ListOptions::all(range.clone()) };
        let mut items = Vec::new();
        loop {
            let page = subject.store.list(options.clone()).await.unwrap();
            assert!(page.items.len() <= *limit && page.revision == model.revision);
            items.extend(page.items);
            let Some(next) = page.next else { break };
            options = ListOptions { at: Some(page.revision), after: Some(next), ..options };
        }
        items.sort_by(|(a, _), (b, _)| a.cmp(b));
        assert_eq!(items, model.in_range(&range), "{step:?}");
    }
}

fn replay(model: &mut Model, event: Event) {
    assert_eq!(event.revision, model.revision.next());
    model.revision = event.revision;
    let (value, previous) = match event.change {
        crate::Change::Put { value, previous } => (Some(value), previous),
        crate::Change::Delete { previous } => (None, Some(previous)),
    };
    assert_eq!(model.objects.remove(&event.key), previous);
    if let Some(value) = value {
        model.objects.insert(event.key, Stored { revision: event.revision, value });
    }
}
