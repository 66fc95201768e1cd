//! The syntax tree of an expression after its macros are expanded.
//!
//! The checker and the cost estimate walk this tree; evaluation walks the plan that is made from it. Every
//! node has a number, so that both can keep what they found beside the tree and leave it unchanged.

/// A node's number; numbers are dense, so they index vectors.
pub type Id = usize;

/// One expression.
#[derive(Debug, Clone)]
pub struct Expr {
    pub id: Id,
    /// Where it is in the source, in characters: errors point here.
    pub at: usize,
    pub kind: Kind,
}

/// What an expression is.
#[derive(Debug, Clone)]
pub enum Kind {
    Literal(Literal),
    Ident(String),
    Select {
        operand: Box<Expr>,
        field: String,
        /// `has(operand.field)`: asks whether the field is there.
        test: bool,
    },
    Call {
        function: String,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    /// Elements with `?` before them are dropped when they hold nothing.
    List(Vec<(Expr, Presence)>),
    Map(Vec<(Expr, Expr, Presence)>),
    Struct {
        name: String,
        fields: Vec<(String, Expr, Presence)>,
    },
    Fold(Box<Fold>),
}

/// Whether an element of a literal was written with `?`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Always,
    Optional,
}

/// A loop over a list or a map: what every macro with a variable becomes.
#[derive(Debug, Clone)]
pub struct Fold {
    pub range: Expr,
    pub var: String,
    /// The second variable: the value beside an index or a key.
    pub var2: Option<String>,
    pub accu: String,
    pub init: Expr,
    pub condition: Expr,
    pub step: Expr,
    pub result: Expr,
    pub shape: FoldShape,
}

/// Which macro a loop comes from, so that evaluation need not interpret the expanded form step by step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoldShape {
    All,
    Exists,
    ExistsOne,
    /// `map` and `transformList`, with or without a filter.
    Map(Filtered),
    Filter,
    TransformMap(Filtered),
    TransformEntry(Filtered),
    /// `optMap` and its kin: a name for a value.
    Bind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filtered {
    No,
    Yes,
}

/// A constant in the source.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

impl Expr {
    /// `a.b.c` as a name, when the expression is nothing but identifiers and selections.
    pub fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.clone()),
            Kind::Select {
                operand,
                field,
                test: false,
            } => Some(format!("{}.{field}", operand.qualified_name()?)),
            _ => None,
        }
    }
}
