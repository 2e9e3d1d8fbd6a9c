//! How much a request may send, and in which form: decided before anything is parsed.

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, UPGRADE};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Limited};

use crate::error::{Error, Result};
use crate::wire::body::RequestBody;
use crate::wire::decode::{BODY_MAX, too_large};

/// Refuses every request to speak another protocol: nothing here needs one, and proxies have been tricked with it.
pub(super) fn refuse_upgrade<B>(request: &Request<B>) -> Result<()> {
    if request.headers().contains_key(UPGRADE) || request.method() == http::Method::CONNECT {
        return Err(Error::bad_request("this server does not upgrade connections"));
    }
    Ok(())
}

/// Caps the body: at once if the client announces too much, while it is read otherwise.
pub(super) fn limited(request: Request<RequestBody>) -> Result<Request<RequestBody>> {
    if announced(request.headers()).is_some_and(|length| length > BODY_MAX as u64) {
        return Err(too_large());
    }
    refuse_compressed(request.headers())?;
    Ok(request.map(|body| Limited::new(body, BODY_MAX).boxed_unsync()))
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Kubernetes takes no compressed bodies either; to parse one as text would only confuse.
fn refuse_compressed(headers: &HeaderMap) -> Result<()> {
    match headers.get(CONTENT_ENCODING).map(|value| value.to_str().unwrap_or("?").trim()) {
        None | Some("" | "identity") => Ok(()),
        Some(encoding) => {
            Err(Error::bad_request(format!("Content-Encoding {encoding:?} is not supported: send the body as it is")))
        }
    }
}
