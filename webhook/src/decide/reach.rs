//! What a request reaches beyond its object: Secrets, claims and directories of nodes that it names, and the right its
//! author must have for each.
//!
//! The controller and the pods that it makes touch what a specification names with rights of their own. Whoever may write
//! a RedisCluster may run a program of theirs in its namespace, as with a Deployment, and must not get at any Secret, claim or directory by
//! its name that they could not get at themselves; and whoever may write the record of
//! an action must not start one that its subresource would refuse them. Whoever has files of a backup erased that were to stay reaches
//! them as if he named their place. Only what a change names anew is
//! asked about: who repairs something else in an object of somebody else's is not held up.

use types::{
    backup::ArtifactPolicy,
    cluster::{BackupTarget, RedisClusterSpec},
    field::{Fault, Path},
    operation::RedisOperationSpec,
};

use crate::review::{Author, Operation, Request, Stage, Subject};

/// A right that the author of a request must have, in the words of a SubjectAccessReview.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The field that names it.
    pub path: Path,
    /// What must be allowed.
    pub verb: &'static str,
    /// The group of what; empty: the core group.
    pub group: &'static str,
    /// To what.
    pub resource: &'static str,
    /// To which part of it.
    pub subresource: Option<&'static str>,
    /// In which namespace; `None`: everywhere.
    pub namespace: Option<String>,
    /// To which one; `None`: any.
    pub name: Option<String>,
    /// What the field says: another word there is another question.
    pub value: String,
}

impl Right {
    /// The fault of an author who does not have it.
    #[must_use]
    pub fn lacked_by(&self, author: &Author) -> Fault {
        let Self { path, verb, name, namespace, .. } = self;
        let mut what = self.what();
        if let Some(name) = name {
            what.push_str(&format!(" {name:?}"));
        }
        if let Some(namespace) = namespace {
            what.push_str(&format!(" in namespace {namespace:?}"));
        }
        Fault::forbidden(
            path.clone(),
            format!("it needs the right to {verb} {what}, which user {:?} does not have", author.username),
        )
    }

    /// The fault of nobody: it could not be asked.
    #[must_use]
    pub fn unknown(&self, author: &Author, why: &str) -> Fault {
        let (path, verb, what) = (self.path.clone(), self.verb, self.what());
        Fault::forbidden(
            path,
            format!("whether user {:?} may {verb} {what} could not be asked ({why}); try again", author.username),
        )
    }

