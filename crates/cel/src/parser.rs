//! From tokens to a syntax tree.
//!
//! A recursive descent along CEL's grammar. Macros are expanded while their call is parsed, because only then
//! are their arguments still syntax. Every node knows its depth and the depth is bounded, so neither this
//! parser nor any walk over its result can run out of stack.

mod literals;
mod macros;

use crate::ast::{Expr, Id, Kind, Literal};
use crate::escape;
use crate::issue::Issue;
use crate::lexer::{Token, TokenKind, tokens};

/// Expressions longer than this are refused, as Kubernetes does.
const SIZE_LIMIT: usize = 100_000;
/// How deep parentheses, calls and literals may nest in the source.
const NESTING_LIMIT: usize = 100;
/// How deep the tree may be; `a + a + ...` and `a.b.c...` nest without parentheses.
const DEPTH_LIMIT: usize = 250;

/// Binary operators, the loosest first.
const OPERATORS: &[&[(&str, &str)]] = &[
    &[
        ("==", "_==_"),
        ("!=", "_!=_"),
        ("<=", "_<=_"),
        (">=", "_>=_"),
        ("<", "_<_"),
        (">", "_>_"),
        ("in", "@in"),
    ],
    &[("+", "_+_"), ("-", "_-_")],
    &[("*", "_*_"), ("/", "_/_"), ("%", "_%_")],
];

/// A parsed expression and how many nodes it has numbered.
#[derive(Debug)]
pub struct Parsed {
    pub expr: Expr,
    pub nodes: usize,
    /// Of the deepest node.
    pub depth: usize,
}

/// Parses one expression.
pub fn parse(source: &str) -> Result<Parsed, Vec<Issue>> {
    let chars: Vec<char> = source.chars().collect();
    if chars.len() > SIZE_LIMIT {
        return Err(vec![Issue::new(
            0,
            format!(
                "expression code point size exceeds limit: size: {}, limit {SIZE_LIMIT}",
                chars.len()
            ),
        )]);
    }
    let (tokens, mut issues) = tokens(&chars);
    let mut parser = Parser {
        tokens,
        next: 0,
        depths: Vec::new(),
        nesting: 0,
    };
    match parser.whole() {
        Ok(expr) if issues.is_empty() => Ok(Parsed {
            expr,
            nodes: parser.depths.len(),
            depth: parser.depths.iter().copied().max().unwrap_or(0),
        }),
        Ok(_) => Err(issues),
        Err(issue) => {
            issues.push(issue);
            Err(issues)
        }
    }
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    /// Depth of each numbered node.
    depths: Vec<usize>,
    nesting: usize,
}

type Result<T, E = Issue> = std::result::Result<T, E>;

impl Parser {
    fn peek(&self) -> &TokenKind {
        &self.tokens[self.next].kind
    }

    fn at(&self) -> usize {
        self.tokens[self.next].at
    }

    fn advance(&mut self) -> TokenKind {
        let kind = self.tokens[self.next].kind.clone();
        if self.next + 1 < self.tokens.len() {
            self.next += 1;
        }
        kind
    }

    fn is(&self, text: &str) -> bool {
        matches!(self.peek(), TokenKind::Punct(found) if *found == text)
    }

    /// Consumes this sign when it is next, and tells where it was.
    fn take(&mut self, text: &str) -> Option<usize> {
        self.is(text).then(|| {
            let at = self.at();
            self.advance();
            at
        })
    }

    fn expect(&mut self, text: &str) -> Result<usize> {
        let shown = self.peek().shown();
        let at = self.at();
        self.take(text)
            .ok_or_else(|| Issue::syntax(at, format!("mismatched input '{shown}' expecting '{text}'")))
    }

    /// Numbers a node and bounds its depth.
    fn node(&mut self, at: usize, kind: Kind) -> Result<Expr> {
        let depth = 1 + self.deepest(&kind);
        if depth > DEPTH_LIMIT {
            return Err(Issue::new(
                at,
                format!("expression recursion limit exceeded: {DEPTH_LIMIT}"),
            ));
        }
        let id: Id = self.depths.len();
        self.depths.push(depth);
        Ok(Expr { id, at, kind })
    }

