#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
use proptest::prelude::*;

use super::*;

/// `CONFIG GET *` of Redis 7.0.15, and the directives that it does not list.
const DIRECTIVES_7_0: &str = include_str!("directives-7.0.txt");

#[test]
fn every_directive_of_redis_7_0_is_either_allowed_or_owned_and_never_both() {
    for name in DIRECTIVES_7_0.lines() {
        let (allowed, owned) = (parameter(name).is_some(), owned_reason(name).is_some());
        assert!(allowed != owned, "{name}: allowed {allowed}, owned {owned}");
    }
    for one in PARAMETERS {
        assert!(DIRECTIVES_7_0.lines().any(|name| name == one.name), "{} is not of 7.0", one.name);
    }
}

#[test]
fn what_is_taken_out_returns_to_the_default_of_the_engine() {
    let default = |name: &str, engine| parameter(name).unwrap().default_of(engine);
    for (name, redis, valkey) in
        [("repl-backlog-size", "1mb", "10mb"), ("lazyfree-lazy-expire", "no", "yes"), ("timeout", "0", "0")]
    {
        assert_eq!((default(name, Engine::Redis), default(name, Engine::Valkey)), (redis, valkey), "{name}");
    }
    for (name, value) in table::OF_VALKEY {
        assert!(check(name, value).is_ok_and(|one| one.default != *value), "{name} {value}");
    }
}

#[test]
fn the_table_is_sorted_and_every_default_is_a_value_that_is_taken() {
    assert!(PARAMETERS.windows(2).all(|pair| pair[0].name < pair[1].name));
    for one in PARAMETERS {
        assert!(check(one.name, one.default).is_ok(), "{}: {}", one.name, one.default);
    }
}

#[test]
fn the_dangerous_directives_are_refused_with_a_reason_in_any_case() {
    let names = [
        "dir",
        "dbfilename",
        "aclfile",
        "loadmodule",
        "enable-debug-command",
        "enable-module-command",
        "replicaof",
        "slaveof",
        "rename-command",
        "tls-port",
        "tls-anything",
        "cluster-enabled",
        "cluster-announce-ip",
        "bind",
        "port",
        "requirepass",
        "masterauth",
        "maxmemory",
        "appendonly",
        "save",
        "unixsocket",
        "include",
        "user",
        "DIR",
        "LoadModule",
    ];
    for name in names {
        assert!(matches!(check(name, "x"), Err(Refusal::Owned(_))), "{name}");
    }
}

#[test]
fn an_unknown_name_is_answered_with_similar_ones() {
    assert_eq!(check("maxclient", "100").unwrap_err(), Refusal::Unknown(vec!["maxclients"]));
    assert_eq!(
        check("maxclient", "100").unwrap_err().to_string(),
        "is not a redis.conf parameter that may be set; similar: maxclients"
    );
    assert_eq!(check("nonsense-of-mine", "1").unwrap_err(), Refusal::Unknown(vec![]));
    assert_eq!(check(&"a".repeat(100_000), "1").unwrap_err(), Refusal::Unknown(vec![]));
}

#[test]
fn values_are_held_to_their_kind() {
    let fine = [
        ("hz", "500"),
        ("timeout", "0"),
        ("activerehashing", "no"),
        ("list-max-listpack-size", "-5"),
        ("repl-backlog-size", "64MB"),
        ("loglevel", "warning"),
        ("notify-keyspace-events", ""),
        ("notify-keyspace-events", "KEA"),
        ("maxmemory-clients", "5%"),
        ("maxmemory-clients", "1gb"),
        ("client-output-buffer-limit", "normal 0 0 0 pubsub 32mb 8mb 60"),
        ("latency-tracking-info-percentiles", "50 99.99"),
    ];
    for (name, value) in fine {
        assert!(check(name, value).is_ok(), "{name} {value}");
    }
    let wrong = [
        ("hz", "0"),
        ("timeout", "00"),
        ("timeout", "-0"),
        ("timeout", "010"),
        ("hz", "501"),
        ("hz", ""),
        ("hz", "1e1"),
        ("hz", "+5"),
        ("hz", " 5"),
        ("hz", "99999999999999999999"),
        ("activerehashing", "true"),
        ("activerehashing", "Yes"),
        ("repl-backlog-size", "64 mb"),
        ("repl-backlog-size", "1kb"),
        ("repl-backlog-size", "99999999999999999999gb"),
        ("repl-backlog-size", "18446744073709551615gb"),
        ("loglevel", "loud"),
        ("notify-keyspace-events", "KEAKEAKEAKEAKEAKEA"),
        ("maxmemory-clients", "101%"),
        ("maxmemory-clients", "+5%"),
        ("maxmemory-clients", "07%"),
        ("client-output-buffer-limit", "normal 0 0"),
        ("client-output-buffer-limit", ""),
        ("client-output-buffer-limit", "normal 0 0 0 "),
        ("latency-tracking-info-percentiles", "50 nan"),
    ];
    for (name, value) in wrong {
        assert!(matches!(check(name, value), Err(Refusal::Value(_))), "{name} {value:?}");
    }
}

