//! A replica that is older than its primary: why it is not in sync.

use plan::{Role, Seen, Waiting};

use crate::probe::Probed;

/// The numbers of a version, for comparing.
pub(super) fn parts(version: &str) -> Vec<u32> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// An older server may not be able to load what a newer one sends; both versions are told, as each says its own.
pub(super) fn why(probed: &Probed, reason: &Waiting) -> Option<String> {
    let Waiting::Sync { pod, link_up: false, .. } = reason else { return None };
    let Seen::Node(node) = &probed.observed.members.get(pod)?.seen else { return None };
    let Role::Replica { of, .. } = node.role else { return None };
    let is_primary = |seen: &Seen| matches!(seen, Seen::Node(node) if node.id == of);
    let (primary, _) = probed.observed.members.iter().find(|(_, member)| is_primary(&member.seen))?;
    let (old, new) = (probed.facts.get(pod)?, probed.facts.get(primary)?);
    let is_older = old.engine == new.engine && !old.version.is_empty() && parts(&old.version) < parts(&new.version);
    is_older.then(|| {
        format!(
            "it runs {}, which may not load what its primary {primary} with {} sends, until it is restarted",
            old.version, new.version
        )
    })
}
