//! Waits until a server judges requests by all that was written before: policies and quotas reach admission by way of a watch, and when is
//! chance. One more of the same kind, written last, refuses a request of its own as soon as everything before it counts.
//!
//! It must not know which server it is, and judges nothing.

use std::time::{Duration, Instant};

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

/// Name of the last one, and what its refusal says.
const CANARY: &str = "canary";
/// Between two requests.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// Waits until everything of a kind counts that was written in a namespace, and leaves nothing behind there.
pub(crate) async fn settle(session: &mut Session, namespace: &str, what: Settled) -> Result<()> {
    let (made, target) = match what {
        Settled::Policies => (policy(namespace), format!("/api/v1/namespaces/{namespace}/configmaps")),
        Settled::Quotas => (quota(namespace), format!("/api/v1/namespaces/{namespace}/secrets")),
    };
    for (collection, object) in &made {
        let answer = session.send(&post(collection, object)).await?;
        ensure!(answer.status == 201, "{collection}: {}", String::from_utf8_lossy(&answer.body));
    }
    if let Settled::Quotas = what {
        limited(session, namespace).await?;
    }
    let request = post(&format!("{target}?dryRun=All"), &json!({"metadata": {"name": CANARY}}));
    let begin = Instant::now();
    loop {
        let answer = session.send(&request).await?;
        // An object of that name is refused for no other reason.
        if answer.status >= 400 && String::from_utf8_lossy(&answer.body).contains(CANARY) {
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

/// What a controller does, which the oracle does not have: a quota counts by its status.
async fn limited(session: &mut Session, namespace: &str) -> Result<()> {
    let none = json!({"count/secrets": "0"});
    let call = Call {
        method: "PATCH".into(),
        target: format!("/api/v1/namespaces/{namespace}/resourcequotas/{CANARY}/status"),
        headers: vec![("content-type".into(), "application/merge-patch+json".into())],
        body: json!({"status": {"hard": none, "used": none}}).to_string().into_bytes(),
    };
    let answer = session.send(&call).await?;
    // A server that counts by itself may have written it meanwhile.
    ensure!([200, 409].contains(&answer.status), "{}: {}", call.target, String::from_utf8_lossy(&answer.body));
    Ok(())
}

type Made = Vec<(String, Value)>;

fn policy(namespace: &str) -> Made {
    let group = "/apis/admissionregistration.k8s.io/v1";
    let name = format!("{namespace}-{CANARY}");
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
    let spec = json!({"matchConstraints": {"resourceRules": [rule]},
                      "validations": [{"expression": "false", "message": CANARY}]});
    let here = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}});
    let bound = json!({"policyName": name, "validationActions": ["Deny"], "matchResources": here});
    let object = |kind: &str, spec: &Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    vec![
        (format!("{group}/validatingadmissionpolicies"), object("ValidatingAdmissionPolicy", &spec)),
        (format!("{group}/validatingadmissionpolicybindings"), object("ValidatingAdmissionPolicyBinding", &bound)),
    ]
}

fn quota(namespace: &str) -> Made {
    let object = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": CANARY},
                        "spec": {"hard": {"count/secrets": "0"}}});
    vec![(format!("/api/v1/namespaces/{namespace}/resourcequotas"), object)]
}
