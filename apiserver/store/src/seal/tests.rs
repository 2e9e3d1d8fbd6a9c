#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use proptest::prelude::*;

use super::*;

const PLACE: &[u8] = b"/registry/secrets/shop/token";

fn key(method: Method, name: &str, byte: u8) -> SealKey {
    SealKey::new(method, name, &[byte; 32]).unwrap()
}

fn one(resource: &str) -> Pattern {
    let (group, resource) = resource.split_once('/').unwrap_or(("", resource));
    Pattern::One { group: group.to_owned(), resource: resource.to_owned() }
}

fn ring(providers: Vec<Provider>) -> Keyring {
    Keyring::new(vec![Rule { resources: vec![one("secrets")], providers }])
}

fn gcm(keys: &[(&str, u8)]) -> Provider {
    Provider::Keys(Method::AesGcm, keys.iter().map(|(name, byte)| key(Method::AesGcm, name, *byte)).collect())
}

fn boxed(keys: &[(&str, u8)]) -> Provider {
    Provider::Keys(Method::Secretbox, keys.iter().map(|(name, byte)| key(Method::Secretbox, name, *byte)).collect())
}

fn opened(ring: &Keyring, value: &Bytes) -> Result<(Bytes, bool), String> {
    ring.open("secrets", PLACE, value).map(|Opened { value, is_stale }| (value, is_stale))
}

fn sealed(ring: &Keyring) -> Bytes {
    ring.seal("secrets", PLACE, Bytes::from_static(b"{\"plain\":1}")).unwrap()
}

fn plain() -> Bytes {
    Bytes::from_static(b"{\"plain\":1}")
}

#[test]
fn a_value_begins_as_kubernetes_begins_it_and_hides_what_it_holds() {
    for (provider, prefix, length) in [
        (gcm(&[("key1", 1)]), "k8s:enc:aesgcm:v1:key1:", 12 + 16),
        (boxed(&[("key1", 1)]), "k8s:enc:secretbox:v1:key1:", 24 + 16),
    ] {
        let ring = ring(vec![provider]);
        let (first, second) = (sealed(&ring), sealed(&ring));
        assert!(first.starts_with(prefix.as_bytes()));
        assert_eq!(first.len(), prefix.len() + plain().len() + length);
        assert!(!first.windows(5).any(|window| window == b"plain"));
        assert_ne!(first, second, "every write has a nonce of its own");
        assert_eq!(opened(&ring, &first), Ok((plain(), false)));
    }
}

#[test]
fn aes_keys_have_16_24_or_32_bytes_and_a_box_has_32() {
    let made = |method, length: usize| SealKey::new(method, "k", &vec![7; length]).map(drop);
    for length in [0, 1, 15, 16, 17, 24, 31, 32, 33] {
        let aes = SealError::KeyLength { got: length, expected: &[16, 24, 32] };
        assert_eq!(made(Method::AesGcm, length), if [16, 24, 32].contains(&length) { Ok(()) } else { Err(aes) });
        let boxed = SealError::KeyLength { got: length, expected: &[32] };
        assert_eq!(made(Method::Secretbox, length), if length == 32 { Ok(()) } else { Err(boxed) });
    }
    for name in [String::new(), "x".repeat(254)] {
        assert_eq!(SealKey::new(Method::AesGcm, &name, &[7; 32]).map(drop), Err(SealError::KeyName));
    }
    for length in [16, 24, 32] {
        let key = SealKey::new(Method::AesGcm, "k", &vec![7; length]).unwrap();
        let ring = ring(vec![Provider::Keys(Method::AesGcm, vec![key])]);
        assert_eq!(opened(&ring, &sealed(&ring)), Ok((plain(), false)));
    }
}

#[test]
fn the_story_of_a_rotation() {
    let (old, bare) = (ring(vec![gcm(&[("a", 1)])]), plain());
    let first = sealed(&old);
    let both = ring(vec![gcm(&[("a", 1), ("b", 2)])]);
    assert_eq!(opened(&both, &first), Ok((plain(), false)), "the new key is there, but does not write yet");
    let turned = ring(vec![gcm(&[("b", 2), ("a", 1)])]);
    assert_eq!(opened(&turned, &first), Ok((plain(), true)), "read with the second key: stale");
    let second = sealed(&turned);
    assert!(second.starts_with(b"k8s:enc:aesgcm:v1:b:"));
    let new = ring(vec![gcm(&[("b", 2)])]);
    assert_eq!(opened(&new, &second), Ok((plain(), false)));
    let gone = "no matching key was found for the provided AES transformer";
    assert_eq!(opened(&new, &first), Err(gone.to_owned()));
    let begun = ring(vec![boxed(&[("c", 3)]), gcm(&[("b", 2)]), Provider::Identity]);
    assert_eq!(opened(&begun, &second), Ok((plain(), true)), "another method is another provider");
    assert_eq!(opened(&begun, &bare), Ok((plain(), true)), "what was written before anything was sealed");
    assert_eq!(opened(&begun, &sealed(&begun)), Ok((plain(), false)));
    let ended = ring(vec![Provider::Identity, boxed(&[("c", 3)])]);
    assert_eq!(opened(&ended, &sealed(&begun)), Ok((plain(), true)), "back to plain values");
    assert_eq!(sealed(&ended), plain());
    assert_eq!(opened(&ended, &plain()), Ok((plain(), false)));
}

