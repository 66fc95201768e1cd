//! The authority that signs, and what it puts into a certificate.

use super::request::{self, Refusal, Signer};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;
use rcgen::{ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::time::Duration;

/// How long a certificate lives that does not ask for less.
const LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);
/// The shortest life that can be asked for.
const SHORTEST: SignedDuration = SignedDuration::from_mins(10);
/// Clocks of others may be a little behind ours.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

/// The cluster's authority: its certificate and private key, PEM. It shows neither.
#[derive(Clone)]
pub struct Authority {
    certificate: String,
    key: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    pub fn new(certificate: String, key: String) -> Self {
        Authority { certificate, key }
    }

    /// The certificate for a request, PEM, if its signer gives it.
    pub fn sign(
        &self,
        spec: &CertificateSigningRequestSpec,
        signer: Signer,
        now: Timestamp,
    ) -> Result<String, Refusal> {
        let mut wanted = request::read(spec)?;
        request::check(signer, spec, &wanted)?;
        let moment = |time: Timestamp| {
            let utc = time.to_zoned(jiff::tz::TimeZone::UTC);
            let part = |number: i8| u8::try_from(number).unwrap_or(1);
            let date = rcgen::date_time_ymd(utc.year().into(), part(utc.month()), part(utc.day()));
            let seconds = time.as_second().rem_euclid(24 * 60 * 60);
            date + Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
        };
        let unreadable = |error: rcgen::Error| Refusal::Unreadable(error.to_string());
        let usages = || spec.usages.iter().flatten().map(String::as_str);
        let params = &mut wanted.params.params;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = usages().filter_map(key_usage).collect();
        params.extended_key_usages = usages().filter_map(extended_usage).collect();
        params.use_authority_key_identifier_extension = true;
        let asked = spec
            .expiration_seconds
            .map(|seconds| SignedDuration::from_secs(i64::from(seconds)));
        let life = asked.map_or(LIFE, |asked| asked.clamp(SHORTEST, LIFE));
        params.not_before = moment(now - BACKDATE);
        params.not_after = moment(now + life);
        let key = KeyPair::from_pem(&self.key).map_err(unreadable)?;
        let issuer = Issuer::from_ca_cert_pem(&self.certificate, key).map_err(unreadable)?;
        Ok(wanted.params.signed_by(&issuer).map_err(unreadable)?.pem())
    }
}

fn key_usage(usage: &str) -> Option<KeyUsagePurpose> {
    match usage {
        "signing" | "digital signature" => Some(KeyUsagePurpose::DigitalSignature),
        "content commitment" => Some(KeyUsagePurpose::ContentCommitment),
        "key encipherment" => Some(KeyUsagePurpose::KeyEncipherment),
        "data encipherment" => Some(KeyUsagePurpose::DataEncipherment),
        "key agreement" => Some(KeyUsagePurpose::KeyAgreement),
        _ => None,
    }
}

fn extended_usage(usage: &str) -> Option<ExtendedKeyUsagePurpose> {
    match usage {
        "client auth" => Some(ExtendedKeyUsagePurpose::ClientAuth),
        "server auth" => Some(ExtendedKeyUsagePurpose::ServerAuth),
        "code signing" => Some(ExtendedKeyUsagePurpose::CodeSigning),
        "email protection" => Some(ExtendedKeyUsagePurpose::EmailProtection),
        _ => None,
    }
}
