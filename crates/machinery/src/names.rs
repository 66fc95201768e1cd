//! The syntax of names, labels and keys, refused in Kubernetes' own words.
//!
//! Each function gives the list of complaints about one value; an empty list means that it is fine.
//! The checks are written as scans over bytes, because every write of every object runs several of
//! them; the regular expressions only appear in the messages.

const LABEL_LENGTH: usize = 63;
const SUBDOMAIN_LENGTH: usize = 253;

const DNS1123_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS1123_SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS1035_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const LABEL_KEY_WORDS: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// A lowercase RFC 1123 label: the name of a namespace or a port.
pub fn dns1123_label(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > LABEL_LENGTH {
        complaints.push(too_many_characters(LABEL_LENGTH));
    }
    if !is_dns1123_label(value) {
        if is_dns1123_subdomain(value) {
            complaints.push("must not contain dots".to_string());
        } else {
            complaints.push(regex_complaint(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                DNS1123_LABEL,
                &["my-name", "123-abc"],
            ));
        }
    }
    complaints
}

/// A lowercase RFC 1123 subdomain: the name of nearly every object.
pub fn dns1123_subdomain(value: &str) -> Vec<String> {
    subdomain_complaints(value, too_many_characters)
}

fn subdomain_complaints(value: &str, too_long: fn(usize) -> String) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > SUBDOMAIN_LENGTH {
        complaints.push(too_long(SUBDOMAIN_LENGTH));
    }
    if !is_dns1123_subdomain(value) {
        complaints.push(regex_complaint(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            DNS1123_SUBDOMAIN,
            &["example.com"],
        ));
    }
    complaints
}

