//! What an entry of the registry says about its kind.

use std::{fmt, sync::Arc};

use serde_json::Value;

use super::{
    access::Access,
    version::{Conversion, Versions},
};
use crate::{
    error::Qualified,
    object::{shape::Shape, template::Template},
    request::Verb,
    resource::{Action, Strategy},
    wire::protobuf::Message,
};

/// Whether objects live in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In a namespace.
    Namespaced,
    /// In the cluster as a whole.
    Cluster,
}

/// What a delete does when its options say nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletePolicy {
    /// The object goes at once unless it has finalizers.
    Background,
    /// As Background, and a grace period is honoured: the object stays, marked, until whoever runs it deletes it
    /// with a grace period of 0 (pods).
    Graceful,
}

/// One column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    /// Header.
    pub name: &'static str,
    /// `string`, `integer`, `date`.
    pub kind: &'static str,
    /// `name` for the first column, else empty.
    pub format: &'static str,
    /// For `kubectl explain`-like readers.
    pub description: &'static str,
    /// 0: always shown; more: only with `-o wide`.
    pub priority: u8,
    /// Where the cell comes from.
    pub cell: Template,
}

impl Column {
    /// A column that is always shown. The template is written by us: a faulty one shows as empty cells and is
    /// caught by the golden test of tables.
    #[must_use]
    pub fn new(name: &'static str, kind: &'static str, template: &'static str, description: &'static str) -> Self {
        Self { name, kind, format: "", description, priority: 0, cell: Template::parse(template) }
    }

    /// The same column, shown with `-o wide` only.
    #[must_use]
    pub fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }
}

/// Where the numbers of `scale` lie in the parent, as JSON pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// What is asked for.
    pub spec: &'static str,
    /// What there is.
    pub status: &'static str,
    /// Label selector of what is counted, in string form. For a structured selector (StatefulSet): its pointer.
    pub selector: &'static str,
}

/// One subresource.
#[derive(Clone)]
pub enum Subresource {
    /// `/status`: the parent; only its status changes.
    Status,
    /// `/scale`: autoscaling/v1 Scale.
    Scale(ScalePaths),
    /// `/finalize` of a namespace: only `spec.finalizers` changes.
    Finalize,
    /// `/recover`: an object that was lost, made anew with its uid and generation.
    Recover,
    /// A create-only action.
    Action(Arc<dyn Action>),
}

impl Subresource {
    /// The last segment of its path.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale(_) => "scale",
            Self::Finalize => "finalize",
            Self::Recover => "recover",
            Self::Action(action) => action.name(),
        }
    }

    /// Its verbs, sorted by name.
    #[must_use]
    pub fn verbs(&self) -> &'static [Verb] {
        match self {
            Self::Status | Self::Scale(_) => &[Verb::Get, Verb::Patch, Verb::Update],
            Self::Finalize => &[Verb::Update],
            Self::Recover | Self::Action(_) => &[Verb::Create],
        }
    }
}

impl fmt::Debug for Subresource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One kind.
#[derive(Clone)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Served version.
    pub version: &'static str,
    /// How its objects become those of the stored version, the hub, and back; `None`: this is the hub.
    pub conversion: Option<Arc<dyn Conversion>>,
    /// Every version of it, this one too; the registry fills it in.
    pub versions: Versions,
    /// CamelCase.
    pub kind: &'static str,
    /// Plural, as in paths.
    pub plural: &'static str,
    /// Singular.
    pub singular: &'static str,
    /// Short names.
    pub short_names: &'static [&'static str],
    /// Categories such as `all`.
    pub categories: &'static [&'static str],
    /// Namespaced or not.
    pub scope: Scope,
    /// Description and schema as published.
    pub schema: Value,
    /// The same schema, compiled: unknown fields, defaults, types.
    pub shape: Arc<Shape>,
    /// Columns after Name and before Age.
    pub columns: Vec<Column>,
    /// Subresources, by name.
    pub subresources: Vec<Subresource>,
    /// Dotted paths that a field selector may name besides `metadata.name` and `metadata.namespace`.
    pub selectable: &'static [&'static str],
    /// The rules.
    pub strategy: Arc<dyn Strategy>,
    /// What a delete does by default.
    pub delete: DeletePolicy,
    /// How a protobuf body is read, for the few kinds that kubectl insists on sending so.
    pub protobuf: Option<&'static Message>,
    /// Whether strategic merge patches are read: true for the kinds compiled into kubectl, which sends no others there.
    pub strategic: bool,
    /// Whether its objects are reports (events): their names say nothing and are columns of `-o wide` only, and what
    /// counts is not their age but the time they tell.
    pub is_report: bool,
    /// What the parts of an installation do with its objects.
    pub access: Vec<Access>,
    /// Its objects are questions: answered, not kept.
    pub review: Option<Review>,
}

/// A question that is asked as an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Review {
    /// Who am I?
    SelfSubject,
    /// May I do something?
    SelfSubjectAccess,
    /// May somebody do something?
    SubjectAccess,
    /// May somebody do something in this namespace?
    LocalSubjectAccess,
    /// What may I do in a namespace?
    SelfSubjectRules,
}

