//! RE2's expressions on the regex crate.
//!
//! Both engines run in linear time; their syntax differs a little. RE2's `\d`, `\w`, `\s` and `\b` know ASCII
//! alone, `\Q...\E` quotes, and a character class has neither nested classes nor set operations.

use regex::{Regex, RegexBuilder};

/// Bounds the memory of one compiled expression; a larger one is refused.
const SIZE_LIMIT: usize = 2 << 20;

/// Compiles an expression of RE2.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(&translate(pattern))
        .size_limit(SIZE_LIMIT)
        .octal(true)
        .build()
        .map_err(|_| format!("error parsing regexp: `{pattern}`"))
}

fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.chars().peekable();
    // Whether we are inside `[...]`, and whether its first character is yet to come.
    let mut class = false;
    let mut first = false;
    while let Some(c) = chars.next() {
        let at_start = std::mem::take(&mut first);
        match c {
            '\\' => match chars.next() {
                Some('d') => out.push_str(if class { "0-9" } else { "[0-9]" }),
                Some('D') => out.push_str("[^0-9]"),
                Some('w') => out.push_str(if class { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('s') => out.push_str(if class { r"\t\n\f\r\x20" } else { r"[\t\n\f\r\x20]" }),
                Some('S') => out.push_str(r"[^\t\n\f\r\x20]"),
                Some('b') if !class => out.push_str(r"(?-u:\b)"),
                Some('B') if !class => out.push_str(r"(?-u:\B)"),
                Some('Q') => {
                    let mut quoted = String::new();
                    while let Some(c) = chars.next() {
                        if c == '\\' && chars.peek() == Some(&'E') {
                            chars.next();
                            break;
                        }
                        quoted.push(c);
                    }
                    out.push_str(&regex::escape(&quoted));
                }
                Some(other) => {
                    out.push('\\');
                    out.push(other);
                }
                None => out.push('\\'),
            },
            '[' if !class => {
                class = true;
                first = true;
                out.push('[');
                if chars.peek() == Some(&'^') {
                    chars.next();
                    out.push('^');
                }
                // A closing bracket in first place is an ordinary character.
                if chars.peek() == Some(&']') {
                    chars.next();
                    out.push_str("\\]");
                }
            }
            '[' if chars.peek() == Some(&':') => out.push('['),
            '[' => out.push_str("\\["),
            ']' if class => {
                class = false;
                out.push(']');
                // `[[:alpha:]]`: the named class ends before the outer one does.
                if out.ends_with(":]") && named_class_is_open(&out) {
                    class = true;
                }
            }
            '&' | '~' if class => {
                out.push('\\');
                out.push(c);
            }
            '-' if class && (at_start || chars.peek() == Some(&'-')) => out.push_str("\\-"),
            other => out.push(other),
        }
    }
    out
}

/// Whether the `:]` just written closes a `[:name:]` inside a class.
fn named_class_is_open(out: &str) -> bool {
    let Some(start) = out.rfind("[:") else {
        return false;
    };
    let name = &out[start + 2..out.len() - 2];
    let name = name.strip_prefix('^').unwrap_or(name);
    start > 0 && !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::compile;

    #[test]
    fn re2_expressions_mean_the_same_here() {
        let check = |pattern: &str, text: &str, expect: bool| {
            let found = compile(pattern).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(found.is_match(text), expect, "{pattern} on {text}");
        };
        check(r"^\d+$", "123", true);
        check(r"^\d+$", "\u{661}", false);
        check(r"^[\w.-]+$", "a-b.c_d", true);
        check(r"^[[:alpha:]]+$", "abc", true);
        check(r"^[[:alpha:]]+$", "ab1", false);
        check(r"^[]a]+$", "]a", true);
        check(r"^[a&&b]+$", "&", true);
        check(r"^\Qa.b\E$", "a.b", true);
        check(r"^\Qa.b\E$", "axb", false);
        check(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "my-name", true);
        check(r"^.{3}$", "\u{e4}\u{f6}\u{fc}", true);
        assert!(compile("(").is_err());
        assert!(compile("a{1000}{1000}{1000}").is_err());
    }
}
