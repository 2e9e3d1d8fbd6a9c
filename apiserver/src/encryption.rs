//! Kubernetes' EncryptionConfiguration: which resources are sealed at rest, how, and with which keys. Pure.
//!
//! What is refused is what Kubernetes refuses, and two providers that are not had here: `aescbc`, which authenticates
//! nothing and which Kubernetes itself advises against, and `kms`.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use store::seal::{Keyring, Method, Pattern, Provider, Rule, SealError, SealKey};
use zeroize::Zeroizing;

use crate::configuration::{Document, Fault, Field};

/// Reads the text of a file.
pub fn parse(text: &str) -> Result<Keyring, Fault> {
    let document = Document::read(text, "apiserver.config.k8s.io/v1", "EncryptionConfiguration")?;
    let root = document.root();
    root.names(&["apiVersion", "kind", "resources"])?;
    let entries = filled(&root.at("resources"))?;
    let mut earlier = BTreeSet::new();
    let rules = entries.iter().map(|entry| rule(entry, &mut earlier)).collect::<Result<_, _>>()?;
    Ok(Keyring::new(rules))
}

fn filled<'a>(list: &Field<'a>) -> Result<Vec<Field<'a>>, Fault> {
    let items = list.items()?;
    if items.is_empty() { Err(list.fault("at least one is required")) } else { Ok(items) }
}

fn rule(entry: &Field<'_>, earlier: &mut BTreeSet<Pattern>) -> Result<Rule, Fault> {
    entry.names(&["resources", "providers"])?;
    let mut resources = Vec::new();
    for field in filled(&entry.at("resources"))? {
        let pattern = pattern(&field)?;
        check_overlap(&field, &pattern, &resources)?;
        check_masked(&field, &pattern, earlier)?;
        resources.push(pattern);
    }
    earlier.extend(resources.iter().cloned());
    let providers = filled(&entry.at("providers"))?;
    Ok(Rule { resources, providers: providers.iter().map(provider).collect::<Result<_, _>>()? })
}

/// `secrets`, `redisclusters.redis.kun.io`, `*.apps`, `*.` or `*.*`.
fn pattern(field: &Field<'_>) -> Result<Pattern, Fault> {
    let text = field.text()?.unwrap_or_default();
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    let bad = |why: &str| Err(field.fault(why));
    match (resource, group) {
        ("", _) => bad("must name a resource"),
        _ if text.chars().any(char::is_uppercase) => bad("resource name should not contain capital letters"),
        ("*", "") if text == "*" => {
            bad("use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources")
        }
        (_, "extensions") => bad("'extensions' group has been removed and cannot be used for encryption"),
        (_, "events.k8s.io") => bad("events are stored in the core group: use 'events'"),
        ("*", "*") => Ok(Pattern::All),
        (_, "*") => bad("encrypting the same resource across groups is not supported"),
        ("*", group) => Ok(Pattern::Group(group.to_owned())),
        (resource, group) => Ok(Pattern::One { group: group.to_owned(), resource: resource.to_owned() }),
    }
}

/// One entry may not say the same twice.
fn check_overlap(field: &Field<'_>, pattern: &Pattern, others: &[Pattern]) -> Result<(), Fault> {
    if others.contains(pattern) {
        return Err(field.fault("the same resource cannot be specified multiple times"));
    }
    if others.iter().any(|other| covers(other, pattern) || covers(pattern, other)) {
        return Err(
            field.fault("overlapping resources in the same resource list are not allowed as they will be masked")
        );
    }
    Ok(())
}

/// What an earlier entry with a wildcard decides already.
fn check_masked(field: &Field<'_>, pattern: &Pattern, earlier: &BTreeSet<Pattern>) -> Result<(), Fault> {
    let masked = earlier.iter().any(|other| !matches!(other, Pattern::One { .. }) && covers(other, pattern));
    if masked { Err(field.fault("is masked by an earlier entry")) } else { Ok(()) }
}

