//! The operations of every path, version-neutral.

use serde_json::Value;

use super::{base, definition};
use crate::{
    registry::{
        Kind, Scope, Subresource,
        kind::{JSON_PATCH, MERGE_PATCH},
    },
    request::Verb,
};

/// One path with its operations.
#[derive(Clone, Debug)]
pub struct Path {
    /// As in the URL, parameters in braces.
    pub path: String,
    /// `namespace` and `name`, if they are in the path.
    pub parameters: Vec<Parameter>,
    /// By method, in a fixed order.
    pub operations: Vec<Operation>,
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// HTTP method in lower case.
    pub method: &'static str,
    /// Unique id.
    pub id: String,
    /// For people.
    pub description: String,
    /// `x-kubernetes-action`.
    pub action: &'static str,
    /// `x-kubernetes-group-version-kind`.
    pub gvk: Value,
    /// Query parameters.
    pub query: Vec<Parameter>,
    /// Body: definition, media types, whether it must be there.
    pub body: Option<Body>,
    /// Codes and the definition each answers with.
    pub responses: Vec<(&'static str, String)>,
}

/// A request body.
#[derive(Clone, Debug)]
pub struct Body {
    /// Name of the definition.
    pub definition: String,
    /// Accepted media types.
    pub types: &'static [&'static str],
    /// Must be sent.
    pub required: bool,
}

/// A parameter of path or query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name.
    pub name: &'static str,
    /// `string`, `integer`, `boolean`.
    pub of: &'static str,
    /// For people.
    pub about: &'static str,
}

/// Media types of objects in bodies.
pub const OBJECT_TYPES: &[&str] = &["application/json", "application/yaml"];
/// Media types of answers.
pub const ANSWER_TYPES: &[&str] = &["application/json", "application/yaml"];
/// Media types of patches. Strategic merge is absent even where it is read: kubectl would compute such patches from
/// our schemas, which say nothing about the inside of built-in kinds, instead of from its own types.
pub const PATCH_TYPES: &[&str] = &[JSON_PATCH, MERGE_PATCH];

const fn text(name: &'static str, about: &'static str) -> Parameter {
    Parameter { name, of: "string", about }
}
const fn flag(name: &'static str, about: &'static str) -> Parameter {
    Parameter { name, of: "boolean", about }
}
const fn number(name: &'static str, about: &'static str) -> Parameter {
    Parameter { name, of: "integer", about }
}

const NAMESPACE: Parameter = text("namespace", "Namespace of the object.");
const NAME: Parameter = text("name", "Name of the object.");
const PRETTY: Parameter = text("pretty", "If true, the answer is indented.");
const DRY_RUN: Parameter = text("dryRun", "All: do everything but store.");
const FIELD_MANAGER: Parameter = text("fieldManager", "Who makes the change; at most 128 printable characters.");
const FIELD_VALIDATION: Parameter =
    text("fieldValidation", "What unknown and duplicate fields cause: Ignore, Warn (default) or Strict.");
const FORCE: Parameter = flag("force", "Takes fields over from other managers. For apply patches only.");

