//! Which store, in Kubernetes' own words for etcd's flags. Pure: from flags to a choice, or a sentence.

use std::path::PathBuf;
use std::time::Duration;

use certs::MaterialPaths;
use clap::ValueEnum;
use store::EtcdOptions;

/// Where objects are kept.
#[derive(Debug)]
pub enum Choice {
    /// In one file below the data directory.
    Embedded,
    /// In an etcd.
    Etcd {
        /// Which, without TLS.
        options: EtcdOptions,
        /// Where its certificates lie; none if no server uses TLS.
        tls: Option<MaterialPaths>,
    },
}

/// Where objects are kept, and how they are protected there.
#[derive(Debug)]
pub struct Kept {
    /// Where.
    pub choice: Choice,
    /// Kubernetes' EncryptionConfiguration; absent: objects are kept as they are.
    pub encryption: Option<PathBuf>,
}

/// The kinds of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Embedded,
    Etcd,
}

/// StoreFlags about the store.
#[derive(Debug, clap::Args)]
pub(super) struct StoreFlags {
    /// Where objects are kept: in one file below --data, or in an etcd that several kun may share.
    #[arg(long, value_enum, default_value = "embedded")]
    store: Kind,
    /// Members of the etcd, such as https://10.0.0.1:2379,https://10.0.0.2:2379.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    etcd_servers: Vec<String>,
    /// Authority that signs etcd's certificates, PEM.
    #[arg(long, value_name = "FILE")]
    etcd_cafile: Option<PathBuf>,
    /// Our certificate towards etcd, PEM.
    #[arg(long, value_name = "FILE")]
    etcd_certfile: Option<PathBuf>,
    /// Its key, PEM.
    #[arg(long, value_name = "FILE")]
    etcd_keyfile: Option<PathBuf>,
    /// Folder of all keys in etcd [default: /registry].
    #[arg(long, value_name = "PREFIX")]
    etcd_prefix: Option<String>,
    /// Seconds after which the past is forgotten, by one of all who share the etcd; 0 leaves that to others [default: 300].
    #[arg(long, value_name = "SECONDS")]
    etcd_compaction_interval: Option<u64>,
    /// Which objects are kept encrypted and with which keys: an EncryptionConfiguration as Kubernetes has it; followed when it
    /// changes.
    #[arg(long, value_name = "FILE")]
    encryption_provider_config: Option<PathBuf>,
}

/// Why the flags cannot be used together.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("{0} belongs to --store etcd; the store is the embedded one")]
    NotEtcd(&'static str),
    #[error("--store etcd: name its members with --etcd-servers, such as --etcd-servers https://10.0.0.1:2379")]
    NoServers,
    #[error("--store etcd: nothing here keeps objects without the role apiserver; leave it out, or add the role")]
    NoApiserver,
    #[error(
        "--encryption-provider-config: nothing here keeps objects without the role apiserver; leave it out, or add the role"
    )]
    NothingKept,
    #[error("--etcd-certfile and --etcd-keyfile belong together: give both or neither")]
    HalfAPair,
    #[error("--etcd-servers with https: say whom to trust with --etcd-cafile")]
    NoAuthority,
    #[error("{0}: no server of --etcd-servers uses https, so it would protect nothing")]
    NothingToProtect(&'static str),
    #[error(
        "--etcd-servers: some use https and some do not; what is kept are secrets, so use https for all or for none"
    )]
    Mixed,
}

/// From flags to a store.
pub(super) fn kept(mut flags: StoreFlags, serves: bool) -> Result<Kept, Error> {
    let encryption = flags.encryption_provider_config.take();
    if encryption.is_some() && !serves {
        return Err(Error::NothingKept);
    }
    Ok(Kept { choice: choose(flags, serves)?, encryption })
}

fn choose(flags: StoreFlags, serves: bool) -> Result<Choice, Error> {
    if flags.store == Kind::Embedded {
        return match flags.first_of_etcd() {
            Some(flag) => Err(Error::NotEtcd(flag)),
            None => Ok(Choice::Embedded),
        };
    }
    if !serves {
        return Err(Error::NoApiserver);
    }
    if flags.etcd_servers.is_empty() {
        return Err(Error::NoServers);
    }
    let tls = flags.tls()?;
    let defaults = EtcdOptions::new(flags.etcd_servers);
    let compact_every = match flags.etcd_compaction_interval {
        None => defaults.compact_every,
        Some(0) => None,
        Some(seconds) => Some(Duration::from_secs(seconds)),
    };
    let prefix = flags.etcd_prefix.unwrap_or(defaults.prefix);
    Ok(Choice::Etcd { options: EtcdOptions { prefix, compact_every, ..defaults }, tls })
}

