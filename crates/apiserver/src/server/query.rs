//! The query of a request, and the options that Kubernetes reads from it.
//!
//! Wrong values are refused here, in the words of Go's parsers, so that no verb sees an unchecked one.

use crate::error::{ApiError, Result};

/// A decoded query string: names in order, each perhaps several times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub fn parse(text: &str) -> Self {
        let pairs = text
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (form_decode(name), form_decode(value))
            })
            .collect();
        Query { pairs }
    }

    /// The first value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The first value of a name, or nothing said.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs
            .iter()
            .filter(move |(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    /// A boolean as Kubernetes reads one: present and neither `false` nor `0` is true.
    pub fn is_true(&self, name: &str) -> bool {
        self.flag(name).unwrap_or(false)
    }

    /// The same, telling an absent one from a false one.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| {
            let lower = value.to_ascii_lowercase();
            lower != "false" && lower != "0"
        })
    }

    /// A whole number; `None` if absent or empty.
    pub fn integer(&self, name: &str) -> Result<Option<i64>> {
        match self.get(name) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                let why = if is_digits(text) {
                    "value out of range"
                } else {
                    "invalid syntax"
                };
                ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
            }),
        }
    }
}

fn is_digits(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

/// Decodes `%41`; what is no escape stays as it is.
pub fn percent_decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_string();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| bytes.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Encodes everything but letters, digits and `-._~/`.
pub fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn form_decode(text: &str) -> String {
    percent_decode(&text.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_refused_in_the_words_of_go() {
        let query = Query::parse("limit=ten&timeoutSeconds=99999999999999999999");
        assert_eq!(
            query.integer("limit").unwrap_err().message,
            "strconv.ParseInt: parsing \"ten\": invalid syntax"
        );
        assert_eq!(
            query.integer("timeoutSeconds").unwrap_err().message,
            "strconv.ParseInt: parsing \"99999999999999999999\": value out of range"
        );
    }

    #[test]
    fn escapes_are_decoded_and_half_ones_kept() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in&x=%4&y=%");
        assert_eq!(query.text("labelSelector"), "a=b,c in");
        assert_eq!(query.text("x"), "%4");
        assert_eq!(query.text("y"), "%");
    }
}
