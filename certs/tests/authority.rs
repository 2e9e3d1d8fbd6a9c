//! What an authority issues, keeps and renews.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use certs::{Authority, Error, Identity, Issued, Leaf, Usage, identity_of, renewal_due};
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn leaf() -> Leaf {
    Leaf {
        common_name: "kun:admin".to_owned(),
        organizations: vec!["system:masters".to_owned()],
        dns_names: vec!["localhost".to_owned()],
        ips: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        usage: Usage::BOTH,
        lifetime: 90 * DAY,
    }
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

#[test]
fn an_authority_may_sign_leaves_and_nothing_below_it() {
    let authority = Authority::create("kun test").unwrap();
    let bytes = der(authority.certificate_pem());
    let (_, certificate) = X509Certificate::from_der(&bytes).unwrap();
    let constraints = certificate.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical);
    assert!(constraints.value.ca);
    assert_eq!(constraints.value.path_len_constraint, Some(0));
    assert!(certificate.key_usage().unwrap().unwrap().value.key_cert_sign());
    assert_eq!(
        certificate.public_key().algorithm.parameters.as_ref().unwrap().as_oid().unwrap().to_id_string(),
        "1.2.840.10045.3.1.7"
    );
}

#[test]
fn a_leaf_says_who_it_is_for_what_it_may_do_and_how_long() {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let authority = Authority::create_at("kun test", now).unwrap();
    let issued = authority.issue_at(&leaf(), now).unwrap();
    let bytes = der(&issued.certificate_pem);
    let (_, certificate) = X509Certificate::from_der(&bytes).unwrap();
    assert_eq!(identity_of(&bytes), Some(Identity::of("kun:admin", &["system:masters".to_owned()])));
    assert!(!certificate.is_ca());
    let usage = certificate.extended_key_usage().unwrap().unwrap().value;
    assert_eq!((usage.server_auth, usage.client_auth, usage.any), (true, true, false));
    assert_eq!(certificate.validity().not_before.timestamp(), now.as_second() - 600);
    assert_eq!(certificate.validity().not_after.timestamp(), now.as_second() + 90 * 24 * 3600);
    let other = authority.issue_at(&leaf(), now).unwrap();
    let other = der(&other.certificate_pem);
    assert_ne!(certificate.raw_serial(), X509Certificate::from_der(&other).unwrap().1.raw_serial());
    assert_eq!(certificate.raw_serial().len(), 16);
}

#[test]
fn a_leaf_never_outlives_its_authority() {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let authority = Authority::create_at("kun test", now).unwrap();
    let issued = authority.issue_at(&Leaf { lifetime: 20 * 365 * DAY, ..leaf() }, now).unwrap();
    let (mine, its) = (der(authority.certificate_pem()), der(&issued.certificate_pem));
    let end = |bytes: &CertificateDer<'_>| X509Certificate::from_der(bytes).unwrap().1.validity().not_after;
    assert_eq!(end(&its), end(&mine));
}

#[test]
fn two_organizations_are_two_groups_and_three_are_refused() {
    let authority = Authority::create("kun test").unwrap();
    let organizations = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let two = authority.issue(&Leaf { organizations: organizations(&["b", "a"]), ..leaf() }).unwrap();
    assert_eq!(identity_of(&der(&two.certificate_pem)).unwrap().organizations, organizations(&["b", "a"]));
    let three = authority.issue(&Leaf { organizations: organizations(&["a", "b", "c"]), ..leaf() });
    assert!(matches!(three, Err(Error::BadLeaf { reason: "more than two organizations", .. })));
}

#[test]
fn leaves_that_make_no_sense_are_refused() {
    let authority = Authority::create("kun test").unwrap();
    let nameless = Leaf { common_name: String::new(), ..leaf() };
    let useless = Leaf { usage: Usage { server: false, client: false }, ..leaf() };
    let nowhere = Leaf { dns_names: Vec::new(), ips: Vec::new(), ..leaf() };
    let not_ascii = Leaf { dns_names: vec!["bücher".to_owned()], ..leaf() };
    for bad in [nameless, useless, nowhere, not_ascii] {
        assert!(matches!(authority.issue(&bad), Err(Error::BadLeaf { .. })), "{bad:?}");
    }
}

#[test]
fn keys_do_not_show_in_debug_output() {
    let authority = Authority::create("kun test").unwrap();
    let issued = authority.issue(&leaf()).unwrap();
    for text in [format!("{authority:?}"), format!("{issued:?}")] {
        assert!(text.contains("[withheld]"), "{text}");
        assert!(!text.contains("PRIVATE"), "{text}");
    }
}

#[test]
fn renewal_is_due_after_two_thirds_of_the_life() {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let authority = Authority::create_at("kun test", now).unwrap();
    let issued = authority
        .issue_at(&Leaf { lifetime: 3000 * Duration::from_secs(1) - Duration::from_secs(600), ..leaf() }, now)
        .unwrap();
    // Valid from now-600 for 3000 s: two thirds are over at now+1400.
    let due = |seconds| renewal_due(&issued.certificate_pem, &(now + SignedDuration::from_secs(seconds))).unwrap();
    assert_eq!([due(0), due(1399), due(1400), due(9000)], [false, false, true, true]);
    assert!(matches!(renewal_due("no certificate", &now), Err(Error::BadCertificate(_))));
}

