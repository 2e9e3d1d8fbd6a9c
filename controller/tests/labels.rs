//! Objects of ours that lost the labels by which the caches find them.

use std::time::Instant;

use controller::apply::{Applied, PAUSE, Repairs};
use serde_json::{Value, json};

use crate::kubernetes::{Scene, cluster};

fn no_labels() -> Value {
    json!({"metadata": {"labels": null}})
}

/// What is left of an object when who wrote it, and how often, does not count.
fn content(scene: &Scene, plural: &str, name: &str) -> Value {
    let mut object = scene.memory.get(plural, name).unwrap();
    for field in ["managedFields", "resourceVersion"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    object
}

/// Before, it stood in the way of its own creation, and everything was stopped for ever without a word.
#[tokio::test]
async fn an_object_that_lost_its_labels_gets_them_back_and_stops_nothing() {
    for (plural, name, label) in [
        ("services", "orders", "Service orders"),
        ("configmaps", "orders-config", "ConfigMap orders-config"),
        ("networkpolicies", "orders-members", "NetworkPolicy orders-members"),
        ("poddisruptionbudgets", "orders-0", "PodDisruptionBudget orders-0"),
    ] {
        let scene = Scene::new(&json!({}));
        scene.apply().await.unwrap();
        let before = content(&scene, plural, name);
        scene.memory.patch("helm", plural, name, &no_labels());
        scene.memory.put("redisclusters", cluster(&json!({"replicasPerShard": 2})));
        let applied = scene.apply().await.unwrap();
        assert!(applied.changed.contains(&label.to_owned()), "{applied:?}");
        assert_eq!((content(&scene, plural, name), applied.refused), (before, vec![]));
        // Of a ConfigMap more may be wrong than that, and no template is written before it.
        let size = if plural == "configmaps" { 2 } else { 3 };
        assert_eq!(scene.memory.get("statefulsets", "orders-2").unwrap()["spec"]["replicas"], size, "{name}");
        scene.apply().await.unwrap();
        assert_eq!(scene.apply().await.unwrap(), Applied::default(), "{name}");
    }
}

/// New passwords would be written over those in use, and members that are there would be taken for strangers.
#[tokio::test]
async fn a_secret_or_a_set_without_labels_gets_no_more_than_these_back() {
    for (plural, name, label) in [
        ("secrets", "orders-internal", "Secret orders-internal"),
        ("secrets", "orders-auth", "Secret orders-auth"),
        ("statefulsets", "orders-1", "StatefulSet orders-1"),
    ] {
        let scene = Scene::new(&json!({}));
        scene.apply().await.unwrap();
        let before = content(&scene, plural, name);
        scene.memory.patch("helm", plural, name, &no_labels());
        let told = format!("{label} lacks labels of ours, without which it is not seen; they are put back");
        assert_eq!(scene.apply().await.unwrap_err().to_string(), told);
        assert_eq!(content(&scene, plural, name), before);
        assert_eq!(scene.apply().await.unwrap(), Applied::default(), "{name}");
    }
}

#[tokio::test]
async fn who_takes_labels_away_again_is_answered_once_in_a_while() {
    let scene = Scene::new(&json!({}));
    scene.apply().await.unwrap();
    let (mut repairs, start) = (Repairs::default(), Instant::now());
    for (at, is_answered) in [(start, true), (start, false), (start + PAUSE, true)] {
        scene.memory.patch(
            "rival",
            "services",
            "orders",
            &json!({"metadata": {"labels": {"redis.kun.io/cluster": "x"}}}),
        );
        let applied = scene.apply_at(&mut repairs, at).await.unwrap();
        let service = vec!["Service orders".to_owned()];
        let repaired = vec!["labels of Service orders, which had been changed by rival".to_owned()];
        let expected = if is_answered {
            Applied { changed: service.clone(), repaired, put_off: service, ..Applied::default() }
        } else {
            Applied { put_off: service, ..Applied::default() }
        };
        assert_eq!(applied, expected);
    }
}

/// A webhook of others that lets no label of ours through.
#[tokio::test]
async fn an_object_that_cannot_be_labelled_is_told() {
    let scene = Scene::new(&json!({}));
    scene.apply().await.unwrap();
    scene.memory.rewrite(Some(("services/orders", no_labels())));
    scene.memory.patch("rival", "services", "orders", &no_labels());
    let why = "lacks labels of ours, without which it is not seen; they are put back";
    let told = format!("Service orders cannot be written: Service orders {why}");
    assert_eq!(scene.apply().await.unwrap().refused, [told]);
}
