#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;
use std::time::Duration;

use certs::{Authority, Issued, Leaf};
use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::trust::AnyName;
use super::*;

struct Stage {
    clients: Authority,
    proxies: Authority,
}

impl Stage {
    fn new() -> Self {
        let [clients, proxies] = ["clients", "proxies"].map(|name| Authority::create(name).unwrap());
        Self { clients, proxies }
    }

    fn trust(&self) -> Trust {
        let entries = [
            ("client-ca-file", self.clients.certificate_pem()),
            ("requestheader-client-ca-file", self.proxies.certificate_pem()),
            ("requestheader-allowed-names", r#"["front-proxy"]"#),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
            ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
        ];
        let data = entries.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        Trust::of_config_map(&data, AnyName::Refused).unwrap()
    }

    fn authenticator(&self) -> Authenticator {
        Authenticator::new(self.trust(), None)
    }
}

fn leaf(authority: &Authority, name: &str, organizations: &[&str]) -> Issued {
    authority.issue(&Leaf::client(name, organizations, Duration::from_secs(3600))).unwrap()
}

fn peer(issued: Option<&Issued>) -> Peer {
    let shown = issued.map(|issued| {
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(issued.certificate_pem.as_bytes()).map(Result::unwrap).collect();
        Shown::of_chain(chain).unwrap()
    });
    Peer::new(([127, 83, 0, 1], 1).into(), shown)
}

fn claims() -> HeaderMap {
    let line = |name: &'static str, value| (HeaderName::from_static(name), HeaderValue::from_static(value));
    [line("x-remote-user", "jane"), line("x-remote-group", "team")].into_iter().collect()
}

/// Name and groups.
async fn who(authenticator: &Authenticator, peer: &Peer, headers: &HeaderMap) -> Result<(String, Vec<String>)> {
    let user = authenticator.authenticate(peer, headers, Timestamp::now()).await?;
    Ok((user.name, user.groups))
}

fn somebody(name: &str, groups: &[&str]) -> Result<(String, Vec<String>)> {
    Ok((name.to_owned(), groups.iter().map(|group| (*group).to_owned()).collect()))
}

#[tokio::test]
async fn only_a_proxy_with_the_right_authority_and_name_says_who_asks() {
    let stage = Stage::new();
    let authenticator = stage.authenticator();
    let proxy = leaf(&stage.proxies, "front-proxy", &[]);
    let jane = somebody("jane", &["team", AUTHENTICATED]);
    assert_eq!(who(&authenticator, &peer(Some(&proxy)), &claims()).await, jane);
    // The wrong ones: another name, another authority, none; and a client, who stays who he is.
    let other_name = leaf(&stage.proxies, "front-proxy-2", &["front-proxy"]);
    assert_eq!(who(&authenticator, &peer(Some(&other_name)), &claims()).await, Err(Error::Unauthorized));
    let stranger = leaf(&Authority::create("strangers").unwrap(), "front-proxy", &[]);
    assert_eq!(who(&authenticator, &peer(Some(&stranger)), &claims()).await, Err(Error::Unauthorized));
    assert_eq!(who(&authenticator, &peer(None), &claims()).await, Err(Error::Unauthorized));
    let client = leaf(&stage.clients, "front-proxy", &["ops"]);
    let expected = somebody("front-proxy", &["ops", AUTHENTICATED]);
    assert_eq!(who(&authenticator, &peer(Some(&client)), &claims()).await, expected);
    // A proxy that says nothing is nobody.
    assert_eq!(who(&authenticator, &peer(Some(&proxy)), &HeaderMap::new()).await, Err(Error::Unauthorized));
}

#[tokio::test]
async fn the_certificate_says_who_asks_by_which_credential_and_everybody_known_is_authenticated() {
    let stage = Stage::new();
    let admin = leaf(&stage.clients, "kun:admin", &[MASTERS, AUTHENTICATED]);
    let peer = peer(Some(&admin));
    let user = stage.authenticator().authenticate(&peer, &HeaderMap::new(), Timestamp::now()).await.unwrap();
    let fingerprint = peer.shown.as_ref().unwrap().fingerprint();
    let expected = User {
        name: "kun:admin".to_owned(),
        uid: String::new(),
        groups: vec![MASTERS.to_owned(), AUTHENTICATED.to_owned()],
        extra: BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={fingerprint}")])]),
    };
    assert_eq!(user, expected);
}

#[tokio::test]
async fn whom_the_cluster_calls_anonymous_stays_so_and_who_is_known_is_authenticated_once() {
    let stage = Stage::new();
    let authenticator = stage.authenticator();
    let proxy = peer(Some(&leaf(&stage.proxies, "front-proxy", &[])));
    let told = |name: &'static str, groups: &[&'static str]| {
        let mut headers =
            HeaderMap::from_iter([(HeaderName::from_static("x-remote-user"), HeaderValue::from_static(name))]);
        for group in groups {
            headers.append("x-remote-group", HeaderValue::from_static(group));
        }
        headers
    };
    let table = [
        // What kube-apiserver says of somebody without any credential.
        (told("system:anonymous", &[UNAUTHENTICATED]), somebody("system:anonymous", &[UNAUTHENTICATED])),
        // Who reads the API description for kube-apiserver: it says no groups, and may by being authenticated.
        (told("system:aggregator", &[]), somebody("system:aggregator", &[AUTHENTICATED])),
        (told("jane", &[AUTHENTICATED, "team"]), somebody("jane", &[AUTHENTICATED, "team"])),
    ];
    for (headers, expected) in table {
        assert_eq!(who(&authenticator, &proxy, &headers).await, expected);
    }
}

