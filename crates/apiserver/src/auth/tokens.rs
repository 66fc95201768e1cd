//! Service-account tokens: signed JWTs, and the documents with which others can verify them.
//!
//! Signing and checking a signature are pure; whether the objects that a token is bound to still exist is
//! asked of the store by the authenticator.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Clocks of issuer and verifier may differ by this much.
const LEEWAY_SECONDS: i64 = 60;

/// The issuer that clusters have unless told otherwise, and the audience of their API server.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// A token longer than this is refused unread.
const LONGEST_TOKEN: usize = 16 * 1024;

/// The DER that precedes the point in the SubjectPublicKeyInfo of a P-256 key.
const P256_HEADER: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The key that signs tokens, with the name and audience that it signs for.
pub struct Issuer {
    key: EcdsaKeyPair,
    key_id: String,
    /// `iss` of every token, and the audience of the API server itself.
    pub url: String,
    random: SystemRandom,
}

/// Why a key or a token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the signing key is not a P-256 key in PKCS#8 PEM")]
    Key,
    /// Not a JWT, or one of another issuer: some other method may know it.
    #[error("invalid bearer token")]
    Foreign,
    #[error("go-jose/go-jose: error in cryptographic primitive")]
    Signature,
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    NotYetValid,
    #[error("token audiences {have} is invalid for the target audiences {wanted}")]
    Audience { have: String, wanted: String },
    #[error("{0}")]
    Invalidated(String),
    #[error("signing failed")]
    Signing,
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    #[serde(deserialize_with = "one_or_many")]
    pub aud: Vec<String>,
    pub exp: i64,
    pub iat: i64,
    pub iss: String,
    #[serde(default)]
    pub jti: String,
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: Bindings,
    pub nbf: i64,
    pub sub: String,
}

/// The service account, and the object with which the token ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Bindings {
    pub namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    pub serviceaccount: Reference,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Reference {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
}

fn one_or_many<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(source)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}

impl Issuer {
    /// A new P-256 key as PKCS#8 PEM. Keys come from the machine's secure source alone, never from a test's seed.
    pub fn generate_pem() -> Result<String, TokenError> {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .map_err(|_| TokenError::Key)?;
        let body = STANDARD.encode(document.as_ref());
        let lines: Vec<&str> = body
            .as_bytes()
            .chunks(64)
            .filter_map(|line| std::str::from_utf8(line).ok())
            .collect();
        Ok(format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            lines.join("\n")
        ))
    }

    /// A key that nobody keeps, for a server whose tokens need not outlive it.
    pub fn ephemeral() -> Self {
        Self::generate_pem()
            .and_then(|pem| Self::from_pem(&pem, DEFAULT_ISSUER))
            .expect("a fresh key is readable, and without random numbers no process of ours could start")
    }

    pub fn from_pem(pem: &str, url: &str) -> Result<Self, TokenError> {
        let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        let der = STANDARD.decode(body.trim()).map_err(|_| TokenError::Key)?;
        let random = SystemRandom::new();
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &random).map_err(|_| TokenError::Key)?;
        let mut digest = Sha256::new();
        digest.update(P256_HEADER);
        digest.update(key.public_key().as_ref());
        Ok(Issuer {
            key_id: URL_SAFE_NO_PAD.encode(digest.finalize()),
            key,
            url: url.to_string(),
            random,
        })
    }

    pub fn sign(&self, claims: &Claims) -> Result<String, TokenError> {
        let header = json!({"alg": "ES256", "kid": self.key_id});
        let claims = serde_json::to_vec(claims).map_err(|_| TokenError::Signing)?;
        let mut token = URL_SAFE_NO_PAD.encode(header.to_string());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims, &mut token);
        let signature = self
            .key
            .sign(&self.random, token.as_bytes())
            .map_err(|_| TokenError::Signing)?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature.as_ref(), &mut token);
        Ok(token)
    }

    /// The claims of a token that we signed, that is valid now and meant for one of these audiences.
    /// Gives the audiences that both sides share.
    pub fn verify(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<(Claims, Vec<String>), TokenError> {
        let (header, claims, signature, signed) = split(token).ok_or(TokenError::Foreign)?;
        if claims.iss != self.url || header.alg != "ES256" {
            return Err(TokenError::Foreign);
        }
        if !header.kid.is_empty() && header.kid != self.key_id {
            return Err(TokenError::Signature);
        }
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref())
            .verify(signed, &signature)
            .map_err(|_| TokenError::Signature)?;
        let shared: Vec<String> = audiences
            .iter()
            .filter(|audience| claims.aud.contains(audience))
            .cloned()
            .collect();
        if shared.is_empty() {
            return Err(TokenError::Audience {
                have: super::go_quote_list(&claims.aud),
                wanted: super::go_quote_list(audiences),
            });
        }
        let now = now.as_second();
        if now > claims.exp.saturating_add(LEEWAY_SECONDS) {
            return Err(TokenError::Expired);
        }
        if now.saturating_add(LEEWAY_SECONDS) < claims.nbf {
            return Err(TokenError::NotYetValid);
        }
        Ok((claims, shared))
    }

    /// `/.well-known/openid-configuration`.
    pub fn discovery_document(&self, jwks_uri: &str) -> Value {
        json!({
            "issuer": self.url,
            "jwks_uri": jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// `/openid/v1/jwks`: the public half of the key.
    pub fn key_set(&self) -> Value {
        // An uncompressed point: one byte of form, then x and y of 32 bytes each.
        let point = self.key.public_key().as_ref();
        let (x, y) = point
            .get(1..)
            .unwrap_or_default()
            .split_at_checked(32)
            .unwrap_or_default();
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        }]})
    }
}

fn split(token: &str) -> Option<(Header, Claims, Vec<u8>, &[u8])> {
    if token.len() > LONGEST_TOKEN {
        return None;
    }
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    let header = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
    let claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    // A signature that is not even base64 is a wrong one, not a foreign token.
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap_or_default();
    Some((header, claims, signature, signed.as_bytes()))
}

#[cfg(test)]
mod tests;
