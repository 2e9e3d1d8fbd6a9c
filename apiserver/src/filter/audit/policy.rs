//! Kubernetes' audit policy: how much is recorded of which request, and in which stages. The first rule that matches
//! decides; what none matches is not recorded. Pure, but for reading the file.

use std::collections::BTreeSet;
use std::path::Path;

use crate::configuration::{self, Document, Error, Fault, Field};
use crate::request::{Call, ResourcePath, User};

/// How much is recorded of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    #[default]
    None,
    /// Who, what, when, with what outcome.
    Metadata,
    /// The object that was sent, besides.
    Request,
    /// The object that was answered, besides.
    RequestResponse,
}

impl Level {
    /// The word in policies and events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// When an event is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Before anything is done.
    RequestReceived,
    /// A watch has begun.
    ResponseStarted,
    /// The answer was sent.
    ResponseComplete,
    /// The server failed badly.
    Panic,
}

impl Stage {
    const ALL: [Self; 4] = [Self::RequestReceived, Self::ResponseStarted, Self::ResponseComplete, Self::Panic];

    /// The word in policies and events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// What is recorded of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// How much.
    pub level: Level,
    /// In which stages nothing.
    pub omitted: BTreeSet<Stage>,
    /// Objects are recorded without their managedFields.
    pub omit_managed_fields: bool,
}

/// Whose requests are meant, for what.
#[derive(Clone, Debug, Default)]
struct Rule {
    level: Level,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<Resources>,
    namespaces: Vec<String>,
    urls: Vec<String>,
    omitted: BTreeSet<Stage>,
    omit_managed_fields: Option<bool>,
}

/// Resources of one group.
#[derive(Clone, Debug, Default)]
struct Resources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

/// A policy.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    omitted: BTreeSet<Stage>,
    omit_managed_fields: bool,
}

impl Policy {
    /// Reads the file.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = configuration::text(path)?;
        Self::parse(&text).map_err(|fault| Error::Fault { path: path.to_owned(), fault })
    }

    /// Reads the text of a file.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let document = Document::read(text, "audit.k8s.io/v1", "Policy")?;
        let root = document.root();
        root.names(&["apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"])?;
        let rules = root.at("rules");
        let entries = rules.items()?;
        if entries.is_empty() {
            return Err(rules.fault("at least one rule is required"));
        }
        Ok(Self {
            rules: entries.iter().map(rule).collect::<Result<_, _>>()?,
            omitted: stages(&root.at("omitStages"))?,
            omit_managed_fields: root.at("omitManagedFields").flag()?.unwrap_or(false),
        })
    }

    /// What is recorded of a call. `user` is who has been authenticated, whoever he acts as.
    #[must_use]
    pub fn decide(&self, user: &User, call: &Call) -> Decision {
        let Some(rule) = self.rules.iter().find(|rule| rule.matches(user, call)) else {
            return Decision { level: Level::None, omitted: self.omitted.clone(), ..Decision::default() };
        };
        Decision {
            level: rule.level,
            omitted: self.omitted.union(&rule.omitted).copied().collect(),
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
        }
    }
}

fn rule(entry: &Field<'_>) -> Result<Rule, Fault> {
    entry.names(&[
        "level",
        "users",
        "userGroups",
        "verbs",
        "resources",
        "namespaces",
        "nonResourceURLs",
        "omitStages",
        "omitManagedFields",
    ])?;
    let rule = Rule {
        level: level(&entry.at("level"))?,
        users: entry.at("users").texts()?,
        groups: entry.at("userGroups").texts()?,
        verbs: entry.at("verbs").texts()?,
        resources: entry.at("resources").items()?.iter().map(resources).collect::<Result<_, _>>()?,
        namespaces: entry.at("namespaces").texts()?,
        urls: urls(&entry.at("nonResourceURLs"))?,
        omitted: stages(&entry.at("omitStages"))?,
        omit_managed_fields: entry.at("omitManagedFields").flag()?,
    };
    let is_about_resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
    if is_about_resources && !rule.urls.is_empty() {
        let why = "rules cannot apply to both regular resources and non-resource URLs";
        return Err(entry.at("nonResourceURLs").fault(why));
    }
    Ok(rule)
}

fn level(field: &Field<'_>) -> Result<Level, Fault> {
    let all = [Level::None, Level::Metadata, Level::Request, Level::RequestResponse];
    let text = field.text()?.unwrap_or_default();
    let found = all.into_iter().find(|level| level.as_str() == text);
    found.ok_or_else(|| field.fault("must be one of None, Metadata, Request, RequestResponse"))
}

fn stages(list: &Field<'_>) -> Result<BTreeSet<Stage>, Fault> {
    let stage = |field: &Field<'_>| {
        let text = field.text()?.unwrap_or_default();
        let found = Stage::ALL.into_iter().find(|stage| stage.as_str() == text);
        found.ok_or_else(|| {
            field.fault("allowed stages are RequestReceived, ResponseStarted, ResponseComplete and Panic")
        })
    };
    list.items()?.iter().map(stage).collect()
}