#[tokio::test]
async fn a_certificate_that_expired_on_an_open_connection_counts_no_more() {
    let stage = Stage::new();
    let authenticator = stage.authenticator();
    let peer = peer(Some(&leaf(&stage.clients, "jane", &[])));
    let end = peer.shown.as_ref().unwrap().not_after();
    assert!(authenticator.authenticate(&peer, &HeaderMap::new(), end).await.is_ok());
    let later = end + SignedDuration::from_secs(1);
    assert_eq!(authenticator.authenticate(&peer, &HeaderMap::new(), later).await, Err(Error::Unauthorized));
}

#[tokio::test]
async fn an_authority_that_is_replaced_counts_no_more_on_open_connections() {
    let (stage, next) = (Stage::new(), Stage::new());
    let authenticator = stage.authenticator();
    let (old, new) = (peer(Some(&leaf(&stage.clients, "jane", &[]))), peer(Some(&leaf(&next.clients, "jane", &[]))));
    assert!(who(&authenticator, &old, &HeaderMap::new()).await.is_ok());
    assert_eq!(who(&authenticator, &new, &HeaderMap::new()).await, Err(Error::Unauthorized));
    authenticator.believe(next.trust());
    assert_eq!(who(&authenticator, &old, &HeaderMap::new()).await, Err(Error::Unauthorized));
    assert!(who(&authenticator, &new, &HeaderMap::new()).await.is_ok());
}

#[tokio::test]
async fn a_token_is_asked_about_only_where_nothing_else_says_who_asks() {
    struct Desk;
    impl Reviewer for Desk {
        fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<User>>> {
            let user = User { name: format!("bearer of {token}"), ..User::default() };
            Box::pin(async move { Ok((token == "good").then_some(user)) })
        }
    }
    let stage = Stage::new();
    let authenticator = Authenticator::new(stage.trust(), Some(Arc::new(Desk)));
    let bearing = |text: &'static str| HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(text))]);
    let expected = somebody("bearer of good", &[AUTHENTICATED]);
    assert_eq!(who(&authenticator, &peer(None), &bearing("Bearer good")).await, expected);
    assert_eq!(who(&authenticator, &peer(None), &bearing("Bearer bad")).await, Err(Error::Unauthorized));
    let client = leaf(&stage.clients, "jane", &[]);
    let expected = somebody("jane", &[AUTHENTICATED]);
    assert_eq!(who(&authenticator, &peer(Some(&client)), &bearing("Bearer good")).await, expected);
    // A proxy's word counts before the token that it passes on, and a proxy that says nothing is asked for one, too.
    let proxy = leaf(&stage.proxies, "front-proxy", &[]);
    let both =
        claims().into_iter().chain(bearing("Bearer good")).filter_map(|(name, value)| Some((name?, value))).collect();
    let expected = somebody("jane", &["team", AUTHENTICATED]);
    assert_eq!(who(&authenticator, &peer(Some(&proxy)), &both).await, expected);
    let expected = somebody("bearer of good", &[AUTHENTICATED]);
    assert_eq!(who(&authenticator, &peer(Some(&proxy)), &bearing("Bearer good")).await, expected);
    // Without any credential nobody gets in: there is no anonymous user of our own.
    assert_eq!(who(&authenticator, &peer(None), &HeaderMap::new()).await, Err(Error::Unauthorized));
}

#[test]
fn nothing_that_says_who_somebody_is_gets_past_the_filters() {
    let mut headers = claims();
    headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer token"));
    Stage::new().authenticator().strip(&mut headers);
    assert!(headers.is_empty());
}