    fn what(&self) -> String {
        self.subresource.map_or_else(|| self.resource.to_owned(), |part| format!("{}/{part}", self.resource))
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
    let anew = named.into_iter().filter(|right| !known.contains(right));
    anew.chain(erased(request.object.as_ref(), request.old_object.as_ref(), namespace)).collect()
}

/// What is to be erased with its record, and was to stay until now: it needs what a backup to that place needs.
fn erased(new: Option<&Subject>, old: Option<&Subject>, namespace: &str) -> Vec<Right> {
    let (Some(Subject::Backup(new)), Some(Subject::Backup(old))) = (new, old) else { return Vec::new() };
    match (old.spec.deletion_policy, new.spec.deletion_policy) {
        (ArtifactPolicy::Retain, ArtifactPolicy::Delete) => {}
        (ArtifactPolicy::Retain | ArtifactPolicy::Delete, ArtifactPolicy::Retain)
        | (ArtifactPolicy::Delete, ArtifactPolicy::Delete) => return Vec::new(),
    }
    // As the controller looks for them: where the record names no place, they lie where the cluster's was when they were made.
    let stored = old.status.as_ref().and_then(|status| status.target.as_ref());
    let place = stored.or(old.spec.target.as_ref()).into_iter();
    let path = "spec.deletionPolicy";
    let reached = place.flat_map(|target| by_target(target, &Path::new(path), namespace));
    let reached = reached.map(|right| Right { path: Path::new(path), ..right });
    reached.chain([act(path, "backup", namespace, &old.spec.cluster_name)]).collect()
}

fn named(subject: Option<&Subject>, namespace: &str) -> Vec<Right> {
    match subject {
        Some(Subject::Cluster(cluster)) if cluster.metadata.deletion_timestamp.is_none() => {
            by_cluster(&cluster.spec, namespace)
        }
        Some(Subject::Backup(backup)) => {
            let target = backup.spec.target.iter();
            let reached = target.flat_map(|target| by_target(target, &Path::new("spec.target"), namespace));
            reached.chain([act("spec", "backup", namespace, &backup.spec.cluster_name)]).collect()
        }
        Some(Subject::Operation(operation)) => by_operation(&operation.spec, namespace),
        Some(
            Subject::Cluster(_) | Subject::Scale(_) | Subject::Policy(_) | Subject::Foreign | Subject::Malformed(_),
        )
        | None => Vec::new(),
    }
}

fn by_cluster(spec: &RedisClusterSpec, namespace: &str) -> Vec<Right> {
    let secret = spec.auth.as_ref().and_then(|auth| auth.secret_name.as_ref());
    let image = secret.zip(spec.image.as_ref()).map(|(name, image)| beside(name, image, namespace));
    let secret = secret.map(|name| get(Path::new("spec.auth.secretName"), "secrets", namespace, name));
    let target = spec.backup.as_ref().map(|backup| &backup.target);
    let target = target.map(|target| by_target(target, &Path::new("spec.backup.target"), namespace));
    secret.into_iter().chain(image).chain(target.unwrap_or_default()).collect()
}

/// An image that somebody names runs beside the mounted Secret, and may read it: that the author of another field was asked for it is not enough.
fn beside(secret: &str, image: &str, namespace: &str) -> Right {
    Right { value: format!("{secret} {image}"), ..get(Path::new("spec.image"), "secrets", namespace, secret) }
}

fn by_target(target: &BackupTarget, path: &Path, namespace: &str) -> Vec<Right> {
    let BackupTarget { directory, persistent_volume_claim } = target;
    // A hostPath gives what a PersistentVolume of that kind gives; who may create those may have it.
    let directory = directory.as_ref().map(|directory| Right {
        path: path.child("directory.path"),
        verb: "create",
        group: "",
        resource: "persistentvolumes",
        subresource: None,
        namespace: None,
        name: None,
        value: directory.path.clone(),
    });
    let claim = persistent_volume_claim.iter().flat_map(|claim| {
        let path = path.child("persistentVolumeClaim.claimName");
        // Who reads it, and writes to it, is a pod.
        let pods = Right { verb: "create", name: None, ..get(path.clone(), "pods", namespace, &claim.claim_name) };
        [get(path, "persistentvolumeclaims", namespace, &claim.claim_name), pods]
    });
    directory.into_iter().chain(claim).collect()
}

/// What the subresources of the actions ask for.
fn by_operation(spec: &RedisOperationSpec, namespace: &str) -> Vec<Right> {
    let failover = spec.failover.iter().map(|_| ("spec.failover", "failover"));
    let asked = failover.chain(spec.restart.iter().map(|_| ("spec.restart", "restart")));
    asked.map(|(path, subresource)| act(path, subresource, namespace, &spec.cluster_name)).collect()
}

fn act(path: &str, subresource: &'static str, namespace: &str, cluster: &str) -> Right {
    Right {
        path: Path::new(path),
        verb: "create",
        group: types::GROUP,
        resource: "redisclusters",
        subresource: Some(subresource),
        namespace: Some(namespace.to_owned()),
        name: Some(cluster.to_owned()),
        value: cluster.to_owned(),
    }
}

fn get(path: Path, resource: &'static str, namespace: &str, name: &str) -> Right {
    let (namespace, value) = (Some(namespace.to_owned()), name.to_owned());
    Right { path, verb: "get", group: "", resource, subresource: None, namespace, name: Some(value.clone()), value }
}
