//! Which types fit where, and what type parameters stand for.

use crate::types::Type;
use std::collections::HashMap;
use std::sync::Arc;

/// What each type parameter stands for, as far as is known.
#[derive(Debug, Clone, Default)]
pub(super) struct Substitutions(HashMap<u32, Type>);

impl Substitutions {
    /// Whether a value of type `from` may be where `to` is expected. Parameters learn from it, and only when it
    /// holds.
    pub fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.all_assignable(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    pub fn all_assignable(&mut self, from: &[Type], to: &[Type]) -> bool {
        let mut tried = self.clone();
        let fits = from.len() == to.len() && from.iter().zip(to).all(|(a, b)| tried.fits(a, b));
        if fits {
            *self = tried;
        }
        fits
    }

    fn fits(&mut self, a: &Type, b: &Type) -> bool {
        if let Type::Param(param) = b {
            match self.substitutes(a, *param) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Param(param) = a {
            return self.substitutes(b, *param).0;
        }
        if a.is_dyn_or_error() || b.is_dyn_or_error() {
            return true;
        }
        match (a, b) {
            (Type::Null, other) | (other, Type::Null) => other.is_nullable(),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.fits(a, b),
            (Type::Map(ak, av), Type::Map(bk, bv)) => self.fits(ak, bk) && self.fits(av, bv),
            _ => a.is_exactly(b),
        }
    }

    /// Whether the parameter may stand for this type, and whether it already stood for something.
    fn substitutes(&mut self, kind: &Type, param: u32) -> (bool, bool) {
        if matches!(kind, Type::Param(same) if *same == param) {
            return (true, true);
        }
        if let Some(known) = self.0.get(&param).cloned() {
            if kind.is_exactly(&known) {
                return (true, true);
            }
            if self.fits(kind, &known) {
                let general = most_general(kind, &known).clone();
                if !self.occurs(param, &general) {
                    self.0.insert(param, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.occurs(param, kind) {
            return (false, false);
        }
        self.0.insert(param, kind.clone());
        (true, false)
    }

    fn occurs(&self, param: u32, within: &Type) -> bool {
        match within {
            Type::Param(other) if *other == param => true,
            Type::Param(other) => self.0.get(other).is_some_and(|known| self.occurs(param, known)),
            Type::List(inner) | Type::Optional(inner) | Type::Type(Some(inner)) => self.occurs(param, inner),
            Type::Map(key, value) => self.occurs(param, key) || self.occurs(param, value),
            _ => false,
        }
    }

    /// The type with every known parameter replaced; unknown ones stay.
    pub fn apply(&self, kind: &Type) -> Type {
        self.replace(kind, &|param| Type::Param(param))
    }

    /// The type with every known parameter replaced; unknown ones become `dyn`.
    pub fn finish(&self, kind: &Type) -> Type {
        self.replace(kind, &|_| Type::Dyn)
    }

    fn replace(&self, kind: &Type, unknown: &dyn Fn(u32) -> Type) -> Type {
        let inner = |kind: &Arc<Type>| Arc::new(self.replace(kind, unknown));
        match kind {
            Type::Param(param) => match self.0.get(param) {
                Some(known) => self.replace(known, unknown),
                None => unknown(*param),
            },
            Type::List(items) => Type::List(inner(items)),
            Type::Optional(value) => Type::Optional(inner(value)),
            Type::Map(key, value) => Type::Map(inner(key), inner(value)),
            Type::Type(Some(value)) => Type::Type(Some(inner(value))),
            other => other.clone(),
        }
    }
}

/// The signature's own parameters, numbered from `base` instead of zero.
pub(super) fn shift(kind: &Type, base: u32) -> Type {
    let inner = |kind: &Arc<Type>| Arc::new(shift(kind, base));
    match kind {
        Type::Param(param) => Type::Param(param + base),
        Type::List(items) => Type::List(inner(items)),
        Type::Optional(value) => Type::Optional(inner(value)),
        Type::Map(key, value) => Type::Map(inner(key), inner(value)),
        Type::Type(Some(value)) => Type::Type(Some(inner(value))),
        other => other.clone(),
    }
}

/// The less specific of two types that are known to fit.
pub(super) fn most_general<'a>(a: &'a Type, b: &'a Type) -> &'a Type {
    if equal_or_less_specific(a, b) { a } else { b }
}

fn equal_or_less_specific(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Param(_)) => false,
        (Type::Optional(a), Type::Optional(b)) | (Type::List(a), Type::List(b)) => equal_or_less_specific(a, b),
        (Type::Map(ak, av), Type::Map(bk, bv)) => equal_or_less_specific(ak, bk) && equal_or_less_specific(av, bv),
        (Type::Type(_), Type::Type(_)) => true,
        _ => a.is_exactly(b),
    }
}