fn resources(entry: &Field<'_>) -> Result<Resources, Fault> {
    entry.names(&["group", "resources", "resourceNames"])?;
    let group = entry.at("group");
    let resources = Resources {
        group: group.text()?.unwrap_or_default().to_owned(),
        resources: entry.at("resources").texts()?,
        names: entry.at("resourceNames").texts()?,
    };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if !resources.group.chars().all(plain) {
        return Err(group.fault("must be the name of a group, without a version"));
    }
    if !resources.names.is_empty() && resources.resources.is_empty() {
        return Err(entry.at("resourceNames").fault("using resourceNames requires at least one resource"));
    }
    Ok(resources)
}

fn urls(list: &Field<'_>) -> Result<Vec<String>, Fault> {
    for field in list.items()? {
        let url = field.text()?.unwrap_or_default();
        if url == "*" {
            continue;
        }
        if !url.starts_with('/') {
            return Err(field.fault("non-resource URL rules must begin with a '/' character"));
        }
        if url.strip_suffix('*').unwrap_or(url).contains('*') {
            return Err(field.fault("non-resource URL wildcards '*' must be the final character of the rule"));
        }
    }
    list.texts()
}

/// An empty list means everything.
fn is_in(list: &[String], text: &str) -> bool {
    list.is_empty() || list.iter().any(|item| item == text)
}

impl Rule {
    fn matches(&self, user: &User, call: &Call) -> bool {
        let is_of_group = self.groups.is_empty() || self.groups.iter().any(|group| user.is_in(group));
        let verb = if call.resource.is_some() { call.verb.as_str() } else { call.method.as_str() };
        if !is_in(&self.users, &user.name) || !is_of_group || !is_in(&self.verbs, verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return call.resource.as_ref().is_some_and(|path| self.is_about(path));
        }
        self.urls.is_empty() || (call.resource.is_none() && self.urls.iter().any(|url| covers(url, &call.path)))
    }

    fn is_about(&self, path: &ResourcePath) -> bool {
        is_in(&self.namespaces, path.namespace.as_deref().unwrap_or_default())
            && (self.resources.is_empty() || self.resources.iter().any(|some| some.hold(path)))
    }
}

impl Resources {
    fn hold(&self, path: &ResourcePath) -> bool {
        if self.group != path.group {
            return false;
        }
        let name = path.name.as_deref().or(path.selected_name.as_deref()).unwrap_or_default();
        self.resources.is_empty() || (is_in(&self.names, name) && self.resources.iter().any(|some| named(some, path)))
    }
}

/// `pods`, `pods/log`, `*`, `*/scale` and `pods/*`.
fn named(pattern: &str, path: &ResourcePath) -> bool {
    let subresource = path.subresource.as_deref().unwrap_or_default();
    match pattern.split_once('/') {
        None => pattern == "*" || (pattern == path.resource && subresource.is_empty()),
        Some(("*", wanted)) => wanted == subresource,
        Some((resource, "*")) => resource == path.resource,
        Some((resource, wanted)) => resource == path.resource && wanted == subresource,
    }
}

