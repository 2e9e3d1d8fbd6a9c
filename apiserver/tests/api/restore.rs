//! A store restored from a backup, under clients that have seen what was written after it.

use std::sync::Arc;

use serde_json::{Value, json};
use store::{Embedded, EmbeddedOptions, Revision, backup};

use crate::support::{Api, CLUSTERS};

async fn serve(path: &std::path::Path) -> (Arc<Embedded>, Api) {
    let store = Arc::new(Embedded::open(path, EmbeddedOptions::default()).unwrap());
    (Arc::clone(&store), Api::replica(store).await)
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn names(list: &Value) -> Vec<String> {
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    list["items"].as_array().unwrap().iter().map(name).collect()
}

/// What a watch from `version` is told first.
async fn first_event(api: &Api, version: u64) -> Value {
    api.watch(&format!("{CLUSTERS}?watch=1&resourceVersion={version}")).await.next().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_informer_that_resumes_over_a_restore_is_told_to_list_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (store, before) = serve(&path("old")).await;
    let a = before.cluster("a").await;
    before.cluster("b").await;
    let summary = store.backup(std::fs::File::create(path("backup")).unwrap()).unwrap();
    // What the backup does not know: a changed, b gone, c new. The informer has seen all of it.
    let labels = json!({"metadata": {"labels": {"after": "the-backup"}}});
    let changed = before.merge(&format!("{CLUSTERS}/a"), &labels).await.ok();
    before.delete(&format!("{CLUSTERS}/b")).await.ok();
    before.cluster("c").await;
    let seen = before.get(&format!("{CLUSTERS}?limit=1")).await.ok();
    let token = seen["metadata"]["continue"].as_str().unwrap().to_owned();
    let last = version(&seen);
    before.storage.close().await;

    // The old file is lost: nothing but the backup is known.
    let revision = backup::resume_at(summary.revision, None, Revision::FIRST);
    Embedded::restore(&path("new"), &path("backup"), revision).unwrap();
    let (_store, after) = serve(&path("new")).await;

    for resumed in [summary.revision.0, version(&changed), last, last + 1000] {
        let told = first_event(&after, resumed).await;
        assert_eq!((told["type"].as_str(), &told["object"]["code"]), (Some("ERROR"), &json!(410)), "{told}");
        assert_eq!(told["object"]["reason"], "Expired");
    }
    let exact = format!("{CLUSTERS}?resourceVersion={last}&resourceVersionMatch=Exact");
    assert_eq!(after.get(&exact).await.fault().0, 410);
    assert_eq!(after.get(&format!("{CLUSTERS}?limit=1&continue={token}")).await.fault().0, 410);

    let listed = after.get(CLUSTERS).await.ok();
    assert_eq!(names(&listed), ["a", "b"], "as it was at the backup");
    assert_eq!((Revision(version(&listed)), version(&listed) > last), (revision, true));
    // A write on the strength of what was lost is a conflict; on the strength of what was kept it goes through.
    let stale = after.put(&format!("{CLUSTERS}/a"), &changed).await.fault();
    assert_eq!((stale.0, stale.1.as_str()), (409, "Conflict"));
    let mut again = a.clone();
    again["metadata"]["labels"] = json!({"after": "the-restore"});
    let written = after.put(&format!("{CLUSTERS}/a"), &again).await.ok();
    assert_eq!(version(&written), revision.next().0);
    let told = first_event(&after, version(&listed)).await;
    assert_eq!((told["type"].as_str(), &told["object"]), (Some("MODIFIED"), &written));
}
