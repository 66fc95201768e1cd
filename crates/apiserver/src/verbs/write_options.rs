//! The options of writes, checked as Kubernetes checks them.

use crate::error::{ApiError, Result};
use crate::server::decode::FieldValidation;
use crate::server::query::Query;
use http::HeaderMap;
use serde_json::Value;
use stead_machinery::field::{FieldError, FieldErrorKind};

/// What a create, update or patch asks for besides its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOptions {
    pub commit: Commit,
    /// Who the changed fields belong to from now on.
    pub field_manager: String,
    pub validation: FieldValidation,
    /// Take fields over from other managers; only apply has it.
    pub force: bool,
}

/// Whether a write is made or only tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    Store,
    DryRun,
}

/// Which kind of options, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionsKind {
    Create,
    Update,
    Patch,
    Apply,
}

/// The most characters that the name of a field manager has.
const MANAGER_LENGTH: usize = 128;

impl WriteOptions {
    pub fn parse(query: &Query, headers: &HeaderMap, kind: OptionsKind) -> Result<Self> {
        let mut errors = dry_run_errors(query.all("dryRun"));
        let manager = query.text("fieldManager");
        if manager.is_empty() && kind == OptionsKind::Apply {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
        errors.extend(manager_errors(manager));
        let validation = FieldValidation::parse(query.text("fieldValidation"));
        if validation.is_none() {
            errors.push(FieldError::not_supported(
                "fieldValidation",
                query.text("fieldValidation"),
                &["", "Ignore", "Strict", "Warn"],
            ));
        }
        if query.get("force").is_some() && kind == OptionsKind::Patch {
            errors.push(FieldError::forbidden(
                "force",
                "may not be specified for non-apply patch",
            ));
        }
        if !errors.is_empty() {
            let name = match kind {
                OptionsKind::Create => "CreateOptions",
                OptionsKind::Update => "UpdateOptions",
                OptionsKind::Patch | OptionsKind::Apply => "PatchOptions",
            };
            return Err(ApiError::invalid("meta.k8s.io", name, "", &errors));
        }
        Ok(WriteOptions {
            commit: commit(query.all("dryRun")),
            field_manager: match manager {
                "" => manager_from_agent(headers),
                manager => manager.to_string(),
            },
            validation: validation.unwrap_or(FieldValidation::Warn),
            force: query.is_true("force"),
        })
    }

    /// Options of a write that the server makes by itself.
    pub fn internal(manager: &str) -> Self {
        WriteOptions {
            commit: Commit::Store,
            field_manager: manager.to_string(),
            validation: FieldValidation::Ignore,
            force: false,
        }
    }

    /// The options object as admission sees it.
    pub fn as_object(&self, kind: &str) -> Value {
        let mut object =
            serde_json::json!({"kind": kind, "apiVersion": "meta.k8s.io/v1", "fieldManager": self.field_manager});
        if self.commit == Commit::DryRun {
            object["dryRun"] = serde_json::json!(["All"]);
        }
        object
    }
}

pub fn commit<'a>(mut dry_run: impl Iterator<Item = &'a str>) -> Commit {
    match dry_run.any(|value| value == "All") {
        true => Commit::DryRun,
        false => Commit::Store,
    }
}

/// Only `All` can be tried.
pub fn dry_run_errors<'a>(values: impl Iterator<Item = &'a str>) -> Vec<FieldError> {
    values
        .filter(|value| !value.is_empty() && *value != "All")
        .map(|value| FieldError::not_supported("dryRun", serde_json::json!([value]), &["All"]))
        .take(1)
        .collect()
}

fn manager_errors(manager: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > MANAGER_LENGTH {
        errors.push(FieldError::new(
            "fieldManager",
            FieldErrorKind::TooLong,
            manager.into(),
            format!("may not be more than {MANAGER_LENGTH} bytes"),
        ));
    }
    if let Some((at, c)) = manager.char_indices().find(|(_, c)| c.is_control()) {
        errors.push(FieldError::invalid(
            "fieldManager",
            manager,
            format!("invalid character U+{:04X} (at position {at})", u32::from(c)),
        ));
    }
    errors
}

/// Without a name, the program that writes is the manager: `kubectl` of `kubectl/v1.36 (linux/amd64)`.
fn manager_from_agent(headers: &HeaderMap) -> String {
    let agent = headers
        .get("user-agent")
        .and_then(|agent| agent.to_str().ok())
        .unwrap_or_default();
    let program = agent.split('/').next().unwrap_or_default();
    let printable: String = program
        .chars()
        .filter(|c| !c.is_control())
        .take(MANAGER_LENGTH)
        .collect();
    match printable.is_empty() {
        true => "unknown".to_string(),
        false => printable,
    }
}
