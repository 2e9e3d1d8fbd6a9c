//! Until when a request must be answered. Watches have no deadline: their `timeoutSeconds` is part of the verb.

use std::future::Future;
use std::time::Duration;

use http::Response;
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, Result};
use crate::request::Call;
use crate::wire::body::ResponseBody;

/// Longest time for any answer, and the time when the client names none.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Longest time for a request that changes something: webhooks may take 30 s, the rest of the work 4 s.
const MUTATION_MAX: Duration = Duration::from_secs(34);

/// When the answer is due, from `?timeout=` and the limits; `None` for requests that may last.
pub(super) fn of(call: &Call, started: Instant) -> Result<Option<Instant>> {
    if call.is_long_running() {
        return Ok(None);
    }
    let limit = if call.verb.is_mutating() { MUTATION_MAX } else { ANSWER_MAX };
    let wanted = match call.query.get("timeout") {
        None | Some("") => limit,
        Some(text) => parse(text)?,
    };
    let span = if wanted.is_zero() { limit } else { wanted.min(limit) };
    Ok(Some(started + span))
}

fn parse(text: &str) -> Result<Duration> {
    let fault = format!("invalid timeout specified in the request URL - time: invalid duration {text:?}");
    types::duration::parse(text).map_err(|_| Error::bad_request(fault))
}

/// Waits for the answer until the deadline.
pub(super) async fn bounded(
    deadline: Option<Instant>,
    answer: impl Future<Output = Response<ResponseBody>>,
) -> Result<Response<ResponseBody>> {
    let Some(deadline) = deadline else { return Ok(answer.await) };
    let late = |_| Error::Timeout("request did not complete within the allotted timeout".to_owned());
    timeout_at(deadline, answer).await.map_err(late)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::route;

    fn seconds(method: &str, path: &str, query: &str) -> Result<Option<u64>> {
        let started = Instant::now();
        let call = route::parse(method, path, Some(query)).unwrap();
        Ok(of(&call, started)?.map(|deadline| deadline.duration_since(started).as_secs()))
    }

    #[test]
    fn the_client_may_shorten_the_deadline_and_not_stretch_it() {
        let get = |query| seconds("GET", "/apis/g/v1/things/x", query).unwrap();
        assert_eq!(
            [get(""), get("timeout=34s"), get("timeout=1m30s"), get("timeout=0s")],
            [Some(60), Some(34), Some(60), Some(60)]
        );
        let put = |query| seconds("PUT", "/apis/g/v1/things/x", query).unwrap();
        assert_eq!([put(""), put("timeout=10s"), put("timeout=60s")], [Some(34), Some(10), Some(34)]);
        assert_eq!(seconds("GET", "/apis/g/v1/things", "watch=1&timeout=1s").unwrap(), None);
    }

    #[test]
    fn a_timeout_that_is_no_duration_is_a_bad_request() {
        for bad in ["soon", "-1s", "10"] {
            let refused = seconds("GET", "/apis/g/v1/things", &format!("timeout={bad}")).unwrap_err();
            let fault = format!("invalid timeout specified in the request URL - time: invalid duration {bad:?}");
            assert_eq!(refused, Error::bad_request(fault));
        }
    }
}
