//! /healthz, /livez, /readyz, and the doubt about 404s while not everything is ready.
//!
//! Clients of Kubernetes take a 404 for the truth (a garbage collector deletes on it): until every cache is complete the
//! server says 503 instead.

use std::sync::Arc;

use http::{Response, StatusCode};

use super::lifecycle::Lifecycle;
use crate::error::{Error, Result};
use crate::handler::Handler;
use crate::request::{Call, Verb};
use crate::wire::body::{ResponseBody, full, respond};
use crate::wire::status;

/// Seconds after which a client should look again while the server starts.
const RETRY_AFTER: u32 = 5;
const TEXT: &str = "text/plain; charset=utf-8";

/// The health of the server, from the handler's checks and the lifecycle.
pub(super) struct Health {
    handler: Arc<dyn Handler>,
    lifecycle: Arc<Lifecycle>,
}

/// One check: its name, and whether it failed. Why it failed goes to the log, not to strangers.
type Check = (&'static str, bool);

impl Health {
    pub(super) fn new(handler: Arc<dyn Handler>, lifecycle: Arc<Lifecycle>) -> Self {
        Self { handler, lifecycle }
    }

    /// The answer to a health request; `None` if it is none.
    pub(super) fn answer(&self, call: &Call) -> Option<Response<ResponseBody>> {
        let path = call.path.strip_prefix('/')?;
        let (endpoint, check) = path.split_once('/').unwrap_or((path, ""));
        let checks = match endpoint {
            "healthz" => self.serving_checks(),
            // Alive means able to answer at all; a restart does not mend a store that is not ready.
            "livez" => vec![("ping", false)],
            "readyz" => {
                let mut checks = self.serving_checks();
                checks.push(("shutdown", self.lifecycle.is_stopping()));
                checks
            }
            _ => return None,
        };
        if call.verb != Verb::Get {
            return Some(status::response(&Error::MethodNotAllowed));
        }
        Some(match check {
            "" => overview(endpoint, &checks, call),
            one => single(one, &checks),
        })
    }

    /// Refuses requests until everything was ready once.
    pub(super) fn refuse_until_ready(&self) -> Result<()> {
        if self.lifecycle.was_ready() {
            return Ok(());
        }
        let waiting = self.failing();
        if waiting.is_empty() {
            self.lifecycle.set_ready();
            return Ok(());
        }
        Err(unavailable(format!("the server is starting and not ready yet: waiting for {}", waiting.join(", "))))
    }

    /// Turns a 404 given while something is not ready into a 503: it is not known to be true.
    pub(super) fn doubt_not_found(&self, response: Response<ResponseBody>) -> Response<ResponseBody> {
        if response.status() != StatusCode::NOT_FOUND {
            return response;
        }
        let failing = self.failing();
        if failing.is_empty() {
            return response;
        }
        status::response(&unavailable(format!(
            "the server cannot tell whether this exists: not ready: {}",
            failing.join(", ")
        )))
    }

    fn serving_checks(&self) -> Vec<Check> {
        let own = [("ping", false), ("log", false)];
        let handlers =
            self.handler.checks().into_iter().filter(|(name, _)| !own.iter().any(|(taken, _)| taken == name));
        own.into_iter().chain(handlers.map(|(name, outcome)| (name, failed(name, outcome)))).collect()
    }

    fn failing(&self) -> Vec<&'static str> {
        self.handler.checks().into_iter().filter(|(_, outcome)| outcome.is_err()).map(|(name, _)| name).collect()
    }
}

fn failed(name: &str, outcome: std::result::Result<(), String>) -> bool {
    match outcome {
        Ok(()) => false,
        Err(reason) => {
            tracing::debug!(check = name, reason, "a health check failed");
            true
        }
    }
}

fn unavailable(message: String) -> Error {
    Error::Unavailable { message, retry_after: RETRY_AFTER }
}

/// The answer for all checks: `ok`, or the list when one fails or the client asks with `?verbose`.
fn overview(endpoint: &str, checks: &[Check], call: &Call) -> Response<ResponseBody> {
    let excluded: Vec<&str> = call.query.all("exclude").collect();
    let mut lines = String::new();
    let mut any_failed = false;
    for (name, has_failed) in checks {
        match (excluded.contains(name), has_failed) {
            (true, _) => lines.push_str(&format!("[+]{name} excluded: ok\n")),
            (false, false) => lines.push_str(&format!("[+]{name} ok\n")),
            (false, true) => {
                any_failed = true;
                lines.push_str(&format!("[-]{name} failed: reason withheld\n"));
            }
        }
    }
    let unknown: Vec<String> = excluded
        .iter()
        .filter(|name| !checks.iter().any(|(check, _)| check == *name))
        .map(|name| format!("{name:?}"))
        .collect();
    if !unknown.is_empty() {
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {}\n", unknown.join(",")));
    }
    if any_failed {
        lines.push_str(&format!("{endpoint} check failed\n"));
        return respond(StatusCode::INTERNAL_SERVER_ERROR, TEXT, full(lines));
    }
    match call.query.get("verbose") {
        Some(_) => respond(StatusCode::OK, TEXT, full(format!("{lines}{endpoint} check passed\n"))),
        None => respond(StatusCode::OK, TEXT, full("ok")),
    }
}

fn single(name: &str, checks: &[Check]) -> Response<ResponseBody> {
    match checks.iter().find(|(check, _)| *check == name) {
        Some((_, false)) => respond(StatusCode::OK, TEXT, full("ok")),
        Some((_, true)) => {
            respond(StatusCode::INTERNAL_SERVER_ERROR, TEXT, full("internal server error: reason withheld\n"))
        }
        None => status::response(&Error::PageNotFound),
    }
}