const WRITE: &[Parameter] = &[PRETTY, DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
const PATCH: &[Parameter] = &[PRETTY, DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE];
const DELETE: &[Parameter] = &[
    PRETTY,
    DRY_RUN,
    number("gracePeriodSeconds", "Seconds the object is given to end by itself."),
    flag("orphanDependents", "Deprecated: use propagationPolicy."),
    text("propagationPolicy", "Orphan, Background or Foreground."),
];
const LIST: &[Parameter] = &[
    PRETTY,
    flag("allowWatchBookmarks", "Asks for BOOKMARK events in a watch."),
    text("continue", "Token of the page before."),
    text("fieldSelector", "Selects by fields."),
    text("labelSelector", "Selects by labels."),
    number("limit", "Most items of one page."),
    text("resourceVersion", "How fresh the answer must be, or where a watch begins."),
    text("resourceVersionMatch", "How resourceVersion is read: Exact or NotOlderThan."),
    flag("sendInitialEvents", "A watch begins with the present state."),
    number("timeoutSeconds", "Bounds the duration of a watch."),
    flag("watch", "Follows the collection instead of listing it."),
];

/// The paths of a kind.
#[must_use]
pub fn paths(kind: &Kind) -> Vec<Path> {
    let root = format!("/{}", base(kind.group, kind.version));
    let own = definition::name(kind.group, kind.version, kind.kind);
    let (collection, scoped) = match kind.scope {
        Scope::Namespaced => (format!("{root}/namespaces/{{namespace}}/{}", kind.plural), vec![NAMESPACE]),
        Scope::Cluster => (format!("{root}/{}", kind.plural), Vec::new()),
    };
    let with_name: Vec<Parameter> = std::iter::once(NAME).chain(scoped.clone()).collect();
    let mut paths = Vec::new();
    if kind.review.is_some() {
        let operations = vec![operation(kind, &Site::of(kind), Verb::Create, &own)];
        return vec![Path { path: collection, parameters: scoped, operations }];
    }
    if kind.scope == Scope::Namespaced {
        let operations = vec![operation(kind, &Site::everywhere(kind), Verb::List, &own)];
        paths.push(Path { path: format!("{root}/{}", kind.plural), parameters: Vec::new(), operations });
    }
    let site = Site::of(kind);
    let at = |verbs: &[Verb]| verbs.iter().map(|verb| operation(kind, &site, *verb, &own)).collect();
    let operations = at(&[Verb::List, Verb::Create, Verb::DeleteCollection]);
    paths.push(Path { path: collection.clone(), parameters: scoped, operations });
    let operations = at(&[Verb::Get, Verb::Update, Verb::Patch, Verb::Delete]);
    paths.push(Path { path: format!("{collection}/{{name}}"), parameters: with_name.clone(), operations });
    for sub in &kind.subresources {
        let path = format!("{collection}/{{name}}/{}", sub.name());
        paths.push(Path { path, parameters: with_name.clone(), operations: subresource(kind, sub, &own) });
    }
    paths
}

fn subresource(kind: &Kind, sub: &Subresource, own: &str) -> Vec<Operation> {
    let site = Site::of(kind).below(sub.name());
    let (definition, gvk) = match sub {
        Subresource::Status | Subresource::Finalize | Subresource::Recover => (own.to_owned(), None),
        Subresource::Scale(_) => (definition::SCALE.to_owned(), Some(definition::gvk("autoscaling", "v1", "Scale"))),
        Subresource::Action(action) => (
            definition::name(kind.group, kind.version, action.kind()),
            Some(definition::gvk(kind.group, kind.version, action.kind())),
        ),
    };
    let mut list: Vec<Operation> = sub.verbs().iter().map(|verb| operation(kind, &site, *verb, &definition)).collect();
    if let Some(gvk) = gvk {
        list.iter_mut().for_each(|operation| operation.gvk = gvk.clone());
    }
    list
}

/// How operation ids speak of a place.
struct Site(String);

impl Site {
    fn of(kind: &Kind) -> Self {
        let namespaced = if kind.scope == Scope::Namespaced { "Namespaced" } else { "" };
        Self(format!("{}{namespaced}{}", group_words(kind), kind.kind))
    }

    fn everywhere(kind: &Kind) -> Self {
        Self(format!("{}{}ForAllNamespaces", group_words(kind), kind.kind))
    }

    fn below(self, sub: &str) -> Self {
        Self(format!("{}{}", self.0, capital(sub)))
    }
}

/// `redis.kun.io/v1` → `RedisKunIoV1`.
fn group_words(kind: &Kind) -> String {
    let group = if kind.group.is_empty() { "core" } else { kind.group };
    group.split('.').map(capital).chain([capital(kind.version)]).collect()
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn operation(kind: &Kind, site: &Site, verb: Verb, definition: &str) -> Operation {
    let object = |required: bool| Some(Body { definition: definition.to_owned(), types: OBJECT_TYPES, required });
    let ok = |name: String| vec![("200", name), ("401", definition::meta("Status"))];
    let own = || definition.to_owned();
    let of_list = || format!("{definition}List");
    let status = || definition::meta("Status");
    let options = || Some(Body { definition: definition::meta("DeleteOptions"), types: OBJECT_TYPES, required: false });
    let patch = || Some(Body { definition: definition::meta("Patch"), types: PATCH_TYPES, required: true });
    let created = || vec![("200", own()), ("201", own()), ("202", own()), ("401", status())];
    let (method, action, word, query, body, responses): (_, _, _, &[Parameter], _, _) = match verb {
        Verb::Get => ("get", "get", "read", &[PRETTY], None, ok(own())),
        Verb::List | Verb::Watch => ("get", "list", "list", LIST, None, ok(of_list())),
        Verb::Create => ("post", "post", "create", WRITE, object(true), created()),
        Verb::Update => ("put", "put", "replace", WRITE, object(true), created()),
        Verb::Patch => ("patch", "patch", "patch", PATCH, patch(), created()),
        Verb::Delete => ("delete", "delete", "delete", DELETE, options(), ok(status())),
        Verb::DeleteCollection => ("delete", "deletecollection", "deleteCollection", DELETE, options(), ok(status())),
    };
    let mut query = query.to_vec();
    if verb == Verb::DeleteCollection {
        query.extend(LIST.iter().filter(|parameter| !DELETE.contains(parameter)).copied());
    }
    Operation {
        method,
        id: format!("{word}{}", site.0),
        description: format!("{word} {}", kind.kind),
        action,
        gvk: definition::gvk(kind.group, kind.version, kind.kind),
        query,
        body,
        responses,
    }
}
