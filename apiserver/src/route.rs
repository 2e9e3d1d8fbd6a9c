//! (method, path, query) → [`Call`]: what the request asks for, before anybody looks whether it exists.
//!
//! Pure and syntactic, as Kubernetes' RequestInfo: authorization judges a path even if nothing is served there.
//! Whether it is served is decided by [`resolve`], from the registry alone.

use std::{borrow::Cow, sync::Arc};

use crate::{
    error::{Error, Result},
    registry::{Kind, Registry, Scope, Subresource},
    request::{Call, Query, ResourcePath, Verb},
};

/// Longest path with its query; longer ones are nonsense or an attack.
const URI_MAX: usize = 16 * 1024;
/// Most query parameters of one request; Kubernetes knows about thirty.
const PARAMETERS_MAX: usize = 64;

/// What a call means once the registry was asked.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// The kind of the resource.
    pub kind: &'a Arc<Kind>,
    /// The subresource, if the path names one.
    pub subresource: Option<&'a Subresource>,
    /// The namespace, for a namespaced kind and a path that names one.
    pub namespace: Option<&'a str>,
    /// The object's name, if the path names one.
    pub name: Option<&'a str>,
}

/// Reads a request line. Refuses what could be read in two ways: encoded slashes, dots, empty segments, control
/// characters, text that is no UTF-8.
pub fn parse(method: &str, path: &str, query: Option<&str>) -> Result<Call> {
    if path.len() + query.map_or(0, str::len) > URI_MAX {
        return Err(Error::bad_request(format!("the URL is longer than {URI_MAX} bytes")));
    }
    let segments = segments(path)?;
    let query = parse_query(query.unwrap_or_default())?;
    let mut resource = resource_path(&segments);
    let mut verb = verb_of(method)?;
    if let Some(found) = &mut resource {
        verb = refine(verb, found, &query);
    }
    Ok(Call { verb, method: method.to_ascii_lowercase(), path: format!("/{}", segments.join("/")), resource, query })
}

/// Finds what serves a resource call. 404 if nothing does, 405 if it exists and has no such verb.
pub fn resolve<'a>(registry: &'a Registry, call: &'a Call) -> Result<Route<'a>> {
    let path = call.resource.as_ref().ok_or(Error::PageNotFound)?;
    if !registry.has_version(&path.group, &path.version) {
        return Err(Error::PageNotFound);
    }
    let kind = registry.find(&path.group, &path.version, &path.resource);
    let kind = kind.ok_or_else(|| nothing(registry.is_built_in(&path.group)))?;
    let (namespace, name) = scoped(kind, path)?;
    let subresource = match &path.subresource {
        None => None,
        Some(wanted) => Some(kind.subresource(wanted).ok_or_else(|| no_subresource(kind, name))?),
    };
    let allowed = match subresource {
        Some(sub) => sub.verbs(),
        None => kind.verbs(),
    };
    let on_all_namespaces = kind.scope == Scope::Namespaced && namespace.is_none();
    let is_routed = match call.verb {
        Verb::Create | Verb::DeleteCollection => !on_all_namespaces && (name.is_none() || subresource.is_some()),
        Verb::Update | Verb::Patch => name.is_some(),
        Verb::Get | Verb::List | Verb::Watch | Verb::Delete => true,
    };
    if !is_routed || !allowed.contains(&call.verb) {
        return Err(not_allowed(kind, call.verb, on_all_namespaces, name.is_some()));
    }
    Ok(Route { kind, subresource, namespace, name })
}

/// Below a group of Kubernetes' own kinds the answer is a Status; below one of custom resources it is no page at all.
const fn nothing(is_built_in: bool) -> Error {
    if is_built_in { Error::ResourceNotFound } else { Error::PageNotFound }
}

/// A subresource that no object of a kind has: of a custom resource, the object itself is said to be absent.
fn no_subresource(kind: &Kind, name: Option<&str>) -> Error {
    if kind.is_built_in() {
        return Error::ResourceNotFound;
    }
    Error::NotFound { resource: kind.resource(), name: name.unwrap_or_default().to_owned() }
}

/// What exists and has no such verb; of a custom resource the answer says more.
fn not_allowed(kind: &Kind, verb: Verb, on_all_namespaces: bool, has_name: bool) -> Error {
    match verb {
        _ if kind.is_built_in() => Error::MethodNotAllowed,
        Verb::Create | Verb::DeleteCollection if on_all_namespaces => Error::PageNotFound,
        Verb::Update | Verb::Patch if !has_name => Error::bad_request("name must be provided"),
        verb => Error::MethodNotSupported { verb: verb.as_str(), resource: kind.resource() },
    }
}

