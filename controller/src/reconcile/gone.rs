//! A cluster that leaves, or is not there.

use jiff::Timestamp;
use types::cluster::Phase;
use types::{RedisBackup, RedisCluster};

use super::records::{expire_operations, write_operation};
use super::{Context, Error, has_finalizer, pace};
use crate::delete::{self, delete};
use crate::gather::Gathered;
use crate::queue::{Key, Next};
use crate::{backup, operate};

/// The object is being deleted.
pub(super) async fn leave(context: &Context, gathered: &Gathered) -> Result<Next, Error> {
    if !has_finalizer(&gathered.cluster) {
        return Ok(Next::OnChange);
    }
    let progress = delete(&context.kubernetes, gathered).await?;
    match progress {
        delete::Progress::Waiting(_) => {
            tell_leaving(context, gathered).await?;
            Ok(Next::After(pace::WHILE_LEAVING))
        }
        delete::Progress::Done => {
            context.locals.forget(&gathered.key());
            Ok(Next::OnChange)
        }
    }
}

/// One word, once.
async fn tell_leaving(context: &Context, gathered: &Gathered) -> Result<(), Error> {
    let mut status = gathered.cluster.status.clone().unwrap_or_default();
    if status.phase == Some(Phase::Deleting) {
        return Ok(());
    }
    status.phase = Some(Phase::Deleting);
    context.kubernetes.replace_status(&RedisCluster { status: Some(status), ..(*gathered.cluster).clone() }).await?;
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
