//! The server behind the filters: finds what a request is about, runs the verb, renders the answer.

use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response, header::ACCEPT};
use tokio::sync::Mutex;

use crate::{
    admission::Admission,
    error::{Error, Result},
    handler::Handler,
    registry::{Registry, Subresource},
    request::{Context, Verb},
    route,
    site::Site,
    storage::Storage,
    verb::{
        Answer, Work, action, apply, change::Part, create, delete, get, list, patch, recover, review, scale, update,
        watch,
    },
    wire::{
        answer,
        body::{RequestBody, ResponseBody},
        decode,
        negotiate::{self, Negotiated, Shape},
        status,
    },
    world::World,
};

/// Seconds after which a client should try again while the server starts.
const STARTING_SECONDS: u32 = 5;

/// The server. It can describe itself at once; it serves objects once it was opened.
pub struct App {
    registry: Registry,
    site: Site,
    world: Arc<dyn World>,
    actions: Mutex<()>,
    open: OnceLock<Open>,
    needs: OnceLock<Vec<Need>>,
}

/// Something besides the store that must be there before the server may serve.
pub struct Need {
    /// Its name among the checks of `/readyz`.
    pub name: &'static str,
    /// Whether it is there; the text is for the log only.
    pub check: Box<dyn Fn() -> std::result::Result<(), String> + Send + Sync>,
}

struct Open {
    storage: Arc<Storage>,
    admission: Arc<dyn Admission>,
}

impl App {
    /// A server for these kinds, not yet open.
    #[must_use]
    pub fn new(registry: Registry, world: Arc<dyn World>) -> Arc<Self> {
        let site = Site::of(&registry);
        Arc::new(Self { registry, site, world, actions: Mutex::new(()), open: OnceLock::new(), needs: OnceLock::new() })
    }

    /// Serves only once all of these are there, too. Only the first call counts.
    pub fn wait_for(&self, needs: Vec<Need>) {
        if self.needs.set(needs).is_err() {
            tracing::warn!("the API server was told a second time what to wait for; the first list stays");
        }
    }

    /// Opens the server: from now on it serves objects. Only the first call counts.
    pub fn open(&self, storage: Arc<Storage>, admission: Arc<dyn Admission>) {
        if self.open.set(Open { storage, admission }).is_err() {
            tracing::warn!("the API server was opened a second time; the first store stays");
        }
    }

    /// The kinds it serves.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    async fn answer(&self, context: &Context, request: Request<RequestBody>) -> Result<Response<ResponseBody>> {
        let (head, body) = request.into_parts();
        if context.call.resource.is_none() {
            return self.site.get(&context.call, &head.headers);
        }
        // Before the store is open nobody may be told that something does not exist: garbage collectors act on it.
        let open = self.open.get().ok_or_else(starting)?;
        let route = route::resolve(&self.registry, &context.call)?;
        let form = negotiated(context, &head.headers)?;
        let work = Work {
            registry: &self.registry,
            storage: &open.storage,
            admission: open.admission.as_ref(),
            world: &self.world,
            actions: &self.actions,
            context,
            route,
            form,
        };
        let found = run(&work, &head.headers, body).await?;
        answer::render(&work, found, &head.headers)
    }
}

fn starting() -> Error {
    Error::Unavailable {
        message: "the request has been made before all known HTTP paths have been installed, please try again"
            .to_owned(),
        retry_after: STARTING_SECONDS,
    }
}

fn negotiated(context: &Context, headers: &HeaderMap) -> Result<Negotiated> {
    let shape = match context.call.verb {
        Verb::List | Verb::DeleteCollection => Shape::Many,
        Verb::Watch => Shape::Stream,
        Verb::Get | Verb::Create | Verb::Update | Verb::Patch | Verb::Delete => Shape::One,
    };
    let pretty = negotiate::is_pretty(context.call.query.get("pretty"), &context.user_agent);
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    negotiate::negotiate(accept, shape, pretty)
}