/// Namespace and name as the kind's scope reads the path.
fn scoped<'a>(kind: &Kind, path: &'a ResourcePath) -> Result<(Option<&'a str>, Option<&'a str>)> {
    let name = path.name.as_deref();
    let namespace = path.namespace.as_deref();
    match kind.scope {
        Scope::Cluster if path.resource == "namespaces" && path.group.is_empty() => Ok((None, name)),
        Scope::Cluster if namespace.is_some() => Err(nothing(kind.is_built_in())),
        Scope::Cluster => Ok((None, name)),
        Scope::Namespaced if namespace.is_none() && name.is_some() => Err(nothing(kind.is_built_in())),
        Scope::Namespaced => Ok((namespace, name)),
    }
}

fn segments(path: &str) -> Result<Vec<String>> {
    let refused = |why: &str| Error::bad_request(format!("the URL path is refused: {why}"));
    let rest = path.strip_prefix('/').ok_or_else(|| refused("it does not begin with a slash"))?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.is_empty() {
        return Ok(Vec::new());
    }
    rest.split('/')
        .map(|raw| {
            let segment = decode(raw, false).ok_or_else(|| refused("bad percent-encoding"))?;
            if segment.is_empty() || segment == "." || segment == ".." {
                return Err(refused("empty or relative segment"));
            }
            if segment.chars().any(|c| c == '/' || c == '\\' || c == '%' || c.is_control()) {
                return Err(refused("a segment contains a slash, a percent sign or a control character"));
            }
            Ok(segment.into_owned())
        })
        .collect()
}

fn parse_query(query: &str) -> Result<Query> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut list = Vec::new();
    for pair in pairs {
        if list.len() == PARAMETERS_MAX {
            return Err(Error::bad_request(format!("the URL has more than {PARAMETERS_MAX} parameters")));
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let bad = || Error::bad_request("the URL query is refused: bad percent-encoding");
        list.push((decode(key, true).ok_or_else(bad)?.into_owned(), decode(value, true).ok_or_else(bad)?.into_owned()));
    }
    Ok(Query(list))
}

/// Percent-decodes; `None` if the encoding is broken or the text is no UTF-8.
pub(crate) fn decode(text: &str, plus_is_space: bool) -> Option<Cow<'_, str>> {
    let is_plain = !text.contains('%') && (!plus_is_space || !text.contains('+'));
    if is_plain {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex(rest.next()?)? * 16 + hex(rest.next()?)?,
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

fn verb_of(method: &str) -> Result<Verb> {
    match method {
        "GET" | "HEAD" => Ok(Verb::Get),
        "POST" => Ok(Verb::Create),
        "PUT" => Ok(Verb::Update),
        "PATCH" => Ok(Verb::Patch),
        "DELETE" => Ok(Verb::Delete),
        _ => Err(Error::MethodNotAllowed),
    }
}

/// The coordinates in a path below /api/V or /apis/G/V; `None` for every other path.
fn resource_path(segments: &[String]) -> Option<ResourcePath> {
    let (group, version, rest) = match segments {
        [api, version, rest @ ..] if api == "api" => (String::new(), version, rest),
        [apis, group, version, rest @ ..] if apis == "apis" => (group.clone(), version, rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        [word, namespace, deeper @ ..] if word == "namespaces" => match deeper {
            [] => (Some(namespace), rest),
            [sub] if sub == "status" || sub == "finalize" => (Some(namespace), rest),
            _ => (Some(namespace), deeper),
        },
        _ => (None, rest),
    };
    let (resource, name, subresource) = match rest {
        [] => return None,
        [resource] => (resource, None, None),
        [resource, name] => (resource, Some(name), None),
        // What lies deeper than a subresource is served nowhere; the joined text cannot be the name of one.
        [resource, name, deeper @ ..] => (resource, Some(name), Some(deeper.join("/"))),
    };
    Some(ResourcePath {
        group,
        version: version.clone(),
        resource: resource.clone(),
        subresource,
        namespace: namespace.cloned(),
        name: name.cloned(),
        selected_name: None,
    })
}

/// GET and DELETE of a collection are verbs of their own; `watch` makes a watch of the former, and says nothing about one
/// object.
fn refine(verb: Verb, path: &mut ResourcePath, query: &Query) -> Verb {
    let watch = query.get("watch").is_some_and(|value| !matches!(value, "false" | "0"));
    match verb {
        Verb::Get if path.name.is_none() => {
            path.selected_name = query.get("fieldSelector").and_then(selected_name);
            if watch { Verb::Watch } else { Verb::List }
        }
        Verb::Delete if path.name.is_none() => Verb::DeleteCollection,
        other => other,
    }
}

/// The one name a field selector admits, if it does.
fn selected_name(selector: &str) -> Option<String> {
    let (_, name) =
        selector.split(',').filter_map(|term| term.split_once('=')).find(|(key, _)| *key == "metadata.name")?;
    let name = name.strip_prefix('=').unwrap_or(name);
    (!name.is_empty() && !name.contains('/')).then(|| name.to_owned())
}
