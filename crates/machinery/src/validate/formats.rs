//! The string formats that custom resources may demand.

use crate::names;
use base64::Engine;
use regex::Regex;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

/// Whether a string has a format; `None` for formats that Kubernetes does not check either.
pub(super) fn fits(format: &str, text: &str) -> Option<bool> {
    Some(match format.replace('-', "").as_str() {
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|c| c.is_ascii_hexdigit()),
        "uri" => is_uri(text),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_card(text),
        "ssn" => is_ssn(text),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|c| c.is_ascii_hexdigit())
        }
        "rgbcolor" => is_rgb(text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok() && !text.is_empty(),
        "password" => true,
        "date" => is_date(text),
        "duration" => is_duration(text),
        "datetime" => is_datetime(text),
        "k8sshortname" => names::dns1123_label(text).is_empty(),
        "k8slongname" => names::dns1123_subdomain(text).is_empty(),
        _ => return None,
    })
}

/// Whether a format is checked at all.
pub fn is_known_format(format: &str) -> bool {
    fits(format, "").is_some()
}

fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|c| c <= b' ' || c == 0x7f) {
        return false;
    }
    let scheme = text.split_once(':').map(|(scheme, _)| scheme);
    text.starts_with('/')
        || scheme.is_some_and(|scheme| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.bytes().all(|c| c.is_ascii_alphanumeric() || b"+-.".contains(&c))
        })
}

fn is_email(text: &str) -> bool {
    let address = match (text.rfind('<'), text.strip_suffix('>')) {
        (Some(at), Some(rest)) => &rest[at + 1..],
        _ => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let word =
        |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || "<>()[],;:\\\"@".contains(c));
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    (quoted || local.split('.').all(word)) && domain.split('.').all(word)
}

/// Letters, digits and symbols of any script: names are looser here than in DNS.
static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    let label = r"[a-zA-Z0-9\p{S}\p{L}]";
    let single = format!("{label}(?:-?{label}{{0,62}})?");
    let dotted = format!(r"(?:{label}(?:(?:{label}|-){{0,61}}{label})?\.)+\p{{L}}{{2,63}}");
    Regex::new(&format!("^(?:{single}|{dotted})$")).expect("the pattern is a constant")
});

fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && text.split('.').all(|label| label.len() <= 63) && HOSTNAME.is_match(text)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    match (address.parse::<IpAddr>(), length.parse::<u8>()) {
        (Ok(IpAddr::V4(_)), Ok(length)) => length <= 32,
        (Ok(IpAddr::V6(_)), Ok(length)) => length <= 128,
        _ => false,
    }
}

fn is_mac(text: &str) -> bool {
    let (separator, digits) = match text {
        text if text.contains(':') => (':', 2),
        text if text.contains('-') => ('-', 2),
        _ => ('.', 4),
    };
    let groups: Vec<&str> = text.split(separator).collect();
    let octets = groups.len() * digits / 2;
    matches!(octets, 6 | 8 | 20)
        && groups
            .iter()
            .all(|group| group.len() == digits && group.bytes().all(|c| c.is_ascii_hexdigit()))
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let digits: Vec<char> = text.chars().filter(|c| *c != '-').collect();
    let placed = text.char_indices().filter(|(_, c)| *c == '-').count() <= 4;
    let variant = |c: char| version.is_none_or(|version| version == '3') || "89abAB".contains(c);
    placed
        && digits.len() == 32
        && digits.iter().all(char::is_ascii_hexdigit)
        && version.is_none_or(|version| digits[12] == version)
        && variant(digits[16])
}

fn is_isbn10(text: &str) -> bool {
    let digits: Vec<char> = text.chars().filter(|c| !matches!(c, ' ' | '-')).collect();
    let value = |(index, c): (usize, &char)| match c {
        'X' if index == 9 => Some(10 * 10),
        c => c.to_digit(10).map(|digit| digit * (index as u32 + 1)),
    };
    let sum: Option<u32> = digits.iter().enumerate().map(value).sum();
    digits.len() == 10 && sum.is_some_and(|sum| sum % 11 == 0)
}

fn is_isbn13(text: &str) -> bool {
    let digits: Vec<char> = text.chars().filter(|c| !matches!(c, ' ' | '-')).collect();
    let value = |(index, c): (usize, &char)| c.to_digit(10).map(|digit| digit * [1, 3][index % 2]);
    let sum: Option<u32> = digits.iter().enumerate().map(value).sum();
    digits.len() == 13 && sum.is_some_and(|sum| sum % 10 == 0)
}

fn is_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(index, digit)| match index % 2 {
            0 => *digit,
            _ if *digit > 4 => digit * 2 - 9,
            _ => digit * 2,
        })
        .sum();
    (13..=19).contains(&digits.len()) && sum.is_multiple_of(10)
}

fn is_ssn(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    digits == 9
        && matches!(
            shape.replace(' ', "-").as_str(),
            "000000000" | "000-00-0000" | "000-000000" | "00000-0000"
        )
}

fn is_rgb(text: &str) -> bool {
    let Some(parts) = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')')) else {
        return false;
    };
    let parts: Vec<&str> = parts.split(',').map(str::trim).collect();
    parts.len() == 3
        && parts
            .iter()
            .all(|part| part.trim_end_matches('%').parse::<u8>().is_ok())
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_datetime(text: &str) -> bool {
    let lower = text.to_lowercase();
    let Some((date, time)) = lower.split_once('t') else {
        return false;
    };
    let bytes = time.as_bytes();
    let two = |at: usize| -> Option<u8> { time.get(at..at + 2)?.parse().ok() };
    let clock = two(0).is_some_and(|hour| hour <= 23)
        && two(3).is_some_and(|minute| minute <= 59)
        && two(6).is_some_and(|second| second <= 59)
        && bytes.get(2) == Some(&b':')
        && bytes.get(5) == Some(&b':');
    let zone = time.get(8..).unwrap_or_default();
    let zone = zone.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let offset = zone
        .strip_prefix(['+', '-'])
        .is_some_and(|offset| offset.len() == 5 && offset.as_bytes()[2] == b':');
    is_date(date) && clock && (zone == "z" || offset)
}

/// `1h30m`, or a number and a word: `22 ns`, `2 days`.
fn is_duration(text: &str) -> bool {
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut rest = rest;
    let mut parts = 0;
    while !rest.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let after = rest[number..].trim_start();
        let unit = after.len() - after.trim_start_matches(|c: char| c.is_alphabetic()).len();
        let word = after[..unit].to_lowercase();
        const UNITS: &[&str] = &["ns", "us", "µs", "μs", "ms", "s", "m", "h", "d", "w", "y"];
        const WORDS: &[&str] = &[
            "nano", "micro", "milli", "sec", "min", "hour", "hr", "day", "week", "wk", "month", "year",
        ];
        let known = UNITS.contains(&word.as_str()) || WORDS.iter().any(|start| word.starts_with(start));
        if number == 0 || !known {
            return false;
        }
        rest = after[unit..].trim_start();
        parts += 1;
    }
    parts > 0
}
