//! Behind a kube-apiserver: who asks, what he may do and what admission must know are its to say.
//!
//! Everything here asks that server, in a bounded time, and fails closed: what cannot be found out is an error, never a
//! yes. Standalone has none of this.

use std::time::Duration;

use futures::future::BoxFuture;
use http::Request;
use kube::Client;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::Error;

pub mod access;
pub mod quotas;
mod refused;
pub mod rights;
pub mod sources;
pub mod token;
pub mod trust;

/// Time for one question, its repetitions included.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pauses between tries: what fails at once is often back at once.
const PAUSES: [Duration; 3] = [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1600)];

/// Puts one question to the kube-apiserver: an object that is created and comes back with a status.
pub(crate) fn ask<'a>(client: &'a Client, path: &'a str, question: &'a Value) -> BoxFuture<'a, Result<Value, Error>> {
    Box::pin(async move {
        let due = Instant::now() + PATIENCE;
        let mut pauses = PAUSES.into_iter();
        loop {
            let failure = match timeout_at(due, post(client, path, question)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failure)) => failure,
                Err(_late) => return Err(unanswered(path, "it did not answer in time")),
            };
            match pauses.next().filter(|pause| is_passing(&failure) && Instant::now() + *pause < due) {
                Some(pause) => sleep(pause).await,
                None => return Err(unanswered(path, &failure.to_string())),
            }
        }
    })
}

async fn post(client: &Client, path: &str, question: &Value) -> Result<Value, kube::Error> {
    let body = serde_json::to_vec(question).map_err(kube::Error::SerdeError)?;
    let request = Request::post(path).header("content-type", "application/json").body(body);
    client.request(request.map_err(kube::Error::HttpError)?).await
}

/// What may be gone at the next try. A refusal is not.
fn is_passing(failure: &kube::Error) -> bool {
    match failure {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        _ => true,
    }
}

/// The client learns that it is not its fault; the reason is for the log.
fn unanswered(path: &str, reason: &str) -> Error {
    tracing::error!(path, reason, "the kube-apiserver cannot be asked");
    Error::internal("the kube-apiserver cannot be asked about this request")
}
