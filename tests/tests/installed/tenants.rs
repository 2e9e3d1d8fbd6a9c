//! Who may do little gets no more by us.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::{
    installed::{Installed, SYSTEM, sized},
    kubectl::Kubectl,
};

use crate::upkeep::ONE;

/// Waits until everybody who judges has heard of a right: the kube-apiserver follows roles by watches, and what it said counts with us for moments.
async fn may(tenant: &Kubectl, verb: &str) -> Result<()> {
    let begin = Instant::now();
    while !tenant.outcome(&["auth", "can-i", verb, "redisclusters.redis.kun.io", "--quiet"], "").await?.success {
        ensure!(begin.elapsed() < hung::process(), "the right to {verb} does not count");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// A tenant whose only rights are those on RedisClusters and their actions.
pub(crate) async fn who_may_edit_clusters_reaches_nothing_else_by_them(installed: &Installed) -> Result<()> {
    let admin = installed.kubectl.clone().within("tenancy");
    admin.run(&["create", "namespace", "tenancy"]).await?;
    admin.run(&["create", "serviceaccount", "tenant"]).await?;
    let kinds = "redisclusters.redis.kun.io,redisclusters.redis.kun.io/backup,redisbackups.redis.kun.io";
    admin.run(&["create", "role", "edit-clusters", "--verb=*", &format!("--resource={kinds}")]).await?;
    admin.run(&["create", "rolebinding", "tenant", "--role=edit-clusters", "--serviceaccount=tenancy:tenant"]).await?;
    admin.run(&["create", "secret", "generic", "foreign", "--from-literal=password=sesame"]).await?;
    let tenant = installed.service_account("tenancy", "tenant").await?.within("tenancy");
    may(&tenant, "create").await?;
    let who = "user \"system:serviceaccount:tenancy:tenant\"";
    let paused = |spec: Value| {
        let mut spec = spec;
        spec["paused"] = json!(true);
        sized("tenancy", "mine", ONE, &spec).to_string()
    };
    tenant.feed(&["create", "-f", "-"], &paused(json!({}))).await.context("what he may do")?;
    let table = [
        (json!({"auth": {"secretName": "foreign"}}), "get secrets \"foreign\" in namespace \"tenancy\""),
        (json!({"backup": {"target": {"directory": {"path": "/srv/mine"}}}}), "create persistentvolumes"),
        (
            json!({"backup": {"target": {"persistentVolumeClaim": {"claimName": "theirs"}}}}),
            "get persistentvolumeclaims \"theirs\" in namespace \"tenancy\"",
        ),
    ];
    for (spec, right) in table {
        let told = tenant.refused(&["apply", "--server-side", "-f", "-"], &paused(spec)).await?;
        ensure!(told.contains(&format!("needs the right to {right}, which {who} does not have")), "{told}");
    }
    let backup = json!({"apiVersion": types::API_VERSION, "kind": "RedisBackup",
        "spec": {"target": {"directory": {"path": "/srv/mine"}}}});
    let path = "/apis/redis.kun.io/v1/namespaces/tenancy/redisclusters/mine/backup";
    let told = tenant.refused(&["create", "--raw", path, "-f", "-"], &backup.to_string()).await?;
    ensure!(told.contains("create persistentvolumes"), "{told}");
    let elsewhere = sized("default", "mine", ONE, &json!({})).to_string();
    for (arguments, object) in [
        (vec!["get", "secrets"], ""),
        (vec!["get", "redisclusters", "-n", "default"], ""),
        (vec!["create", "-n", "default", "-f", "-"], elsewhere.as_str()),
        (vec!["get", "--raw", "/metrics"], ""),
        (
            vec![
                "patch",
                "redisclusters",
                "mine",
                "--subresource=status",
                "--type=merge",
                "-p",
                r#"{"status":{"phase":"Ready"}}"#,
            ],
            "",
        ),
    ] {
        let told = tenant.refused(&arguments, object).await?;
        ensure!(told.contains("forbidden") || told.contains("Forbidden"), "{arguments:?}: {told}");
    }
    admin.run(&["delete", "namespace", "tenancy", "--wait=false"]).await.map(drop)
}

/// Who says in a header who he is, and comes not from the kube-apiserver.
pub(crate) async fn a_proxy_that_nobody_named_is_refused(installed: &Installed) -> Result<()> {
    let service = installed.kubectl.clone().within(SYSTEM).get("service", "kun-apiserver").await?;
    let server = installed.part("kun-apiserver").await?;
    let service = service["spec"]["clusterIP"].as_str().context("address of the Service")?.to_owned();
    let pod = format!("{}:8443", server["status"]["podIP"].as_str().context("address of the pod")?);
    for address in [service, pod] {
        let url = format!("https://{address}/apis/redis.kun.io/v1/redisclusters");
        let out = tokio::process::Command::new("curl")
            .args([
                "--silent",
                "--insecure",
                "--retry-connrefused",
                "--retry",
                "5",
                "--max-time",
                &hung::answer().as_secs().to_string(),
                "--write-out",
                "%{http_code}",
                "--output",
                "-",
            ])
            .args(["-H", "X-Remote-User: admin", "-H", "X-Remote-Group: system:masters", &url])
            .output()
            .await?;
        let told = String::from_utf8_lossy(&out.stdout);
        ensure!(told.ends_with("401"), "{url}: {told}");
        ensure!(told.contains("\"reason\":\"Unauthorized\""), "{url}: {told}");
    }
    Ok(())
}
