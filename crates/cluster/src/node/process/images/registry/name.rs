//! The name of an image as a registry reads it.

use super::PullError;
use super::http::Url;
use crate::node::process::images::store::full;

/// A registry, and what to ask it for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// As it is written in names of images.
    pub registry: String,
    /// Where it is, which for one registry is elsewhere.
    pub host: String,
    pub repository: String,
    /// A tag or a digest.
    pub version: String,
}

impl Name {
    pub fn parse(image: &str) -> Result<Name, PullError> {
        let wrong = || PullError::Name(image.to_owned());
        let whole = full(image);
        let (registry, rest) = whole.split_once('/').ok_or_else(wrong)?;
        let (path, digest) = match rest.split_once('@') {
            Some((path, digest)) => (path, Some(digest)),
            None => (rest, None),
        };
        let (repository, tag) = match path.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (path, None),
        };
        let version = digest.or(tag).ok_or_else(wrong)?;
        let parts = repository.split('/').all(|part| {
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
            !part.is_empty() && !part.starts_with('.') && part.bytes().all(plain)
        });
        let short = |text: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            (1..=128).contains(&text.len()) && text.bytes().all(plain)
        };
        let exact = |text: &str| {
            text.split_once(':')
                .is_some_and(|(kind, hex)| kind == "sha256" && short(hex))
        };
        if !parts || !tag.is_none_or(short) || !digest.is_none_or(exact) {
            return Err(wrong());
        }
        Ok(Name {
            registry: registry.to_owned(),
            host: match registry {
                "docker.io" | "index.docker.io" => "registry-1.docker.io".to_owned(),
                other => other.to_owned(),
            },
            repository: repository.to_owned(),
            version: version.to_owned(),
        })
    }

    /// The place of something of the image.
    pub fn url(&self, what: &str) -> Result<Url, PullError> {
        let scheme = match Url::is_on_this_machine(&self.host) {
            true => "http",
            false => "https",
        };
        Url::parse(&format!("{scheme}://{}/v2/{}/{what}", self.host, self.repository))
            .ok_or_else(|| PullError::Name(format!("{}/{}", self.registry, self.repository)))
    }
}
