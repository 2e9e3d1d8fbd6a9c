//! A cluster that leaves, or is not there.

use std::collections::BTreeSet;

use jiff::Timestamp;
use types::{RedisBackup, RedisCluster};

use super::records::{expire_operations, write_operation};
use super::{Context, Error, has_finalizer, pace};
use crate::delete::{self, delete};
use crate::gather::Gathered;
use crate::queue::{Key, Next};
use crate::report::{Leaving, leaving};
use crate::{backup, chain, operate};

/// The object is being deleted.
pub(super) async fn leave(context: &Context, gathered: &Gathered) -> Result<Next, Error> {
    if !has_finalizer(&gathered.cluster) {
        return Ok(Next::OnChange);
    }
    let progress = match delete(&context.kubernetes, gathered).await {
        Ok(progress) => progress,
        Err(error) => {
            let error = Error::from(error);
            if !error.is_change() {
                tell_leaving(context, gathered, &chain(&error)).await?;
            }
            return Err(error);
        }
    };
    match progress {
        delete::Progress::Waiting(why) => {
            tell_leaving(context, gathered, &why).await?;
            Ok(Next::After(pace::WHILE_LEAVING))
        }
        delete::Progress::Done => {
            context.locals.forget(&gathered.key());
            Ok(Next::OnChange)
        }
    }
}

/// What is waited for and what will be left, whenever that is another.
async fn tell_leaving(context: &Context, gathered: &Gathered, why: &str) -> Result<(), Error> {
    let cluster = &*gathered.cluster;
    let kept = delete::kept(gathered);
    let pods: BTreeSet<&str> = gathered.pods.keys().map(String::as_str).collect();
    let status = leaving(cluster, &Leaving { why, kept: kept.as_deref(), pods: &pods }, Timestamp::now());
    if cluster.status.as_ref() != Some(&status) {
        context.kubernetes.replace_status(&RedisCluster { status: Some(status), ..cluster.clone() }).await?;
    }
    Ok(())
}

/// There is no such object, nor a StatefulSet of one. Its records end; whatever else carries its labels is never touched.
pub(super) async fn absent(context: &Context, key: &Key) -> Result<Next, Error> {
    context.locals.forget(key);
    let now = Timestamp::now();
    let caches = &context.kubernetes.caches;
    for operation in caches.operations.of(key).values() {
        if let Some(status) = operate::without_cluster(operation, now) {
            write_operation(context, operation, status).await?;
        }
    }
    for backup in caches.backups.of(key).values() {
        if let Some(status) = backup::without_cluster(backup, now) {
            let next = RedisBackup { status: Some(status), ..(**backup).clone() };
            context.kubernetes.replace_status(&next).await?;
        }
    }
    let operations: Vec<_> = caches.operations.of(key).into_values().collect();
    expire_operations(context, &operations, now).await?;
    backup::tidy_without_cluster(&context.kubernetes, key, now).await?;
    let records = !operations.is_empty() || !caches.backups.of(key).is_empty();
    Ok(if records { Next::After(pace::RECORDS) } else { Next::OnChange })
}
