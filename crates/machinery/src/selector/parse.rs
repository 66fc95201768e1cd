//! The query-string form of label selectors.
//!
//! `in` and `notin` are words only where an operator is expected and values everywhere else, which is
//! why the tokens are read first and judged by their place.

use super::{Operator, Requirement, SelectorError};
use crate::field::FieldError;
use crate::names;
use std::collections::BTreeSet;

const BINARY_OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Error,
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Identifier,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
}

/// Where a token stands: `in` is an operator in one place and a value in the other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Operator,
    Value,
}

struct Parser {
    tokens: Vec<(Token, String)>,
    at: usize,
}

/// Parses a whole selector; the requirements come sorted by key.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut parser = Parser {
        tokens: tokens(text),
        at: 0,
    };
    let mut requirements = Vec::new();
    loop {
        let (token, literal) = parser.peek(Place::Value);
        match token {
            Token::Identifier | Token::Not => {
                let parsed = parser.requirement();
                requirements.push(parsed.map_err(|e| SelectorError(format!("unable to parse requirement: {e}")))?);
                let (token, literal) = parser.next(Place::Value);
                match token {
                    Token::End => break,
                    Token::Comma => {
                        let (token, literal) = parser.peek(Place::Value);
                        if token != Token::Identifier && token != Token::Not {
                            return found(&literal, "identifier after ','");
                        }
                    }
                    _ => return found(&literal, "',' or 'end of string'"),
                }
            }
            Token::End => break,
            _ => return found(&literal, "!, identifier, or 'end of string'"),
        }
    }
    requirements.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(requirements)
}

fn found<T>(literal: &str, expected: &str) -> Result<T, SelectorError> {
    Err(SelectorError(format!("found '{literal}', expected: {expected}")))
}

impl Parser {
    fn peek(&self, place: Place) -> (Token, String) {
        let (token, literal) = self.tokens.get(self.at).cloned().unwrap_or((Token::End, String::new()));
        match (token, place) {
            (Token::In | Token::NotIn, Place::Value) => (Token::Identifier, literal),
            _ => (token, literal),
        }
    }

    fn next(&mut self, place: Place) -> (Token, String) {
        let token = self.peek(place);
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let (mut token, mut key) = self.next(Place::Value);
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.next(Place::Value);
        }
        if token != Token::Identifier {
            return found(&key, "identifier");
        }
        let complaints = names::qualified_name(&key);
        if !complaints.is_empty() {
            let error = FieldError::invalid("<nil>", key.as_str(), complaints.join("; "));
            return Err(SelectorError(error.to_string()));
        }
        if negated {
            return Requirement::checked(&key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek(Place::Value).0, Token::End | Token::Comma) {
            return Requirement::checked(&key, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => self.exact_value()?,
        };
        Requirement::checked(&key, operator, values.into_iter().collect())
    }

    fn operator(&mut self) -> Result<Operator, SelectorError> {
        let (token, literal) = self.next(Place::Operator);
        Ok(match token {
            Token::In => Operator::In,
            Token::NotIn => Operator::NotIn,
            Token::Equals => Operator::Equals,
            Token::DoubleEquals => Operator::DoubleEquals,
            Token::NotEquals => Operator::NotEquals,
            Token::Greater => Operator::GreaterThan,
            Token::Less => Operator::LessThan,
            _ => return found(&literal, BINARY_OPERATORS),
        })
    }

    fn values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        let (token, literal) = self.next(Place::Value);
        if token != Token::Open {
            return Err(SelectorError(format!("found '{literal}' expected: '('")));
        }
        let (token, literal) = self.peek(Place::Value);
        match token {
            Token::Identifier | Token::Comma => {
                let values = self.identifiers()?;
                if self.next(Place::Value).0 != Token::Close {
                    return found(&literal, "')'");
                }
                Ok(values)
            }
            Token::Close => {
                self.at += 1;
                Ok(BTreeSet::from([String::new()]))
            }
            _ => found(&literal, "',', ')' or identifier"),
        }
    }

    fn identifiers(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        let mut values = BTreeSet::new();
        loop {
            let (token, literal) = self.next(Place::Value);
            let (after, after_literal) = self.peek(Place::Value);
            match token {
                Token::Identifier => {
                    values.insert(literal);
                    match after {
                        Token::Comma => {}
                        Token::Close => return Ok(values),
                        _ => return found(&after_literal, "',' or ')'"),
                    }
                }
                Token::Comma => {
                    if values.is_empty() || matches!(after, Token::Close | Token::Comma) {
                        values.insert(String::new());
                    }
                    if after == Token::Close {
                        return Ok(values);
                    }
                }
                _ => return found(&literal, "',', or identifier"),
            }
        }
    }

    fn exact_value(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        if matches!(self.peek(Place::Value).0, Token::End | Token::Comma) {
            return Ok(BTreeSet::from([String::new()]));
        }
        let (token, literal) = self.next(Place::Value);
        match token {
            Token::Identifier => Ok(BTreeSet::from([literal])),
            _ => found(&literal, "identifier"),
        }
    }
}

fn tokens(text: &str) -> Vec<(Token, String)> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let (token, length) = if rest.starts_with(is_special) {
            special(rest)
        } else {
            let end = rest.find(|c| is_special(c) || is_space(c)).unwrap_or(rest.len());
            (word(&rest[..end]), end)
        };
        let literal = match token {
            Token::Error => format!("error expected: keyword found '{}'", &rest[..length]),
            _ => rest[..length].to_string(),
        };
        tokens.push((token, literal));
        rest = rest[length..].trim_start_matches(is_space);
    }
    tokens.push((Token::End, String::new()));
    tokens
}

/// The longest operator at the start of `rest`; every special character begins one.
fn special(rest: &str) -> (Token, usize) {
    const OPERATORS: &[(&str, Token)] = &[
        ("==", Token::DoubleEquals),
        ("!=", Token::NotEquals),
        ("=", Token::Equals),
        ("!", Token::Not),
        (">", Token::Greater),
        ("<", Token::Less),
        ("(", Token::Open),
        (")", Token::Close),
        (",", Token::Comma),
    ];
    let known = OPERATORS.iter().find(|(text, _)| rest.starts_with(text));
    known.map_or((Token::Error, 1), |(text, token)| (*token, text.len()))
}

fn word(text: &str) -> Token {
    match text {
        "in" => Token::In,
        "notin" => Token::NotIn,
        _ => Token::Identifier,
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}
