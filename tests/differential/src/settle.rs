//! Waits until a server judges requests by all that was written before: policies and quotas reach admission by way of a watch, and when is
//! chance. One more of the same kind, written last, refuses a request of its own as soon as everything before it counts.
//!
//! It must not know which server it is, and judges nothing.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    client::{Call, Session},
    kubernetes::post,
};

/// What is waited for.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Settled {
    /// Policies, their bindings, and the namespaces that those select.
    Policies,
    /// Quotas and their status.
    Quotas,
}

/// Name of the last one, and what its refusal says: another one each time, as one that was deleted may count for a while still.
fn fresh() -> String {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    format!("canary-{}", CALLS.fetch_add(1, Ordering::Relaxed))
}

/// Between two requests.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// Waits until everything of a kind counts that was written in a namespace, and leaves nothing behind there.
pub(crate) async fn settle(session: &mut Session, namespace: &str, what: Settled) -> Result<()> {
    let canary = fresh();
    let (made, target) = match what {
        Settled::Policies => (policy(namespace, &canary), format!("/api/v1/namespaces/{namespace}/configmaps")),
        Settled::Quotas => (quota(namespace, &canary), format!("/api/v1/namespaces/{namespace}/secrets")),
    };
    for (collection, object) in &made {
        let answer = session.send(&post(collection, object)).await?;
        ensure!(answer.status == 201, "{collection}: {}", String::from_utf8_lossy(&answer.body));
    }
    if let Settled::Quotas = what {
        limited(session, namespace, &canary).await?;
    }
    let request = post(&format!("{target}?dryRun=All"), &json!({"metadata": {"name": canary}}));
    let begin = Instant::now();
    loop {
        let answer = session.send(&request).await?;
        if answer.status >= 400 && what.is_refused_by(&canary, &String::from_utf8_lossy(&answer.body)) {
            break;
        }
        ensure!(begin.elapsed() < hung::process(), "what was written does not count: {what:?} in {namespace}");
        tokio::time::sleep(PAUSE).await;
    }
    for (collection, object) in made.iter().rev() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let call =
            Call { method: "DELETE".into(), target: format!("{collection}/{name}"), headers: vec![], body: vec![] };
        let answer = session.send(&call).await?;
        ensure!(answer.status == 200, "{}: {}", call.target, String::from_utf8_lossy(&answer.body));
    }
    Ok(())
}

impl Settled {
    /// Whether the last one refused it: what others say of a request, or what is said while it is not known yet, has its name, too.
    fn is_refused_by(self, canary: &str, body: &str) -> bool {
        match self {
            Self::Policies => body.contains(&format!("denied request: {canary}\"")),
            Self::Quotas => body.contains(&format!("exceeded quota: {canary},")),
        }
    }
}

/// What a controller does, which the oracle does not have: a quota counts by its status.
async fn limited(session: &mut Session, namespace: &str, canary: &str) -> Result<()> {
    let none = json!({"count/secrets": "0"});
    let call = Call {
        method: "PATCH".into(),
        target: format!("/api/v1/namespaces/{namespace}/resourcequotas/{canary}/status"),
        headers: vec![("content-type".into(), "application/merge-patch+json".into())],
        body: json!({"status": {"hard": none, "used": none}}).to_string().into_bytes(),
    };
    let answer = session.send(&call).await?;
    // A server that counts by itself may have written it meanwhile.
    ensure!([200, 409].contains(&answer.status), "{}: {}", call.target, String::from_utf8_lossy(&answer.body));
    Ok(())
}

type Made = Vec<(String, Value)>;

fn policy(namespace: &str, canary: &str) -> Made {
    let group = "/apis/admissionregistration.k8s.io/v1";
    let name = format!("{namespace}-{canary}");
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
    let spec = json!({"matchConstraints": {"resourceRules": [rule]},
                      "validations": [{"expression": "false", "message": canary}]});
    let here = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}});
    let bound = json!({"policyName": name, "validationActions": ["Deny"], "matchResources": here});
    let object = |kind: &str, spec: &Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    vec![
        (format!("{group}/validatingadmissionpolicies"), object("ValidatingAdmissionPolicy", &spec)),
        (format!("{group}/validatingadmissionpolicybindings"), object("ValidatingAdmissionPolicyBinding", &bound)),
    ]
}

fn quota(namespace: &str, canary: &str) -> Made {
    let object = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": canary},
                        "spec": {"hard": {"count/secrets": "0"}}});
    vec![(format!("/api/v1/namespaces/{namespace}/resourcequotas"), object)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_ones_own_refusal_says_that_all_before_it_counts() {
        assert_ne!(fresh(), fresh());
        let quotas = |why: &str| {
            let body = json!({"message": format!("secrets \"canary-1\" is forbidden: {why}")}).to_string();
            Settled::Quotas.is_refused_by("canary-1", &body)
        };
        let amounts = "requested: count/secrets=1, used: count/secrets=0, limited: count/secrets=0";
        assert!(quotas(&format!("exceeded quota: canary-1, {amounts}")));
        assert!(!quotas(&format!("exceeded quota: canary-10, {amounts}")));
        assert!(!quotas(&format!("exceeded quota: first, {amounts}")));
        assert!(!quotas("status unknown for quota: canary-1, resources: count/secrets"));
        let policies = |policy: &str, why: &str| {
            let told = format!("ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {why}");
            let body = json!({"message": format!("configmaps \"canary-1\" is forbidden: {told}"), "reason": "Invalid"});
            Settled::Policies.is_refused_by("canary-1", &body.to_string())
        };
        assert!(policies("ns-canary-1", "canary-1"));
        assert!(!policies("ns-canary-10", "canary-10"));
        assert!(!policies("other", "no"));
    }
}
