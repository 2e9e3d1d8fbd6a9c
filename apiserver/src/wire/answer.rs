//! What a verb answered → a response, in the negotiated form and view.

use std::{collections::VecDeque, io::Write, sync::Arc};

use bytes::{Bytes, BytesMut};
use flate2::{Compression, write::GzEncoder};
use futures::stream;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, VARY},
};
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};
use store::cache::Object;

use super::{
    body::{self, ResponseBody},
    encode,
    negotiate::{Format, MetaVersion, Negotiated, View},
    table::{self, Include},
};
use crate::{
    error::{Error, Result},
    registry::Kind,
    verb::{Answer, Work, get, list::Listing},
};

/// Lists up to this size are sent in one piece, with their length; larger ones piece by piece.
const LIST_WHOLE_MAX: usize = 1024 * 1024;
/// Size of the pieces.
const PIECE: usize = 64 * 1024;

/// Renders an answer.
pub fn render(work: &Work<'_>, found: Answer, headers: &HeaderMap) -> Result<Response<ResponseBody>> {
    let accepts_gzip = encode::accepts_gzip(headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()));
    match found {
        Answer::Object { created, kind_of, json } => {
            let code = if created { StatusCode::CREATED } else { StatusCode::OK };
            let of = work.route.kind;
            let found = work.registry.find(of.group, of.version, &kind_of);
            let kind = found.or_else(|| work.registry.resource(of.group, &kind_of)).unwrap_or(of);
            let bytes = one(work, kind, json)?;
            Ok(encode::respond(code, bytes, work.form, accepts_gzip))
        }
        Answer::Plain(value) => {
            Ok(encode::respond(StatusCode::OK, encode::value(&value, work.form)?, work.form, accepts_gzip))
        }
        Answer::Scale(scale) => {
            let bytes = encode::value(&scale_view(work, scale)?, work.form)?;
            Ok(encode::respond(StatusCode::OK, bytes, work.form, accepts_gzip))
        }
        Answer::List(listing) => many(work, listing, accepts_gzip),
        Answer::Watch(watch) => {
            let body = body::streamed(watch.into_chunks());
            Ok(body::respond(StatusCode::OK, work.form.format.media_type(), body))
        }
    }
}

fn one(work: &Work<'_>, kind: &Kind, json: Bytes) -> Result<Bytes> {
    match work.form.view {
        View::Object => encode::encoded_json(get::encoded(kind, json)?, work.form),
        View::Metadata(version) => {
            let metadata = serde_json::to_value(raw_metadata(&get::encoded(kind, json)?)?).map_err(Error::internal)?;
            encode::value(&table::metadata(version, metadata), work.form)
        }
        View::Table(version) => {
            let include = Include::parse(work.context.call.query.get("includeObject"))?;
            let object = get::value(kind, &json)?;
            let version_of = object.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
            let list_meta = std::iter::once(("resourceVersion".to_owned(), version_of)).collect();
            let row = table::row(kind, version, include, &object, work.world.now());
            encode::value(&table::table(kind, version, list_meta, vec![row], true), work.form)
        }
    }
}

/// A Scale has views like any object.
fn scale_view(work: &Work<'_>, scale: Value) -> Result<Value> {
    match work.form.view {
        View::Object => Ok(scale),
        View::Metadata(version) => Ok(table::metadata(version, scale.get("metadata").cloned().unwrap_or_default())),
        View::Table(version) => {
            let include = Include::parse(work.context.call.query.get("includeObject"))?;
            Ok(table::scale(version, include, &scale, work.world.now()))
        }
    }
}

fn many(work: &Work<'_>, listing: Listing, accepts_gzip: bool) -> Result<Response<ResponseBody>> {
    let kind = work.route.kind;
    let list_meta = list_meta(&listing);
    match (work.form, work.form.view) {
        (Negotiated { format: Format::Json, pretty: false, .. }, View::Object) if kind.is_hub() => {
            let head = head(&kind.list_kind(), &kind.api_version(), &list_meta);
            Ok(objects(head, listing.items, work.form, accepts_gzip))
        }
        (form, View::Object) => {
            let shown = |object: &Arc<Object>| get::value(kind, object.as_bytes());
            let items = listing.items.iter().map(shown).collect::<Result<Vec<_>>>()?;
            let list = json!({"kind": kind.list_kind(), "apiVersion": kind.api_version(), "metadata": list_meta, "items": items});
            Ok(encode::respond(StatusCode::OK, encode::value(&list, form)?, form, accepts_gzip))
        }
        (form, View::Metadata(version)) => {
            let bytes = metadata_list(kind, version, &list_meta, &listing, form)?;
            Ok(encode::respond(StatusCode::OK, bytes, form, accepts_gzip))
        }
        (form, View::Table(version)) => {
            let include = Include::parse(work.context.call.query.get("includeObject"))?;
            let now = work.world.now();
            let row = |object: &Arc<Object>| {
                get::value(kind, object.as_bytes()).map(|object| table::row(kind, version, include, &object, now))
            };
            let rows = listing.items.iter().map(row).collect::<Result<Vec<_>>>()?;
            let table = table::table(kind, version, list_meta, rows, true);
            Ok(encode::respond(StatusCode::OK, encode::value(&table, form)?, form, accepts_gzip))
        }
    }
}