#[test]
fn what_a_server_shows_in_its_own_words_is_what_was_asked_for() {
    let limits = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
    let table = [
        ("maxclients", "1000000", "1000000", true),
        ("maxclients", "1000000", "19968", false),
        ("repl-backlog-size", "64MB", "67108864", true),
        ("repl-backlog-size", "64m", "67108864", false),
        ("activerehashing", "no", "no", true),
        ("activerehashing", "no", "yes", false),
        ("notify-keyspace-events", "Elg", "glE", true),
        ("notify-keyspace-events", "KEg$lshzxetd", "AKE", true),
        ("notify-keyspace-events", "AnK", "AK", true),
        ("notify-keyspace-events", "Kgn", "gK", false),
        ("notify-keyspace-events", "", "", true),
        ("maxmemory-clients", "5%", "5%", true),
        ("maxmemory-clients", "1gb", "1073741824", true),
        ("maxmemory-clients", "5%", "5", false),
        ("maxmemory-clients", "0%", "0", true),
        ("client-output-buffer-limit", "pubsub 32mb 8mb 60", limits, true),
        ("client-output-buffer-limit", "replica 256mb 64mb 60", limits, true),
        ("client-output-buffer-limit", "pubsub 32mb 8mb 61", limits, false),
        ("latency-tracking-info-percentiles", "50.0 99.90", "50 99.9", true),
        ("latency-tracking-info-percentiles", "99.123456789", "99.123457", true),
        ("latency-tracking-info-percentiles", "50 99.9", "50 99", false),
        ("not-of-the-table", "1", "1", true),
        ("not-of-the-table", "1", "2", false),
    ];
    for (name, wanted, shown, same) in table {
        assert_eq!(shows(name, wanted, shown), same, "{name} {wanted:?} {shown:?}");
    }
}

#[test]
fn two_hundred_injections_are_refused_in_every_kind_of_parameter() {
    let tails =
        ["\nsave 1 1", "\r\ndir /etc", "\0", "\"", "'", "\\n", "\u{b}", "\u{2028}x", " #", "\trename-command x y"];
    let mut tried = 0;
    for one in PARAMETERS {
        for tail in tails {
            for value in [format!("{}{tail}", one.default), format!("{tail}{}", one.default)] {
                assert!(check(one.name, &value).is_err(), "{} {value:?}", one.name);
                tried += 1;
            }
        }
    }
    assert!(tried >= 200, "{tried}");
}

/// How Redis takes a configuration line apart (`sdssplitargs`), for values without escapes.
fn redis_arguments(line: &str) -> Vec<String> {
    line.split(' ')
        .filter(|word| !word.is_empty())
        .map(|word| if word == "\"\"" { String::new() } else { word.to_owned() })
        .collect()
}

proptest! {
    #[test]
    fn what_is_accepted_is_rendered_as_one_line_that_parses_back(at in 0..PARAMETERS.len(), value in "[ -~\\n\\r\\x00]{0,40}") {
        let name = PARAMETERS[at].name;
        for value in [value.as_str(), PARAMETERS[at].default] {
            if check(name, value).is_ok() {
                let line = line(name, value);
                prop_assert!(!line.contains(['\n', '\r', '\0']));
                let arguments = redis_arguments(&line);
                prop_assert_eq!(&arguments[0], name);
                prop_assert_eq!(arguments[1..].join(" "), value);
            }
        }
    }

    #[test]
    fn any_name_and_value_is_answered(name in "\\PC{0,80}", value in "\\PC{0,80}") {
        let _ = check(&name, &value);
    }
}