    fn deepest(&self, kind: &Kind) -> usize {
        let of = |expr: &Expr| self.depths.get(expr.id).copied().unwrap_or(0);
        match kind {
            Kind::Literal(_) | Kind::Ident(_) => 0,
            Kind::Select { operand, .. } => of(operand),
            Kind::Call { target, args, .. } => args.iter().chain(target.as_deref()).map(of).max().unwrap_or(0),
            Kind::List(elements) => elements.iter().map(|(e, _)| of(e)).max().unwrap_or(0),
            Kind::Map(entries) => entries.iter().map(|(k, v, _)| of(k).max(of(v))).max().unwrap_or(0),
            Kind::Struct { fields, .. } => fields.iter().map(|(_, v, _)| of(v)).max().unwrap_or(0),
            Kind::Fold(fold) => [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]
                .map(of)
                .into_iter()
                .max()
                .unwrap_or(0),
        }
    }

    fn call(&mut self, at: usize, function: &str, args: Vec<Expr>) -> Result<Expr> {
        self.node(
            at,
            Kind::Call {
                function: function.to_string(),
                target: None,
                args,
            },
        )
    }

    /// One expression and nothing after it.
    fn whole(&mut self) -> Result<Expr> {
        let expr = self.expression()?;
        if *self.peek() == TokenKind::End {
            return Ok(expr);
        }
        let (at, shown) = (self.at(), self.peek().shown());
        self.advance();
        let what = if *self.peek() == TokenKind::End {
            "extraneous"
        } else {
            "mismatched"
        };
        Err(Issue::syntax(at, format!("{what} input '{shown}' expecting <EOF>")))
    }

    fn expression(&mut self) -> Result<Expr> {
        self.nesting += 1;
        if self.nesting > NESTING_LIMIT {
            return Err(Issue::new(
                self.at(),
                format!("expression recursion limit exceeded: {NESTING_LIMIT}"),
            ));
        }
        // `a ? b : c ? d : e` may be long; a loop keeps it from nesting here.
        let mut branches = Vec::new();
        let mut last = self.disjunction()?;
        while let Some(at) = self.take("?") {
            let yes = self.disjunction()?;
            self.expect(":")?;
            branches.push((at, last, yes));
            last = self.disjunction()?;
        }
        for (at, condition, yes) in branches.into_iter().rev() {
            last = self.call(at, "_?_:_", vec![condition, yes, last])?;
        }
        self.nesting -= 1;
        Ok(last)
    }

    /// `a && b || c && d`. Long chains are balanced, so that they stay shallow.
    fn disjunction(&mut self) -> Result<Expr> {
        let (mut ors, mut or_places) = (Vec::new(), Vec::new());
        loop {
            let (mut ands, mut and_places) = (Vec::new(), Vec::new());
            loop {
                ands.push(Some(self.operation(0)?));
                match self.take("&&") {
                    Some(at) => and_places.push(at),
                    None => break,
                }
            }
            ors.push(Some(self.balance("_&&_", &mut ands, &and_places)?));
            match self.take("||") {
                Some(at) => or_places.push(at),
                None => return self.balance("_||_", &mut ors, &or_places),
            }
        }
    }

    fn balance(&mut self, function: &str, terms: &mut [Option<Expr>], places: &[usize]) -> Result<Expr> {
        if let [term] = terms {
            return Ok(term.take().expect("each term is taken exactly once"));
        }
        let middle = places.len() / 2;
        let (left, right) = terms.split_at_mut(middle + 1);
        let left = self.balance(function, left, &places[..middle])?;
        let right = self.balance(function, right, &places[middle + 1..])?;
        self.call(places[middle], function, vec![left, right])
    }

    /// Binary operators from this precedence on, all of them grouping to the left.
    fn operation(&mut self, from: usize) -> Result<Expr> {
        let mut left = self.unary()?;
        loop {
            let Some((precedence, at, function)) = (from..OPERATORS.len()).find_map(|precedence| {
                OPERATORS[precedence]
                    .iter()
                    .find_map(|(sign, function)| self.take(sign).map(|at| (precedence, at, *function)))
            }) else {
                return Ok(left);
            };
            let right = self.operation(precedence + 1)?;
            left = self.call(at, function, vec![left, right])?;
        }
    }

    fn unary(&mut self) -> Result<Expr> {
        if self.is("!") {
            return self.negations("!", "!_");
        }
        // `-1` is a literal; `-x` and `--1` are negations.
        if self.is("-") {
            match &self.tokens[(self.next + 1).min(self.tokens.len() - 1)].kind {
                TokenKind::MinIntMagnitude | TokenKind::Literal(Literal::Int(_) | Literal::Double(_)) => {}
                _ => return self.negations("-", "-_"),
            }
        }
        self.member()
    }

