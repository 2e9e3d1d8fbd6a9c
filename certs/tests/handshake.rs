//! Real TLS connections on loopback: who is let in, who is believed, and what changes under a running listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use certs::{
    ALPN_H1, ALPN_H2, Authority, ClientAuth, Error, Identity, Issued, Leaf, Material, MaterialPaths, Reloading, Usage,
    client_config, peer_identity, server_config, write_private,
};
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

const HOUR: Duration = Duration::from_secs(3600);

fn server_leaf() -> Leaf {
    Leaf {
        common_name: "server".to_owned(),
        organizations: Vec::new(),
        dns_names: vec!["server.test".to_owned()],
        ips: Vec::new(),
        usage: Usage::SERVER,
        lifetime: HOUR,
    }
}

fn client_leaf(name: &str) -> Leaf {
    Leaf::client(name, &["team"], HOUR)
}

/// A server that answers every connection with the common name it verified, then echoes bytes.
async fn serve(config: Arc<ServerConfig>) -> SocketAddr {
    let listener = TcpListener::bind("127.83.1.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = TlsAcceptor::from(config.clone());
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await?;
                let identity = peer_identity(stream.get_ref().1);
                let name = identity.map_or_else(
                    || "nobody".to_owned(),
                    |Identity { common_name, organizations, .. }| format!("{common_name}/{}", organizations.join("+")),
                );
                stream.write_all(format!("{name}\n").as_bytes()).await?;
                let mut byte = [0u8; 1];
                while stream.read(&mut byte).await? > 0 {
                    stream.write_all(&byte).await?;
                }
                std::io::Result::Ok(())
            });
        }
    });
    address
}

/// Connects and returns the stream with the server's first line.
async fn connect(address: SocketAddr, config: Arc<ClientConfig>) -> std::io::Result<(TlsStream<TcpStream>, String)> {
    let stream = TcpStream::connect(address).await?;
    let mut stream = TlsConnector::from(config).connect("server.test".try_into().unwrap(), stream).await?;
    let mut line = String::new();
    loop {
        let byte = stream.read_u8().await?;
        if byte == b'\n' {
            return Ok((stream, line));
        }
        line.push(byte as char);
    }
}

async fn echo(stream: &mut TlsStream<TcpStream>) -> u8 {
    stream.write_all(b"x").await.unwrap();
    stream.read_u8().await.unwrap()
}

struct Pair {
    authority: Authority,
    server: Issued,
}

fn pair() -> Pair {
    let authority = Authority::create("test").unwrap();
    let server = authority.issue(&server_leaf()).unwrap();
    Pair { authority, server }
}

#[tokio::test]
async fn a_client_without_a_certificate_is_let_in_as_nobody_when_one_is_only_requested() {
    let Pair { authority, server } = pair();
    let ca = authority.certificate_pem();
    let address = serve(server_config(&server, ca, ClientAuth::Requested, &[ALPN_H2, ALPN_H1]).unwrap()).await;
    let (stream, name) = connect(address, client_config(ca, None, &[ALPN_H2]).unwrap()).await.unwrap();
    assert_eq!(name, "nobody");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(ALPN_H2));
    let admin = authority.issue(&client_leaf("admin")).unwrap();
    let (_, name) = connect(address, client_config(ca, Some(&admin), &[]).unwrap()).await.unwrap();
    assert_eq!(name, "admin/team");
}

#[tokio::test]
async fn a_client_must_show_a_certificate_when_one_is_required() {
    let Pair { authority, server } = pair();
    let ca = authority.certificate_pem();
    let address = serve(server_config(&server, ca, ClientAuth::Required, &[]).unwrap()).await;
    assert!(connect(address, client_config(ca, None, &[]).unwrap()).await.is_err());
    let admin = authority.issue(&client_leaf("admin")).unwrap();
    assert_eq!(connect(address, client_config(ca, Some(&admin), &[]).unwrap()).await.unwrap().1, "admin/team");
}

#[tokio::test]
async fn certificates_that_are_foreign_expired_or_for_another_use_end_the_handshake() {
    let Pair { authority, server } = pair();
    let ca = authority.certificate_pem();
    let address = serve(server_config(&server, ca, ClientAuth::Requested, &[]).unwrap()).await;
    let foreign = Authority::create("test").unwrap().issue(&client_leaf("admin")).unwrap();
    let long_ago = Timestamp::now() - SignedDuration::from_hours(3);
    let expired = authority.issue_at(&client_leaf("admin"), long_ago).unwrap();
    let not_yet = authority.issue_at(&client_leaf("admin"), Timestamp::now() + SignedDuration::from_hours(1)).unwrap();
    for (why, bad) in [("foreign", foreign), ("expired", expired), ("not yet valid", not_yet), ("a server's", server)] {
        let outcome = connect(address, client_config(ca, Some(&bad), &[]).unwrap()).await;
        assert!(outcome.is_err(), "{why} certificate was let in");
    }
}