#[test]
fn an_authority_is_made_once_and_its_files_are_private() {
    let dir = tempfile::tempdir().unwrap();
    let first = Authority::load_or_create(dir.path(), "ca", "kun test").unwrap();
    let second = Authority::load_or_create(dir.path(), "ca", "kun test").unwrap();
    assert_eq!(first.certificate_pem(), second.certificate_pem());
    for file in ["ca.crt", "ca.key"] {
        assert_eq!(std::fs::metadata(dir.path().join(file)).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_first_start_that_crashed_after_the_key_begins_anew_and_a_lost_key_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    Authority::load_or_create(dir.path(), "ca", "kun test").unwrap();
    std::fs::remove_file(dir.path().join("ca.crt")).unwrap();
    let again = Authority::load_or_create(dir.path(), "ca", "kun test").unwrap();
    assert_eq!(std::fs::read_to_string(dir.path().join("ca.crt")).unwrap(), again.certificate_pem());
    std::fs::remove_file(dir.path().join("ca.key")).unwrap();
    assert!(matches!(Authority::load_or_create(dir.path(), "ca", "kun test"), Err(Error::KeyLost { .. })));
}

#[test]
fn an_authority_near_its_end_is_renewed_over_the_same_key() {
    let dir = tempfile::tempdir().unwrap();
    let then: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let old = Authority::load_or_create_at(dir.path(), "ca", "kun test", then).unwrap();
    let later = then + SignedDuration::from_secs(8 * 365 * 24 * 3600);
    let renewed = Authority::load_or_create_at(dir.path(), "ca", "other name", later).unwrap();
    assert_ne!(old.certificate_pem(), renewed.certificate_pem());
    assert_eq!(old.key_pem(), renewed.key_pem());
    assert_eq!(identity_of(&der(renewed.certificate_pem())).unwrap().common_name, "kun test");
    assert!(!renewal_due(renewed.certificate_pem(), &later).unwrap());
    // A leaf of the old certificate verifies under the new one.
    let issued = old.issue_at(&leaf(), then).unwrap();
    let (leaf_bytes, root) = (der(&issued.certificate_pem), der(renewed.certificate_pem()));
    let (_, root) = X509Certificate::from_der(&root).unwrap();
    X509Certificate::from_der(&leaf_bytes).unwrap().1.verify_signature(Some(root.public_key())).unwrap();
}

#[test]
fn a_kept_leaf_is_reused_until_it_is_due_or_says_something_else() {
    let dir = tempfile::tempdir().unwrap();
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let authority = Authority::create_at("kun test", now).unwrap();
    let keep =
        |authority: &Authority, leaf: &Leaf, now| authority.load_or_issue_at(dir.path(), "admin", leaf, now).unwrap();
    let first = keep(&authority, &leaf(), now);
    assert_eq!(keep(&authority, &leaf(), now + SignedDuration::from_secs(59 * 24 * 3600)), first);
    let after_due = keep(&authority, &leaf(), now + SignedDuration::from_secs(61 * 24 * 3600));
    assert_ne!(after_due, first);
    let renamed = keep(&authority, &Leaf { ips: Vec::new(), ..leaf() }, now);
    assert_ne!(renamed, after_due);
    let other = Authority::create_at("kun test", now).unwrap();
    let reissued = keep(&other, &Leaf { ips: Vec::new(), ..leaf() }, now);
    assert_ne!(reissued, renamed, "a leaf of another authority of the same name is not kept");
    // A crash between the two files of a renewal leaves a key that does not fit.
    std::fs::write(dir.path().join("admin.key"), &first.key_pem).unwrap();
    let healed = keep(&other, &Leaf { ips: Vec::new(), ..leaf() }, now);
    assert_ne!(healed.certificate_pem, reissued.certificate_pem);
    let on_disk = |file: &str| std::fs::read_to_string(dir.path().join(file)).unwrap();
    assert_eq!(Issued { certificate_pem: on_disk("admin.crt"), key_pem: on_disk("admin.key") }, healed);
}

#[test]
fn an_authority_is_loaded_only_from_a_ca_certificate_with_its_own_key() {
    let (one, two) = (Authority::create("one").unwrap(), Authority::create("two").unwrap());
    let issued = one.issue(&leaf()).unwrap();
    assert_eq!(
        Authority::load(one.certificate_pem(), &one.key_pem()).unwrap().certificate_pem(),
        one.certificate_pem()
    );
    assert!(matches!(Authority::load(one.certificate_pem(), &two.key_pem()), Err(Error::KeyMismatch)));
    assert!(matches!(Authority::load(&issued.certificate_pem, &issued.key_pem), Err(Error::NotAnAuthority)));
    assert!(matches!(Authority::load("", &one.key_pem()), Err(Error::BadCertificate(_))));
    assert!(matches!(Authority::load(one.certificate_pem(), ""), Err(Error::BadKey)));
}
