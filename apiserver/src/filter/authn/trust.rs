//! Whom the server believes: which authority signs clients, and which proxies may say who asks.
//!
//! In a cluster all of it stands in one ConfigMap, which the kube-apiserver keeps. Pure: reading it is here, fetching it
//! is elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use certs::Anchors;
use http::HeaderName;

/// Namespace of the ConfigMap that says whom to believe.
pub const NAMESPACE: &str = "kube-system";
/// Its name.
pub const NAME: &str = "extension-apiserver-authentication";

/// Whom to believe. Replaced as a whole.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Who signs clients' certificates; without it no certificate makes anybody somebody.
    pub clients: Option<Anchors>,
    /// Who may speak for others.
    pub proxy: Option<Proxy>,
}

/// Proxies that say in headers who asks: the kube-apiserver, when it passes a request on.
#[derive(Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Who signs their certificates.
    pub anchors: Anchors,
    /// What their certificates may be called.
    pub names: Names,
    /// Where they say it.
    pub headers: Headers,
}

/// Common names of proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// Whatever the authority signs.
    Any,
    /// These.
    Only(BTreeSet<String>),
}

/// Headers in which a proxy says who asks. Of several names, the first that is there counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// The name.
    pub user: Vec<HeaderName>,
    /// The user id; empty where the cluster announces none.
    pub uid: Vec<HeaderName>,
    /// Groups, one each.
    pub group: Vec<HeaderName>,
    /// What further attributes begin with, in lower case.
    pub extra: Vec<String>,
}

/// Whether a proxy's authority may be trusted with any name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnyName {
    /// An empty list of names is a mistake: everybody with a certificate of that authority could be anybody.
    #[default]
    Refused,
    /// The administrator said so.
    Allowed,
}

/// Why it is not known whom to believe. Then nobody is let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An authority.
    #[error("reading {key}: {reason}")]
    Authority {
        /// Its key in the ConfigMap.
        key: &'static str,
        /// Why.
        reason: String,
    },
    /// A list.
    #[error("reading {key}: it must be a JSON list of texts, and names of headers where headers are meant: {reason}")]
    List {
        /// Its key in the ConfigMap.
        key: &'static str,
        /// Why.
        reason: String,
    },
    /// No names of proxies.
    #[error(
        "requestheader-allowed-names is empty: everybody with a certificate of that authority could claim to be anybody. Start the \
         kube-apiserver with --requestheader-allowed-names, or this server with --requestheader-allow-any-name"
    )]
    AnyName,
    /// Any client could be a proxy.
    #[error(
        "requestheader-allowed-names is empty and the authority of proxies signs clients, too: every client could claim to be anybody"
    )]
    EveryClientIsProxy,
    /// Nothing at all.
    #[error("neither client-ca-file nor requestheader-client-ca-file is there: nobody could be believed")]
    Nobody,
}

impl Trust {
    /// Only clients with a certificate of these authorities.
    #[must_use]
    pub const fn of_clients(clients: Anchors) -> Self {
        Self { clients: Some(clients), proxy: None }
    }

    /// What the ConfigMap says.
    ///
    /// # Errors
    /// When a part of it cannot be read, or would let in everybody.
    pub fn of_config_map(data: &BTreeMap<String, String>, any_name: AnyName) -> Result<Self, Error> {
        let clients = anchors(data, "client-ca-file")?;
        let proxy = match anchors(data, "requestheader-client-ca-file")? {
            None => None,
            Some(anchors) => {
                let names = names(data, any_name)?;
                if names == Names::Any && clients.as_ref().is_some_and(|clients| clients.overlaps(&anchors)) {
                    return Err(Error::EveryClientIsProxy);
                }
                Some(Proxy { anchors, names, headers: Headers::of(data)? })
            }
        };
        if clients.is_none() && proxy.is_none() {
            return Err(Error::Nobody);
        }
        Ok(Self { clients, proxy })
    }

    /// Whether clients and proxies have an authority in common: the names of proxies are then all that keeps them apart.
    #[must_use]
    pub fn is_mixed(&self) -> bool {
        let (Some(clients), Some(proxy)) = (&self.clients, &self.proxy) else { return false };
        clients.overlaps(&proxy.anchors)
    }
}

impl Headers {
    fn of(data: &BTreeMap<String, String>) -> Result<Self, Error> {
        Ok(Self {
            user: headers(data, "requestheader-username-headers")?,
            uid: headers(data, "requestheader-uid-headers")?,
            group: headers(data, "requestheader-group-headers")?,
            extra: list(data, "requestheader-extra-headers-prefix")?
                .into_iter()
                .map(|prefix| prefix.to_lowercase())
                .collect(),
        })
    }
}

fn anchors(data: &BTreeMap<String, String>, key: &'static str) -> Result<Option<Anchors>, Error> {
    let Some(pem) = data.get(key).filter(|pem| !pem.trim().is_empty()) else { return Ok(None) };
    Anchors::of_pem(pem).map(Some).map_err(|error| Error::Authority { key, reason: error.to_string() })
}

