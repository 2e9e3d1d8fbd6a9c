//! The seam between the edge (TLS, filters) and what answers a request.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Request, Response};

use crate::{
    request::Context,
    wire::body::{RequestBody, ResponseBody},
};

/// Answers requests that have passed every filter. Errors are answers, too; there is no other way out.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. The body is read only if the verb has one, and only up to the limit of the verb.
    fn handle(
        self: Arc<Self>,
        context: Context,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Response<ResponseBody>>;

    /// What the server must have before it may serve, by name of the check; an error text is for the log only.
    fn checks(&self) -> Vec<(&'static str, Result<(), String>)>;
}
