//! Types as the checker sees them.

use crate::decl::Decl;
use std::fmt;
use std::sync::Arc;

/// The type of an expression.
#[derive(Debug, Clone)]
pub enum Type {
    /// Anything; checked when it is evaluated.
    Dyn,
    /// Stands for an expression that already has an issue, and fits everywhere so that none is reported twice.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    List(Arc<Type>),
    Map(Arc<Type>, Arc<Type>),
    Optional(Arc<Type>),
    /// The type of a type.
    Type(Option<Arc<Type>>),
    /// An object with declared fields.
    Object(Arc<Decl>),
    /// A type that only functions know, such as `kubernetes.Quantity` or `net.IP`.
    Opaque(&'static str),
    /// A type variable of a function's signature or of an empty literal.
    Param(u32),
}

impl Type {
    pub fn list(items: Type) -> Type {
        Type::List(Arc::new(items))
    }

    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new(key), Arc::new(value))
    }

    pub fn optional(inner: Type) -> Type {
        Type::Optional(Arc::new(inner))
    }

    pub fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn)
    }

    pub fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Error)
    }

    /// The same type, parameters included.
    pub fn is_exactly(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => a.is_exactly(b),
            (Type::Map(ak, av), Type::Map(bk, bv)) => ak.is_exactly(bk) && av.is_exactly(bv),
            (Type::Type(a), Type::Type(b)) => match (a, b) {
                (Some(a), Some(b)) => a.is_exactly(b),
                (None, None) => true,
                _ => false,
            },
            (Type::Object(a), Type::Object(b)) => Arc::ptr_eq(a, b) || a.name() == b.name(),
            (Type::Opaque(a), Type::Opaque(b)) => a == b,
            (Type::Param(a), Type::Param(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// Sizes of these are one, whatever the value.
    pub fn is_scalar(&self) -> bool {
        match self {
            Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
            Type::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }

    /// Types that accept `null` beside their own values.
    pub fn is_nullable(&self) -> bool {
        matches!(
            self,
            Type::Null | Type::Optional(_) | Type::Opaque(_) | Type::Object(_) | Type::Duration | Type::Timestamp
        )
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Dyn => f.write_str("dyn"),
            Type::Error => f.write_str("!error!"),
            Type::Null => f.write_str("null"),
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::Uint => f.write_str("uint"),
            Type::Double => f.write_str("double"),
            Type::String => f.write_str("string"),
            Type::Bytes => f.write_str("bytes"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::Duration => f.write_str("duration"),
            Type::List(items) => write!(f, "list({items})"),
            Type::Map(key, value) => write!(f, "map({key}, {value})"),
            Type::Optional(inner) => write!(f, "optional_type({inner})"),
            Type::Type(None) => f.write_str("type"),
            Type::Type(Some(inner)) => write!(f, "type({inner})"),
            Type::Object(decl) => f.write_str(decl.name()),
            Type::Opaque(name) => f.write_str(name),
            Type::Param(number) => write!(f, "_var{number}"),
        }
    }
}
