//! Texts without what differs by nature.

use serde_json::Value;

/// Replaces documents that an error repeats: Kubernetes prints its own structs there, with other names for the
/// fields and in another order.
pub fn without_documents(message: &str) -> String {
    let mut out = String::new();
    let mut rest = message;
    while let Some(at) = rest.find("value: ") {
        let (before, after) = rest.split_at(at + "value: ".len());
        out.push_str(before);
        let mut values = serde_json::Deserializer::from_str(after).into_iter::<Value>();
        let document = match values.next() {
            // An absent map is null there where it is empty here.
            Some(Ok(Value::Object(_) | Value::Null)) => true,
            Some(Ok(Value::Array(items))) => items.is_empty() || items.iter().any(Value::is_object),
            Some(Ok(Value::String(text))) => text.starts_with('{') || text.starts_with("map["),
            _ => false,
        };
        rest = after;
        if document {
            out.push_str("<document>");
            rest = &after[values.byte_offset()..];
        }
    }
    out.push_str(rest);
    out
}

/// The mistakes in an applied object come in the order of Go's maps.
pub fn in_order(message: &str) -> String {
    let Some((before, errors)) = message.split_once(": errors:\n") else {
        return message.to_string();
    };
    let mut errors: Vec<&str> = errors.lines().collect();
    errors.sort_unstable();
    format!("{before}: errors:\n{}", errors.join("\n"))
}

/// Replaces the place of an object in the store, which each server lays out in its own way.
pub fn without_keys(message: &str) -> String {
    match message.split_once("Key: /") {
        Some((before, after)) => {
            let rest = after.split_once(',').map_or("", |(_, rest)| rest);
            format!("{before}Key: <key>,{rest}")
        }
        None => message.to_string(),
    }
}

/// Replaces every UUID.
pub fn without_identities(text: &str) -> String {
    let shape = |candidate: &str| {
        candidate.char_indices().all(|(at, c)| match at {
            8 | 13 | 18 | 23 => c == '-',
            _ => c.is_ascii_hexdigit(),
        })
    };
    replace_all(text, 36, "<uid>", shape)
}

/// Replaces every time of today, whole seconds apart from those with a fraction.
pub fn without_times(text: &str, today: &str) -> String {
    let whole = |candidate: &str| candidate.starts_with(today) && candidate.ends_with('Z');
    let micro = replace_all(text, 27, "<micro time>", whole);
    replace_all(&micro, 20, "<time>", whole)
}

fn replace_all(text: &str, length: usize, by: &str, matches: impl Fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        match rest.get(..length).filter(|candidate| matches(candidate)) {
            Some(_) => {
                out.push_str(by);
                rest = &rest[length..];
            }
            None => {
                let next = rest.chars().next().map_or(1, char::len_utf8);
                out.push_str(&rest[..next]);
                rest = &rest[next..];
            }
        }
    }
    out
}
