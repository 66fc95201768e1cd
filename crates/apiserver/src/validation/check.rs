//! A place in an object, and the mistakes found so far.

use serde_json::Value;
use std::collections::BTreeSet;
use stead_machinery::field::{FieldError, FieldErrorKind};
use stead_machinery::names;

/// A value together with its path.
#[derive(Debug, Clone)]
pub struct Field<'a> {
    pub value: &'a Value,
    pub path: String,
}

/// The mistakes found so far.
#[derive(Debug, Default)]
pub struct Errors(pub Vec<FieldError>);

impl<'a> Field<'a> {
    pub fn root(value: &'a Value) -> Self {
        Field {
            value,
            path: String::new(),
        }
    }

    /// A field of an object; null where it is absent.
    pub fn at(&self, name: &str) -> Field<'a> {
        let path = match self.path.as_str() {
            "" => name.to_string(),
            path => joined(&[path, ".", name]),
        };
        Field {
            value: &self.value[name],
            path,
        }
    }

    /// A value of a map, whose key stands in brackets.
    pub fn key(&self, key: &str) -> Field<'a> {
        Field {
            value: &self.value[key],
            path: joined(&[&self.path, "[", key, "]"]),
        }
    }

    /// The items of a list.
    pub fn items(&self) -> impl Iterator<Item = Field<'a>> + use<'a> {
        let path = self.path.clone();
        let items = self.value.as_array().into_iter().flatten().enumerate();
        items.map(move |(at, value)| Field {
            value,
            path: joined(&[&path, "[", itoa::Buffer::new().format(at), "]"]),
        })
    }

    /// The entries of a map.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, Field<'a>)> + use<'a> {
        let path = self.path.clone();
        let entries = self.value.as_object().into_iter().flatten();
        entries.map(move |(key, value)| {
            let path = joined(&[&path, "[", key, "]"]);
            (key.as_str(), Field { value, path })
        })
    }

    pub fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or_default()
    }

    pub fn number(&self) -> Option<i64> {
        self.value.as_i64()
    }

    pub fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    pub fn is_true(&self) -> bool {
        *self.value == Value::Bool(true)
    }

    /// Whether there is nothing: null, or an empty text, list or map.
    pub fn is_empty(&self) -> bool {
        match self.value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        }
    }
}

/// The parts one after the other. Every field of every object has a path, though few are ever shown.
fn joined(parts: &[&str]) -> String {
    let mut path = String::with_capacity(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| path.push_str(part));
    path
}

impl Errors {
    pub fn required(&mut self, field: &Field<'_>, detail: &str) {
        self.0.push(FieldError::required(field.path.clone(), detail));
    }

    pub fn invalid(&mut self, field: &Field<'_>, detail: impl Into<String>) {
        self.0
            .push(FieldError::invalid(field.path.clone(), field.value.clone(), detail));
    }

    /// As [`Errors::invalid`], with another value shown than the field's own.
    pub fn invalid_value(&mut self, field: &Field<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.0
            .push(FieldError::invalid(field.path.clone(), value.into(), detail));
    }

    /// As [`Errors::invalid`], without the value.
    pub fn invalid_unshown(&mut self, field: &Field<'_>, detail: &str) {
        self.0.push(FieldError::new(
            field.path.clone(),
            FieldErrorKind::InvalidUnshown,
            Value::Null,
            detail,
        ));
    }

    pub fn forbidden(&mut self, field: &Field<'_>, detail: impl Into<String>) {
        self.0.push(FieldError::forbidden(field.path.clone(), detail));
    }

    pub fn duplicate(&mut self, field: &Field<'_>) {
        self.0
            .push(FieldError::duplicate(field.path.clone(), field.value.clone()));
    }

    /// As [`Errors::duplicate`], with the rule that it breaks.
    pub fn duplicate_because(&mut self, field: &Field<'_>, detail: &str) {
        self.0.push(FieldError::new(
            field.path.clone(),
            FieldErrorKind::Duplicate,
            field.value.clone(),
            detail,
        ));
    }

    pub fn not_found(&mut self, field: &Field<'_>) {
        let value = field.value.clone();
        self.0
            .push(FieldError::new(field.path.clone(), FieldErrorKind::NotFound, value, ""));
    }

    /// As [`Errors::not_found`], with an absent name shown as an empty one.
    pub fn not_found_named(&mut self, field: &Field<'_>) {
        let name = Value::from(field.text());
        self.0
            .push(FieldError::new(field.path.clone(), FieldErrorKind::NotFound, name, ""));
    }

    /// As [`Errors::not_found`], with where it was looked for.
    pub fn not_found_because(&mut self, field: &Field<'_>, detail: String) {
        let value = field.value.clone();
        self.0.push(FieldError::new(
            field.path.clone(),
            FieldErrorKind::NotFound,
            value,
            detail,
        ));
    }

    pub fn unsupported(&mut self, field: &Field<'_>, allowed: &[&str]) {
        self.0.push(FieldError::not_supported(
            field.path.clone(),
            field.value.clone(),
            allowed,
        ));
    }

    /// A text that must be one of a few.
    pub fn one_of(&mut self, field: &Field<'_>, allowed: &[&str]) {
        if !allowed.contains(&field.text()) {
            self.unsupported(field, allowed);
        }
    }

    /// As [`Errors::one_of`], with an absent text shown as an empty one.
    pub fn one_of_shown(&mut self, field: &Field<'_>, allowed: &[&str]) {
        if !allowed.contains(&field.text()) {
            let error = FieldError::not_supported(field.path.clone(), field.text(), allowed);
            self.0.push(error);
        }
    }