/// An RFC 1123 subdomain whose labels may also begin with and contain underscores.
pub fn dns1123_subdomain_with_underscore(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > SUBDOMAIN_LENGTH {
        complaints.push(too_many_characters(SUBDOMAIN_LENGTH));
    }
    let fits = value.split('.').all(|label| {
        let label = label.strip_prefix('_').unwrap_or(label);
        is_bounded(label, is_lower_alphanumeric, |c| {
            is_lower_alphanumeric(c) || c == b'-' || c == b'_'
        })
    });
    if !fits {
        complaints.push(regex_complaint(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
            r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    complaints
}

/// A DNS-1035 label: the name of a Service.
pub fn dns1035_label(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > LABEL_LENGTH {
        complaints.push(too_many_characters(LABEL_LENGTH));
    }
    if !is_dns1123_label(value) || !value.starts_with(|c: char| c.is_ascii_lowercase()) {
        complaints.push(regex_complaint(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            DNS1035_LABEL,
            &["my-name", "abc-123"],
        ));
    }
    complaints
}

/// `*.example.com`.
pub fn wildcard_dns1123_subdomain(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > SUBDOMAIN_LENGTH {
        complaints.push(too_many_characters(SUBDOMAIN_LENGTH));
    }
    if !value.strip_prefix("*.").is_some_and(is_dns1123_subdomain) {
        complaints.push(regex_complaint(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!(r"\*\.{DNS1123_SUBDOMAIN}"),
            &["*.example.com"],
        ));
    }
    complaints
}

/// A label or annotation key: `name` or `example.com/name`.
pub fn qualified_name(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut parts = value.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                complaints.push("prefix part must be non-empty".to_string());
            } else {
                let of_prefix = subdomain_complaints(prefix, too_many_bytes);
                complaints.extend(of_prefix.into_iter().map(|text| format!("prefix part {text}")));
            }
            name
        }
        _ => {
            let words = regex_complaint(LABEL_KEY_WORDS, LABEL_KEY, &["MyName", "my.name", "123-abc"]);
            complaints.push(format!(
                "a valid label key {words} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            return complaints;
        }
    };
    if name.is_empty() {
        complaints.push("name part must be non-empty".to_string());
    } else if name.len() > LABEL_LENGTH {
        complaints.push(format!("name part {}", too_many_bytes(LABEL_LENGTH)));
    }
    if !is_label_name(name) {
        let words = regex_complaint(LABEL_KEY_WORDS, LABEL_KEY, &["MyName", "my.name", "123-abc"]);
        complaints.push(format!("name part {words}"));
    }
    complaints
}

/// The value of a label; empty is fine.
pub fn label_value(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > LABEL_LENGTH {
        complaints.push(too_many_bytes(LABEL_LENGTH));
    }
    if !value.is_empty() && !is_label_name(value) {
        complaints.push(regex_complaint(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            LABEL_VALUE,
            &["MyValue", "my_value", "12345"],
        ));
    }
    complaints
}

/// The key of a ConfigMap's or Secret's data.
pub fn config_map_key(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > SUBDOMAIN_LENGTH {
        complaints.push(too_many_characters(SUBDOMAIN_LENGTH));
    }
    if value.is_empty() || !value.bytes().all(is_label_inner) {
        complaints.push(regex_complaint(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match value {
        "." => complaints.push("must not be '.'".to_string()),
        ".." => complaints.push("must not be '..'".to_string()),
        other if other.starts_with("..") => complaints.push("must not start with '..'".to_string()),
        _ => {}
    }
    complaints
}

/// The name of an object as one segment of a path: nothing that would change the path.
pub fn path_segment(value: &str) -> Vec<String> {
    match value {
        "." | ".." => return vec![format!("may not be '{value}'")],
        _ => {}
    }
    ["/", "%"]
        .iter()
        .filter(|part| value.contains(*part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

/// The name of a container's or Service's port.
pub fn port_name(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > 15 {
        complaints.push(too_many_characters(15));
    }
    if value.is_empty() || !value.bytes().all(|c| is_lower_alphanumeric(c) || c == b'-') {
        complaints.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_string());
    }
    if !value.bytes().any(|c| c.is_ascii_lowercase()) {
        complaints.push("must contain at least one letter (a-z)".to_string());
    }
    if value.contains("--") {
        complaints.push("must not contain consecutive hyphens".to_string());
    }
    if value.starts_with('-') || value.ends_with('-') {
        complaints.push("must not begin or end with a hyphen".to_string());
    }
    complaints
}

/// `<words> (e.g. 'a', or 'b', regex used for validation is '<pattern>')`.
pub fn regex_complaint(words: &str, pattern: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{words} (regex used for validation is '{pattern}')");
    }
    let quoted: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!(
        "{words} (e.g. {}regex used for validation is '{pattern}')",
        // The two spaces are Kubernetes' own.
        quoted.join(" or ")
    )
}

fn too_many_characters(limit: usize) -> String {
    format!("must be no more than {limit} characters")
}

fn too_many_bytes(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

/// Not empty, with `edge` bytes at both ends and `inner` bytes between them.
fn is_bounded(value: &str, edge: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    let bytes = value.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => edge(first) && edge(last) && bytes.iter().all(|&c| inner(c)),
        _ => false,
    }
}

fn is_dns1123_label(value: &str) -> bool {
    is_bounded(value, is_lower_alphanumeric, |c| is_lower_alphanumeric(c) || c == b'-')
}

fn is_dns1123_subdomain(value: &str) -> bool {
    value.split('.').all(is_dns1123_label)
}

fn is_label_name(value: &str) -> bool {
    is_bounded(value, |c| c.is_ascii_alphanumeric(), is_label_inner)
}

fn is_label_inner(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.')
}

fn is_lower_alphanumeric(c: u8) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_upper_case_is_refused_in_kubernetes_words() {
        assert_eq!(
            dns1123_subdomain("Foo"),
            vec![
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert!(dns1123_subdomain("a.b-c.d").is_empty());
        assert_eq!(dns1123_label("a.b"), vec!["must not contain dots"]);
        assert!(!dns1035_label("1a").is_empty());
    }

    #[test]
    fn label_keys_have_an_optional_prefix_and_a_name() {
        assert!(qualified_name("example.com/Name_1").is_empty());
        assert_eq!(qualified_name("/a"), vec!["prefix part must be non-empty"]);
        assert!(qualified_name("a/b/c")[0].starts_with("a valid label key must consist of"));
        assert!(qualified_name("")[0].starts_with("name part must be non-empty"));
        assert!(label_value("").is_empty());
        assert_eq!(label_value(&"a".repeat(64)), vec!["must be no more than 63 bytes"]);
        assert!(
            label_value("-a")[0].contains("(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is")
        );
    }
}