#[tokio::test]
async fn a_client_believes_only_its_own_authority_and_the_name_it_dialled() {
    let Pair { authority, server } = pair();
    let ca = authority.certificate_pem();
    let address = serve(server_config(&server, "", ClientAuth::Off, &[]).unwrap()).await;
    assert_eq!(connect(address, client_config(ca, None, &[]).unwrap()).await.unwrap().1, "nobody");
    let other = Authority::create("test").unwrap();
    assert!(connect(address, client_config(other.certificate_pem(), None, &[]).unwrap()).await.is_err());
    let elsewhere = authority.issue(&Leaf { dns_names: vec!["other.test".to_owned()], ..server_leaf() }).unwrap();
    let address = serve(server_config(&elsewhere, "", ClientAuth::Off, &[]).unwrap()).await;
    assert!(connect(address, client_config(ca, None, &[]).unwrap()).await.is_err());
}

#[tokio::test]
async fn tools_that_only_know_tls_1_2_are_let_in_too() {
    let Pair { authority, server } = pair();
    let ca = authority.certificate_pem();
    let address = serve(server_config(&server, ca, ClientAuth::Requested, &[]).unwrap()).await;
    let admin = authority.issue(&client_leaf("admin")).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(certs::provider());
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS12]).unwrap().with_root_certificates(roots);
    let chain = vec![CertificateDer::from_pem_slice(admin.certificate_pem.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(admin.key_pem.as_bytes()).unwrap();
    let config = Arc::new(builder.with_client_auth_cert(chain, key).unwrap());
    assert_eq!(connect(address, config).await.unwrap().1, "admin/team");
}

#[tokio::test]
async fn a_swap_takes_effect_at_the_next_handshake_and_open_connections_go_on() {
    let old = pair();
    let new = pair();
    let material = |pair: &Pair, authorities: &str| Material {
        identity: Some(pair.server.clone()),
        authorities_pem: authorities.to_owned(),
    };
    let reloading = Reloading::new(material(&old, old.authority.certificate_pem())).unwrap();
    let address = serve(reloading.server_config(ClientAuth::Requested, &[]).unwrap()).await;
    let client = |pair: &Pair| {
        let admin = pair.authority.issue(&client_leaf("admin")).unwrap();
        client_config(pair.authority.certificate_pem(), Some(&admin), &[]).unwrap()
    };
    let (mut before, _) = connect(address, client(&old)).await.unwrap();
    assert!(connect(address, client(&new)).await.is_err());
    reloading.swap(material(&new, new.authority.certificate_pem())).unwrap();
    assert_eq!(echo(&mut before).await, b'x');
    assert_eq!(connect(address, client(&new)).await.unwrap().1, "admin/team");
    assert!(connect(address, client(&old)).await.is_err(), "the old authority still counts");
    assert_eq!(echo(&mut before).await, b'x');
}

#[tokio::test]
async fn the_same_client_configuration_follows_a_swap_of_its_roots_and_identity() {
    let old = pair();
    let new = pair();
    let both = format!("{}{}", old.authority.certificate_pem(), new.authority.certificate_pem());
    let old_address = serve(server_config(&old.server, &both, ClientAuth::Required, &[]).unwrap()).await;
    let new_address = serve(server_config(&new.server, &both, ClientAuth::Required, &[]).unwrap()).await;
    let material = |pair: &Pair, name: &str| Material {
        identity: Some(pair.authority.issue(&client_leaf(name)).unwrap()),
        authorities_pem: pair.authority.certificate_pem().to_owned(),
    };
    let reloading = Reloading::new(material(&old, "first")).unwrap();
    let config = reloading.client_config(&[]).unwrap();
    assert_eq!(connect(old_address, config.clone()).await.unwrap().1, "first/team");
    assert!(connect(new_address, config.clone()).await.is_err());
    reloading.swap(material(&new, "second")).unwrap();
    assert_eq!(connect(new_address, config.clone()).await.unwrap().1, "second/team");
    assert!(connect(old_address, config).await.is_err());
}

#[tokio::test]
async fn changed_files_are_taken_and_half_a_change_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let write = |name: &str, text: &str| write_private(&path(name), text.as_bytes()).unwrap();
    let authority = Authority::create("test").unwrap();
    let ca = authority.certificate_pem();
    let issue = |name: &str| authority.issue(&Leaf { common_name: name.to_owned(), ..server_leaf() }).unwrap();
    let (first, second) = (issue("first"), issue("second"));
    write("tls.crt", &first.certificate_pem);
    write("tls.key", &first.key_pem);
    let paths = MaterialPaths { identity: Some((path("tls.crt"), path("tls.key"))), authorities: None };
    let reloading = Reloading::new(paths.read().unwrap()).unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let watching = {
        let reloading = reloading.clone();
        let tell = move |material: &Material| tell.send(material.identity.clone()).unwrap();
        tokio::spawn(async move { reloading.watch_files_and(paths, Duration::from_millis(10), tell).await })
    };
    let address = serve(reloading.server_config(ClientAuth::Off, &[]).unwrap()).await;
    let shown = || async {
        let (stream, _) = connect(address, client_config(ca, None, &[]).unwrap()).await.unwrap();
        let certificate = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
        certs::identity_of(&certificate).unwrap().common_name
    };
    assert_eq!(shown().await, "first");
    write("tls.crt", &second.certificate_pem);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(shown().await, "first", "a certificate was used with another's key");
    write("tls.key", &second.key_pem);
    let taken = async {
        while shown().await != "second" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(hung::answer(), taken).await.expect("the second certificate is taken");
    assert_eq!(told.recv().await, Some(Some(second)), "and nothing was told of the half");
    watching.abort();
}

#[tokio::test]
async fn a_certificate_near_its_end_is_replaced_under_a_running_server() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Arc::new(Authority::create("test").unwrap());
    let ca = authority.certificate_pem().to_owned();
    // Dated back ten minutes and good for four more: past two thirds of its life from the start, and valid as long as this takes.
    let brief = Leaf { lifetime: Duration::from_secs(240), ..server_leaf() };
    let make = {
        let (authority, dir) = (authority.clone(), dir.path().to_owned());
        move || {
            let identity = Some(authority.load_or_issue(&dir, "tls", &brief)?);
            Ok(Material { identity, authorities_pem: String::new() })
        }
    };
    let reloading = Reloading::new(make().unwrap()).unwrap();
    let address = serve(reloading.server_config(ClientAuth::Off, &[]).unwrap()).await;
    let client = client_config(&ca, None, &[]).unwrap();
    let (mut before, _) = connect(address, client.clone()).await.unwrap();
    let first = before.get_ref().1.peer_certificates().unwrap()[0].clone();
    let renewing = tokio::spawn(async move { reloading.renew(Duration::from_millis(20), make).await });
    let renewed = async {
        while connect(address, client.clone()).await.unwrap().0.get_ref().1.peer_certificates().unwrap()[0] == first {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(hung::answer(), renewed).await.expect("the certificate is renewed");
    assert_eq!(echo(&mut before).await, b'x');
    renewing.abort();
}

#[test]
fn bad_material_is_refused_and_changes_nothing() {
    let Pair { authority, server } = pair();
    let good = Material { identity: Some(server.clone()), authorities_pem: authority.certificate_pem().to_owned() };
    let reloading = Reloading::new(good.clone()).unwrap();
    let other = pair().server;
    let mixed = Issued { certificate_pem: server.certificate_pem.clone(), key_pem: other.key_pem };
    let refused = [
        (
            Material { identity: Some(mixed), ..good.clone() },
            "the certificate and the private key do not belong together",
        ),
        (
            Material { identity: None, ..good.clone() },
            "reading a PEM certificate: the new material has no certificate, the old one had",
        ),
        (
            Material { authorities_pem: String::new(), ..good.clone() },
            "building a verifier: no certificate authority given",
        ),
        (
            Material { authorities_pem: "garbage".to_owned(), ..good },
            "building a verifier: no certificate authority given",
        ),
    ];
    for (material, message) in refused {
        assert_eq!(reloading.swap(material).unwrap_err().to_string(), message);
    }
    assert!(matches!(server_config(&server, "", ClientAuth::Requested, &[]), Err(Error::NoAuthorities)));
    assert!(matches!(client_config("", None, &[]), Err(Error::NoAuthorities)));
}
