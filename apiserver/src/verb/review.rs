//! Questions that are asked as objects: who am I, may somebody do something, what may I do. The answer is the object with
//! a status; nothing is stored.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, Work, incoming, options::WriteOptions};
use crate::{
    error::{Cause, Error, Result},
    filter::authz::{Attributes, Decision, Target, rbac::PolicyRule},
    object::meta,
    registry::Review,
    request::{ResourcePath, User},
};

/// POST of a question.
pub async fn review(work: &Work<'_>, review: Review, bytes: &[u8], content_type: &str) -> Result<Answer> {
    let options = WriteOptions::parse(work.context, "CreateOptions")?;
    let kind = work.route.kind;
    let mut question = incoming::object(work, kind, bytes, content_type, options.validation)?;
    let status = match review {
        Review::SelfSubject => json!({"userInfo": work.context.user.info()}),
        Review::SelfSubjectAccess => access(work, &work.context.user, &question).await?,
        Review::SubjectAccess | Review::LocalSubjectAccess => {
            access(work, &somebody(work, &question)?, &question).await?
        }
        Review::SelfSubjectRules => rules(work, &question)?,
    };
    if let Some(map) = question.as_object_mut() {
        map.insert("status".to_owned(), status);
    }
    let json = Bytes::from(serde_json::to_vec(&question).map_err(Error::internal)?);
    Ok(Answer::Object { created: true, kind_of: kind.plural.to_owned(), json })
}

async fn access(work: &Work<'_>, user: &User, question: &Value) -> Result<Value> {
    let asked = asked(work, question)?;
    Ok(match work.context.rights.authorize(user, &asked).await? {
        Decision::Allow(reason) => status(true, false, &reason),
        Decision::Deny(reason) => status(false, true, &reason),
        Decision::NoOpinion(reason) => status(false, false, &reason),
    })
}

fn status(allowed: bool, denied: bool, reason: &str) -> Value {
    let mut status = json!({"allowed": allowed});
    if let Some(map) = status.as_object_mut() {
        if denied {
            map.insert("denied".to_owned(), json!(true));
        }
        if !reason.is_empty() {
            map.insert("reason".to_owned(), json!(reason));
        }
    }
    status
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: std::collections::BTreeMap<String, Vec<String>>,
    resource_attributes: Option<ResourceAttributes>,
    non_resource_attributes: Option<NonResourceAttributes>,
    namespace: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResourceAttributes {
    namespace: String,
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NonResourceAttributes {
    path: String,
    verb: String,
}

fn spec(question: &Value) -> Result<Spec> {
    let spec = question.get("spec").filter(|spec| !spec.is_null());
    let spec = spec.map(Spec::deserialize).transpose();
    spec.map(Option::unwrap_or_default).map_err(|error| Error::bad_request(format!("reading the question: {error}")))
}

fn refused(work: &Work<'_>, cause: Cause) -> Error {
    Error::Invalid { kind: work.route.kind.qualified(), name: String::new(), causes: vec![cause] }
}

fn somebody(work: &Work<'_>, question: &Value) -> Result<User> {
    let Spec { user: name, uid, groups, extra, .. } = spec(question)?;
    if name.is_empty() && groups.is_empty() {
        let cause = Cause::invalid("spec.user", &"\"\"", "at least one of user or group must be specified");
        return Err(refused(work, cause));
    }
    Ok(User { name, uid, groups, extra })
}

fn asked(work: &Work<'_>, question: &Value) -> Result<Attributes> {
    let spec = spec(question)?;
    match (spec.resource_attributes, spec.non_resource_attributes) {
        (Some(about), None) => {
            let given = |text: String| Some(text).filter(|text| !text.is_empty());
            let in_path = work.route.namespace.map(str::to_owned);
            if in_path.as_ref().is_some_and(|namespace| *namespace != about.namespace) {
                let why = "must match metadata.namespace";
                let value = meta::quoted(&about.namespace);
                return Err(refused(work, Cause::invalid("spec.resourceAttributes.namespace", &value, why)));
            }
            let path = ResourcePath {
                group: about.group,
                version: about.version,
                resource: about.resource,
                subresource: given(about.subresource),
                namespace: given(about.namespace),
                name: given(about.name),
                selected_name: None,
            };
            Ok(Attributes::new(about.verb, Target::Resource(path)))
        }
        (None, Some(about)) => Ok(Attributes::new(about.verb.to_lowercase(), Target::Path(about.path))),
        (Some(_), Some(_)) | (None, None) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            Err(refused(work, Cause::invalid("spec.resourceAttributes", &"{}", why)))
        }
    }
}

fn rules(work: &Work<'_>, question: &Value) -> Result<Value> {
    let namespace = spec(question)?.namespace;
    if namespace.is_empty() {
        return Err(Error::bad_request("no namespace on request"));
    }
    let rules = work.context.rights.rules(&work.context.user, &namespace)?;
    let (paths, resources): (Vec<PolicyRule>, Vec<PolicyRule>) =
        rules.into_iter().partition(|rule| !rule.non_resource_urls.is_empty());
    Ok(json!({"incomplete": false, "nonResourceRules": paths, "resourceRules": resources}))
}