    /// As [`Errors::one_of`], for a field that may be absent.
    pub fn one_of_if_set(&mut self, field: &Field<'_>, allowed: &[&str]) {
        if field.is_set() {
            self.one_of(field, allowed);
        }
    }

    /// A number that may be absent but not negative.
    pub fn not_negative(&mut self, field: &Field<'_>) {
        if field.number().is_some_and(|number| number < 0) {
            self.invalid(field, "must be greater than or equal to 0");
        }
    }

    pub fn port_number(&mut self, field: &Field<'_>) {
        if !field.number().is_some_and(|port| (1..=65_535).contains(&port)) {
            self.invalid(field, "must be between 1 and 65535, inclusive");
        }
    }

    /// A port by number or by name.
    pub fn port(&mut self, field: &Field<'_>) {
        match field.value {
            Value::String(name) => self.complaints(field, names::port_name(name)),
            _ => self.port_number(field),
        }
    }

    pub fn complaints(&mut self, field: &Field<'_>, complaints: Vec<String>) {
        for complaint in complaints {
            self.invalid(field, complaint);
        }
    }

    /// A text that must be there and follow a syntax.
    pub fn named(&mut self, field: &Field<'_>, syntax: fn(&str) -> Vec<String>) {
        match field.text() {
            "" => self.required(field, ""),
            text => self.complaints(field, syntax(text)),
        }
    }

    /// A text that follows a syntax where it is there.
    pub fn named_if_set(&mut self, field: &Field<'_>, syntax: fn(&str) -> Vec<String>) {
        if !field.text().is_empty() {
            self.complaints(field, syntax(field.text()));
        }
    }

    /// The name of a label or of anything that is named like one.
    pub fn label_name(&mut self, field: &Field<'_>) {
        for complaint in names::qualified_name(field.text()) {
            self.invalid_value(field, field.text(), complaint);
        }
    }

    /// A domain and a path in it.
    pub fn domain_path(&mut self, field: &Field<'_>) {
        match field.text().split_once('/') {
            Some((host, path)) if !host.is_empty() && !path.is_empty() => {
                for complaint in names::dns1123_subdomain(host) {
                    self.invalid_value(field, host, complaint);
                }
            }
            _ => self.invalid(field, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
        }
    }

    /// A path that stays below where it begins.
    pub fn descending_path(&mut self, field: &Field<'_>) {
        if field.text().starts_with('/') {
            self.invalid(field, "must be a relative path");
        }
        self.no_backsteps(field);
    }

    /// A path that does not climb.
    pub fn no_backsteps(&mut self, field: &Field<'_>) {
        if field.text().split('/').any(|part| part == "..") {
            self.invalid(field, "must not contain '..'");
        }
    }

    /// A text of so many bytes at most.
    pub fn at_most(&mut self, field: &Field<'_>, most: usize) {
        if field.text().len() > most {
            let detail = format!("may not be more than {most} bytes");
            let error = FieldError::new(field.path.clone(), FieldErrorKind::TooLong, Value::Null, detail);
            self.0.push(error);
        }
    }

    /// A list of so many items at most.
    pub fn count(&mut self, list: &Field<'_>, most: usize) {
        let items = list.items().count();
        if items > most {
            let detail = format!("must have at most {most} items");
            let error = FieldError::new(list.path.clone(), FieldErrorKind::TooMany, items.into(), detail);
            self.0.push(error);
        }
    }

    /// A field that must be there.
    pub fn present(&mut self, field: &Field<'_>) {
        if field.is_empty() {
            self.required(field, "");
        }
    }

    pub fn ip(&mut self, field: &Field<'_>) {
        if field.text().parse::<std::net::IpAddr>().is_err() {
            self.invalid(field, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
        }
    }

    pub fn cidr(&mut self, field: &Field<'_>) {
        let valid = field.text().split_once('/').is_some_and(|(ip, bits)| {
            let most = match ip.parse::<std::net::IpAddr>() {
                Ok(std::net::IpAddr::V4(_)) => 32,
                Ok(std::net::IpAddr::V6(_)) => 128,
                Err(_) => return false,
            };
            bits.parse::<u8>().is_ok_and(|bits| bits <= most)
        });
        if !valid {
            self.invalid(field, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
        }
    }

    /// Labels that select: keys and values must be well formed.
    pub fn labels(&mut self, field: &Field<'_>) {
        for (key, value) in field.entries() {
            for complaint in names::qualified_name(key) {
                self.invalid_value(field, key, complaint);
            }
            for complaint in names::label_value(value.text()) {
                self.invalid_value(field, value.text(), complaint);
            }
        }
    }

    /// A label selector.
    pub fn selector(&mut self, field: &Field<'_>) {
        self.labels(&field.at("matchLabels"));
        for expression in field.at("matchExpressions").items() {
            let (operator, values) = (expression.at("operator"), expression.at("values"));
            match operator.text() {
                "In" | "NotIn" if values.is_empty() => {
                    self.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
                }
                "Exists" | "DoesNotExist" if !values.is_empty() => {
                    self.forbidden(
                        &values,
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                    );
                }
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
                other => self.invalid_value(&operator, other, "not a valid selector operator"),
            }
            self.label_name(&expression.at("key"));
            for value in values.items() {
                self.complaints(&value, names::label_value(value.text()));
            }
        }
    }

    /// Reports every repeated text of a field in a list.
    pub fn unique(&mut self, list: &Field<'_>, name: &str) {
        let mut seen = BTreeSet::new();
        for item in list.items() {
            let field = item.at(name);
            if !field.text().is_empty() && !seen.insert(field.text()) {
                self.duplicate(&field);
            }
        }
    }
}
