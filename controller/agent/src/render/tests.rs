//! What is rendered is what Redis reads, and nothing is smuggled in.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
use std::collections::BTreeMap;

use proptest::prelude::*;
use types::cluster::SavePoint;

use super::*;

pub(crate) fn options() -> Options {
    Options {
        pod_name: "orders-0-0".into(),
        pod_namespace: "default".into(),
        pod_ip: "127.84.0.1".parse().unwrap(),
        shard: "0".into(),
        memory_limit: Some(1000),
        grace_seconds: 30,
        data_dir: "/data".into(),
        run_dir: "/run/kun".into(),
        config_dir: "/etc/kun/config".into(),
        auth_dir: "/etc/kun/auth".into(),
        internal_dir: "/etc/kun/internal".into(),
        redis_server: "redis-server".into(),
    }
}

pub(crate) fn inputs() -> Inputs {
    Inputs {
        config: crate::config::fixture::config(),
        passwords: Passwords {
            application: Secret::new("application-canary"),
            operator: Secret::new("operator-canary"),
            agent: Secret::new("agent-canary"),
            replica: Secret::new("replica \"canary\" # \\"),
            replica_of_all: Secret::new("canary of all"),
        },
    }
}

fn value(all: &[Directive], name: &str) -> String {
    all.iter().find(|directive| directive.name == name).unwrap().value()
}

#[test]
fn memory_and_persistence_follow_the_configuration() {
    let mut inputs = inputs();
    let all = directives(&options(), &inputs).unwrap();
    assert_eq!((value(&all, "maxmemory"), value(&all, "save")), ("750".to_owned(), String::new()));
    assert!(text(&all).contains("\nsave \"\"\n"));
    inputs.config.max_memory_bytes = Some(5);
    inputs.config.append_only = AppendOnly::Off;
    inputs.config.snapshots = vec![SavePoint { seconds: 60, changes: 1 }, SavePoint { seconds: 5, changes: 9 }];
    let all = directives(&options(), &inputs).unwrap();
    assert_eq!(value(&all, "maxmemory"), "5");
    assert_eq!(value(&all, "appendonly"), "no");
    assert!(text(&all).contains("\nsave 60 1 5 9\n"));
    inputs.config.mode = Mode::Standalone;
    let all = directives(&options(), &inputs).unwrap();
    assert!(!text(&all).contains("cluster-"));
}

#[test]
fn parameters_that_are_owned_unknown_or_carry_more_than_a_value_are_refused() {
    let hostile = [
        ("requirepass", "x"),
        ("include", "/etc/passwd"),
        ("loadmodule", "/tmp/x.so"),
        ("maxclients", "100\nloadmodule /tmp/x.so"),
        ("maxclients", "100\rrequirepass x"),
        ("maxclients", "100\0"),
        ("maxclients\nloadmodule", "1"),
        ("max clients", "1"),
        ("maxclients", "\"100"),
        ("maxclients", "1e9999"),
        ("", "1"),
    ];
    for (name, bad) in hostile {
        let mut inputs = inputs();
        inputs.config.parameters = BTreeMap::from([(name.to_owned(), bad.to_owned())]);
        assert!(matches!(directives(&options(), &inputs), Err(Error::Parameter { .. })), "{name:?} {bad:?}");
    }
    let mut inputs = inputs();
    inputs.config.parameters = BTreeMap::from([
        ("maxclients".to_owned(), "100".to_owned()),
        ("client-output-buffer-limit".to_owned(), "normal 0 0 0".to_owned()),
    ]);
    let all = directives(&options(), &inputs).unwrap();
    assert_eq!(value(&all, "maxclients"), "100");
    assert!(text(&all).contains("client-output-buffer-limit normal 0 0 0\n"));
}

#[test]
fn a_path_that_breaks_a_line_is_refused() {
    let mut options = options();
    options.data_dir = "/data\nloadmodule x".into();
    assert_eq!(directives(&options, &inputs()), Err(Error::Unprintable { what: "the data directory" }));
}

#[test]
fn the_acl_file_holds_hashes_and_five_users() {
    let own = Secret::random();
    assert_ne!(own, Secret::random());
    let replicas = |are_let_in, lets_old_in| acl(&inputs().passwords, &own, Replicas { are_let_in, lets_old_in });
    let off = |are_let_in| replicas(are_let_in, false).contains("user kun-replica off ");
    assert_eq!([off(true), off(false)], [false, true]);
    let of_all = format!("#{}", crate::digest::sha256_hex(b"canary of all"));
    assert_eq!([false, true].map(|old| replicas(true, old).contains(&of_all)), [false, true]);
    let acl = replicas(true, false);
    assert!(!acl.contains(own.expose()), "{acl}");
    assert!(!acl.contains("canary"), "{acl}");
    let users: Vec<&str> = acl.lines().map(|line| line.split(' ').nth(1).unwrap()).collect();
    assert_eq!(users, ["default", "kun-operator", "kun-agent", "kun-replica", "kun-local"]);
    let publishing: Vec<&str> = acl.lines().filter(|line| line.contains(" +publish ")).collect();
    assert_eq!(publishing.len(), 2, "{acl}");
    assert!(
        publishing.iter().all(|line| line.contains(&format!(" resetchannels &{} -@all ", resp::bus::CHANNEL))),
        "{acl}"
    );
    // printf application-canary | sha256sum
    assert!(acl.contains(&crate::digest::sha256_hex(b"application-canary")));
}

#[test]
fn the_password_of_replication_survives_every_quote() {
    let all = directives(&options(), &inputs()).unwrap();
    let again = parse(&text(&all)).unwrap();
    assert_eq!(value(&again, "masterauth"), "replica \"canary\" # \\");
}

proptest! {
    #[test]
    fn what_is_rendered_is_what_redis_reads(
        lines in prop::collection::vec(("[a-z][a-z-]{0,12}", prop::collection::vec(any::<String>(), 1..4)), 0..8)
    ) {
        let all: Vec<Directive> =
            lines.into_iter().map(|(name, words)| Directive { name, words }).collect();
        let rendered = text(&all);
        prop_assert_eq!(rendered.lines().count(), all.len());
        prop_assert!(rendered.is_ascii());
        prop_assert_eq!(parse(&rendered), Ok(all));
    }

    #[test]
    fn no_parameter_ever_adds_a_line(name in "\\PC{0,20}", value in any::<String>()) {
        let mut inputs = inputs();
        let plain = directives(&options(), &inputs).unwrap();
        inputs.config.parameters = BTreeMap::from([(name, value)]);
        if let Ok(all) = directives(&options(), &inputs) {
            prop_assert_eq!(text(&all).lines().count(), plain.len() + 1);
        }
    }
}
