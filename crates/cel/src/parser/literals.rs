//! Lists, maps and objects that are written out.

use super::{Parser, Result};
use crate::ast::{Expr, Kind, Presence};

impl Parser {
    pub(super) fn structure(&mut self, at: usize, name: String) -> Result<Expr> {
        self.expect("{")?;
        let mut fields = Vec::new();
        while !self.is("}") {
            let presence = self.presence();
            let field = self.selector_name()?;
            self.expect(":")?;
            fields.push((field, self.expression()?, presence));
            if self.take(",").is_none() {
                break;
            }
        }
        self.expect("}")?;
        self.node(at, Kind::Struct { name, fields })
    }

    fn presence(&mut self) -> Presence {
        match self.take("?") {
            Some(_) => Presence::Optional,
            None => Presence::Always,
        }
    }

    pub(super) fn list(&mut self, at: usize) -> Result<Expr> {
        let mut elements = Vec::new();
        while !self.is("]") {
            let presence = self.presence();
            elements.push((self.expression()?, presence));
            if self.take(",").is_none() {
                break;
            }
        }
        self.expect("]")?;
        self.node(at, Kind::List(elements))
    }

    pub(super) fn map(&mut self, at: usize) -> Result<Expr> {
        let mut entries = Vec::new();
        while !self.is("}") {
            let presence = self.presence();
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((key, self.expression()?, presence));
            if self.take(",").is_none() {
                break;
            }
        }
        self.expect("}")?;
        self.node(at, Kind::Map(entries))
    }
}
