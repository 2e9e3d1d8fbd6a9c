//! Bodies: what the server reads and what it answers with.
//!
//! A response body never fails half-way in a way we could report, hence its error type cannot exist.

use std::convert::Infallible;

use bytes::Bytes;
use futures::Stream;
use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};

/// Any error of a request body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// Body of a request, from hyper or from a test.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;
/// Body of a response.
pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// A response body of known bytes.
#[must_use]
pub fn full(bytes: impl Into<Bytes>) -> ResponseBody {
    Full::new(bytes.into()).boxed_unsync()
}

/// A response body that is sent piece by piece.
#[must_use]
pub fn streamed(pieces: impl Stream<Item = Bytes> + Send + 'static) -> ResponseBody {
    use futures::StreamExt;
    StreamBody::new(pieces.map(|piece| Ok(Frame::data(piece)))).boxed_unsync()
}

/// A request body of known bytes.
#[must_use]
pub fn request(bytes: impl Into<Bytes>) -> RequestBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A response with a body and its content type.
#[must_use]
pub fn respond(code: StatusCode, content_type: &'static str, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
