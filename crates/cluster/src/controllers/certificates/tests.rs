//! Who gets which certificate, and who does not.

use super::request::{self, Refusal, Signer};
use super::signing::Authority;
use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use serde_json::json;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    Authority::new(certificate.pem(), key.serialize_pem())
}

/// A request by `name` of `groups` for these subject names and usages.
fn request(name: &str, groups: &[&str], names: &[&str], usages: &[&str]) -> CertificateSigningRequestSpec {
    let names: Vec<String> = names.iter().map(|name| (*name).to_string()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    let key = KeyPair::generate().unwrap();
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let body = k8s_openapi::ByteString(pem.into_bytes());
    serde_json::from_value(json!({"signerName": "any", "request": body, "usages": usages})).unwrap()
}

const CLIENT: [&str; 2] = ["client auth", "digital signature"];
const SERVER: [&str; 2] = ["server auth", "digital signature"];

#[test]
fn signers_give_what_is_theirs_and_nothing_else() {
    let check = |signer, spec: CertificateSigningRequestSpec, expected: Result<(), Refusal>| {
        let wanted = request::read(&spec).unwrap();
        assert_eq!(request::check(signer, &spec, &wanted), expected);
    };
    let node = "system:node:a";
    check(Signer::ApiClient, request("jane", &["dev"], &[], &CLIENT), Ok(()));
    check(
        Signer::ApiClient,
        request("jane", &["dev"], &[], &SERVER),
        Err(Refusal::Usages("client auth")),
    );
    check(
        Signer::ApiClient,
        request("jane", &["system:masters"], &[], &CLIENT),
        Err(Refusal::Masters),
    );
    check(
        Signer::KubeletClient,
        request(node, &["system:nodes"], &[], &CLIENT),
        Ok(()),
    );
    check(
        Signer::KubeletClient,
        request("jane", &["system:nodes"], &[], &CLIENT),
        Err(Refusal::NotANode),
    );
    check(
        Signer::KubeletClient,
        request(node, &["dev"], &[], &CLIENT),
        Err(Refusal::NotANode),
    );
    check(
        Signer::KubeletServing,
        request(node, &["system:nodes"], &["a.local"], &SERVER),
        Ok(()),
    );
    check(
        Signer::KubeletServing,
        request(node, &["system:nodes"], &[], &SERVER),
        Err(Refusal::NoNames),
    );
}

#[test]
fn a_certificate_is_signed_for_its_time() {
    let mut spec = request("jane", &["dev"], &[], &CLIENT);
    spec.expiration_seconds = Some(3600);
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let pem = authority().sign(&spec, Signer::ApiClient, now).unwrap();
    assert!(pem.starts_with("-----BEGIN CERTIFICATE-----"), "{pem}");
    spec.request = k8s_openapi::ByteString(b"nonsense".to_vec());
    let refused = authority().sign(&spec, Signer::ApiClient, now);
    assert!(matches!(refused, Err(Refusal::Unreadable(_))), "{refused:?}");
}

#[test]
fn an_authority_keeps_its_key_to_itself() {
    assert_eq!(format!("{:?}", authority()), "Authority");
}
