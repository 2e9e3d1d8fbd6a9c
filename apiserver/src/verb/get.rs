//! GET of one object: bytes straight from the cache.

use serde_json::Value;

use super::{Answer, Work, options};
use crate::error::{Error, Result};

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

/// Decodes an answer that is needed as a value.
pub fn value(json: &[u8]) -> Result<Value> {
    serde_json::from_slice(json).map_err(|error| Error::internal(format!("decoding a stored object: {error}")))
}
