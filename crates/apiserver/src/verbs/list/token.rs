//! Continue tokens: where the next page of a list begins, and at which revision.
//!
//! The form is that of Kubernetes (base64 of a small JSON document), so that a token from nowhere is refused
//! with the same words.

use crate::error::{ApiError, Result};
use crate::server::decode::json_error;
use crate::store::{Key, Revision};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// The place where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The revision that the pages are read at; `None` goes on with the newest.
    pub revision: Option<Revision>,
    pub after: Key,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    v: String,
    rv: i64,
    start: String,
}

impl Token {
    /// Written relative to the namespace of the list.
    pub fn encode(&self, namespace: &str) -> String {
        let place = match (namespace.is_empty(), self.after.namespace.is_empty()) {
            (true, false) => format!("{}/{}", self.after.namespace, self.after.name),
            _ => self.after.name.clone(),
        };
        let wire = Wire {
            v: "meta.k8s.io/v1".to_string(),
            rv: self.revision.map_or(-1, |revision| revision.0 as i64),
            // The smallest key behind the last one that was sent.
            start: format!("{place}\0"),
        };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wire).unwrap_or_default())
    }

    pub fn decode(text: &str, resource: &str, namespace: &str) -> Result<Self> {
        let invalid =
            |why: String| ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|error| {
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                base64::DecodeError::InvalidLength(at) => at,
                base64::DecodeError::InvalidPadding => text.len(),
            };
            invalid(format!("illegal base64 data at input byte {at}"))
        })?;
        let wire: Wire = serde_json::from_slice(&bytes).map_err(|error| invalid(json_error(&bytes, &error)))?;
        if wire.v != "meta.k8s.io/v1" {
            return Err(invalid(format!(
                "server does not recognize this encoded version {:?}",
                wire.v
            )));
        }
        if wire.start.is_empty() {
            return Err(invalid("encoded start key empty (version meta.k8s.io/v1)".to_string()));
        }
        if wire.rv == 0 {
            return Err(invalid(
                "incorrect encoded start resourceVersion 0 (version meta.k8s.io/v1)".to_string(),
            ));
        }
        let place = wire.start.trim_end_matches('\0');
        if place.split('/').any(|part| part == "..") || place.starts_with('/') {
            return Err(invalid(wire.start.clone()));
        }
        let (namespace, name) = match (namespace.is_empty(), place.split_once('/')) {
            (true, Some((namespace, name))) => (namespace, name),
            _ => (namespace, place),
        };
        Ok(Token {
            revision: u64::try_from(wire.rv).ok().map(Revision),
            after: Key::new(resource, namespace, name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back_as_it_went() {
        for (namespace, key) in [
            ("", Key::new("/pods", "a", "x")),
            ("a", Key::new("/pods", "a", "x")),
            ("", Key::new("/nodes", "", "x")),
        ] {
            for revision in [Some(Revision(7)), None] {
                let token = Token {
                    revision,
                    after: key.clone(),
                };
                let decoded = Token::decode(&token.encode(namespace), &key.resource, namespace).unwrap();
                assert_eq!(decoded, token);
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["!!", "e30", "eyJ2IjoieCIsInJ2IjoxLCJzdGFydCI6ImEifQ"] {
            let error = Token::decode(text, "/pods", "").unwrap_err();
            assert_eq!(error.code, 400);
            assert!(
                error
                    .message
                    .starts_with("invalid continue token: continue key is not valid: "),
                "{}",
                error.message
            );
        }
    }
}
