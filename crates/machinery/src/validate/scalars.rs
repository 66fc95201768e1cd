//! Lengths, patterns and ranges.

use super::{Walk, formats, in_body};
use crate::field::FieldErrorKind;
use crate::schema::{Constraints, SchemaRef, Shape};
use regex::Regex;
use serde_json::Number;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

/// Compiled patterns that are kept. Definitions come and go in tests by the thousand; a server has few.
const MOST_PATTERNS: usize = 1024;

/// Compiled patterns: compiling costs a hundred times what matching does.
static PATTERNS: LazyLock<Mutex<HashMap<Box<str>, Arc<Regex>>>> = LazyLock::new(Mutex::default);

/// Why a pattern is no regular expression.
pub fn pattern_error(pattern: &str) -> Option<String> {
    let error = Regex::new(pattern).err()?;
    let open = pattern.matches('(').count() > pattern.matches(')').count();
    Some(match error {
        // Go's words for the commonest mistake.
        regex::Error::Syntax(_) if open => format!("error parsing regexp: missing closing ): `{pattern}`"),
        error => error.to_string(),
    })
}

impl Walk {
    pub(super) fn string(&mut self, path: &str, text: &str, constraints: &Constraints) {
        let length = || text.chars().count() as u64;
        if let Some(most) = constraints.max_length.filter(|most| length() > *most) {
            let bytes = if most == 1 { "byte" } else { "bytes" };
            self.refuse(
                path,
                FieldErrorKind::TooLong,
                text,
                format!("may not be more than {most} {bytes}"),
            );
            return;
        }
        if let Some(least) = constraints.min_length.filter(|least| length() < *least) {
            let detail = format!("{} should be at least {least} chars long", in_body(path));
            self.refuse(path, FieldErrorKind::Invalid, text, detail);
            return;
        }
        if let Some(pattern) = constraints.pattern.as_deref().filter(|pattern| !pattern.is_empty()) {
            match compiled(pattern) {
                Ok(regex) if regex.is_match(text) => self.matches += 1,
                Ok(_) => {
                    let detail = format!("{} should match '{pattern}'", in_body(path));
                    self.refuse(path, FieldErrorKind::Invalid, text, detail);
                }
                Err(error) => {
                    let detail = format!(
                        "{} should match '{pattern}, but pattern is invalid: {error}'",
                        in_body(path)
                    );
                    self.refuse(path, FieldErrorKind::Invalid, text, detail);
                }
            }
        }
    }

    pub(super) fn format(&mut self, path: &str, text: &str, schema: SchemaRef<'_>, constraints: &Constraints) {
        if !matches!(schema.shape(), Shape::String(_) | Shape::Any | Shape::Free) {
            return;
        }
        let Some(format) = constraints.format.as_deref() else {
            return;
        };
        if formats::fits(format, text) == Some(false) {
            let detail = format!("{} must be of type {format}: {text:?}", in_body(path));
            self.refuse(path, FieldErrorKind::TypeInvalid, text, detail);
        }
    }

    pub(super) fn number(&mut self, path: &str, number: &Number, schema: SchemaRef<'_>, constraints: &Constraints) {
        let value = number.as_f64().unwrap_or_default();
        if matches!(schema.shape(), Shape::Integer) {
            let format = match constraints.format.as_deref() {
                Some(format @ ("int32" | "int64")) => format!("with format {format}"),
                _ => "(default format)".to_string(),
            };
            let narrow = constraints.format.as_deref() == Some("int32");
            let fits = match number.as_i64() {
                Some(whole) => !narrow || i32::try_from(whole).is_ok(),
                None => value.fract() == 0.0,
            };
            if !fits {
                let detail = format!("Checked value must be of type integer {format} in {path}");
                self.refuse("<nil>", FieldErrorKind::Invalid, "", detail);
            }
        }
        // Whole numbers are compared with whole bounds.
        let bound = |bound: f64| if number.is_f64() { bound } else { bound.trunc() };
        // A bound for whole numbers is shown as one.
        let shown = |bound: f64| {
            if number.is_f64() {
                bound.to_string()
            } else {
                (bound as i64).to_string()
            }
        };
        if let Some(factor) = constraints.multiple_of {
            let times = value / factor;
            if factor > 0.0 && (times - times.round()).abs() > 1e-9 * times.abs().max(1.0) {
                let detail = format!("{} should be a multiple of {}", in_body(path), shown(factor));
                self.refuse(path, FieldErrorKind::Invalid, number.clone(), detail);
            }
        }
        if let Some(least) = constraints.minimum.map(bound) {
            let (fails, words) = match constraints.exclusive_minimum {
                true => (value <= least, "greater than"),
                false => (value < least, "greater than or equal to"),
            };
            if fails {
                let detail = format!("{} should be {words} {}", in_body(path), shown(least));
                self.refuse(path, FieldErrorKind::Invalid, number.clone(), detail);
            }
        }
        if let Some(most) = constraints.maximum.map(bound) {
            let (fails, words) = match constraints.exclusive_maximum {
                true => (value >= most, "less than"),
                false => (value > most, "less than or equal to"),
            };
            if fails {
                let detail = format!("{} should be {words} {}", in_body(path), shown(most));
                self.refuse(path, FieldErrorKind::Invalid, number.clone(), detail);
            }
        }
    }
}

fn compiled(pattern: &str) -> Result<Arc<Regex>, regex::Error> {
    // A panic while the lock was held leaves the map as usable as it was.
    let mut patterns = PATTERNS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(regex) = patterns.get(pattern) {
        return Ok(regex.clone());
    }
    let regex = Arc::new(Regex::new(pattern)?);
    if patterns.len() >= MOST_PATTERNS {
        patterns.clear();
    }
    patterns.insert(pattern.into(), regex.clone());
    Ok(regex)
}