/// Verb by verb; routing has refused the combinations that do not exist.
async fn run(work: &Work<'_>, headers: &HeaderMap, body: RequestBody) -> Result<Answer> {
    let content_type = decode::content_type(headers);
    let verb = work.context.call.verb;
    match (verb, work.route.subresource) {
        (Verb::Get, Some(Subresource::Scale(paths))) => return scale::get(work, *paths).await,
        (Verb::Get, _) => return get::get(work).await,
        (Verb::List, _) => return list::list(work).await,
        (Verb::Watch, _) => return watch::watch(work).await,
        (Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection, _) => {}
    }
    let bytes = decode::read(body).await?;
    if verb == Verb::Patch {
        work.context.record.patch(&bytes);
    }
    match (verb, work.route.subresource) {
        (Verb::Create, Some(Subresource::Recover)) => recover::recover(work, &bytes, content_type).await,
        (Verb::Create, Some(Subresource::Action(own))) => {
            action::action(work, own.as_ref(), &bytes, content_type).await
        }
        (Verb::Create, _) => match work.route.kind.review {
            Some(review) => review::review(work, review, &bytes, content_type).await,
            None => create::create(work, &bytes, content_type).await,
        },
        (Verb::Update, Some(Subresource::Scale(paths))) => scale::update(work, *paths, &bytes, content_type).await,
        (Verb::Update, sub) => update::update(work, part(sub), &bytes, content_type).await,
        (Verb::Patch, Some(Subresource::Scale(paths))) if apply::is_apply(content_type) => {
            apply::apply_scale(work, *paths, &bytes).await
        }
        (Verb::Patch, sub) if apply::is_apply(content_type) => apply::apply(work, part(sub), &bytes).await,
        (Verb::Patch, Some(Subresource::Scale(paths))) => patch::patch_scale(work, *paths, &bytes, content_type).await,
        (Verb::Patch, sub) => patch::patch(work, part(sub), &bytes, content_type).await,
        (Verb::Delete, _) => delete::delete(work, &bytes, content_type).await,
        (Verb::DeleteCollection, _) => delete::delete_collection(work, &bytes, content_type).await,
        (Verb::Get | Verb::List | Verb::Watch, _) => Err(Error::MethodNotAllowed),
    }
}

fn part(subresource: Option<&Subresource>) -> Part {
    match subresource {
        Some(Subresource::Status) => Part::Status,
        Some(Subresource::Finalize) => Part::Finalize,
        Some(Subresource::Scale(_) | Subresource::Recover | Subresource::Action(_)) | None => Part::Main,
    }
}

impl Handler for App {
    fn handle(
        self: Arc<Self>,
        context: Context,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Response<ResponseBody>> {
        Box::pin(async move {
            let accept = request.headers().get(ACCEPT).cloned();
            match self.answer(&context, request).await {
                Ok(response) => response,
                Err(error) => {
                    if let Error::Internal(text) = &error {
                        tracing::error!(path = %context.call.path, audit_id = %context.audit_id, error = %text, "a request failed");
                    }
                    let pretty = negotiate::is_pretty(context.call.query.get("pretty"), &context.user_agent);
                    let accept = accept.as_ref().and_then(|value| value.to_str().ok());
                    status::response_to(&error, accept, pretty)
                }
            }
        })
    }

    fn checks(&self) -> Vec<(&'static str, Result<(), String>)> {
        let not_open = || Err("the store is not open yet".to_owned());
        let (store, informers) = match self.open.get() {
            Some(open) => (open.storage.health(), Ok(())),
            None => (not_open(), not_open()),
        };
        let mut checks = vec![("ping", Ok(())), ("store", store), ("informer-sync", informers)];
        checks.extend(self.needs.get().into_iter().flatten().map(|need| (need.name, (need.check)())));
        checks
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("open", &self.open.get().is_some()).finish_non_exhaustive()
    }
}
