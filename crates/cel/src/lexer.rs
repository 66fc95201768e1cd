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

/// Longest first, so that `==` is not read as two signs.
const PUNCTUATION: &[&str] = &[
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "(", ")", "[", "]", "{", "}", ".", ",", "-", "+", "*", "/", "%", "!",
    "?", ":",
];

/// All tokens of the text, ending with [`TokenKind::End`].
pub fn tokens(source: &[char]) -> Result<Vec<Token>, Issue> {
    let mut lexer = Lexer { source, at: 0 };
    let mut found = Vec::new();
    loop {
        let token = lexer.next()?;
        let end = token.kind == TokenKind::End;
        found.push(token);
        if end {
            return Ok(found);
        }
    }
}

struct Lexer<'a> {
    source: &'a [char],
    at: usize,
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
        Err(Issue::syntax(at, format!("token recognition error at: '{c}'")))
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
                _ => Err(Issue::new(at, "invalid double literal")),
            };
        }
        self.integer(at, &text, 10)
    }

    fn integer(&mut self, at: usize, digits: &str, radix: u32) -> Result<TokenKind, Issue> {
        if matches!(self.peek(0), Some('u' | 'U')) {
            self.at += 1;
            return match u64::from_str_radix(digits, radix) {
                Ok(value) => Ok(TokenKind::Literal(Literal::Uint(value))),
                Err(_) => Err(Issue::new(at, "invalid uint literal")),
            };
        }
        match u64::from_str_radix(digits, radix) {
            Ok(value) if value == i64::MIN.unsigned_abs() => Ok(TokenKind::MinIntMagnitude),
            Ok(value) if value <= i64::MAX as u64 => Ok(TokenKind::Literal(Literal::Int(value as i64))),
            _ => Err(Issue::new(at, "invalid int literal")),
        }
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
        let unterminated = |lexer: &Lexer<'_>| {
            let text: String = lexer.source[at..lexer.at.min(lexer.source.len())].iter().collect();
            Issue::syntax(at, format!("token recognition error at: '{text}'"))
        };
        loop {
            let Some(c) = self.peek(0) else {
                return Err(unterminated(self));
            };
            if c == quote && (!long || (self.peek(1) == Some(quote) && self.peek(2) == Some(quote))) {
                self.at += if long { 3 } else { 1 };
                break;
            }
            if !long && (c == '\n' || c == '\r') {
                return Err(unterminated(self));
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

    /// One escape sequence; the backslash is already consumed.
    fn escape(&mut self, at: usize, prefix: &Prefix, out: &mut Vec<u8>) -> Result<(), Issue> {
        let bad = || Issue::new(at, "unable to unescape string");
        let Some(c) = self.peek(0) else {
            return Err(bad());
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
            _ => return Err(bad()),
        };
        let mut value: u32 = 0;
        for _ in 0..length {
            let digit = self.peek(0).and_then(|c| c.to_digit(radix)).ok_or_else(bad)?;
            value = value.wrapping_mul(radix).wrapping_add(digit);
            self.at += 1;
        }
        if prefix.bytes {
            out.push(u8::try_from(value).map_err(|_| bad())?);
        } else {
            let c = char::from_u32(value).ok_or_else(bad)?;
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
