//! The names and labels of a WebApp's children.
//!
//! A child has the WebApp's own name wherever that is allowed. A Service's name is stricter and a label's value
//! shorter than an object's name may be; then a readable part and a hash stand for it, the same each time.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use stead_apis::WebApp;

/// The field manager and the value of `app.kubernetes.io/managed-by`.
pub const MANAGER: &str = "stead-operator";
/// Which of two Deployments a pod belongs to while a canary is on.
pub const TRACK_LABEL: &str = "stead.dev/track";
/// The revision that a Deployment's template was made from.
pub const REVISION_LABEL: &str = "stead.dev/revision";
/// A hash of everything that the pods read at their start: a change of it rolls them once.
pub const CONFIG_ANNOTATION: &str = "stead.dev/config";
/// How a revision turned out: `good` or `failed`.
pub const OUTCOME_ANNOTATION: &str = "stead.dev/outcome";
/// What a failed revision did wrong.
pub const WHY_ANNOTATION: &str = "stead.dev/why";
/// A hash of the strategy by which a failed revision was rolled out: another strategy tries it again.
pub const WAY_ANNOTATION: &str = "stead.dev/way";

/// The longest name of a Service, and the longest value of a label.
const LONGEST_LABEL: usize = 63;
/// Characters of the hash in a shortened name.
const HASH: usize = 8;

/// The stable pods, or those of a canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Track {
    Stable,
    Canary,
}

impl Track {
    pub fn label(self) -> &'static str {
        match self {
            Track::Stable => "stable",
            Track::Canary => "canary",
        }
    }

    /// The name of this track's Deployment.
    pub fn deployment(self, app: &WebApp) -> String {
        match self {
            Track::Stable => child(app),
            Track::Canary => suffixed(app, "canary"),
        }
    }
}

/// The name of a WebApp's children.
pub fn child(app: &WebApp) -> String {
    shortened(name(app), LONGEST_LABEL)
}

/// The name of a child that is not the only one of its kind.
pub fn suffixed(app: &WebApp, suffix: &str) -> String {
    format!("{}-{suffix}", shortened(name(app), LONGEST_LABEL - suffix.len() - 1))
}

/// The labels that choose all pods of a WebApp.
pub fn selector(app: &WebApp) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("app.kubernetes.io/name".to_string(), "webapp".to_string()),
        ("app.kubernetes.io/instance".to_string(), child(app)),
    ])
}

/// The same as the API's selector syntax has it.
pub fn selector_text(app: &WebApp) -> String {
    let pairs: Vec<String> = selector(app)
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    pairs.join(",")
}

/// The labels that choose the pods of one track.
pub fn track_selector(app: &WebApp, track: Track) -> BTreeMap<String, String> {
    let mut labels = selector(app);
    labels.insert(TRACK_LABEL.to_string(), track.label().to_string());
    labels
}

/// The labels of every child.
pub fn labels(app: &WebApp) -> BTreeMap<String, String> {
    let mut labels = selector(app);
    labels.insert("app.kubernetes.io/managed-by".to_string(), MANAGER.to_string());
    labels
}

/// The first characters of a hash, in hexadecimal digits.
pub fn hash(content: &[u8]) -> String {
    Sha256::digest(content)
        .iter()
        .take(HASH / 2 + 1)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn name(app: &WebApp) -> &str {
    app.metadata.name.as_deref().unwrap_or_default()
}

/// The name itself where it is a valid Service name that fits, else a readable part of it and a hash.
fn shortened(name: &str, longest: usize) -> String {
    let letter_first = name.starts_with(|c: char| c.is_ascii_lowercase());
    let plain = name
        .chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if letter_first && plain && name.len() <= longest {
        return name.to_string();
    }
    let digest = hash(name.as_bytes());
    let readable: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_lowercase() || c.is_ascii_digit() {
                c
            } else {
                '-'
            }
        })
        .take(longest - digest.len() - 3)
        .collect();
    let prefix = if letter_first { "" } else { "a-" };
    format!("{prefix}{}-{digest}", readable.trim_matches('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_name_stays_and_others_become_valid_ones() {
        assert_eq!(shortened("nginx-app", 63), "nginx-app");
        for name in ["1st", "shop.example.com", &"x".repeat(253), &"9.".repeat(100)] {
            let short = shortened(name, 63);
            assert!(short.len() <= 63, "{short}");
            assert!(short.starts_with(|c: char| c.is_ascii_lowercase()), "{short}");
            assert!(!short.contains('.') && !short.ends_with('-'), "{short}");
        }
        assert_ne!(shortened(&"x".repeat(100), 63), shortened(&"x".repeat(101), 63));
    }
}
