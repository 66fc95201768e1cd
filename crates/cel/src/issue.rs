//! What is wrong with an expression, shown the way Kubernetes shows it.

/// One mistake, with its place in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Character offset in the source.
    pub at: usize,
    pub message: String,
}

/// A line longer than this is not repeated in an error.
const SNIPPET_LIMIT: usize = 16_384;

impl Issue {
    pub fn new(at: usize, message: impl Into<String>) -> Self {
        Issue {
            at,
            message: message.into(),
        }
    }

    /// A mistake that the grammar finds.
    pub fn syntax(at: usize, message: impl std::fmt::Display) -> Self {
        Issue::new(at, format!("Syntax error: {message}"))
    }

    /// `ERROR: <input>:1:6: message`, the line, and a caret below the place.
    pub fn shown(&self, source: &str) -> String {
        let mut line = 1;
        let mut column = 0;
        let mut text = String::new();
        for (offset, c) in source.chars().enumerate() {
            if c == '\n' {
                if offset >= self.at {
                    break;
                }
                line += 1;
                column = 0;
                text.clear();
                continue;
            }
            if offset < self.at {
                column += 1;
            }
            text.push(if c == '\t' { ' ' } else { c });
        }
        let mut shown = format!("ERROR: <input>:{line}:{}: {}", column + 1, self.message);
        if text.len() <= SNIPPET_LIMIT {
            let wide = |c: char, narrow: char, wide: char| if c.len_utf8() > 1 { wide } else { narrow };
            let mut below: String = text.chars().take(column).map(|c| wide(c, '.', '\u{ff0e}')).collect();
            below.push(wide(text.chars().nth(column).unwrap_or(' '), '^', '\u{ff3e}'));
            shown.push_str(&format!("\n | {text}\n | {below}"));
        }
        shown
    }
}

/// All issues of one expression in the order of their places, one after the other.
pub fn shown(issues: &[Issue], source: &str) -> String {
    let mut sorted: Vec<&Issue> = issues.iter().collect();
    sorted.sort_by_key(|issue| issue.at);
    let lines: Vec<String> = sorted.iter().map(|issue| issue.shown(source)).collect();
    lines.join("\n")
}
