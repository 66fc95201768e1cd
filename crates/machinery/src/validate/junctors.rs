//! `allOf`, `anyOf`, `oneOf` and `not`.

use super::{Role, Walk};
use crate::field::FieldError;
use crate::schema::{Constraints, NodeId, SchemaRef};
use serde_json::Value;

impl Walk {
    pub(super) fn junctors(&mut self, path: &str, value: &Value, constraints: &Constraints, schema: SchemaRef<'_>) {
        if !constraints.any_of.is_empty() {
            let (valid, best) = self.branches(path, value, &constraints.any_of, schema);
            if valid == 0 {
                self.mismatch(format!("{path:?} must validate at least one schema (anyOf)"));
                self.errors.extend(best);
            }
        }
        if !constraints.one_of.is_empty() {
            let (valid, best) = self.branches(path, value, &constraints.one_of, schema);
            if valid != 1 {
                let found = match valid {
                    0 => "Found none valid".to_string(),
                    many => format!("Found {many} valid alternatives"),
                };
                self.mismatch(format!(
                    "{path:?} must validate one and only one schema (oneOf). {found}"
                ));
                self.errors.extend(best);
            }
        }
        let mut valid = 0;
        for &branch in &constraints.all_of {
            let result = self.branch(path, value, schema.go(branch));
            valid += usize::from(result.errors.is_empty());
            self.errors.extend(result.errors);
        }
        if valid != constraints.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            self.mismatch(format!("{path:?} must validate all the schemas (allOf){none}"));
        }
        if let Some(not) = constraints.not
            && self.branch(path, value, schema.go(not)).errors.is_empty()
        {
            self.mismatch(format!("{path:?} must not validate the schema (not)"));
        }
    }

    /// How many branches fit, and the errors of the one that came closest when none did.
    fn branches(
        &self,
        path: &str,
        value: &Value,
        branches: &[NodeId],
        schema: SchemaRef<'_>,
    ) -> (usize, Vec<FieldError>) {
        let mut valid = 0;
        let mut best: Option<Walk> = None;
        for &branch in branches {
            let result = self.branch(path, value, schema.go(branch));
            if result.errors.is_empty() {
                valid += 1;
                best = None;
            } else if valid == 0 && best.as_ref().is_none_or(|best| result.matches > best.matches) {
                best = Some(result);
            }
        }
        (valid, best.map(|best| best.errors).unwrap_or_default())
    }

    fn branch(&self, path: &str, value: &Value, schema: SchemaRef<'_>) -> Walk {
        let mut walk = Walk {
            subject: self.subject,
            depth: self.depth,
            ..Walk::default()
        };
        walk.node(path, value, None, schema, Role::Branch);
        walk
    }

    /// These complaints name no field, which Kubernetes prints as `<nil>`.
    fn mismatch(&mut self, detail: String) {
        self.errors.push(FieldError::invalid("<nil>", "", detail));
    }
}
