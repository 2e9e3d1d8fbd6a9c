//! Frames of a watch: one event each, JSON in the negotiated view. Pure.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::cache;

use super::{
    negotiate::{MetaVersion, View},
    status,
    table::{self, Include},
};
use crate::{
    error::{Error, Result},
    registry::Kind,
    verb::get,
};

/// Marks the bookmark behind the initial events of a watch-list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// How the events of one watch look.
#[derive(Clone, Debug)]
pub struct Frames {
    kind: Arc<Kind>,
    view: View,
    include: Include,
    /// Column definitions are sent once.
    columns_sent: bool,
}

impl Frames {
    /// Frames for a kind in a view.
    #[must_use]
    pub fn new(kind: Arc<Kind>, view: View, include: Include) -> Self {
        Self { kind, view, include, columns_sent: false }
    }

    /// True if events are the cache's own frames.
    fn is_plain(&self) -> bool {
        self.view == View::Object && self.kind.is_hub()
    }

    /// An object that is there when the watch begins.
    pub fn initial(&mut self, object: &cache::Object, now: Timestamp) -> Result<Bytes> {
        if self.is_plain() {
            return Ok(object.frame(cache::Kind::Added));
        }
        self.event(cache::Kind::Added.as_str(), object.as_bytes(), now)
    }

    /// Something that happened.
    pub fn delivery(&mut self, delivery: &cache::Delivery, now: Timestamp) -> Result<Bytes> {
        if self.is_plain() {
            return Ok(delivery.frame());
        }
        self.event(delivery.kind().as_str(), delivery.object().as_bytes(), now)
    }

    /// How far the watch has come.
    pub fn bookmark(&mut self, revision: u64, ends_initial_events: bool, now: Timestamp) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if let Some(map) = metadata.as_object_mut().filter(|_| ends_initial_events) {
            map.insert("annotations".to_owned(), json!({INITIAL_EVENTS_END: "true"}));
        }
        let object = json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata});
        let shown = self.shown(object, now);
        frame("BOOKMARK", &shown)
    }

    /// Why the watch ends.
    #[must_use]
    pub fn error(error: &Error) -> Bytes {
        frame("ERROR", &status::status(error))
    }

    fn event(&mut self, word: &str, json: &[u8], now: Timestamp) -> Result<Bytes> {
        let object = get::value(&self.kind, json)?;
        let shown = self.shown(object, now);
        Ok(frame(word, &shown))
    }

    fn shown(&mut self, object: Value, now: Timestamp) -> Value {
        match self.view {
            View::Object => object,
            View::Metadata(version) => metadata_of(version, object),
            View::Table(version) => {
                let with_columns = !std::mem::replace(&mut self.columns_sent, true);
                let row = table::row(&self.kind, version, self.include, &object, now);
                let version_of = object.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
                let list_meta = std::iter::once(("resourceVersion".to_owned(), version_of)).collect();
                table::table(&self.kind, version, list_meta, vec![row], with_columns)
            }
        }
    }
}

/// A frame as it is sent.
fn frame(word: &str, object: &Value) -> Bytes {
    let mut text = json!({"type": word, "object": object}).to_string();
    text.push('\n');
    text.into()
}

fn metadata_of(version: MetaVersion, mut object: Value) -> Value {
    let metadata = object.get_mut("metadata").map(Value::take).unwrap_or_default();
    table::metadata(version, metadata)
}
