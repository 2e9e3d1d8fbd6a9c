//! What our API server must be allowed to do at the kube-apiserver behind which it serves. Beside this it is bound to two
//! roles of Kubernetes' own: `system:auth-delegator`, and `extension-apiserver-authentication-reader` in kube-system.
//!
//! Parameters of admission policies are not among it: whoever writes a policy that reads objects lets us read them.

use serde_json::{Value, json};

/// Rules of a ClusterRole.
#[must_use]
pub fn rules() -> Vec<Value> {
    let admission = [
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations",
    ];
    vec![
        // Who is to be asked (`delegate::sources`).
        json!({"apiGroups": ["admissionregistration.k8s.io"], "resources": admission, "verbs": ["list", "watch"]}),
        // Whether a namespace is there, and goes; one that the watch does not know yet is asked for.
        json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]}),
        // Objects of ours are counted (`delegate::quotas`).
        json!({"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["list"]}),
        json!({"apiGroups": [""], "resources": ["resourcequotas/status"], "verbs": ["patch"]}),
    ]
}
