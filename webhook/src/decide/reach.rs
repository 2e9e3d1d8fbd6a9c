//! What a request reaches beyond its object: Secrets, claims and directories of nodes that it names, and the right its
//! author must have for each.
//!
//! The controller and the pods that it makes touch what a specification names with rights of their own. Whoever may write
//! a RedisCluster must not get at anything by it that they could not get at themselves. Only what a change names anew is
//! asked about: who repairs something else in an object of somebody else's is not held up.

use types::{
    cluster::{BackupTarget, RedisClusterSpec},
    field::{Fault, Path},
};

use crate::review::{Author, Operation, Request, Stage, Subject};

/// A right that the author of a request must have, in the words of a SubjectAccessReview. Resources are of the core group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The field that names it.
    pub path: Path,
    /// What must be allowed.
    pub verb: &'static str,
    /// To what.
    pub resource: &'static str,
    /// To the one of this namespace that the field names; `None`: to all everywhere.
    pub namespace: Option<String>,
    /// What the field says.
    pub value: String,
}

impl Right {
    /// The fault of an author who does not have it.
    #[must_use]
    pub fn lacked_by(&self, author: &Author) -> Fault {
        let Self { path, verb, resource, namespace, value } = self;
        let what = match namespace {
            Some(namespace) => format!("{resource} {value:?} in namespace {namespace:?}"),
            None => (*resource).to_owned(),
        };
        Fault::forbidden(
            path.clone(),
            format!("naming it needs the right to {verb} {what}, which user {:?} does not have", author.username),
        )
    }

    /// The fault of nobody: it could not be asked.
    #[must_use]
    pub fn unknown(&self, author: &Author, why: &str) -> Fault {
        let Self { path, verb, resource, namespace: _, value: _ } = self;
        Fault::forbidden(
            path.clone(),
            format!("whether user {:?} may {verb} {resource} could not be asked ({why}); try again", author.username),
        )
    }
}

/// The rights that a request needs of its author.
#[must_use]
pub fn rights(request: &Request<'_>) -> Vec<Right> {
    if request.stage == Stage::Mutate || !matches!(request.operation, Operation::Create | Operation::Update) {
        return Vec::new();
    }
    let namespace = request.namespace.as_ref();
    let named = named(request.object.as_ref(), namespace);
    let known = self::named(request.old_object.as_ref(), namespace);
    named.into_iter().filter(|right| !known.contains(right)).collect()
}

fn named(subject: Option<&Subject>, namespace: &str) -> Vec<Right> {
    match subject {
        Some(Subject::Cluster(cluster)) if cluster.metadata.deletion_timestamp.is_none() => {
            by_cluster(&cluster.spec, namespace)
        }
        Some(Subject::Backup(backup)) => backup
            .spec
            .target
            .iter()
            .flat_map(|target| by_target(target, &Path::new("spec.target"), namespace))
            .collect(),
        Some(
            Subject::Cluster(_)
            | Subject::Scale(_)
            | Subject::Operation(_)
            | Subject::Policy(_)
            | Subject::Foreign
            | Subject::Malformed(_),
        )
        | None => Vec::new(),
    }
}

fn by_cluster(spec: &RedisClusterSpec, namespace: &str) -> Vec<Right> {
    let secret = spec.auth.as_ref().and_then(|auth| auth.secret_name.as_ref());
    let secret = secret.map(|name| get(Path::new("spec.auth.secretName"), "secrets", namespace, name));
    let target = spec.backup.as_ref().map(|backup| &backup.target);
    let target = target.map(|target| by_target(target, &Path::new("spec.backup.target"), namespace));
    secret.into_iter().chain(target.unwrap_or_default()).collect()
}

fn by_target(target: &BackupTarget, path: &Path, namespace: &str) -> Vec<Right> {
    let BackupTarget { directory, persistent_volume_claim } = target;
    // A hostPath gives what a PersistentVolume of that kind gives; who may create those may have it.
    let directory = directory.as_ref().map(|directory| Right {
        path: path.child("directory.path"),
        verb: "create",
        resource: "persistentvolumes",
        namespace: None,
        value: directory.path.clone(),
    });
    let claim = persistent_volume_claim.as_ref().map(|claim| {
        let path = path.child("persistentVolumeClaim.claimName");
        get(path, "persistentvolumeclaims", namespace, &claim.claim_name)
    });
    directory.into_iter().chain(claim).collect()
}

fn get(path: Path, resource: &'static str, namespace: &str, name: &str) -> Right {
    Right { path, verb: "get", resource, namespace: Some(namespace.to_owned()), value: name.to_owned() }
}
