//! Quantities of resources: `500m`, `1.5Gi`, `2e3`.
//!
//! Kept as a whole number of billionths, the smallest unit that Kubernetes keeps, together with the
//! family of suffixes it was written in. Numbers too large for that stay at the largest one, and
//! amounts below a billionth become one: who asks for a little gets a little.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Neg, Sub};

const NANOS: i128 = 1_000_000_000;
const DECIMAL: &[(&str, i32)] = &[
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY: &[(&str, u32)] = &[("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// Digits that fit an `i128` with room for the scaling after them.
const MOST_DIGITS: usize = 38;

/// An amount of something.
#[derive(Debug, Clone)]
pub struct Quantity {
    nanos: i128,
    format: Format,
    /// The text as it was written, where Kubernetes takes it for canonical and gives it back unchanged.
    written: Option<Box<str>>,
}

/// The family of suffixes that a quantity is printed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `k`, `M`, `G` and `m`, `u`, `n`.
    Decimal,
    /// `Ki`, `Mi`, `Gi`.
    Binary,
    /// `e3`.
    Exponent,
}

/// Why a text is no quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Number,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl Quantity {
    pub const ZERO: Quantity = Quantity {
        nanos: 0,
        format: Format::Decimal,
        written: None,
    };

    /// A whole number, printed with decimal suffixes.
    pub fn whole(value: i64) -> Self {
        Self::of(i128::from(value) * NANOS, Format::Decimal)
    }

    /// Thousandths, as CPU time is counted.
    pub fn milli(value: i64) -> Self {
        Self::of(i128::from(value) * (NANOS / 1000), Format::Decimal)
    }

    /// A number of bytes, printed with binary suffixes.
    pub fn bytes(value: i64) -> Self {
        Self::of(i128::from(value) * NANOS, Format::Binary)
    }

    fn of(nanos: i128, format: Format) -> Self {
        Quantity {
            nanos,
            format,
            written: None,
        }
    }

    /// The amount in whole units, rounded up.
    pub fn value(&self) -> i64 {
        clamp(ceiling(self.nanos, NANOS))
    }

    /// The amount in thousandths, rounded up.
    pub fn milli_value(&self) -> i64 {
        clamp(ceiling(self.nanos, NANOS / 1000))
    }

    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// The amount as the nearest floating-point number.
    pub fn as_f64(&self) -> f64 {
        self.nanos as f64 / NANOS as f64
    }

    /// Whether the amount has no fraction.
    pub fn is_whole(&self) -> bool {
        self.nanos % NANOS == 0
    }
}

impl std::str::FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let parts = split(text)?;
        let (scale, binary, mut format) = suffix(parts.suffix)?;
        let digits = format!("{}{}", parts.whole, parts.fraction);
        let mut nanos = scaled(&digits, scale - parts.fraction.len() as i64 + 9, binary);
        if format == Format::Binary {
            // Binary amounts end at the largest 64-bit number, and below one they are decimal.
            nanos = nanos.min(i128::from(i64::MAX) * NANOS);
            if nanos > 0 && nanos < NANOS {
                format = Format::Decimal;
            }
        }
        let written = is_canonical(&digits, parts.fraction, scale, binary, format).then(|| text.into());
        let nanos = if parts.negative { -nanos } else { nanos };
        Ok(Quantity { nanos, format, written })
    }
}

struct Parts<'a> {
    negative: bool,
    /// Digits before the dot, without leading zeros but at least one.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let digits_end = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if text.is_empty() {
        return Err(QuantityError::Format);
    }
    let negative = text.starts_with('-');
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, rest) = rest.split_at(digits_end(rest));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits_end(rest)),
        None => ("", rest),
    };
    let exponent = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    if !exponent.bytes().all(|c| c.is_ascii_digit()) {
        return Err(QuantityError::Format);
    }
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        significant => significant,
    };
    Ok(Parts {
        negative,
        whole,
        fraction,
        suffix,
    })
}

/// The power of ten, the power of two and the family of a suffix.
fn suffix(text: &str) -> Result<(i64, u32, Format), QuantityError> {
    if let Some((_, power)) = DECIMAL.iter().find(|(suffix, _)| *suffix == text) {
        return Ok((i64::from(*power), 0, Format::Decimal));
    }
    if let Some((_, power)) = BINARY.iter().find(|(suffix, _)| *suffix == text) {
        return Ok((0, *power, Format::Binary));
    }
    let exponent = text.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
    let exponent: i64 = exponent.parse().map_err(|_| QuantityError::Suffix)?;
    // Anything further out is the largest or the smallest amount anyway.
    Ok((exponent.clamp(-1000, 1000), 0, Format::Exponent))
}

