//! Times and durations as Go's JSON writes them, and back.

use super::WireError;
use jiff::Timestamp;

/// `2006-01-02T15:04:05Z`.
pub fn time(seconds: i64) -> Result<String, WireError> {
    let time = Timestamp::from_second(seconds).map_err(out_of_range)?;
    Ok(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// `2006-01-02T15:04:05.000000Z`.
pub fn micro_time(seconds: i64, nanos: i64) -> Result<String, WireError> {
    let nanos = i32::try_from(nanos).map_err(out_of_range)?;
    let time = Timestamp::new(seconds, nanos).map_err(out_of_range)?;
    let micros = time.subsec_nanosecond() / 1000;
    Ok(format!("{}.{micros:06}Z", time.strftime("%Y-%m-%dT%H:%M:%S")))
}

fn out_of_range(_: impl std::error::Error) -> WireError {
    WireError::BadValue("a time is out of range".into())
}

/// Seconds and nanoseconds of an RFC 3339 time.
pub fn parse_time(text: &str) -> Option<(i64, i32)> {
    let time: Timestamp = text.parse().ok()?;
    Some((time.as_second(), time.subsec_nanosecond()))
}

/// A duration as Go prints it: `1h0m0s`, `1.5s`, `100ms`, `0s`.
pub fn duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    if nanos == 0 {
        return "0s".into();
    }
    if nanos < 1_000_000_000 {
        let (unit, size) = match nanos {
            0..1_000 => ("ns", 1),
            1_000..1_000_000 => ("µs", 1_000),
            _ => ("ms", 1_000_000),
        };
        return format!("{sign}{}{unit}", decimal(nanos, size));
    }
    let seconds = nanos / 1_000_000_000;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = decimal(nanos % 60_000_000_000, 1_000_000_000);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{rest}s"),
        (0, _) => format!("{sign}{minutes}m{rest}s"),
        _ => format!("{sign}{hours}h{minutes}m{rest}s"),
    }
}

fn decimal(value: u64, unit: u64) -> String {
    let (whole, rest) = (value / unit, value % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let digits = format!("{rest:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

/// The nanoseconds of a duration in Go's notation.
pub fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: f64 = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let units: [(&str, f64); 8] = [
            ("ns", 1.0),
            ("us", 1e3),
            ("µs", 1e3),
            ("μs", 1e3),
            ("ms", 1e6),
            ("s", 1e9),
            ("m", 6e10),
            ("h", 3.6e12),
        ];
        let (unit, size) = units.iter().find(|(unit, _)| rest.starts_with(unit))?;
        total += number * size;
        rest = &rest[unit.len()..];
    }
    let nanos = total.round();
    (nanos < i64::MAX as f64).then_some(if negative { -(nanos as i64) } else { nanos as i64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_go_prints_them() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (100_000_000, "100ms"),
            (1_500_000_000, "1.5s"),
            (90_000_000_000, "1m30s"),
            (3_600_000_000_000, "1h0m0s"),
            (-60_000_000_000, "-1m0s"),
        ] {
            assert_eq!(duration(nanos), text);
            assert_eq!(parse_duration(text), Some(nanos));
        }
    }
}
