//! Times and durations as Go reads and writes them.

use jiff::Timestamp;

const SECOND: i64 = 1_000_000_000;

/// The first and last second that CEL knows: years 1 to 9999.
const MIN_SECOND: i64 = -62_135_596_800;
const MAX_SECOND: i64 = 253_402_300_799;

/// RFC 3339 with any offset; `None` if it is not one, or out of range.
pub fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    // Go wants four digits of year, a capital T and an offset; jiff is more lenient.
    let strict = bytes.len() >= 20
        && bytes[..4].iter().all(u8::is_ascii_digit)
        && bytes[4] == b'-'
        && bytes[7] == b'-'
        && bytes[10] == b'T'
        && bytes[13] == b':'
        && bytes[16] == b':'
        && !text.contains('[')
        && (text.ends_with('Z') || matches!(bytes[bytes.len() - 6], b'+' | b'-'));
    if !strict {
        return None;
    }
    in_range(text.parse().ok()?)
}

/// The time, if CEL knows such a time.
pub fn in_range(time: Timestamp) -> Option<Timestamp> {
    (MIN_SECOND..=MAX_SECOND).contains(&time.as_second()).then_some(time)
}

/// RFC 3339 in UTC, with as many digits of the second as there are.
pub fn show_timestamp(time: Timestamp) -> String {
    time.to_string()
}

/// `1h2m3.5s`: nanoseconds, or `None` if it is no duration or too long.
pub fn parse_duration(text: &str) -> Option<i64> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut rest = rest;
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let length = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, next) = tail.split_at(length);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(unit)?)?;
        let mut scale = unit;
        for digit in fraction.chars().take(18) {
            scale /= 10;
            total += scale * i128::from(digit.to_digit(10)?);
        }
        if total > i128::from(i64::MAX) + 1 {
            return None;
        }
        rest = next;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Seconds with a fraction and the letter s.
pub fn show_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let magnitude = nanos.unsigned_abs();
    let (whole, rest) = (magnitude / SECOND as u64, magnitude % SECOND as u64);
    if rest == 0 {
        return format!("{sign}{whole}s");
    }
    let fraction = format!("{rest:09}");
    format!("{sign}{whole}.{}s", fraction.trim_end_matches('0'))
}

/// The time that is this much later; `None` out of range.
pub fn later(time: Timestamp, nanos: i64) -> Option<Timestamp> {
    let total = time.as_nanosecond().checked_add(i128::from(nanos))?;
    in_range(Timestamp::from_nanosecond(total).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_shown_as_go_does() {
        let check = |text: &str, nanos: Option<i64>| assert_eq!(parse_duration(text), nanos, "{text}");
        check("1h2m3s", Some(3723 * SECOND));
        check("1.5s", Some(1_500_000_000));
        check("-3ms", Some(-3_000_000));
        check("0", Some(0));
        check("", None);
        check("5", None);
        check("1d", None);
        check("99999999999999h", None);
        assert_eq!(show_duration(3723 * SECOND), "3723s");
        assert_eq!(show_duration(-1_500_000_000), "-1.5s");
    }

    #[test]
    fn times_are_strict() {
        assert!(parse_timestamp("2026-01-02T03:04:05Z").is_some());
        assert!(parse_timestamp("2026-01-02T03:04:05.123+02:00").is_some());
        assert!(parse_timestamp("2026-01-02 03:04:05Z").is_none());
        assert!(parse_timestamp("2026-01-02").is_none());
        assert!(parse_timestamp("nonsense").is_none());
    }
}
