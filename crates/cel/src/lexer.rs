//! From text to tokens.
//!
//! Positions are counted in characters and not in bytes, since that is what Kubernetes prints in errors.

use crate::ast::Literal;
use crate::issue::Issue;

/// One token and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    pub at: usize,
    pub kind: TokenKind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum TokenKind {
    Ident(String),
    Literal(Literal),
    /// An integer that is too large for its type unless a minus sign precedes it.
    MinIntMagnitude,
    Punct(&'static str),
    End,
}

impl TokenKind {
    /// The token as an error message shows it.
    pub fn shown(&self) -> String {
        match self {
            TokenKind::Ident(name) => name.clone(),
            TokenKind::Literal(literal) => match literal {
                Literal::Null => "null".into(),
                Literal::Bool(value) => value.to_string(),
                Literal::Int(value) => value.to_string(),
                Literal::Uint(value) => format!("{value}u"),
                Literal::Double(value) => value.to_string(),
                Literal::String(value) => format!("{value:?}"),
                Literal::Bytes(_) => "b\"\"".into(),
            },
            TokenKind::MinIntMagnitude => "9223372036854775808".into(),
            TokenKind::Punct(text) => (*text).into(),
            TokenKind::End => "<EOF>".into(),
        }
    }
}

/// How many unreadable places are reported.
const ISSUE_LIMIT: usize = 100;

/// Longest first, so that `==` is not read as two signs.
const PUNCTUATION: &[&str] = &[
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "(", ")", "[", "]", "{", "}", ".", ",", "-", "+", "*", "/", "%", "!",
    "?", ":",
];

/// All tokens of the text, ending with [`TokenKind::End`], and what is no token at all.
pub fn tokens(source: &[char]) -> (Vec<Token>, Vec<Issue>) {
    let mut lexer = Lexer {
        source,
        at: 0,
        issues: Vec::new(),
    };
    let mut found = Vec::new();
    loop {
        match lexer.next() {
            Ok(token) => {
                let end = token.kind == TokenKind::End;
                found.push(token);
                if end {
                    return (found, lexer.issues);
                }
            }
            Err(issue) => {
                // The first few tell enough, and text that is all garbage is not worth more.
                if lexer.issues.len() < ISSUE_LIMIT {
                    lexer.issues.push(issue);
                }
            }
        }
    }
}

struct Lexer<'a> {
    source: &'a [char],
    at: usize,
    issues: Vec<Issue>,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.source.get(self.at + ahead).copied()
    }

    fn skip_blanks(&mut self) {
        while let Some(c) = self.peek(0) {
            if matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{c}') {
                self.at += 1;
            } else if c == '/' && self.peek(1) == Some('/') {
                while self.peek(0).is_some_and(|c| c != '\n') {
                    self.at += 1;
                }
            } else {
                return;
            }
        }
    }

    fn next(&mut self) -> Result<Token, Issue> {
        self.skip_blanks();
        let at = self.at;
        let Some(c) = self.peek(0) else {
            return Ok(Token {
                at,
                kind: TokenKind::End,
            });
        };
        let kind = if c.is_ascii_digit() || (c == '.' && self.peek(1).is_some_and(|d| d.is_ascii_digit())) {
            self.number(at)?
        } else if let Some(prefix) = self.string_prefix() {
            self.string(at, prefix)?
        } else if c.is_ascii_alphabetic() || c == '_' {
            self.word()
        } else {
            self.punctuation(at, c)?
        };
        Ok(Token { at, kind })
    }

    fn word(&mut self) -> TokenKind {
        let start = self.at;
        while self.peek(0).is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
            self.at += 1;
        }
        let word: String = self.source[start..self.at].iter().collect();
        match word.as_str() {
            "true" => TokenKind::Literal(Literal::Bool(true)),
            "false" => TokenKind::Literal(Literal::Bool(false)),
            "null" => TokenKind::Literal(Literal::Null),
            "in" => TokenKind::Punct("in"),
            _ => TokenKind::Ident(word),
        }
    }

    fn punctuation(&mut self, at: usize, c: char) -> Result<TokenKind, Issue> {
        for text in PUNCTUATION {
            if text.chars().enumerate().all(|(i, c)| self.peek(i) == Some(c)) {
                self.at += text.len();
                return Ok(TokenKind::Punct(text));
            }
        }
        self.at += 1;
        let mut unread = c.to_string();
        // These begin an operator of two signs, so the one after them is lost as well.
        if matches!(c, '=' | '&' | '|')
            && let Some(next) = self.peek(0)
        {
            unread.push(next);
            self.at += 1;
        }
        Err(Issue::syntax(at, format!("token recognition error at: '{unread}'")))
    }

    fn digits(&mut self) -> bool {
        let start = self.at;
        while self.peek(0).is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
        }
        self.at > start
    }

    fn number(&mut self, at: usize) -> Result<TokenKind, Issue> {
        if self.peek(0) == Some('0') && self.peek(1) == Some('x') && self.peek(2).is_some_and(|c| c.is_ascii_hexdigit())
        {
            self.at += 2;
            let start = self.at;
            while self.peek(0).is_some_and(|c| c.is_ascii_hexdigit()) {
                self.at += 1;
            }
            let digits: String = self.source[start..self.at].iter().collect();
            return self.integer(at, &digits, 16);
        }
        self.digits();
        let mut double = false;
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
            self.digits();
            double = true;
        }
        if matches!(self.peek(0), Some('e' | 'E')) {
            let signed = usize::from(matches!(self.peek(1), Some('+' | '-')));
            if self.peek(1 + signed).is_some_and(|c| c.is_ascii_digit()) {
                self.at += 1 + signed;
                self.digits();
                double = true;
            }
        }
        let text: String = self.source[at..self.at].iter().collect();
        if double {
            return match text.parse::<f64>() {
                Ok(value) if value.is_finite() => Ok(TokenKind::Literal(Literal::Double(value))),
                _ => Ok(self.bad_number(at, "invalid double literal")),
            };
        }
        self.integer(at, &text, 10)
    }

    fn integer(&mut self, at: usize, digits: &str, radix: u32) -> Result<TokenKind, Issue> {
        if matches!(self.peek(0), Some('u' | 'U')) {
            self.at += 1;
            return match u64::from_str_radix(digits, radix) {
                Ok(value) => Ok(TokenKind::Literal(Literal::Uint(value))),
                Err(_) => Ok(self.bad_number(at, "invalid uint literal")),
            };
        }
        match u64::from_str_radix(digits, radix) {
            Ok(value) if value == i64::MIN.unsigned_abs() => Ok(TokenKind::MinIntMagnitude),
            Ok(value) if value <= i64::MAX as u64 => Ok(TokenKind::Literal(Literal::Int(value as i64))),
            _ => Ok(self.bad_number(at, "invalid int literal")),
        }
    }

    /// A number that fits no type is a number to the grammar.
    fn bad_number(&mut self, at: usize, message: &str) -> TokenKind {
        self.issues.push(Issue::new(at, message));
        TokenKind::Literal(Literal::Int(0))
    }

    /// Whether a string begins here, with its prefix letters.
    fn string_prefix(&self) -> Option<Prefix> {
        let mut prefix = Prefix {
            length: 0,
            raw: false,
            bytes: false,
        };
        while let Some(c) = self.peek(prefix.length) {
            match c {
                '"' | '\'' => return Some(prefix),
                'r' | 'R' if !prefix.raw => prefix.raw = true,
                'b' | 'B' if !prefix.bytes && !prefix.raw => prefix.bytes = true,
                _ => return None,
            }
            prefix.length += 1;
        }
        None
    }

    fn string(&mut self, at: usize, prefix: Prefix) -> Result<TokenKind, Issue> {
        self.at += prefix.length;
        let quote = self.source[self.at];
        let long = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        self.at += if long { 3 } else { 1 };
        let mut bytes: Vec<u8> = Vec::new();
        loop {
            let Some(c) = self.peek(0) else {
                return Err(self.unread(at));
            };
            if c == quote && (!long || (self.peek(1) == Some(quote) && self.peek(2) == Some(quote))) {
                self.at += if long { 3 } else { 1 };
                break;
            }
            if !long && (c == '\n' || c == '\r') {
                return Err(self.unread(at));
            }
            self.at += 1;
            if c == '\\' && !prefix.raw {
                self.escape(at, &prefix, &mut bytes)?;
            } else {
                // A raw string keeps its backslashes, and a backslash never ends it early.
                if c == '\\' && self.peek(0).is_some_and(|next| next == quote) && !long {
                    bytes.push(b'\\');
                    bytes.push(quote as u8);
                    self.at += 1;
                    continue;
                }
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        if prefix.bytes {
            return Ok(TokenKind::Literal(Literal::Bytes(bytes)));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(TokenKind::Literal(Literal::String(text))),
            Err(_) => Err(Issue::new(at, "invalid UTF-8 in string")),
        }
    }

    /// What has been read since a place is no token.
    fn unread(&self, at: usize) -> Issue {
        let text: String = self.source[at..self.at.min(self.source.len())].iter().collect();
        Issue::syntax(at, format!("token recognition error at: '{text}'"))
    }

    /// One escape sequence; the backslash is already consumed.
    fn escape(&mut self, at: usize, prefix: &Prefix, out: &mut Vec<u8>) -> Result<(), Issue> {
        let Some(c) = self.peek(0) else {
            return Err(self.unread(at));
        };
        self.at += 1;
        let simple = match c {
            'a' => Some(0x07),
            'b' => Some(0x08),
            'f' => Some(0x0c),
            'n' => Some(b'\n'),
            'r' => Some(b'\r'),
            't' => Some(b'\t'),
            'v' => Some(0x0b),
            '\\' | '\'' | '"' | '`' | '?' => Some(c as u8),
            _ => None,
        };
        if let Some(byte) = simple {
            out.push(byte);
            return Ok(());
        }
        let (length, radix) = match c {
            'x' | 'X' => (2, 16),
            'u' if !prefix.bytes => (4, 16),
            'U' if !prefix.bytes => (8, 16),
            '0'..='3' => {
                self.at -= 1;
                (3, 8)
            }
            _ => return Err(self.unread(at)),
        };
        let mut value: u32 = 0;
        for _ in 0..length {
            let digit = self
                .peek(0)
                .and_then(|c| c.to_digit(radix))
                .ok_or_else(|| self.unread(at))?;
            value = value.wrapping_mul(radix).wrapping_add(digit);
            self.at += 1;
        }
        if prefix.bytes {
            out.push(u8::try_from(value).map_err(|_| self.unread(at))?);
        } else {
            let c = char::from_u32(value).ok_or_else(|| self.unread(at))?;
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        Ok(())
    }
}

/// The letters before a string's quote.
struct Prefix {
    length: usize,
    raw: bool,
    bytes: bool,
}
