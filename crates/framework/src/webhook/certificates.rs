//! The authority and the certificate of the webhook server, and when they are made anew.
//!
//! Rotation overlaps: a new authority is trusted for a while before anything is signed by it, and the old one is
//! trusted until it ends. At no moment does an API server meet a certificate that its bundle does not know.

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};

const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(2 * 365 * 24);
const SERVING_LIFE: SignedDuration = SignedDuration::from_hours(90 * 24);
/// How long a new authority is in the bundles before it signs: every API server has read them by then.
const OVERLAP: SignedDuration = SignedDuration::from_hours(1);
/// Clocks of others may be behind.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

/// The host names under which the server is reached.
pub type Names = Vec<String>;

/// Everything secret that a webhook server has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Material {
    /// Oldest first. All of them are trusted.
    pub authorities: Vec<Authority>,
    /// What is shown to API servers.
    pub serving: Option<Serving>,
}

/// An authority that signs serving certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// In PEM.
    pub certificate: String,
    /// Its private key, in PEM.
    pub key: String,
    /// From when on it is valid.
    pub since: Timestamp,
    /// Until when.
    pub until: Timestamp,
}

/// A serving certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// In PEM.
    pub certificate: String,
    /// Its private key, in PEM.
    pub key: String,
    /// From when on it is valid.
    pub since: Timestamp,
    /// Until when.
    pub until: Timestamp,
    /// The host names that it is for.
    pub names: Names,
    /// The certificate of the authority that signed it.
    pub signer: String,
}

impl Material {
    /// What should be there now. The same as before, if nothing is due.
    pub fn renewed(&self, names: &[String], now: Timestamp) -> Result<Material, rcgen::Error> {
        let mut next = self.clone();
        next.authorities.retain(|authority| authority.until > now);
        if next
            .authorities
            .last()
            .is_none_or(|newest| is_due(newest.since, newest.until, now))
        {
            next.authorities.push(Authority::new(now)?);
        }
        // The newest that has been trusted for long enough; at the very beginning the only one there is.
        let trusted = |authority: &&Authority| authority.since + OVERLAP <= now;
        let signer = next.authorities.iter().rfind(trusted).or(next.authorities.first());
        let Some(signer) = signer else { return Ok(next) };
        let usable = next.serving.as_ref().is_some_and(|serving| {
            serving.signer == signer.certificate && serving.names == names && !is_due(serving.since, serving.until, now)
        });
        if !usable {
            next.serving = Some(signer.sign(names, now)?);
        }
        Ok(next)
    }

    /// What clients shall trust, in PEM.
    pub fn bundle(&self) -> String {
        self.authorities
            .iter()
            .map(|authority| authority.certificate.trim_end().to_owned() + "\n")
            .collect()
    }
}

/// Two thirds of a life are over.
fn is_due(since: Timestamp, until: Timestamp, now: Timestamp) -> bool {
    let life = until.duration_since(since);
    now.duration_since(since) > life / 3 * 2
}

impl Authority {
    fn new(now: Timestamp) -> Result<Self, rcgen::Error> {
        let until = now + AUTHORITY_LIFE;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "stead-webhook-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        set_life(&mut params, now, until);
        Ok(Authority {
            certificate: params.self_signed(&key)?.pem(),
            key: key.serialize_pem(),
            since: now,
            until,
        })
    }

    fn sign(&self, names: &[String], now: Timestamp) -> Result<Serving, rcgen::Error> {
        let until = (now + SERVING_LIFE).min(self.until);
        let issuer = Issuer::from_ca_cert_pem(&self.certificate, KeyPair::from_pem(&self.key)?)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name.push(DnType::CommonName, "stead-webhook");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        set_life(&mut params, now, until);
        Ok(Serving {
            certificate: params.signed_by(&key, &issuer)?.pem(),
            key: key.serialize_pem(),
            since: now,
            until,
            names: names.to_vec(),
            signer: self.certificate.clone(),
        })
    }
}

fn set_life(params: &mut CertificateParams, since: Timestamp, until: Timestamp) {
    let moment = |at: Timestamp| {
        let utc = at.to_zoned(jiff::tz::TimeZone::UTC);
        let part = |value: i8| u8::try_from(value).unwrap_or(1);
        let date = rcgen::date_time_ymd(utc.year().into(), part(utc.month()), part(utc.day()));
        let seconds = u64::try_from(at.as_second().rem_euclid(24 * 60 * 60)).unwrap_or_default();
        date + std::time::Duration::from_secs(seconds)
    };
    params.not_before = moment(since - BACKDATE);
    params.not_after = moment(until);
}