fn covers(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => path.starts_with(beginning),
        None => pattern == path,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;
    use crate::route;

    fn policy(rules: &str) -> Policy {
        Policy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}")).unwrap()
    }

    fn user() -> User {
        User { name: "jane".to_owned(), groups: vec!["team".to_owned()], ..User::default() }
    }

    fn level(rule: &str, request: &str) -> Level {
        let (method, rest) = request.split_once(' ').unwrap();
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let call = route::parse(method, path, Some(query)).unwrap();
        policy(&format!("rules: [{{level: Metadata, {rule}}}]")).decide(&user(), &call).level
    }

    #[test]
    fn a_rule_is_about_what_all_its_fields_allow() {
        let get = "GET /apis/redis.kun.io/v1/namespaces/shop/redisclusters/orders";
        let scale = "GET /apis/redis.kun.io/v1/namespaces/shop/redisclusters/orders/scale";
        let list = "GET /api/v1/secrets";
        let version = "GET /version";
        for (rule, request, matches) in [
            ("users: [jane]", get, true),
            ("users: [joe]", get, false),
            ("userGroups: [crew, team]", get, true),
            ("userGroups: [crew]", get, false),
            ("verbs: [get]", get, true),
            ("verbs: [list, watch]", get, false),
            ("verbs: [list]", list, true),
            ("verbs: [watch]", "GET /api/v1/secrets?watch=true", true),
            ("namespaces: [shop]", get, true),
            ("namespaces: [other]", get, false),
            ("namespaces: ['']", list, true),
            ("namespaces: ['']", version, false),
            ("resources: [{group: redis.kun.io}]", get, true),
            ("resources: [{group: redis.kun.io}]", scale, true),
            ("resources: [{group: ''}]", get, false),
            ("resources: [{resources: [secrets]}]", list, true),
            ("resources: [{group: redis.kun.io, resources: [redisclusters]}]", get, true),
            ("resources: [{group: redis.kun.io, resources: [redisclusters]}]", scale, false),
            ("resources: [{group: redis.kun.io, resources: [redisclusters/scale]}]", scale, true),
            ("resources: [{group: redis.kun.io, resources: [redisclusters/status]}]", scale, false),
            ("resources: [{group: redis.kun.io, resources: ['redisclusters/*']}]", scale, true),
            ("resources: [{group: redis.kun.io, resources: ['*/scale']}]", scale, true),
            ("resources: [{group: redis.kun.io, resources: ['*/scale']}]", get, false),
            ("resources: [{group: redis.kun.io, resources: ['*']}]", scale, true),
            ("resources: [{group: redis.kun.io, resources: ['*'], resourceNames: [orders]}]", get, true),
            ("resources: [{group: redis.kun.io, resources: ['*'], resourceNames: [other]}]", get, false),
            ("nonResourceURLs: ['*']", version, true),
            ("nonResourceURLs: ['/ver*']", version, true),
            ("nonResourceURLs: ['/version/']", version, false),
            ("nonResourceURLs: ['*']", get, false),
            ("verbs: [get]", version, true),
        ] {
            let expected = if matches { Level::Metadata } else { Level::None };
            assert_eq!(level(rule, request), expected, "{rule}: {request}");
        }
    }

    #[test]
    fn the_first_rule_counts_and_omissions_add_up() {
        let policy = policy(
            "omitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n- {level: None, users: [jane], verbs: [get]}\n- {level: Request, users: [jane], omitStages: [ResponseStarted]}\n- {level: RequestResponse, omitManagedFields: false}\n",
        );
        let call = |method| route::parse(method, "/api/v1/namespaces/a/pods/b", None).unwrap();
        assert_eq!(policy.decide(&user(), &call("GET")).level, Level::None);
        assert_eq!(
            policy.decide(&user(), &call("DELETE")),
            Decision {
                level: Level::Request,
                omitted: BTreeSet::from([Stage::RequestReceived, Stage::ResponseStarted]),
                omit_managed_fields: true,
            }
        );
        assert_eq!(
            policy.decide(&User::default(), &call("GET")),
            Decision {
                level: Level::RequestResponse,
                omitted: BTreeSet::from([Stage::RequestReceived]),
                omit_managed_fields: false,
            }
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_field() {
        for (text, expected) in [
            ("", "rules: at least one rule is required"),
            ("rules: []", "rules: at least one rule is required"),
            ("rule: []", "rule: unknown field"),
            ("rules: [{}]", "rules[0].level: must be one of None, Metadata, Request, RequestResponse"),
            ("rules: [{level: metadata}]", "rules[0].level: must be one of None, Metadata, Request, RequestResponse"),
            ("rules: [{level: None, user: [a]}]", "rules[0].user: unknown field"),
            ("rules: [{level: None, users: a}]", "rules[0].users: must be a list"),
            (
                "rules: [{level: None, omitStages: [Later]}]",
                "rules[0].omitStages[0]: allowed stages are RequestReceived, ResponseStarted, ResponseComplete and Panic",
            ),
            (
                "rules: [{level: None, nonResourceURLs: [a]}]",
                "rules[0].nonResourceURLs[0]: non-resource URL rules must begin with a '/' character",
            ),
            (
                "rules: [{level: None, nonResourceURLs: ['/*/a']}]",
                "rules[0].nonResourceURLs[0]: non-resource URL wildcards '*' must be the final character of the rule",
            ),
            (
                "rules: [{level: None, nonResourceURLs: [/a], namespaces: [b]}]",
                "rules[0].nonResourceURLs: rules cannot apply to both regular resources and non-resource URLs",
            ),
            (
                "rules: [{level: None, resources: [{group: apps/v1}]}]",
                "rules[0].resources[0].group: must be the name of a group, without a version",
            ),
            (
                "rules: [{level: None, resources: [{resourceNames: [a]}]}]",
                "rules[0].resources[0].resourceNames: using resourceNames requires at least one resource",
            ),
            ("rules: [{level: None}]\nomitManagedFields: 3", "omitManagedFields: must be true or false"),
        ] {
            let fault = Policy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{text}")).unwrap_err();
            assert_eq!(fault.to_string(), expected, "{text}");
        }
        let fault = Policy::parse("apiVersion: audit.k8s.io/v1beta1\nkind: Policy\n").unwrap_err();
        assert_eq!(fault.to_string(), "apiVersion: must be audit.k8s.io/v1");
    }
}
