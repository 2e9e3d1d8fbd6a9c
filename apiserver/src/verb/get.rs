//! GET of one object: bytes straight from the cache.

use bytes::Bytes;
use serde_json::Value;

use super::{Answer, Work, options};
use crate::{
    error::{Error, Result},
    registry::Kind,
};

/// GET of an object or its `status`. `resourceVersion` decides how fresh: absent = every acknowledged write, "0" = any,
/// N = not older.
pub async fn get(work: &Work<'_>) -> Result<Answer> {
    let kind = work.route.kind;
    let key = work.key()?;
    match options::version(work.context.call.query.get("resourceVersion"))? {
        None => work.storage.fresh().await?,
        Some(0) => {}
        Some(version) => work.storage.wait_for(version).await?,
    }
    let object = work.storage.cached(kind, &key)?;
    let object = object.ok_or_else(|| Error::NotFound { resource: kind.resource(), name: key.name().to_owned() })?;
    Ok(Answer::Object { created: false, kind_of: kind.plural.to_owned(), json: object.json() })
}

/// Decodes what is kept, in the version of `kind`.
pub fn value(kind: &Kind, json: &[u8]) -> Result<Value> {
    let kept = serde_json::from_slice(json);
    kept.map(|kept| kind.shown(kept)).map_err(|error| Error::internal(format!("decoding a stored object: {error}")))
}

/// What is kept, in the version of `kind`: untouched where that is the version it is kept in.
pub fn encoded(kind: &Kind, json: Bytes) -> Result<Bytes> {
    if kind.is_hub() {
        return Ok(json);
    }
    let shown = serde_json::to_vec(&value(kind, &json)?);
    shown.map(Bytes::from).map_err(|error| Error::internal(format!("encoding an object: {error}")))
}