impl Review {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::SelfSubject,
        Self::SelfSubjectAccess,
        Self::SubjectAccess,
        Self::LocalSubjectAccess,
        Self::SelfSubjectRules,
    ];

    /// What Kubernetes calls it.
    #[must_use]
    pub const fn names(self) -> Names {
        let (group, kind, plural, singular) = match self {
            Self::SelfSubject => {
                ("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews", "selfsubjectreview")
            }
            Self::SelfSubjectAccess => (
                "authorization.k8s.io",
                "SelfSubjectAccessReview",
                "selfsubjectaccessreviews",
                "selfsubjectaccessreview",
            ),
            Self::SubjectAccess => {
                ("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews", "subjectaccessreview")
            }
            Self::LocalSubjectAccess => (
                "authorization.k8s.io",
                "LocalSubjectAccessReview",
                "localsubjectaccessreviews",
                "localsubjectaccessreview",
            ),
            Self::SelfSubjectRules => {
                ("authorization.k8s.io", "SelfSubjectRulesReview", "selfsubjectrulesreviews", "selfsubjectrulesreview")
            }
        };
        Names { group, version: "v1", kind, plural, singular, short_names: &[] }
    }
}

/// Media type of a JSON patch (RFC 6902).
pub const JSON_PATCH: &str = "application/json-patch+json";
/// Media type of a merge patch (RFC 7396).
pub const MERGE_PATCH: &str = "application/merge-patch+json";
/// Media type of a strategic merge patch.
pub const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

/// Media type of an apply.
pub const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// Sorted by their names, as discovery prints them.
const VERBS: [Verb; 8] =
    [Verb::Create, Verb::Delete, Verb::DeleteCollection, Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch];

impl Kind {
    /// A kind with the given names and schema, and nothing else. Fails on a schema that is not structural.
    pub fn new(
        names: Names,
        scope: Scope,
        schema: Value,
        strategy: Arc<dyn Strategy>,
    ) -> Result<Self, merge::SchemaError> {
        let Names { group, version, kind, plural, singular, short_names } = names;
        let shape = Arc::new(Shape::new(&schema)?);
        Ok(Self {
            group,
            version,
            conversion: None,
            versions: Versions::default(),
            kind,
            plural,
            singular,
            short_names,
            categories: &[],
            scope,
            schema,
            shape,
            columns: Vec::new(),
            subresources: Vec::new(),
            selectable: &[],
            strategy,
            delete: DeletePolicy::Background,
            protobuf: None,
            strategic: false,
            is_report: false,
            access: Vec::new(),
            review: None,
        })
    }

    /// True if its objects are kept in this version.
    #[must_use]
    pub const fn is_hub(&self) -> bool {
        self.conversion.is_none()
    }

    /// An object of this version as it is kept.
    #[must_use]
    pub fn kept(&self, object: Value) -> Value {
        if self.is_hub() {
            return object;
        }
        self.versions.convert(object, &self.api_version(), &api_version(self.group, self.stored_version()))
    }

    /// An object that is kept, in this version.
    #[must_use]
    pub fn shown(&self, object: Value) -> Value {
        if self.is_hub() {
            return object;
        }
        self.versions.convert(object, &api_version(self.group, self.stored_version()), &self.api_version())
    }

    /// The subresource of this name.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name() == name)
    }

    /// True if `/status` is a subresource: then the status is written only there.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.subresources.iter().any(|sub| matches!(sub, Subresource::Status))
    }

    /// True for the kinds that Kubernetes itself serves. Its answers about custom resources differ from those in places;
    /// ours follow, kind by kind.
    #[must_use]
    pub const fn is_built_in(&self) -> bool {
        self.strategic
    }

    /// The verbs of the resource, sorted by name. Every kind that is kept has all: clients rely on it (garbage
    /// collection, quota).
    #[must_use]
    pub fn verbs(&self) -> &'static [Verb] {
        match self.review {
            None => &VERBS,
            Some(_) => &[Verb::Create],
        }
    }

    /// The media types of patches that it reads.
    #[must_use]
    pub fn patch_types(&self) -> &'static [&'static str] {
        if self.strategic {
            &[JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH]
        } else {
            &[JSON_PATCH, MERGE_PATCH, APPLY_PATCH]
        }
    }

    /// `apiVersion` of its objects.
    #[must_use]
    pub fn api_version(&self) -> String {
        api_version(self.group, self.version)
    }

    /// The version its objects are kept in.
    #[must_use]
    pub fn stored_version(&self) -> &'static str {
        self.versions.hub().map_or(self.version, |hub| hub.name)
    }

    /// Kind of its lists.
    #[must_use]
    pub fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    /// The resource as messages and `details` name it.
    #[must_use]
    pub fn resource(&self) -> Qualified {
        Qualified::new(self.group, self.plural)
    }

    /// The kind as messages and `details` of invalid objects name it.
    #[must_use]
    pub fn qualified(&self) -> Qualified {
        Qualified::new(self.group, self.kind)
    }

    /// The resource as the store names it: `group/plural`, or `plural` for the core group.
    #[must_use]
    pub fn store_resource(&self) -> String {
        match self.group {
            "" => self.plural.to_owned(),
            group => format!("{group}/{}", self.plural),
        }
    }
}

/// `group/version`, or `version` for the core group.
#[must_use]
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind({}.{}/{})", self.kind, self.group, self.version)
    }
}

/// The names of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// API group.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// CamelCase.
    pub kind: &'static str,
    /// Plural.
    pub plural: &'static str,
    /// Singular.
    pub singular: &'static str,
    /// Short names.
    pub short_names: &'static [&'static str],
}
