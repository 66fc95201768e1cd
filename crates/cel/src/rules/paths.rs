//! `fieldPath` of a rule: a path through fields and maps to where the error belongs.

use stead_machinery::schema::{SchemaRef, Shape};

/// Why a path leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("unexpected end of JSON path")]
    End,
    #[error("expected [ or .")]
    Separator,
    #[error("expected single quoted string")]
    Quote,
    #[error("does not refer to a valid field")]
    Unknown,
}

/// `.spec['a.b'].c` as the path of a field error: `spec.a.b.c`; entries of maps in brackets.
pub fn normalized(path: &str, schema: SchemaRef<'_>) -> Result<String, PathError> {
    let mut schema = schema;
    let mut rest = path;
    let mut shown = String::new();
    while !rest.is_empty() {
        let (name, after) = step(rest)?;
        rest = after;
        let Shape::Object(object) = schema.shape() else {
            return Err(PathError::Unknown);
        };
        if object.properties.is_empty() {
            let values = object.additional.ok_or(PathError::Unknown)?;
            shown.push_str(&format!("[{name}]"));
            schema = schema.go(values);
        } else {
            let property = object.properties.get(name.as_str()).ok_or(PathError::Unknown)?;
            if !shown.is_empty() {
                shown.push('.');
            }
            shown.push_str(&name);
            schema = schema.go(property.node);
        }
    }
    Ok(shown)
}

/// The first step of a path, and what follows.
fn step(path: &str) -> Result<(String, &str), PathError> {
    if let Some(rest) = path.strip_prefix('.') {
        let end = rest.find(['.', '[', ']']).unwrap_or(rest.len());
        if end == 0 {
            return Err(PathError::End);
        }
        return Ok((rest[..end].to_string(), &rest[end..]));
    }
    let rest = path.strip_prefix('[').ok_or(PathError::Separator)?;
    let rest = rest.strip_prefix('\'').ok_or(PathError::Quote)?;
    let mut name = String::new();
    let mut chars = rest.char_indices();
    while let Some((place, c)) = chars.next() {
        match c {
            '\'' => {
                let after = rest[place + 1..].strip_prefix(']').ok_or(PathError::End)?;
                return Ok((name, after));
            }
            '\\' => {
                let (_, escaped) = chars.next().ok_or(PathError::End)?;
                name.push(match escaped {
                    'a' => '\u{7}',
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    'v' => '\u{b}',
                    '\'' | '\\' => escaped,
                    _ => return Err(PathError::Quote),
                });
            }
            other => name.push(other),
        }
    }
    Err(PathError::End)
}
