//! Conflicts between an applier and the managers that own what it wants to change.

use super::element::{Element, path_text};
use super::fields::FieldSet;
use super::managers::{Managed, Manager};
use std::collections::BTreeMap;
use std::fmt;

/// Fields that others own, by owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conflicts {
    /// In the order in which Kubernetes tells them: that of the managers' identities as text.
    by_manager: BTreeMap<String, (Manager, FieldSet)>,
}

/// One conflict, as a cause of a `Status` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// `conflict with "m" using apps/v1`.
    pub message: String,
    /// `.spec.replicas`.
    pub field: String,
}

impl Conflicts {
    pub(super) fn add(&mut self, manager: &Manager, managed: &Managed, fields: FieldSet) {
        self.by_manager
            .insert(manager.identity(managed), (manager.clone(), fields));
    }

    pub fn is_empty(&self) -> bool {
        self.by_manager.is_empty()
    }

    /// The conflicts that are not about these fields.
    pub(super) fn without(&self, fields: &FieldSet) -> Conflicts {
        let left = self
            .by_manager
            .iter()
            .map(|(identity, (manager, own))| (identity.clone(), (manager.clone(), own.difference(fields))));
        Conflicts {
            by_manager: left.filter(|(_, (_, own))| !own.is_empty()).collect(),
        }
    }

    /// The causes for the `Status`, each with reason `FieldManagerConflict`.
    pub fn causes(&self) -> Vec<Cause> {
        let mut causes = Vec::new();
        for (manager, fields) in self.by_manager.values() {
            let message = format!("conflict with {}", manager.described());
            fields.each(&mut |path: &[Element]| {
                causes.push(Cause {
                    message: message.clone(),
                    field: path_text(path),
                });
            });
        }
        causes
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causes = self.causes();
        if let [only] = causes.as_slice() {
            return write!(f, "Apply failed with 1 conflict: {}: {}", only.message, only.field);
        }
        let mut lines = Vec::new();
        for (manager, fields) in self.by_manager.values() {
            lines.push(format!("conflicts with {}:", manager.described()));
            fields.each(&mut |path: &[Element]| lines.push(format!("- {}", path_text(path))));
        }
        write!(f, "Apply failed with {} conflicts: {}", causes.len(), lines.join("\n"))
    }
}
