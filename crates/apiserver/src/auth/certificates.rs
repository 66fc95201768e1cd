//! The cluster's own certificate authority, and the certificates that it signs.
//!
//! A cluster needs no outside authority: it makes its own on first start and keeps it in a directory that
//! only its owner can read. Certificates near their end are signed anew, at the start and, for the serving
//! certificate, while the server runs.

mod files;
mod serving;

pub use serving::server_config;

use super::MASTERS;
use super::tokens::Issuer as TokenIssuer;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::path::Path;

/// How long the authority lives, and what it signs.
const AUTHORITY_DAYS: i64 = 10 * 365;
const LEAF_DAYS: i64 = 365;

/// A certificate with less than this to live is signed anew.
const RENEW_BEFORE_DAYS: i64 = 30;

/// Clocks of clients may be a little behind ours.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

/// A certificate and its private key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    pub certificate: String,
    pub key: String,
}

/// Who a certificate speaks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject<'a> {
    /// A server with these names and addresses.
    Server(&'a [String]),
    /// A user with these groups.
    Client { user: &'a str, groups: &'a [&'a str] },
}

/// Everything secret that one cluster has.
pub struct Pki {
    pub authority: Credential,
    /// Names and addresses of the serving certificate.
    names: Vec<String>,
    serving: Credential,
    /// A client certificate of the group `system:masters`.
    pub admin: Credential,
    /// The key that signs service-account tokens, PKCS#8 PEM.
    pub token_key: String,
}

/// Why credentials cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("cannot {action} {path}")]
    File {
        action: &'static str,
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("{0} does not hold a usable certificate and key")]
    Unusable(String),
    #[error("cannot make a signing key")]
    TokenKey(#[from] super::tokens::TokenError),
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
}

impl Pki {
    /// New credentials that are nowhere but in memory, for an ephemeral cluster.
    pub fn generate(names: &[String], now: Timestamp) -> Result<Self, PkiError> {
        let authority = new_authority(now)?;
        Ok(Pki {
            serving: authority.sign(&Subject::Server(names), now)?,
            admin: authority.sign(&admin(), now)?,
            token_key: TokenIssuer::generate_pem()?,
            names: names.to_vec(),
            authority,
        })
    }

    /// The credentials of a directory: what is missing, near its end or for other names is made anew.
    pub fn open(directory: &Path, names: &[String], now: Timestamp) -> Result<Self, PkiError> {
        files::make_private(directory)?;
        let authority = match files::read(directory, "ca")?.filter(|kept| kept.fresh(now)) {
            Some(kept) => kept,
            None => files::write(directory, "ca", new_authority(now)?)?,
        };
        let keep = |kept: &Credential| kept.fresh(now) && authority.signed(kept);
        let serving = match files::read(directory, "server")?.filter(|kept| keep(kept) && kept.covers(names)) {
            Some(kept) => kept,
            None => files::write(directory, "server", authority.sign(&Subject::Server(names), now)?)?,
        };
        let admin = match files::read(directory, "admin")?.filter(keep) {
            Some(kept) => kept,
            None => files::write(directory, "admin", authority.sign(&admin(), now)?)?,
        };
        let token_key = match files::read_file(&directory.join("service-account.key"))? {
            Some(kept) => kept,
            None => {
                let key = TokenIssuer::generate_pem()?;
                files::write_private(&directory.join("service-account.key"), key.as_bytes())?;
                key
            }
        };
        Ok(Pki {
            authority,
            serving,
            admin,
            token_key,
            names: names.to_vec(),
        })
    }
}

fn admin() -> Subject<'static> {
    Subject::Client {
        user: "stead-admin",
        groups: &[MASTERS],
    }
}

fn new_authority(now: Timestamp) -> Result<Credential, PkiError> {
    let mut params = CertificateParams::default();
    name(&mut params, "stead-ca", &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    valid(&mut params, now, AUTHORITY_DAYS);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.pem();
    Ok(Credential {
        certificate,
        key: key.serialize_pem(),
    })
}

impl Credential {
    /// Signs a new certificate with this authority.
    pub fn sign(&self, subject: &Subject<'_>, now: Timestamp) -> Result<Credential, PkiError> {
        let issuer = Issuer::from_ca_cert_pem(&self.certificate, KeyPair::from_pem(&self.key)?)?;
        let mut params = match subject {
            Subject::Server(names) => {
                let mut params = CertificateParams::new(names.to_vec())?;
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                name(&mut params, "stead-apiserver", &[]);
                params
            }
            Subject::Client { user, groups } => {
                let mut params = CertificateParams::default();
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
                name(&mut params, user, groups);
                params
            }
        };
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        valid(&mut params, now, LEAF_DAYS);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?.pem();
        Ok(Credential {
            certificate,
            key: key.serialize_pem(),
        })
    }

    fn der(&self) -> Option<CertificateDer<'static>> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).ok()
    }

    /// Whether the certificate lasts long enough to be kept.
    pub(crate) fn fresh(&self, now: Timestamp) -> bool {
        let Some(der) = self.der() else { return false };
        let Ok((_, parsed)) = x509_parser::parse_x509_certificate(&der) else {
            return false;
        };
        let renew = now.as_second() + RENEW_BEFORE_DAYS * 24 * 60 * 60;
        let validity = parsed.validity();
        validity.not_before.timestamp() <= now.as_second() && validity.not_after.timestamp() > renew
    }

    /// Whether this authority signed the other certificate.
    fn signed(&self, leaf: &Credential) -> bool {
        let (Some(authority), Some(leaf)) = (self.der(), leaf.der()) else {
            return false;
        };
        let parse = x509_parser::parse_x509_certificate;
        let (Ok((_, authority)), Ok((_, leaf))) = (parse(&authority), parse(&leaf)) else {
            return false;
        };
        // The authority is identified by its key, since all authorities of Stead have one name.
        let key_of = |certificate: &x509_parser::certificate::X509Certificate<'_>| {
            certificate
                .extensions()
                .iter()
                .find_map(|extension| match extension.parsed_extension() {
                    x509_parser::extensions::ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
                    _ => None,
                })
        };
        let signer_of = |certificate: &x509_parser::certificate::X509Certificate<'_>| {
            certificate
                .extensions()
                .iter()
                .find_map(|extension| match extension.parsed_extension() {
                    x509_parser::extensions::ParsedExtension::AuthorityKeyIdentifier(id) => {
                        id.key_identifier.as_ref().map(|id| id.0.to_vec())
                    }
                    _ => None,
                })
        };
        let authority = key_of(&authority);
        authority.is_some() && authority == signer_of(&leaf)
    }

    /// Whether the certificate is for all of these names.
    fn covers(&self, names: &[String]) -> bool {
        let Some(der) = self.der() else { return false };
        let Ok((_, parsed)) = x509_parser::parse_x509_certificate(&der) else {
            return false;
        };
        let Ok(Some(alternatives)) = parsed.subject_alternative_name() else {
            return false;
        };
        let have: Vec<String> = alternatives
            .value
            .general_names
            .iter()
            .filter_map(|name| match name {
                x509_parser::extensions::GeneralName::DNSName(name) => Some((*name).to_string()),
                x509_parser::extensions::GeneralName::IPAddress(bytes) => address(bytes),
                _ => None,
            })
            .collect();
        names.iter().all(|name| have.contains(name))
    }
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(four).to_string());
    }
    let sixteen = <[u8; 16]>::try_from(bytes).ok()?;
    Some(std::net::Ipv6Addr::from(sixteen).to_string())
}

fn name(params: &mut CertificateParams, common: &str, organizations: &[&str]) {
    let mut subject = DistinguishedName::new();
    for organization in organizations {
        subject.push(DnType::OrganizationName, *organization);
    }
    subject.push(DnType::CommonName, common);
    params.distinguished_name = subject;
}

fn valid(params: &mut CertificateParams, now: Timestamp, days: i64) {
    let ymd = |time: Timestamp| {
        let utc = time.to_zoned(jiff::tz::TimeZone::UTC);
        let date = rcgen::date_time_ymd(
            utc.year().into(),
            u8::try_from(utc.month()).unwrap_or(1),
            u8::try_from(utc.day()).unwrap_or(1),
        );
        let seconds = u64::try_from(time.as_second().rem_euclid(24 * 60 * 60)).unwrap_or_default();
        date + std::time::Duration::from_secs(seconds)
    };
    params.not_before = ymd(now - BACKDATE);
    params.not_after = ymd(now + SignedDuration::from_hours(days * 24));
}

#[cfg(test)]
mod tests;
