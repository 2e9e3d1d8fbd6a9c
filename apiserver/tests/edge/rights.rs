//! Roles and bindings in standalone, as kubectl makes them and asks about them.

use certs::{ALPN_H2, Issued};

use crate::hooks::Hooks;
use crate::stage::Server;
use crate::whole::{kubectl, start};

/// Runs kubectl as somebody, which must succeed; what it printed.
async fn done(server: &Server, identity: &Issued, arguments: &[&str]) -> String {
    let (done, text) = kubectl(server, identity, arguments).await;
    assert!(done, "{arguments:?}: {text}");
    text
}

#[tokio::test]
async fn roles_and_bindings_count_from_the_moment_they_are_acknowledged() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let server = start(&hooks).await;
    let admin = server.client("kun:admin", &["system:masters"]);
    let jane = server.client("jane", &["team"]);
    let run = async |arguments: &[&str]| done(&server, &admin, arguments).await;
    let may = async |arguments: &[&str]| kubectl(&server, &jane, &[&["auth", "can-i"], arguments].concat()).await;
    let backup = ["create", "redisclusters.redis.kun.io/orders", "--subresource=backup", "-n=shop"];
    run(&["create", "namespace", "shop"]).await;
    assert_eq!(may(&backup).await, (false, "no\n".to_owned()));
    run(&["create", "role", "backups", "-n=shop", "--verb=create", "--resource=redisclusters.redis.kun.io/backup"])
        .await;
    run(&["create", "rolebinding", "backups", "-n=shop", "--role=backups", "--group=team"]).await;
    assert_eq!(may(&backup).await, (true, "yes\n".to_owned()));
    let elsewhere = ["create", "redisclusters.redis.kun.io/orders", "--subresource=backup", "-n=other"];
    assert_eq!(may(&elsewhere).await, (false, "no\n".to_owned()));
    assert_eq!(may(&["delete", "redisclusters.redis.kun.io/orders", "-n=shop"]).await, (false, "no\n".to_owned()));
    let (_, rights) = may(&["--list", "-n=shop"]).await;
    assert!(rights.contains("redisclusters.redis.kun.io/backup"), "{rights}");
    let whoami = kubectl(&server, &jane, &["auth", "whoami", "-o=jsonpath={.status.userInfo.username}"]).await;
    assert_eq!(whoami, (true, "jane".to_owned()));
    run(&["delete", "rolebinding", "backups", "-n=shop"]).await;
    assert_eq!(may(&backup).await, (false, "no\n".to_owned()));
}

#[tokio::test]
async fn nobody_gives_away_rights_that_he_has_not() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let server = start(&hooks).await;
    let admin = server.client("kun:admin", &["system:masters"]);
    let run = async |arguments: &[&str]| done(&server, &admin, arguments).await;
    run(&["create", "namespace", "shop"]).await;
    run(&["create", "clusterrole", "rights", "--verb=create,update,get", "--resource=roles,rolebindings,configmaps"])
        .await;
    run(&["create", "rolebinding", "jane", "-n=shop", "--clusterrole=rights", "--user=jane"]).await;
    run(&["create", "clusterrole", "look", "--verb=get", "--resource=secrets"]).await;
    let jane = async |arguments: &[&str]| {
        let arguments = [arguments, &["-n=shop", "--as=jane"]].concat();
        kubectl(&server, &admin, &arguments).await
    };
    let (done, text) = jane(&["create", "role", "mine", "--verb=get", "--resource=configmaps"]).await;
    assert!(done, "{text}");
    let (done, text) = jane(&["create", "role", "more", "--verb=get", "--resource=secrets"]).await;
    let told = "is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}";
    assert!(!done && text.contains(told), "{text}");
    let (done, text) = jane(&["create", "rolebinding", "more", "--clusterrole=look", "--user=joe"]).await;
    assert!(!done && text.contains(told), "{text}");
    run(&["create", "clusterrole", "give", "--verb=bind", "--resource=clusterroles", "--resource-name=look"]).await;
    run(&["create", "rolebinding", "jane-gives", "-n=shop", "--clusterrole=give", "--user=jane"]).await;
    let (done, text) = jane(&["create", "rolebinding", "more", "--clusterrole=look", "--user=joe"]).await;
    assert!(done, "{text}");
}

#[tokio::test]
async fn an_apply_that_would_make_its_object_takes_the_right_to_create() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let server = start(&hooks).await;
    let admin = server.client("kun:admin", &["system:masters"]);
    let run = async |arguments: &[&str]| done(&server, &admin, arguments).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("map.json");
    let map = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "shop"}, "data": {"a": "b"}}"#;
    std::fs::write(&file, map).unwrap();
    let file = file.to_str().unwrap();
    run(&["create", "namespace", "shop"]).await;
    run(&["create", "role", "patch", "-n=shop", "--verb=get,patch", "--resource=configmaps"]).await;
    run(&["create", "rolebinding", "patch", "-n=shop", "--role=patch", "--user=jane"]).await;
    let apply = ["apply", "--server-side", "-f", file, "--as=jane"];
    let (done, text) = kubectl(&server, &admin, &apply).await;
    assert!(!done && text.contains("User \"jane\" cannot create resource \"configmaps\""), "{text}");
    run(&["create", "configmap", "m", "-n=shop"]).await;
    let (done, text) = kubectl(&server, &admin, &apply).await;
    assert!(done, "{text}");
}
