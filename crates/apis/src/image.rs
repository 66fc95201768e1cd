//! References to container images: `registry.example/team/app:1.2@sha256:...`.

use std::fmt;
use std::str::FromStr;

/// A parsed reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageReference {
    /// Registry and path, as written.
    pub name: String,
    pub tag: Option<String>,
    pub digest: Option<String>,
}

/// Why a text is not an image reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadImage {
    #[error("the image is empty; name one, such as nginx:1.25")]
    Empty,
    #[error("{0:?} is longer than 512 characters")]
    TooLong(String),
    #[error("the name {0:?} may hold lower case letters, digits, and . _ - / between them")]
    Name(String),
    #[error("the tag {0:?} may hold letters, digits, and . _ - (not first), up to 128 of them")]
    Tag(String),
    #[error("the digest {0:?} must be sha256: and 64 hexadecimal digits")]
    Digest(String),
}

impl ImageReference {
    /// Whether another image may appear under the same reference tomorrow.
    pub fn is_moving(&self) -> bool {
        self.digest.is_none() && self.tag.as_deref().is_none_or(|tag| tag == "latest")
    }
}

impl FromStr for ImageReference {
    type Err = BadImage;

    fn from_str(text: &str) -> Result<Self, BadImage> {
        if text.is_empty() {
            return Err(BadImage::Empty);
        }
        if text.len() > 512 {
            return Err(BadImage::TooLong(text.to_string()));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        // A colon before the last slash belongs to a registry's port.
        let (name, tag) = match rest.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (rest, None),
        };
        if !is_name(name) {
            return Err(BadImage::Name(name.to_string()));
        }
        if let Some(tag) = tag.filter(|tag| !is_tag(tag)) {
            return Err(BadImage::Tag(tag.to_string()));
        }
        if let Some(digest) = digest.filter(|digest| !is_digest(digest)) {
            return Err(BadImage::Digest(digest.to_string()));
        }
        Ok(ImageReference {
            name: name.to_string(),
            tag: tag.map(String::from),
            digest: digest.map(String::from),
        })
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    let mut parts = name.split('/');
    let first = parts.next().unwrap_or_default();
    // Only the registry may have a port and capital letters.
    let registry = name.contains('/') && (first.contains('.') || first.contains(':') || first == "localhost");
    let host_ok = if registry { is_host(first) } else { is_component(first) };
    host_ok && parts.all(is_component)
}

fn is_host(host: &str) -> bool {
    let (host, port) = host.split_once(':').unwrap_or((host, "1"));
    let labels_ok = host.split('.').all(|label| {
        !label.is_empty()
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    });
    labels_ok && port.parse::<u16>().is_ok()
}

fn is_component(part: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
    edge(part.chars().next()) && edge(part.chars().last()) && part.chars().all(inner)
}

fn is_tag(tag: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    tag.len() <= 128 && tag.chars().all(inner) && tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}

fn is_digest(digest: &str) -> bool {
    digest
        .strip_prefix("sha256:")
        .is_some_and(|hex| hex.len() == 64 && hex.chars().all(|c| c.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, name: &str, tag: Option<&str>) {
        let image: ImageReference = text.parse().unwrap();
        assert_eq!((image.name.as_str(), image.tag.as_deref()), (name, tag));
        assert_eq!(image.to_string(), text);
    }

    #[test]
    fn common_references_are_read() {
        check("nginx", "nginx", None);
        check("nginx:1.25", "nginx", Some("1.25"));
        check("localhost:5000/app", "localhost:5000/app", None);
        check(
            "registry.k8s.io/e2e-test-images/agnhost:2.59",
            "registry.k8s.io/e2e-test-images/agnhost",
            Some("2.59"),
        );
        check(&format!("app:1@sha256:{}", "a".repeat(64)), "app", Some("1"));
    }

    #[test]
    fn nonsense_is_refused_with_the_part_that_is_wrong() {
        let refused = |text: &str| text.parse::<ImageReference>().unwrap_err();
        assert_eq!(refused(""), BadImage::Empty);
        assert_eq!(refused("Nginx"), BadImage::Name("Nginx".into()));
        assert_eq!(refused("nginx:a b"), BadImage::Tag("a b".into()));
        assert_eq!(refused("nginx@sha256:1"), BadImage::Digest("sha256:1".into()));
        assert_eq!(refused("a//b"), BadImage::Name("a//b".into()));
        assert_eq!(refused("$(reboot)"), BadImage::Name("$(reboot)".into()));
    }

    #[test]
    fn a_missing_tag_and_latest_are_moving() {
        for (text, moving) in [("nginx", true), ("nginx:latest", true), ("nginx:1.25", false)] {
            assert_eq!(text.parse::<ImageReference>().unwrap().is_moving(), moving, "{text}");
        }
    }
}
