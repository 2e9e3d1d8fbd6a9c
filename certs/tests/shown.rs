//! Certificates that are judged when they are used: TLS takes any, anchors say which of them mean something.

use std::time::Duration;

use certs::{Anchors, Authority, ClientAuth, Identity, Issued, Leaf, Shown, Usage, client_config, server_config};
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

fn leaf(name: &str, usage: Usage) -> Leaf {
    Leaf {
        common_name: name.to_owned(),
        organizations: vec!["team".to_owned()],
        dns_names: vec!["server.test".to_owned()],
        ips: Vec::new(),
        usage,
        lifetime: Duration::from_secs(3600),
    }
}

fn shown(issued: &Issued) -> Shown {
    let chain: Result<_, _> = CertificateDer::pem_slice_iter(issued.certificate_pem.as_bytes()).collect();
    Shown::of_chain(chain.unwrap()).unwrap()
}

/// What a server that takes any certificate saw of a client.
async fn seen(authority: &Authority, client: Option<&Issued>) -> Option<Shown> {
    let server = authority.issue(&leaf("server", Usage::SERVER)).unwrap();
    let config = server_config(&server, "", ClientAuth::Offered, &[]).unwrap();
    let listener = TcpListener::bind("127.83.1.2:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = TlsAcceptor::from(config).accept(stream).await.unwrap();
        Shown::of(stream.get_ref().1)
    });
    let config = client_config(authority.certificate_pem(), client, &[]).unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let _open = TlsConnector::from(config).connect("server.test".try_into().unwrap(), stream).await.unwrap();
    accepted.await.unwrap()
}

#[tokio::test]
async fn any_certificate_is_taken_and_judged_by_each_authority_for_itself() {
    let (ours, theirs) = (Authority::create("ours").unwrap(), Authority::create("theirs").unwrap());
    assert_eq!(seen(&ours, None).await, None);
    let stranger = theirs.issue(&leaf("stranger", Usage::CLIENT)).unwrap();
    let shown = seen(&ours, Some(&stranger)).await.unwrap();
    let now = Timestamp::now();
    assert!(Anchors::of_pem(ours.certificate_pem()).unwrap().verify(&shown, now).is_err());
    let believed = Anchors::of_pem(theirs.certificate_pem()).unwrap().verify(&shown, now).unwrap().clone();
    assert_eq!(believed, Identity::of("stranger", &["team".to_owned()]));
    assert_eq!(shown.fingerprint().len(), 64);
}

#[test]
fn a_certificate_out_of_its_time_or_for_servers_only_is_not_believed() {
    let authority = Authority::create("ours").unwrap();
    let anchors = Anchors::of_pem(authority.certificate_pem()).unwrap();
    let now = Timestamp::now();
    let client = shown(&authority.issue_at(&leaf("c", Usage::CLIENT), now).unwrap());
    assert_eq!(anchors.verify(&client, now).unwrap().common_name, "c");
    assert!(anchors.verify(&client, client.not_after() + SignedDuration::from_secs(1)).is_err());
    assert!(anchors.verify(&client, now - SignedDuration::from_hours(1)).is_err());
    let server = shown(&authority.issue(&leaf("s", Usage::SERVER)).unwrap());
    assert!(anchors.verify(&server, now).is_err());
}

#[test]
fn bundles_know_whether_they_share_an_authority() {
    let [a, b] = ["a", "b"].map(|name| Authority::create(name).unwrap().certificate_pem().to_owned());
    let of = |text: &str| Anchors::of_pem(text).unwrap();
    assert!(of(&format!("{a}{b}")).overlaps(&of(&b)));
    assert!(!of(&a).overlaps(&of(&b)));
    assert_eq!(of(&format!("{a}{b}")), of(&format!("{b}{a}{a}")));
    assert!(Anchors::of_pem("").is_err());
}
