//! Custom resources: from a CustomResourceDefinition to a served kind.
//!
//! A definition that is written is looked at, accepted and served within the same request: its status is
//! worked out before it is stored, and the catalogue is made anew from the stored definitions whenever
//! they have changed. Nothing runs in between, so a client that has seen its definition can use it.

use crate::catalogue::Resource;
use crate::store::Revision;
use serde_json::Value;
use std::sync::Arc;
use stead_cel::rules::CompiledRules;

mod check;
mod cleanup;
mod conversion;
mod definition;
mod embedded;
mod fallback;
mod form;
mod names;
mod object;
mod status;
mod structural;

pub use check::{create_errors as definition_errors, update_errors as definition_update_errors};
pub use cleanup::{begin as begin_cleanup, instance_gone};
pub use conversion::{Converter, convert};
pub use definition::{Definition, definitions};
pub use form::unknown_formats;
pub use object::{
    check_type, coerce_embedded, create_errors, default, fit_storage, fit_stored, is_current, mistyped_metadata, prune,
    update_errors,
};
pub use status::{prepare_create, prepare_update};

/// The group of the definitions themselves.
pub const GROUP: &str = "apiextensions.k8s.io";
/// Their plural name.
pub const PLURAL: &str = "customresourcedefinitions";
/// Holds a definition until its objects are gone.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// What a resource needs to know of the definition it comes from.
#[derive(Debug, Default)]
pub struct CustomKind {
    /// Name of the definition, `webapps.stead.dev`.
    pub definition: String,
    /// `openAPIV3Schema` of this version as the definition has it, which OpenAPI publishes; null where there is none.
    pub schema: Value,
    /// `additionalPrinterColumns` of this version, for tables.
    pub columns: Vec<PrinterColumn>,
    /// JSON paths of `selectableFields` of this version.
    pub selectable_fields: Vec<String>,
    /// Where the `scale` subresource finds its numbers; empty paths where there is none.
    pub scale: ScalePaths,
    /// The version in which objects are stored.
    pub storage_version: String,
    /// The rules of the schema in CEL, compiled.
    pub rules: Option<CompiledRules>,
    /// The revision of the definition: objects stored after it have been fitted to it.
    pub since: Revision,
    /// The definition is being deleted: no new objects.
    pub terminating: bool,
    /// Converts objects to and from other versions; without it only their `apiVersion` differs.
    pub converter: Option<Converter>,
    /// Sent as a warning with each use of a deprecated version.
    pub deprecation: Option<String>,
    /// The versions that nobody can ask for any more. Objects may still be stored in them, with their defaults.
    pub unserved: Arc<[Arc<Resource>]>,
}

/// JSON paths of the `scale` subresource: `.spec.replicas`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub selector: String,
}

/// One column of `additionalPrinterColumns`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrinterColumn {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    pub json_path: String,
}
