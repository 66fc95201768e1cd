use super::*;
use crate::auth::PeerCertificate;
use std::os::unix::fs::PermissionsExt;

fn names() -> Vec<String> {
    vec!["localhost".into(), "127.0.0.1".into(), "kubernetes.default.svc".into()]
}

fn day(number: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + number * 24 * 60 * 60).expect("a time")
}

#[test]
fn the_admin_certificate_names_a_master() {
    let pki = Pki::generate(&names(), day(0)).expect("credentials");
    let peer = PeerCertificate::parse(&pki.admin.der().expect("a certificate")).expect("a subject");
    assert_eq!(peer.common_name, "stead-admin");
    assert_eq!(peer.organizations, [MASTERS]);
    assert!(pki.authority.signed(&pki.admin));
}

#[test]
fn credentials_are_kept_and_readable_by_their_owner_only() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("pki");
    let first = Pki::open(&directory, &names(), day(0)).expect("credentials");
    let second = Pki::open(&directory, &names(), day(1)).expect("credentials");
    assert!(first.authority == second.authority && first.serving == second.serving && first.admin == second.admin);
    assert_eq!(first.token_key, second.token_key);
    let mode = |path: &Path| std::fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    for entry in std::fs::read_dir(&directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn certificates_near_their_end_or_for_other_names_are_signed_anew() {
    let place = tempfile::tempdir().expect("a directory");
    let open = |names: &[String], now| Pki::open(place.path(), names, now).expect("credentials");
    let first = open(&names(), day(0));
    let later = open(&names(), day(LEAF_DAYS - RENEW_BEFORE_DAYS + 1));
    assert!(first.authority == later.authority);
    assert!(first.serving != later.serving && first.admin != later.admin);
    let more: Vec<String> = [names(), vec!["10.0.0.1".into()]].concat();
    let renamed = open(&more, day(LEAF_DAYS));
    assert!(renamed.serving != later.serving && renamed.admin == later.admin);
    let replaced = open(&more, day(AUTHORITY_DAYS));
    assert!(replaced.authority != first.authority && replaced.authority.signed(&replaced.admin));
}

#[test]
fn a_certificate_that_a_crash_left_half_written_is_made_anew() {
    let place = tempfile::tempdir().expect("a directory");
    let first = Pki::open(place.path(), &names(), day(0)).expect("credentials");
    std::fs::write(place.path().join("admin.crt"), "-----BEGIN CERT").expect("a write");
    let second = Pki::open(place.path(), &names(), day(0)).expect("credentials");
    assert!(second.admin != first.admin && second.authority.signed(&second.admin));
}