    /// An even number of signs cancels out, as in Kubernetes' parser.
    fn negations(&mut self, sign: &str, function: &str) -> Result<Expr> {
        let at = self.at();
        let mut count = 0;
        while self.take(sign).is_some() {
            count += 1;
        }
        let operand = self.member()?;
        if count % 2 == 0 {
            Ok(operand)
        } else {
            self.call(at, function, vec![operand])
        }
    }

    fn member(&mut self) -> Result<Expr> {
        let mut expr = self.primary()?;
        loop {
            if let Some(at) = self.take(".") {
                let optional = self.take("?").is_some();
                let field = self.selector_name()?;
                if optional {
                    let name = self.node(at, Kind::Literal(Literal::String(field)))?;
                    expr = self.call(at, "_?._", vec![expr, name])?;
                } else if let Some(open) = self.take("(") {
                    let args = self.arguments(")")?;
                    expr = self.expand(open, &field, Some(expr), args)?;
                } else {
                    expr = self.node(
                        at,
                        Kind::Select {
                            operand: Box::new(expr),
                            field,
                            test: false,
                        },
                    )?;
                }
            } else if let Some(at) = self.take("[") {
                let function = if self.take("?").is_some() { "_[?_]" } else { "_[_]" };
                let index = self.expression()?;
                self.expect("]")?;
                expr = self.call(at, function, vec![expr, index])?;
            } else if self.is("{") && expr.qualified_name().is_some() {
                let at = self.at();
                let name = expr.qualified_name().unwrap_or_default();
                expr = self.structure(at, name)?;
            } else {
                return Ok(expr);
            }
        }
    }

    fn selector_name(&mut self) -> Result<String> {
        let at = self.at();
        match self.advance() {
            TokenKind::Ident(name) => Ok(name),
            other => {
                let shown = other.shown();
                Err(Issue::syntax(at, format!("no viable alternative at input '.{shown}'")))
            }
        }
    }

    fn arguments(&mut self, close: &str) -> Result<Vec<Expr>> {
        let mut args = Vec::new();
        if self.take(close).is_some() {
            return Ok(args);
        }
        if let (TokenKind::End, ")") = (self.peek(), close) {
            // Nothing was read yet, so the end of the list is among what could come.
            return Err(unexpected_in(self.at(), &TokenKind::End, "'(', ')'"));
        }
        loop {
            args.push(self.expression()?);
            if self.take(",").is_none() {
                self.expect(close)?;
                return Ok(args);
            }
        }
    }

    fn primary(&mut self) -> Result<Expr> {
        let at = self.at();
        match self.advance() {
            TokenKind::Literal(literal) => self.node(at, Kind::Literal(literal)),
            TokenKind::Ident(name) => self.name(at, name),
            TokenKind::Punct(".") => match self.advance() {
                TokenKind::Ident(name) => self.name(at, name),
                other => Err(unexpected(at, &other)),
            },
            TokenKind::Punct("-") => match self.advance() {
                TokenKind::MinIntMagnitude => self.node(at, Kind::Literal(Literal::Int(i64::MIN))),
                TokenKind::Literal(Literal::Int(value)) => self.node(at, Kind::Literal(Literal::Int(-value))),
                TokenKind::Literal(Literal::Double(value)) => self.node(at, Kind::Literal(Literal::Double(-value))),
                other => Err(unexpected(at, &other)),
            },
            TokenKind::MinIntMagnitude => Err(Issue::new(at, "invalid int literal")),
            TokenKind::Punct("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            TokenKind::Punct("[") => self.list(at),
            TokenKind::Punct("{") => self.map(at),
            other => Err(unexpected(at, &other)),
        }
    }

    fn name(&mut self, at: usize, name: String) -> Result<Expr> {
        if escape::is_reserved(&name) {
            return Err(Issue::new(at, format!("reserved identifier: {name}")));
        }
        if let Some(open) = self.take("(") {
            let args = self.arguments(")")?;
            return self.expand(open, &name, None, args);
        }
        self.node(at, Kind::Ident(name))
    }
}

fn unexpected(at: usize, token: &TokenKind) -> Issue {
    unexpected_in(at, token, "'('")
}

fn unexpected_in(at: usize, token: &TokenKind, brackets: &str) -> Issue {
    Issue::syntax(
        at,
        format!(
            "mismatched input '{}' expecting {{'[', '{{', {brackets}, '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, \
             NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}}",
            token.shown()
        ),
    )
}