/// `digits * 10^tens * 2^twos`, rounded up, and the largest number where it does not fit.
fn scaled(digits: &str, tens: i64, twos: u32) -> i128 {
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let kept = digits.len().min(MOST_DIGITS);
    let mut number: i128 = digits[..kept].parse().unwrap_or(i128::MAX);
    let lost = digits[kept..].bytes().any(|c| c != b'0');
    let tens = tens + (digits.len() - kept) as i64;
    number = number.saturating_mul(1i128 << twos);
    if tens >= 0 {
        return (0..tens)
            .try_fold(number, |n, _| n.checked_mul(10))
            .unwrap_or(i128::MAX);
    }
    let mut remainder = lost;
    for _ in 0..-tens {
        remainder |= number % 10 != 0;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    number.saturating_add(i128::from(remainder))
}

/// Whether Kubernetes keeps the text as it was written: it looks at the digits only, so `1.500` stays.
fn is_canonical(digits: &str, fraction: &str, scale: i64, binary: u32, format: Format) -> bool {
    let Ok(number) = digits.parse::<i64>() else {
        return false;
    };
    let scale = scale - fraction.len() as i64;
    match format {
        Format::Binary => {
            let room = 14 - digits.len() as i64 - i64::from(binary * 3 / 10);
            fraction.is_empty() && room >= 0 && number & 7 != 0
        }
        Format::Decimal | Format::Exponent => {
            let fits = digits.len() <= 18 && (-9..=18).contains(&scale) && binary == 0;
            fits && scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0')
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(written) = &self.written {
            return f.write_str(written);
        }
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let large = self.nanos.unsigned_abs() >= 1024 * NANOS.unsigned_abs();
        if self.format == Format::Binary && large && self.is_whole() {
            let mut number = self.nanos / NANOS;
            let mut step = 0;
            while number % 1024 == 0 && step < BINARY.len() {
                number /= 1024;
                step += 1;
            }
            let suffix = if step == 0 { "" } else { BINARY[step - 1].0 };
            return write!(f, "{number}{suffix}");
        }
        let mut number = self.nanos;
        let mut power = -9;
        while number % 1000 == 0 && (power < 18 || self.format == Format::Exponent) {
            number /= 1000;
            power += 3;
        }
        match (self.format, power) {
            (_, 0) => write!(f, "{number}"),
            (Format::Exponent, power) => write!(f, "{number}e{power}"),
            (_, power) => {
                let suffix = DECIMAL
                    .iter()
                    .find(|(_, other)| *other == power)
                    .map_or("", |(suffix, _)| suffix);
                write!(f, "{number}{suffix}")
            }
        }
    }
}

impl Add<&Quantity> for Quantity {
    type Output = Quantity;

    /// The sum in this quantity's format, or in the other's when this one is zero.
    fn add(self, other: &Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        Quantity::of(self.nanos.saturating_add(other.nanos), format)
    }
}

impl Sub<&Quantity> for Quantity {
    type Output = Quantity;

    fn sub(self, other: &Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        Quantity::of(self.nanos.saturating_sub(other.nanos), format)
    }
}

impl Neg for Quantity {
    type Output = Quantity;

    fn neg(self) -> Quantity {
        Quantity::of(self.nanos.saturating_neg(), self.format)
    }
}

/// Equal amounts are equal, however they are written.
impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

fn ceiling(number: i128, unit: i128) -> i128 {
    number.div_euclid(unit) + i128::from(number.rem_euclid(unit) != 0)
}

fn clamp(number: i128) -> i64 {
    number.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(text: &str) -> String {
        text.parse::<Quantity>()
            .map_or_else(|e| e.to_string(), |q| q.to_string())
    }

    #[test]
    fn a_quantity_prints_in_canonical_form() {
        for (text, expected) in [
            ("0", "0"),
            ("0.0", "0"),
            ("1", "1"),
            ("1000", "1k"),
            ("0.5", "500m"),
            ("1.5", "1500m"),
            ("100m", "100m"),
            ("1024Mi", "1Gi"),
            ("1Gi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("1023Ki", "1023Ki"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("1000e3", "1e6"),
            ("2E6", "2E6"),
            ("0.1", "100m"),
            ("12e-3", "12e-3"),
            ("1Pi", "1Pi"),
            ("100Ei", "9223372036854775807"),
            ("1.500", "1.500"),
            ("-1000", "-1k"),
            ("1n", "1n"),
            ("0.0000000001", "1n"),
            ("512Ki", "512Ki"),
            ("3000Ki", "3000Ki"),
            ("1048576", "1048576"),
            (".5", "500m"),
            ("10000000000000000000000", "10000E"),
        ] {
            assert_eq!(canonical(text), expected, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_in_kubernetes_words() {
        assert!(canonical("").starts_with("quantities must match the regular expression"));
        assert!(canonical("1x").starts_with("quantities must match"));
        assert_eq!(canonical("1Kim"), "unable to parse quantity's suffix");
        assert_eq!(canonical("1ee3"), "unable to parse quantity's suffix");
    }

    #[test]
    fn quantities_add_compare_and_round_up() {
        let parse = |text: &str| text.parse::<Quantity>().unwrap();
        assert_eq!((parse("1Gi") + &parse("512Mi")).to_string(), "1536Mi");
        assert_eq!((Quantity::ZERO + &parse("1Ki")).to_string(), "1Ki");
        assert_eq!((parse("1") - &parse("1500m")).to_string(), "-500m");
        assert!(parse("1Ki") > parse("1k"));
        assert_eq!(parse("1000m"), parse("1"));
        assert_eq!(parse("1500m").value(), 2);
        assert_eq!(parse("100u").milli_value(), 1);
        assert_eq!(Quantity::bytes(2048).to_string(), "2Ki");
    }

    proptest! {
        #[test]
        fn no_text_panics_and_the_canonical_form_is_the_same_amount(text in "[-+]?[0-9]{0,30}[.]?[0-9]{0,30}[eEinumkKMGTPx]{0,2}[-+]?[0-9]{0,3}") {
            if let Ok(quantity) = text.parse::<Quantity>() {
                let again: Quantity = quantity.to_string().parse().unwrap();
                if quantity.nanos.unsigned_abs() < u128::MAX / 1000 {
                    prop_assert_eq!(&again, &quantity, "{}", quantity);
                }
            }
        }
    }
}