fn covers(wide: &Pattern, narrow: &Pattern) -> bool {
    match (wide, narrow) {
        (Pattern::All, _) => true,
        (Pattern::Group(group), Pattern::One { group: of, .. } | Pattern::Group(of)) => group == of,
        (Pattern::Group(_), Pattern::All) | (Pattern::One { .. }, _) => wide == narrow,
    }
}

fn provider(entry: &Field<'_>) -> Result<Provider, Fault> {
    let given: Vec<&str> = entry.names(&["aesgcm", "secretbox", "identity", "aescbc", "kms"])?;
    let [name] = given.as_slice() else {
        return Err(entry.fault("must name exactly one provider: aesgcm, secretbox or identity"));
    };
    let field = entry.at(name);
    let method = match *name {
        "identity" => {
            field.names(&[])?;
            return Ok(Provider::Identity);
        }
        "aesgcm" => Method::AesGcm,
        "secretbox" => Method::Secretbox,
        _ => return Err(field.fault("this provider is not supported; use aesgcm or secretbox")),
    };
    field.names(&["keys"])?;
    let keys = filled(&field.at("keys"))?;
    Ok(Provider::Keys(method, keys.iter().map(|entry| key(method, entry)).collect::<Result<_, _>>()?))
}

fn key(method: Method, entry: &Field<'_>) -> Result<SealKey, Fault> {
    entry.names(&["name", "secret"])?;
    let (name, secret) = (entry.at("name"), entry.at("secret"));
    let (Some(label), Some(text)) = (name.text()?, secret.text()?) else {
        return Err(entry.fault("a key has a name and a secret"));
    };
    let bytes = STANDARD.decode(text).map(Zeroizing::new);
    let bytes = bytes.map_err(|_| secret.fault("secrets must be base64 encoded"))?;
    SealKey::new(method, label, &bytes).map_err(|error| match error {
        SealError::KeyName => name.fault(error.to_string()),
        SealError::KeyLength { .. } | SealError::Cipher => secret.fault(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use bytes::Bytes;

    use super::*;

    const SECRET: &str = "c2VjcmV0IGlzIHNlY3VyZSwgdGhpcyBvbmUgaXMgMzI=";

    fn file(resources: &str) -> String {
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n{}",
            resources.replace("SECRET", SECRET)
        )
    }

    fn fault(resources: &str) -> String {
        parse(&file(resources)).unwrap_err().to_string()
    }

    #[test]
    fn a_file_as_kubernetes_documents_it_is_read() {
        let ring = parse(&file(
            "- resources: [secrets, configmaps, redisclusters.redis.kun.io]\n  providers:\n  - aesgcm:\n      keys:\n      - {name: key1, secret: SECRET}\n      - {name: key2, secret: SECRET}\n  - secretbox: {keys: [{name: key3, secret: SECRET}]}\n  - identity: {}\n- resources: ['*.apps']\n  providers: [{identity: {}}, {aesgcm: {keys: [{name: old, secret: SECRET}]}}]\n- resources: ['*.*']\n  providers: [{secretbox: {keys: [{name: key3, secret: SECRET}]}}]\n",
        ))
        .unwrap();
        let wrote = |resource: &str| {
            let value = ring.seal(resource, b"/registry/x", Bytes::from_static(b"{}")).unwrap();
            String::from_utf8_lossy(&value).chars().take(26).collect::<String>()
        };
        assert!(wrote("secrets").starts_with("k8s:enc:aesgcm:v1:key1:"));
        assert!(wrote("redis.kun.io/redisclusters").starts_with("k8s:enc:aesgcm:v1:key1:"));
        assert!(wrote("redis.kun.io/redisbackups").starts_with("k8s:enc:secretbox:v1:key3:"));
        assert_eq!(wrote("apps/statefulsets"), "{}");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_field() {
        for (resources, expected) in [
            ("", "resources: at least one is required"),
            ("- {}", "resources[0].resources: at least one is required"),
            ("- resources: [secrets]", "resources[0].providers: at least one is required"),
            ("- {resources: [secrets], provider: []}", "resources[0].provider: unknown field"),
            ("- {resources: secrets}", "resources[0].resources: must be a list"),
            ("- {resources: [3]}", "resources[0].resources[0]: must be a string"),
            ("- {resources: [Secrets]}", "resources[0].resources[0]: resource name should not contain capital letters"),
            (
                "- {resources: ['*']}",
                "resources[0].resources[0]: use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources",
            ),
            (
                "- {resources: ['secrets.*']}",
                "resources[0].resources[0]: encrypting the same resource across groups is not supported",
            ),
            (
                "- {resources: [secrets, secrets]}",
                "resources[0].resources[1]: the same resource cannot be specified multiple times",
            ),
            (
                "- {resources: [secrets, '*.']}",
                "resources[0].resources[1]: overlapping resources in the same resource list are not allowed as they will be masked",
            ),
            (
                "- {resources: ['*.'], providers: [{identity: {}}]}\n- {resources: [secrets], providers: [{identity: {}}]}",
                "resources[1].resources[0]: is masked by an earlier entry",
            ),
            (
                "- {resources: [secrets], providers: [{}]}",
                "resources[0].providers[0]: must name exactly one provider: aesgcm, secretbox or identity",
            ),
            (
                "- {resources: [secrets], providers: [{identity: {}, aesgcm: {keys: []}}]}",
                "resources[0].providers[0]: must name exactly one provider: aesgcm, secretbox or identity",
            ),
            (
                "- {resources: [secrets], providers: [{aescbc: {keys: [{name: a, secret: SECRET}]}}]}",
                "resources[0].providers[0].aescbc: this provider is not supported; use aesgcm or secretbox",
            ),
            (
                "- {resources: [secrets], providers: [{kms: {name: a}}]}",
                "resources[0].providers[0].kms: this provider is not supported; use aesgcm or secretbox",
            ),
            (
                "- {resources: [secrets], providers: [{aesgcm: {keys: []}}]}",
                "resources[0].providers[0].aesgcm.keys: at least one is required",
            ),
            (
                "- {resources: [secrets], providers: [{aesgcm: {keys: [{name: a}]}}]}",
                "resources[0].providers[0].aesgcm.keys[0]: a key has a name and a secret",
            ),
            (
                "- {resources: [secrets], providers: [{secretbox: {keys: [{name: a, secret: aGVsbG8=}]}}]}",
                "resources[0].providers[0].secretbox.keys[0].secret: secret is not of the expected length, got 5, expected one of [32]",
            ),
            (
                "- {resources: [secrets], providers: [{aesgcm: {keys: [{name: a, secret: 'pass:word'}]}}]}",
                "resources[0].providers[0].aesgcm.keys[0].secret: secrets must be base64 encoded",
            ),
        ] {
            assert_eq!(fault(resources), expected, "{resources}");
        }
        assert_eq!(
            parse("apiVersion: v1\nkind: EncryptionConfiguration\n").unwrap_err().to_string(),
            "apiVersion: must be apiserver.config.k8s.io/v1"
        );
    }

    #[test]
    fn no_message_tells_a_secret() {
        for broken in [
            "- {resources: [secrets], providers: [{aesgcm: {keys: [{name: a, secret: hunter2}]}}]}",
            "- {resources: [secrets], providers: [{aesgcm: {keys: [{name: a, secret: [hunter2]}]}}]}",
            "- {resources: [secrets], providers: [{aesgcm: {keys: [{name: a, secret: hunter2, secret: hunter2}]}}]}",
            "- {resources: [secrets], providers: [{aesgcm: {keys: [{name: a, secret: 'hunter2}]}}]}",
            "- {resources: [secrets], providers: [{aesgcm: {keys: hunter2}}]}",
            "- {resources: [secrets], providers: *hunter2}",
        ] {
            let said = format!("{} {:?}", fault(broken), parse(&file(broken)).unwrap_err());
            assert!(!said.contains("hunter2"), "{broken}: {said}");
        }
    }
}
