//! TLS in both directions.

use std::net::IpAddr;

use certs::{ALPN_H2, Authority, Issued, Leaf, Material, Reloading, Usage};
use tempfile::TempDir;

use super::server::{Server, TlsFiles};
use super::*;

fn leaf(name: &str, usage: Usage, ips: Vec<IpAddr>) -> Leaf {
    let (common_name, lifetime) = (name.to_owned(), Duration::from_secs(3600));
    Leaf { common_name, organizations: Vec::new(), dns_names: Vec::new(), ips, usage, lifetime }
}

fn config(trusted: &Authority, identity: Option<Issued>) -> Arc<ClientConfig> {
    let material = Material { identity, authorities_pem: trusted.certificate_pem().to_owned() };
    Reloading::new(material).unwrap().client_config(&[ALPN_H2]).unwrap()
}

#[tokio::test]
async fn only_who_trusts_etcd_and_is_trusted_by_it_gets_through() {
    let Some(binary) = server::binary() else { return };
    let (authority, other) = (Authority::create("etcd").unwrap(), Authority::create("other").unwrap());
    let directory = TempDir::new().unwrap();
    let write = |name: &str, content: &str| {
        std::fs::write(directory.path().join(name), content).unwrap();
        directory.path().join(name)
    };
    let own = authority.issue(&leaf("etcd", Usage::BOTH, vec!["127.85.0.1".parse().unwrap()])).unwrap();
    let files = TlsFiles {
        authority: write("ca.pem", authority.certificate_pem()),
        certificate: write("etcd.pem", &own.certificate_pem),
        key: write("etcd.key", &own.key_pem),
    };
    let server = Server::encrypted(binary, &files);
    let client = |from: &Authority| from.issue(&leaf("kun", Usage::CLIENT, Vec::new())).unwrap();
    let with = |tls| EtcdOptions { tls: Some(tls), start_patience: Duration::ZERO, ..options(&server) };

    let start_patience = hung::process();
    let good = EtcdOptions { start_patience, ..with(config(&authority, Some(client(&authority)))) };
    let store = Etcd::connect(good).await.unwrap();
    let mut feed = store.watch(Revision::FIRST).await.unwrap();
    let revision = store.write(Write::create(pod("a"), "x".into())).await.unwrap().revision;
    assert_eq!(feed.next().await.unwrap().revision, revision);

    for (wrong, what) in [
        (config(&other, Some(client(&authority))), "trusts somebody else"),
        (config(&authority, Some(client(&other))), "is trusted by somebody else"),
        (config(&authority, None), "shows no certificate"),
    ] {
        let refused = Etcd::connect(with(wrong)).await.unwrap_err();
        assert!(matches!(refused, EtcdError::Unreachable { .. }), "{what}: {refused}");
    }
}