#[test]
fn what_nobody_can_open_is_told_in_kubernetes_words() {
    let value = sealed(&ring(vec![gcm(&[("a", 1)])]));
    for (providers, message) in [
        (vec![Provider::Identity], "identity transformer tried to read encrypted data"),
        (vec![boxed(&[("a", 1)])], "no matching prefix found"),
        (vec![boxed(&[("a", 1)]), Provider::Identity], "no matching prefix found"),
        (vec![gcm(&[("b", 1)])], "no matching key was found for the provided AES transformer"),
        (vec![gcm(&[("a", 2)])], "cipher: message authentication failed"),
        (
            vec![gcm(&[("a", 2)]), gcm(&[("b", 1)])],
            "[cipher: message authentication failed, no matching key was found for the provided AES transformer]",
        ),
    ] {
        assert_eq!(opened(&ring(providers), &value), Err(message.to_owned()));
    }
    let other = Keyring::default();
    let unsealed = "identity transformer tried to read encrypted data";
    assert_eq!(other.open("secrets", PLACE, &value), Err(unsealed.to_owned()));
    assert_eq!(opened(&ring(vec![gcm(&[("a", 1)])]), &plain()), Err("no matching prefix found".to_owned()));
}

#[test]
fn two_keys_of_one_name_are_both_tried() {
    let value = sealed(&ring(vec![gcm(&[("k", 1)])]));
    assert_eq!(opened(&ring(vec![gcm(&[("k", 2), ("k", 1)])]), &value), Ok((plain(), true)));
    assert_eq!(opened(&ring(vec![gcm(&[("k", 2)]), gcm(&[("k", 1)])]), &value), Ok((plain(), true)));
}

#[test]
fn a_sealed_value_opens_at_its_place_only() {
    let ring = ring(vec![gcm(&[("a", 1)])]);
    let value = sealed(&ring);
    let moved = ring.open("secrets", b"/registry/secrets/shop/other", &value);
    assert_eq!(moved, Err("cipher: message authentication failed".to_owned()));
}

#[test]
fn the_narrowest_pattern_decides_and_what_none_is_about_stays_plain() {
    let rule = |resources: Vec<Pattern>, name| Rule { resources, providers: vec![gcm(&[(name, 1)])] };
    let group = |name: &str| Pattern::Group(name.to_owned());
    let ring = Keyring::new(vec![
        rule(vec![one("secrets"), one("redis.kun.io/redisclusters")], "exact"),
        rule(vec![group("")], "core"),
        rule(vec![group("redis.kun.io")], "group"),
    ]);
    let wrote = |ring: &Keyring, resource: &str| {
        let value = ring.seal(resource, PLACE, plain()).unwrap();
        let name = value.strip_prefix(b"k8s:enc:aesgcm:v1:").map(|rest| rest.split(|b| *b == b':').next().unwrap());
        name.map(|name| String::from_utf8(name.to_vec()).unwrap())
    };
    for (resource, by) in [
        ("secrets", Some("exact")),
        ("configmaps", Some("core")),
        ("redis.kun.io/redisclusters", Some("exact")),
        ("redis.kun.io/redisbackups", Some("group")),
        ("apps/secrets", None),
        ("apps/statefulsets", None),
    ] {
        assert_eq!(wrote(&ring, resource).as_deref(), by, "{resource}");
    }
    let all = Keyring::new(vec![rule(vec![one("secrets")], "exact"), rule(vec![Pattern::All], "all")]);
    assert_eq!(wrote(&all, "secrets").as_deref(), Some("exact"));
    assert_eq!(wrote(&all, "apps/statefulsets").as_deref(), Some("all"));
}

#[test]
fn no_secret_is_ever_shown() {
    let secret = *b"0123456789abcdef0123456789abcdef";
    let keys = vec![SealKey::new(Method::AesGcm, "k", &secret).unwrap()];
    let boxes = vec![SealKey::new(Method::Secretbox, "b", &secret).unwrap()];
    let shown =
        format!("{:?}", ring(vec![Provider::Keys(Method::AesGcm, keys), Provider::Keys(Method::Secretbox, boxes)]));
    assert!(shown.contains("SealKey(k)") && shown.contains("SealKey(b)"), "{shown}");
    assert!(!shown.contains("0123456789") && !shown.contains("48, 49, 50"), "{shown}");
}

proptest! {
    #[test]
    fn what_was_tampered_with_does_not_open(at: prop::sample::Index, bit in 0..8_u8, is_box: bool) {
        let ring = ring(vec![if is_box { boxed(&[("a", 1)]) } else { gcm(&[("a", 1)]) }]);
        let mut value = sealed(&ring).to_vec();
        let at = at.index(value.len());
        value[at] ^= 1 << bit;
        prop_assert!(opened(&ring, &value.clone().into()).is_err());
        value.truncate(at);
        prop_assert!(opened(&ring, &value.into()).is_err());
    }

    #[test]
    fn what_was_sealed_opens(value: Vec<u8>, is_box: bool) {
        let ring = ring(vec![if is_box { boxed(&[("a", 1)]) } else { gcm(&[("a", 1)]) }]);
        let kept = ring.seal("secrets", PLACE, value.clone().into()).unwrap();
        prop_assert!(kept.len() <= value.len() + SEAL_LIMIT);
        prop_assert_eq!(opened(&ring, &kept), Ok((value.into(), false)));
    }
}
