//! URLs, read as Go's `net/url` reads them.

use super::Call;
use crate::error::EvalError;
use crate::value::{Key, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The parts of a URL that expressions can ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
}

pub fn implementation(name: &str) -> Option<Call> {
    Some(match name {
        "url" => |args| match args {
            [Value::String(text)] => parse(text).map(|url| Value::Url(Arc::new(url))).map_err(|why| {
                let message = format!(
                    "URL parse error during conversion from string: parse {:?}: {why}",
                    &**text
                );
                EvalError::Invalid(message)
            }),
            _ => Err(EvalError::NoSuchOverload),
        },
        "isURL" => |args| match args {
            [Value::String(text)] => Ok(Value::Bool(parse(text).is_ok())),
            _ => Err(EvalError::NoSuchOverload),
        },
        "getScheme" => |args| Ok(Value::string(&*url(args)?.scheme)),
        "getHost" => |args| Ok(Value::string(&*url(args)?.host)),
        "getHostname" => |args| Ok(Value::string(hostname(&url(args)?.host))),
        "getPort" => |args| Ok(Value::string(port(&url(args)?.host))),
        "getEscapedPath" => |args| Ok(Value::string(escaped_path(&url(args)?.path))),
        "getQuery" => |args| Ok(query(&url(args)?.query)),
        _ => return None,
    })
}

fn url<'v>(args: &'v [Value<'_>]) -> Result<&'v Url, EvalError> {
    match args {
        [Value::Url(url)] => Ok(url),
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// An absolute URL or an absolute path, or why it is neither.
pub fn parse(text: &str) -> Result<Url, &'static str> {
    if text.is_empty() {
        return Err("empty url");
    }
    if text.chars().any(|c| c.is_ascii_control()) {
        return Err("net/url: invalid control character in URL");
    }
    let (before_fragment, _) = text.split_once('#').unwrap_or((text, ""));
    let (scheme, rest) = scheme(before_fragment)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !rest.starts_with('/') {
        // `mailto:x` has a scheme and is opaque; without a scheme it is relative.
        return if scheme.is_empty() || rest.is_empty() {
            Err("invalid URI for request")
        } else {
            Ok(Url {
                scheme,
                host: String::new(),
                path: String::new(),
                query: query.to_string(),
            })
        };
    }
    let (host, path) = match rest.strip_prefix("//") {
        Some(after) if !scheme.is_empty() || !rest.starts_with("///") => {
            let end = after.find('/').unwrap_or(after.len());
            let (authority, path) = after.split_at(end);
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            check_host(host)?;
            (host.to_string(), path)
        }
        _ => (String::new(), rest),
    };
    check_escapes(path)?;
    Ok(Url {
        scheme,
        host,
        path: path.to_string(),
        query: query.to_string(),
    })
}

fn scheme(text: &str) -> Result<(String, &str), &'static str> {
    for (place, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if place > 0 => {}
            ':' if place == 0 => return Err("missing protocol scheme"),
            ':' => return Ok((text[..place].to_ascii_lowercase(), &text[place + 1..])),
            _ => break,
        }
    }
    // A colon in the first segment would look like a scheme.
    if !text.starts_with('/') && text.split('/').next().is_some_and(|first| first.contains(':')) {
        return Err("first path segment in URL cannot contain colon");
    }
    Ok((String::new(), text))
}

fn check_host(host: &str) -> Result<(), &'static str> {
    if host.contains([' ', '<', '>', '"', '\\', '^', '`', '{', '|', '}']) {
        return Err("invalid character in host name");
    }
    let after = match (host.starts_with('['), host.rfind(']')) {
        (true, None) => return Err("missing ']' in host"),
        (true, Some(end)) => &host[end + 1..],
        (false, _) => host.rfind(':').map_or("", |colon| &host[colon..]),
    };
    let valid = match after.strip_prefix(':') {
        Some(port) => port.bytes().all(|byte| byte.is_ascii_digit()),
        None => after.is_empty(),
    };
    if valid { Ok(()) } else { Err("invalid port after host") }
}

fn check_escapes(text: &str) -> Result<(), &'static str> {
    let bytes = text.as_bytes();
    for (place, byte) in bytes.iter().enumerate() {
        let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
        if *byte == b'%' && !(hex(place + 1) && hex(place + 2)) {
            return Err("invalid URL escape");
        }
    }
    Ok(())
}

fn hostname(host: &str) -> &str {
    if let Some(inner) = host.strip_prefix('[') {
        return inner.split_once(']').map_or(inner, |(inside, _)| inside);
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

fn port(host: &str) -> &str {
    let tail = host.rsplit_once(']').map_or(host, |(_, tail)| tail);
    tail.rsplit_once(':').map_or("", |(_, port)| port)
}

fn escaped_path(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        let kept = byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@%!'()*".contains(&byte);
        if kept {
            escaped.push(byte as char);
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

fn query<'a>(text: &str) -> Value<'a> {
    let mut found: BTreeMap<String, Vec<Value<'a>>> = BTreeMap::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let (Some(key), Some(value)) = (unescape(key), unescape(value)) {
            found.entry(key).or_default().push(Value::string(value));
        }
    }
    let entries = found
        .into_iter()
        .map(|(key, values)| (Key::String(key.into()), Value::list(values)));
    Value::map(entries.collect())
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                bytes.push((high * 16 + low) as u8);
            }
            other => bytes.push(other),
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