fn list_meta(listing: &Listing) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("resourceVersion".to_owned(), json!(listing.revision.to_string()));
    if let Some(token) = &listing.continue_token {
        map.insert("continue".to_owned(), json!(token));
        if let Some(remaining) = listing.remaining {
            map.insert("remainingItemCount".to_owned(), json!(remaining));
        }
    }
    map
}

fn head(kind: &str, api_version: &str, list_meta: &Map<String, Value>) -> Bytes {
    let meta = Value::Object(list_meta.clone());
    format!("{{\"kind\":{},\"apiVersion\":{},\"metadata\":{meta},\"items\":[", json!(kind), json!(api_version)).into()
}

#[derive(Deserialize)]
struct OnlyMetadata<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

/// `metadata` as it stands in the encoded object.
fn raw_metadata(json: &[u8]) -> Result<&RawValue> {
    let only: OnlyMetadata<'_> =
        serde_json::from_slice(json).map_err(|error| Error::internal(format!("reading metadata: {error}")))?;
    Ok(only.metadata)
}

fn metadata_list(
    kind: &Kind,
    version: MetaVersion,
    list_meta: &Map<String, Value>,
    listing: &Listing,
    form: Negotiated,
) -> Result<Bytes> {
    if listing.items.is_empty() {
        // As Kubernetes writes it: this one list has null for nothing.
        let (kind, version) = ("PartialObjectMetadataList", version.api_version());
        return encode::value(
            &json!({"kind": kind, "apiVersion": version, "metadata": list_meta, "items": null}),
            form,
        );
    }
    let mut text = head("PartialObjectMetadataList", version.api_version(), list_meta).to_vec();
    for (index, object) in listing.items.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        text.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"");
        text.extend_from_slice(version.api_version().as_bytes());
        text.extend_from_slice(b"\",\"metadata\":");
        text.extend_from_slice(raw_metadata(&get::encoded(kind, object.json())?)?.get().as_bytes());
        text.push(b'}');
    }
    text.extend_from_slice(TAIL);
    encode::encoded_json(text.into(), form)
}

/// What ends a list.
const TAIL: &[u8] = b"]}\n";

/// A list of objects as they are cached: nothing is encoded again.
fn objects(head: Bytes, items: Vec<Arc<Object>>, form: Negotiated, accepts_gzip: bool) -> Response<ResponseBody> {
    let size: usize = items.iter().map(|object| object.as_bytes().len() + 1).sum();
    let pieces = Pieces { head: Some(head), items: items.into(), first: true, over: false };
    if size <= LIST_WHOLE_MAX {
        let mut whole = BytesMut::with_capacity(size + 512);
        for piece in pieces {
            whole.extend_from_slice(&piece);
        }
        return encode::respond(StatusCode::OK, whole.freeze(), form, accepts_gzip);
    }
    if !accepts_gzip {
        let body = body::streamed(stream::iter(pieces));
        return body::respond(StatusCode::OK, form.format.media_type(), body);
    }
    let packed = Packed { pieces, encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())) };
    let body = body::streamed(stream::iter(packed));
    let mut response = body::respond(StatusCode::OK, form.format.media_type(), body);
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

/// A list, piece by piece; each object is let go once it was sent.
struct Pieces {
    head: Option<Bytes>,
    items: VecDeque<Arc<Object>>,
    first: bool,
    over: bool,
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        let mut piece = BytesMut::with_capacity(PIECE);
        if let Some(head) = self.head.take() {
            piece.extend_from_slice(&head);
        }
        while piece.len() < PIECE {
            let Some(object) = self.items.pop_front() else {
                piece.extend_from_slice(TAIL);
                self.over = true;
                break;
            };
            if !std::mem::replace(&mut self.first, false) {
                piece.extend_from_slice(b",");
            }
            piece.extend_from_slice(object.as_bytes());
        }
        Some(piece.freeze())
    }
}

/// The same, compressed on the way.
struct Packed {
    pieces: Pieces,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Iterator for Packed {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        loop {
            let encoder = self.encoder.as_mut()?;
            match self.pieces.next() {
                // Writing into memory does not fail; if it did, the body would end short and the client would notice.
                Some(piece) => encoder.write_all(&piece).ok()?,
                None => return self.encoder.take()?.finish().ok().map(Bytes::from),
            }
            let ready = encoder.get_mut();
            if ready.len() >= PIECE {
                return Some(Bytes::from(std::mem::take(ready)));
            }
        }
    }
}
