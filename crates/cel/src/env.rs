//! What an expression may name: variables and types.

use crate::decl::Decl;
use crate::types::Type;
use std::sync::Arc;

/// The variables of an expression, in the order in which [`crate::Bindings`] gives their values.
#[derive(Debug, Clone, Default)]
pub struct Env {
    variables: Vec<(String, Type)>,
    /// Object types that an expression may construct, such as `Object` and `JSONPatch`.
    types: Vec<Arc<Decl>>,
    /// Construct any type below this name, with any fields: `Object.spec.template{...}`.
    open_type: Option<&'static str>,
}

impl Env {
    pub fn new() -> Self {
        Env::default()
    }

    /// Adds a variable.
    #[must_use]
    pub fn variable(mut self, name: &str, kind: Type) -> Self {
        self.variables.push((name.to_string(), kind));
        self
    }

    /// Adds a type that an expression may construct.
    #[must_use]
    pub fn constructs(mut self, decl: Arc<Decl>) -> Self {
        self.types.push(decl);
        self
    }

    /// Lets expressions construct `name`, `name.a`, `name.a.b` and so on, with any fields.
    #[must_use]
    pub fn constructs_below(mut self, name: &'static str) -> Self {
        self.open_type = Some(name);
        self
    }

    /// A variable's place and type.
    pub(crate) fn lookup(&self, name: &str) -> Option<(usize, &Type)> {
        self.variables
            .iter()
            .enumerate()
            .rev()
            .find(|(_, (known, _))| known == name)
            .map(|(place, (_, kind))| (place, kind))
    }

    pub(crate) fn constructed(&self, name: &str) -> Option<Constructed<'_>> {
        if let Some(decl) = self.types.iter().find(|decl| decl.name() == name) {
            return Some(Constructed::Declared(decl));
        }
        let open = self.open_type?;
        let below = name.strip_prefix(open)?;
        (below.is_empty() || below.starts_with('.')).then_some(Constructed::Open)
    }

    /// Whether this is where patches are built, which brings functions of its own.
    pub(crate) fn builds_patches(&self) -> bool {
        !self.types.is_empty() || self.open_type.is_some()
    }

    /// How many variables there are.
    pub fn len(&self) -> usize {
        self.variables.len()
    }

    pub fn is_empty(&self) -> bool {
        self.variables.is_empty()
    }
}

/// A type that a literal `Name{...}` may construct.
pub(crate) enum Constructed<'a> {
    Declared(&'a Arc<Decl>),
    /// Fields are not declared.
    Open,
}
