//! The kinds of rbac.authorization.k8s.io, and the questions about rights that are asked as objects: so that the rights of
//! a cluster can be tried in standalone. In a cluster the kube-apiserver serves them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::access::{Access, Part};
use super::{Column, Kind, Names, Review, Scope};
use crate::filter::authz::rbac::GROUP;
use crate::request::Verb;
use crate::resource::{Strategy, host::Document, roles};
use crate::wire::protobuf;

type Outcome = Result<Kind, merge::SchemaError>;

/// All of them.
pub(super) fn kinds() -> Result<Vec<Kind>, merge::SchemaError> {
    let mut kinds = vec![
        role("ClusterRole", "clusterroles", "clusterrole", Scope::Cluster)?,
        binding("ClusterRoleBinding", "clusterrolebindings", "clusterrolebinding", Scope::Cluster)?,
        role("Role", "roles", "role", Scope::Namespaced)?,
        binding("RoleBinding", "rolebindings", "rolebinding", Scope::Namespaced)?,
    ];
    for review in Review::ALL {
        kinds.push(question(review)?);
    }
    Ok(kinds)
}

fn named(kind: &'static str, plural: &'static str, singular: &'static str) -> Names {
    Names { group: GROUP, version: "v1", kind, plural, singular, short_names: &[] }
}

fn texts(about: &str) -> Value {
    json!({"type": "array", "description": about, "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"})
}

fn object(about: &str, properties: Value) -> Value {
    json!({"type": "object", "description": about, "properties": properties})
}

fn list(about: &str, items: Value) -> Value {
    json!({"type": "array", "description": about, "items": items, "x-kubernetes-list-type": "atomic"})
}

fn text(about: &str) -> Value {
    json!({"type": "string", "description": about})
}

fn rules() -> Value {
    let rule = object(
        "What may be done with what.",
        json!({
            "apiGroups": texts("API groups; empty text: the core group."),
            "nonResourceURLs": texts("Paths that are no resources; only in a ClusterRole."),
            "resourceNames": texts("Only objects of these names."),
            "resources": texts("Resources, such as pods, pods/log, */scale or *."),
            "verbs": texts("Verbs, such as get or *."),
        }),
    );
    list("What the role allows.", rule)
}

fn role(kind: &'static str, plural: &'static str, singular: &'static str, scope: Scope) -> Outcome {
    let open =
        json!({"type": "object", "description": "A label selector.", "x-kubernetes-preserve-unknown-fields": true});
    let selectors = list("Roles with these labels add their rules.", open);
    let aggregation = object("Collects the rules of other roles.", json!({"clusterRoleSelectors": selectors}));
    let properties = match scope {
        Scope::Cluster => json!({"rules": rules(), "aggregationRule": aggregation}),
        Scope::Namespaced => json!({"rules": rules()}),
    };
    let schema = object("A set of rights.", properties);
    let strategy = Arc::new(roles::Role { is_cluster: scope == Scope::Cluster });
    let columns = vec![Column::new("Created At", "date", "{.metadata.creationTimestamp}", "When it was made.")];
    let protobuf = if scope == Scope::Cluster { &protobuf::CLUSTER_ROLE } else { &protobuf::ROLE };
    let kind = Kind::new(named(kind, plural, singular), scope, schema, strategy)?;
    Ok(Kind { strategic: true, columns, protobuf: Some(protobuf), ..kind })
}

fn binding(kind: &'static str, plural: &'static str, singular: &'static str, scope: Scope) -> Outcome {
    let subject = object(
        "A user, a group or a service account.",
        json!({"kind": text("User, Group or ServiceAccount."), "apiGroup": text("Its API group."),
            "name": text("Its name."), "namespace": text("Of a service account.")}),
    );
    let role = object(
        "The role that is given.",
        json!({"apiGroup": text("rbac.authorization.k8s.io."), "kind": text("Role or ClusterRole."), "name": text("Its name.")}),
    );
    let properties = json!({"roleRef": role, "subjects": list("To whom it is given.", subject)});
    let strategy = Arc::new(roles::RoleBinding { is_cluster: scope == Scope::Cluster });
    let kind =
        Kind::new(named(kind, plural, singular), scope, object("Gives a role to subjects.", properties), strategy)?;
    let columns = vec![
        Column::new("Role", "string", "{.roleRef.kind}/{.roleRef.name}", "What is given."),
        Column::new("Subjects", "integer", "{~.subjects|0}", "To how many.").wide(),
    ];
    Ok(Kind { strategic: true, columns, protobuf: Some(&protobuf::ROLE_BINDING), ..kind })
}

fn question(review: Review) -> Outcome {
    let names = review.names();
    let open =
        |about: &str| json!({"type": "object", "description": about, "x-kubernetes-preserve-unknown-fields": true});
    let schema = object(
        "A question that is answered in its status, and not kept.",
        json!({"spec": open("The question."), "status": open("The answer.")}),
    );
    let strategy: Arc<dyn Strategy> = Arc::new(Document);
    let scope = if review == Review::LocalSubjectAccess { Scope::Namespaced } else { Scope::Cluster };
    let protobuf = match review {
        Review::SelfSubject => &protobuf::SELF_SUBJECT_REVIEW,
        Review::SelfSubjectAccess => &protobuf::SELF_SUBJECT_ACCESS_REVIEW,
        Review::SubjectAccess | Review::LocalSubjectAccess => &protobuf::SUBJECT_ACCESS_REVIEW,
        Review::SelfSubjectRules => &protobuf::SELF_SUBJECT_RULES_REVIEW,
    };
    // The webhook asks whether an author may reach what an object names.
    let access = match review {
        Review::SubjectAccess => vec![Access::of(Part::Webhook, &[Verb::Create])],
        Review::SelfSubject | Review::SelfSubjectAccess | Review::LocalSubjectAccess | Review::SelfSubjectRules => {
            Vec::new()
        }
    };
    Ok(Kind {
        access,
        strategic: true,
        review: Some(review),
        protobuf: Some(protobuf),
        ..Kind::new(names, scope, schema, strategy)?
    })
}