impl StoreFlags {
    /// The first flag that only makes sense with etcd.
    fn first_of_etcd(&self) -> Option<&'static str> {
        [
            ("--etcd-servers", !self.etcd_servers.is_empty()),
            ("--etcd-prefix", self.etcd_prefix.is_some()),
            ("--etcd-compaction-interval", self.etcd_compaction_interval.is_some()),
        ]
        .into_iter()
        .chain(self.certificates())
        .find_map(|(flag, is_given)| is_given.then_some(flag))
    }

    fn certificates(&self) -> [(&'static str, bool); 3] {
        [
            ("--etcd-cafile", self.etcd_cafile.is_some()),
            ("--etcd-certfile", self.etcd_certfile.is_some()),
            ("--etcd-keyfile", self.etcd_keyfile.is_some()),
        ]
    }

    fn tls(&self) -> Result<Option<MaterialPaths>, Error> {
        let encrypted = self.etcd_servers.iter().filter(|server| server.starts_with("https://")).count();
        if encrypted == 0 {
            let needless = self.certificates().into_iter().find_map(|(flag, is_given)| is_given.then_some(flag));
            return needless.map_or(Ok(None), |flag| Err(Error::NothingToProtect(flag)));
        }
        if encrypted < self.etcd_servers.len() {
            return Err(Error::Mixed);
        }
        let authorities = Some(self.etcd_cafile.clone().ok_or(Error::NoAuthority)?);
        let identity = match (&self.etcd_certfile, &self.etcd_keyfile) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err(Error::HalfAPair),
        };
        Ok(Some(MaterialPaths { identity, authorities }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        flags: StoreFlags,
    }

    fn chosen(words: &[&str], serves: bool) -> Result<Choice, Error> {
        choose(Line::try_parse_from(["kun"].iter().chain(words)).unwrap().flags, serves)
    }

    #[test]
    fn every_wrong_combination_is_refused_with_a_sentence() {
        let (plain, tls) = ("http://127.0.0.1:2379", "https://127.0.0.1:2379");
        let both = format!("{plain},{tls}");
        for (words, error) in [
            (vec!["--etcd-servers", plain], Error::NotEtcd("--etcd-servers")),
            (vec!["--store", "embedded", "--etcd-cafile", "ca"], Error::NotEtcd("--etcd-cafile")),
            (vec!["--etcd-prefix", "/a"], Error::NotEtcd("--etcd-prefix")),
            (vec!["--etcd-compaction-interval", "9"], Error::NotEtcd("--etcd-compaction-interval")),
            (vec!["--store", "etcd"], Error::NoServers),
            (vec!["--store", "etcd", "--etcd-servers", tls], Error::NoAuthority),
            (vec!["--store", "etcd", "--etcd-servers", &both, "--etcd-cafile", "ca"], Error::Mixed),
            (
                vec!["--store", "etcd", "--etcd-servers", tls, "--etcd-cafile", "ca", "--etcd-certfile", "c"],
                Error::HalfAPair,
            ),
            (
                vec!["--store", "etcd", "--etcd-servers", tls, "--etcd-cafile", "ca", "--etcd-keyfile", "k"],
                Error::HalfAPair,
            ),
            (
                vec!["--store", "etcd", "--etcd-servers", plain, "--etcd-keyfile", "k"],
                Error::NothingToProtect("--etcd-keyfile"),
            ),
        ] {
            assert_eq!(chosen(&words, true).unwrap_err(), error, "{words:?}");
        }
        assert_eq!(chosen(&["--store", "etcd", "--etcd-servers", plain], false).unwrap_err(), Error::NoApiserver);
    }

    #[test]
    fn what_is_encrypted_is_told_where_something_is_kept() {
        let words = ["kun", "--encryption-provider-config", "/etc/kun/keys.yaml"];
        let asked = |serves| kept(Line::try_parse_from(words).unwrap().flags, serves);
        assert_eq!(asked(true).unwrap().encryption, Some("/etc/kun/keys.yaml".into()));
        assert_eq!(asked(false).unwrap_err(), Error::NothingKept);
        assert_eq!(kept(Line::try_parse_from(["kun"]).unwrap().flags, true).unwrap().encryption, None);
    }

    #[test]
    fn the_embedded_store_is_the_default_and_etcds_defaults_are_those_of_kubernetes() {
        assert!(matches!(chosen(&[], true).unwrap(), Choice::Embedded));
        let plain = chosen(&["--store", "etcd", "--etcd-servers", "http://a:1,http://b:1"], true).unwrap();
        let Choice::Etcd { options, tls: None } = plain else { panic!("{plain:?}") };
        assert_eq!(options.servers, ["http://a:1", "http://b:1"]);
        assert_eq!((options.prefix.as_str(), options.compact_every), ("/registry", Some(Duration::from_secs(300))));
        let words = ["--store", "etcd", "--etcd-servers", "https://a:1", "--etcd-cafile", "ca", "--etcd-certfile", "c"];
        let more = ["--etcd-keyfile", "k", "--etcd-prefix", "/kun", "--etcd-compaction-interval", "0"];
        let encrypted = chosen(&[&words[..], &more[..]].concat(), true).unwrap();
        let Choice::Etcd { options, tls: Some(tls) } = encrypted else { panic!("{encrypted:?}") };
        assert_eq!((options.prefix.as_str(), options.compact_every), ("/kun", None));
        assert_eq!(tls, MaterialPaths { identity: Some(("c".into(), "k".into())), authorities: Some("ca".into()) });
    }
}
