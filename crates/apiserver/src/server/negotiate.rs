//! Which form of an answer the client accepts, and which form its body has.
//!
//! `kubectl get` asks for Tables, metadata clients for PartialObjectMetadata, client-go for protobuf with
//! JSON as the second choice; the same object answers all of them.

use crate::error::{ApiError, Result};
use http::HeaderMap;

/// The encodings of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Json,
    Yaml,
}

/// What the client wants an object turned into before it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    AsIs,
    Table,
    /// PartialObjectMetadata, or its list for a list.
    Metadata,
}

/// The negotiated answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    pub encoding: Encoding,
    pub form: Form,
    pub pretty: bool,
    pub gzip: bool,
}

/// The encodings of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEncoding {
    Json,
    Yaml,
    Protobuf,
}

const MEDIA_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

impl Encoding {
    pub fn media_type(self) -> &'static str {
        match self {
            Encoding::Json => "application/json",
            Encoding::Yaml => "application/yaml",
        }
    }
}

/// Answers for objects: every encoding, and the forms that Kubernetes offers for resources.
pub fn accept(headers: &HeaderMap, pretty: Option<bool>) -> Result<Accepted> {
    let pretty = pretty.unwrap_or_else(|| {
        let agent = text(headers, "user-agent");
        ["curl", "Wget", "Mozilla/5.0"]
            .iter()
            .any(|known| agent.starts_with(known))
    });
    let gzip = text(headers, "accept-encoding")
        .split(',')
        .any(|name| name.split(';').next().is_some_and(|name| name.trim() == "gzip"));
    let header = text(headers, "accept");
    let clauses = clauses(if header.trim().is_empty() { "*/*" } else { header });
    for clause in &clauses {
        let encoding = match clause.media.as_str() {
            "*/*" | "application/*" | "application/json" => Encoding::Json,
            "application/yaml" => Encoding::Yaml,
            _ => continue,
        };
        let Some(form) = clause.form() else { continue };
        return Ok(Accepted {
            encoding,
            form,
            pretty,
            gzip,
        });
    }
    Err(not_acceptable())
}

/// No form that the client accepts is one that we can make.
pub fn not_acceptable() -> ApiError {
    let message = format!("406: Not Acceptable\n\nAvailable representations: {MEDIA_TYPES}");
    ApiError::new(406, "NotAcceptable", message).with_details(serde_json::json!({}))
}

/// What custom kinds say to a client that accepts none of the encodings.
pub fn only_accepted() -> String {
    format!("only the following media types are accepted: {MEDIA_TYPES}")
}

/// The encoding of a body by its `Content-Type`; none means JSON.
pub fn body_encoding(headers: &HeaderMap) -> Result<BodyEncoding> {
    let header = text(headers, "content-type");
    let media = header.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media.as_str() {
        "" | "application/json" => Ok(BodyEncoding::Json),
        "application/yaml" => Ok(BodyEncoding::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(BodyEncoding::Protobuf),
        _ => Err(unsupported_media_type(MEDIA_TYPES)),
    }
}

pub fn unsupported_media_type(accepted: &str) -> ApiError {
    ApiError::new(
        415,
        "UnsupportedMediaType",
        format!("the body of the request was in an unknown format - accepted media types include: {accepted}"),
    )
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// One alternative of an `Accept` header.
struct Clause {
    media: String,
    quality: f32,
    parameters: Vec<(String, String)>,
}

impl Clause {
    fn parameter(&self, name: &str) -> &str {
        self.parameters
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
            .unwrap_or_default()
    }

    /// The form that the clause names; `None` if it is one that resources are never turned into.
    fn form(&self) -> Option<Form> {
        match (self.parameter("as"), self.parameter("g"), self.parameter("v")) {
            ("", _, _) => Some(Form::AsIs),
            ("Table", "meta.k8s.io", "v1" | "v1beta1") => Some(Form::Table),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") => {
                Some(Form::Metadata)
            }
            _ => None,
        }
    }
}

fn clauses(header: &str) -> Vec<Clause> {
    let mut clauses: Vec<Clause> = header
        .split(',')
        .map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<(String, String)> = parts
                .filter_map(|part| part.split_once('='))
                .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_string()))
                .collect();
            let quality = parameters
                .iter()
                .find(|(name, _)| name == "q")
                .and_then(|(_, q)| q.parse().ok())
                .unwrap_or(1.0);
            Clause {
                media,
                quality,
                parameters,
            }
        })
        .collect();
    // A stable sort: clauses of one quality stay in the order of the header.
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(header: &str) -> Result<Accepted> {
        let mut headers = HeaderMap::new();
        headers.insert("accept", header.parse().unwrap());
        accept(&headers, None)
    }

    #[test]
    fn the_first_acceptable_clause_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(accepted(table).unwrap().form, Form::Table);
        let client_go = accepted("application/vnd.kubernetes.protobuf,application/json").unwrap();
        assert_eq!((client_go.encoding, client_go.form), (Encoding::Json, Form::AsIs));
        assert_eq!(accepted("application/yaml").unwrap().encoding, Encoding::Yaml);
        assert_eq!(accepted("").unwrap().encoding, Encoding::Json);
        assert_eq!(accepted("text/html,*/*;q=0.1").unwrap().encoding, Encoding::Json);
    }

    #[test]
    fn what_nobody_can_make_is_not_acceptable() {
        let error = accepted("application/xml").unwrap_err();
        assert_eq!((error.code, error.reason), (406, "NotAcceptable"));
    }
}
