//! Property names that are no identifiers, spelt so that expressions can name them.

/// Words of the language as it is.
const LITERALS: &[&str] = &["true", "false", "null", "in"];

/// Words that later versions of the language may use.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Whether no identifier may be called this, though the language gives it no meaning yet.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// Whether this is a word of the language; a property with such a name is written `__word__`.
pub fn is_keyword(name: &str) -> bool {
    LITERALS.contains(&name) || is_reserved(name)
}

/// The identifier for a property, or `None` for names that no expression can spell.
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if is_keyword(name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '_' if chars.peek() == Some(&'_') => {
                chars.next();
                escaped.push_str("__underscores__");
            }
            '.' => escaped.push_str("__dot__"),
            '-' => escaped.push_str("__dash__"),
            '/' => escaped.push_str("__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => escaped.push(c),
            _ => return None,
        }
    }
    Some(escaped)
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn property_names_are_escaped_as_kubernetes_does() {
        let check = |name: &str, expect: Option<&str>| assert_eq!(escape(name).as_deref(), expect, "{name}");
        check("plain", Some("plain"));
        check("my-name", Some("my__dash__name"));
        check("a.b/c", Some("a__dot__b__slash__c"));
        check("a__b", Some("a__underscores__b"));
        check("namespace", Some("__namespace__"));
        check("1st", None);
        check("", None);
        check("a b", None);
    }
}