fn names(data: &BTreeMap<String, String>, any_name: AnyName) -> Result<Names, Error> {
    let names = list(data, "requestheader-allowed-names")?;
    match (names.is_empty(), any_name) {
        (true, AnyName::Refused) => Err(Error::AnyName),
        (true, AnyName::Allowed) => Ok(Names::Any),
        (false, AnyName::Refused | AnyName::Allowed) => Ok(Names::Only(names.into_iter().collect())),
    }
}

fn headers(data: &BTreeMap<String, String>, key: &'static str) -> Result<Vec<HeaderName>, Error> {
    let parse = |name: String| {
        HeaderName::try_from(name.as_str()).map_err(|error| Error::List { key, reason: format!("{name:?}: {error}") })
    };
    list(data, key)?.into_iter().map(parse).collect()
}

/// A list of texts without empty ones; nothing is an empty list.
fn list(data: &BTreeMap<String, String>, key: &'static str) -> Result<Vec<String>, Error> {
    let Some(text) = data.get(key).filter(|text| !text.trim().is_empty()) else { return Ok(Vec::new()) };
    let list: Vec<String> =
        serde_json::from_str(text).map_err(|error| Error::List { key, reason: error.to_string() })?;
    Ok(list.into_iter().map(|entry| entry.trim().to_owned()).filter(|entry| !entry.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use certs::Authority;

    use super::*;

    fn pem(name: &str) -> String {
        Authority::create(name).unwrap().certificate_pem().to_owned()
    }

    /// What a kube-apiserver of 1.34 writes.
    fn data(clients: &str, proxies: &str) -> BTreeMap<String, String> {
        let entries = [
            ("client-ca-file", clients),
            ("requestheader-allowed-names", r#"["front-proxy-client"]"#),
            ("requestheader-client-ca-file", proxies),
            ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
            ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
            ("requestheader-uid-headers", r#"["X-Remote-Uid"]"#),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
        ];
        entries.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    #[test]
    fn the_config_map_of_a_kube_apiserver_is_understood() {
        let (clients, proxies) = (pem("clients"), pem("proxies"));
        let trust = Trust::of_config_map(&data(&clients, &proxies), AnyName::Refused).unwrap();
        let name = HeaderName::from_static;
        let expected = Trust {
            clients: Some(Anchors::of_pem(&clients).unwrap()),
            proxy: Some(Proxy {
                anchors: Anchors::of_pem(&proxies).unwrap(),
                names: Names::Only(BTreeSet::from(["front-proxy-client".to_owned()])),
                headers: Headers {
                    user: vec![name("x-remote-user")],
                    uid: vec![name("x-remote-uid")],
                    group: vec![name("x-remote-group")],
                    extra: vec!["x-remote-extra-".to_owned()],
                },
            }),
        };
        assert_eq!(trust, expected);
        assert!(!trust.is_mixed());
    }

    #[test]
    fn an_older_cluster_announces_no_header_for_uids_and_none_is_read() {
        let mut data = data(&pem("clients"), &pem("proxies"));
        data.remove("requestheader-uid-headers");
        let trust = Trust::of_config_map(&data, AnyName::Refused).unwrap();
        assert_eq!(trust.proxy.unwrap().headers.uid, Vec::<HeaderName>::new());
    }

    #[test]
    fn what_would_let_in_everybody_or_nobody_is_refused() {
        let (one, other) = (pem("one"), pem("other"));
        let with = |clients: &str, proxies: &str, key: &str, value: &str, any_name| {
            let mut data = data(clients, proxies);
            data.insert(key.to_owned(), value.to_owned());
            Trust::of_config_map(&data, any_name)
        };
        let names = "requestheader-allowed-names";
        assert_eq!(with(&one, &other, names, "[]", AnyName::Refused), Err(Error::AnyName));
        assert_eq!(with(&one, &other, names, r#"["", " "]"#, AnyName::Refused), Err(Error::AnyName));
        assert_eq!(with(&one, &other, names, "", AnyName::Allowed).unwrap().proxy.unwrap().names, Names::Any);
        assert_eq!(with(&one, &one, names, "[]", AnyName::Allowed), Err(Error::EveryClientIsProxy));
        assert!(with(&one, &one, "x", "", AnyName::Refused).unwrap().is_mixed());
        assert_eq!(Trust::of_config_map(&BTreeMap::new(), AnyName::Allowed), Err(Error::Nobody));
        let bad = with(&one, &other, "client-ca-file", "-----BEGIN", AnyName::Refused).unwrap_err();
        assert!(matches!(bad, Error::Authority { key: "client-ca-file", .. }), "{bad}");
        let bad =
            with(&one, &other, "requestheader-username-headers", r#"["X Remote"]"#, AnyName::Refused).unwrap_err();
        assert!(matches!(bad, Error::List { key: "requestheader-username-headers", .. }), "{bad}");
        let bad = with(&one, &other, names, "front-proxy-client", AnyName::Refused).unwrap_err();
        assert!(matches!(bad, Error::List { key: "requestheader-allowed-names", .. }), "{bad}");
    }
}
